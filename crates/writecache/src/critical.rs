//! Critical scopes of the current task: who a request waits for.
//!
//! Each thread is a task of its own; a thread that works for another task (a mount serves a process) says so with
//! [`act_as`]. Relies on [`TaskGraph::global`].

use std::cell::Cell;
use std::marker::PhantomData;

use crate::tasks::{CriticalReason, CriticalScope, TaskGraph, TaskId};

thread_local! {
    static CURRENT: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// The task for which this thread works.
pub fn current() -> TaskId {
    CURRENT.with(|current| {
        let task = current.get().unwrap_or_else(TaskId::next_thread);
        current.set(Some(task));
        task
    })
}

/// The current task is critical until the scope is dropped. Scopes nest.
pub fn enter(reason: CriticalReason) -> CriticalScope {
    TaskGraph::global().enter(current(), reason)
}

/// This thread works for `task` until the result is dropped.
pub fn act_as(task: TaskId) -> ActingTaskGuard {
    let before = CURRENT.with(|current| current.replace(Some(task)));
    ActingTaskGuard { before, thread: PhantomData }
}

/// This thread works for another task while this lives.
#[must_use = "the thread works for the task only as long as this lives"]
pub struct ActingTaskGuard {
    before: Option<TaskId>,
    /// It must be dropped by the thread that it is about.
    thread: PhantomData<*const ()>,
}

impl Drop for ActingTaskGuard {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_belong_to_the_task_for_which_the_thread_works() {
        let tasks = TaskGraph::global();
        let me = current();
        let outer = enter(CriticalReason::Request);
        drop(enter(CriticalReason::Request));
        assert!(tasks.criticality(me).critical);
        {
            let _acting = act_as(TaskId::external(77));
            assert!(!tasks.criticality(current()).critical);
        }
        assert_eq!(current(), me);
        drop(outer);
        assert!(!tasks.criticality(me).critical);
    }
}

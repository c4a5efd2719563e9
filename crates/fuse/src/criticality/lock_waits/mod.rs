//! Finds critical threads that sleep in the kernel on the lock of a file, while the mount serves a request of another
//! thread for that file: the other thread's task inherits.
//!
//! The kernel holds a file's lock for as long as a thread writes, flushes or cuts the file. A thread that wants to write it
//! meanwhile sleeps before there is a request, so nothing tells of it. A thread therefore looks at those that were critical
//! lately, through a
//! [`ThreadProbe`], while such a request takes longer than [`LONG`], and enters what it sees in the graph of tasks: the holder
//! holds a resource on which the sleeper is blocked. One sleeper per request is enough.
//!
//! Relies on the kernel letting one at a time hold the lock, so a thread that is seen in such a call at the same file does
//! wait. Seeing wrongly costs room in the log, never data. Looks are made without a lock of this process; at most [`LOOKS`]
//! a round and the sleepers already known, and rounds leave most of the time to others. Sleeps while nothing is written.

mod probe;
mod rounds;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quire_writecache::{BlockedTask, HeldResource, TaskId};

use crate::criticality::classifier::RequestTask;
use crate::criticality::graph::{CriticalityGraph, VerdictScope};
use crate::criticality::rules::CriticalityDecision;

pub use probe::{ProcProbe, ThreadProbe};

/// A request that takes longer keeps others waiting.
const LONG: Duration = Duration::from_millis(5);
/// Most threads looked at in a round.
const LOOKS: usize = 64;
/// Most threads remembered.
const MOST: usize = 1024;

/// What a request does to which file.
#[derive(Clone, Copy, Debug)]
pub struct FileOperation {
    /// The file's number, as programs see it.
    pub file: u64,
    /// It is a log.
    pub is_log: bool,
    /// The kernel holds the file's lock meanwhile.
    pub holds_lock: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaitStats {
    /// Requests whose task inherited from a thread that slept on the file's lock.
    pub inherited: u64,
    /// Rounds in which threads were looked at.
    pub rounds: u64,
    /// Threads looked at.
    pub looks: u64,
    /// Threads of which the system tells nothing.
    pub refused: u64,
}

#[derive(Default)]
struct LockWaitCounts {
    inherited: AtomicU64,
    rounds: AtomicU64,
    looks: AtomicU64,
    refused: AtomicU64,
}

/// A thread that sleeps on a file's lock, in the graph of tasks.
struct Wait {
    thread: u32,
    _blocked: BlockedTask,
    _hold: HeldResource,
    _boost: VerdictScope,
}

/// A request under way that keeps a file locked, and whose task inherits if a critical thread waits.
struct Request {
    file: u64,
    is_log: bool,
    holder: TaskId,
    began: Instant,
    wait: Option<Wait>,
}

/// A thread that is or may be critical.
#[derive(Default)]
struct Thread {
    /// Requests of it under way that keep a file locked: it sleeps on no other thread's lock then.
    served: usize,
    /// When it was last heard of; a higher number is later.
    heard: u64,
    refused: bool,
}

#[derive(Default)]
struct State {
    requests: HashMap<u64, Request>,
    threads: HashMap<u32, Thread>,
    next: u64,
    cursor: usize,
    /// A request has begun since the last round.
    busy: bool,
    idle_rounds: u32,
    started: bool,
    asleep: bool,
    ended: bool,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn hear(&mut self, thread: u32) -> &mut Thread {
        let heard = self.number();
        if self.threads.len() >= MOST && !self.threads.contains_key(&thread) {
            let idle = self.threads.iter().filter(|(_, known)| known.served == 0);
            if let Some(oldest) = idle.min_by_key(|(_, known)| known.heard).map(|(number, _)| *number) {
                self.threads.remove(&oldest);
            }
        }
        let known = self.threads.entry(thread).or_default();
        known.heard = heard;
        known
    }
}

struct Shared {
    graph: Arc<CriticalityGraph>,
    probe: Arc<dyn ThreadProbe>,
    state: Mutex<State>,
    changed: Condvar,
    counts: LockWaitCounts,
}

/// The requests, the threads, and the one that looks.
pub struct LockWaitDetector {
    shared: Arc<Shared>,
}

/// A request is served while this lives.
pub struct ServedRequest {
    shared: Arc<Shared>,
    thread: Option<u32>,
    request: Option<u64>,
}

impl LockWaitDetector {
    /// Nothing yet.
    pub fn new(graph: Arc<CriticalityGraph>, probe: Arc<dyn ThreadProbe>) -> Self {
        let (state, changed, counts) = (Mutex::default(), Condvar::new(), LockWaitCounts::default());
        Self { shared: Arc::new(Shared { graph, probe, state, changed, counts }) }
    }

    /// A thread opens a file.
    pub fn opens(&self, thread: u32) {
        if thread != 0 {
            self.shared.state().hear(thread);
        }
    }

    /// `caller` is served until the result is dropped.
    pub fn serve(&self, caller: &RequestTask, operation: FileOperation) -> ServedRequest {
        let mut served = ServedRequest { shared: Arc::clone(&self.shared), thread: None, request: None };
        let Some(thread) = u32::try_from(caller.task.0).ok().filter(|&thread| thread != 0) else { return served };
        let mut state = self.shared.state();
        if caller.verdict == CriticalityDecision::Normal {
            state.threads.remove(&thread);
        } else {
            state.hear(thread).served += usize::from(operation.holds_lock);
            served.thread = operation.holds_lock.then_some(thread);
        }
        if operation.holds_lock && caller.verdict_at(operation.is_log) == CriticalityDecision::Normal {
            let number = state.number();
            let FileOperation { file, is_log, .. } = operation;
            let request = Request { file, is_log, holder: caller.task, began: Instant::now(), wait: None };
            state.requests.insert(number, request);
            served.request = Some(number);
            state.busy = true;
            self.wake(state);
        }
        served
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let starts = !std::mem::replace(&mut state.started, true);
        let wakes = std::mem::replace(&mut state.asleep, false);
        drop(state);
        if wakes {
            self.shared.changed.notify_all();
        }
        if starts {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("quire-locks".into()).spawn(move || shared.run());
            if let Err(error) = thread {
                tracing::warn!(%error, "no thread could be started that looks for threads waiting for the lock of a file: what they wait for stays as urgent as before");
            }
        }
    }

    /// What came of it.
    pub fn figures(&self) -> LockWaitStats {
        let LockWaitCounts { inherited, rounds, looks, refused } = &self.shared.counts;
        let [inherited, rounds, looks, refused] = [inherited, rounds, looks, refused].map(|count| count.load(Relaxed));
        LockWaitStats { inherited, rounds, looks, refused }
    }
}

impl Drop for LockWaitDetector {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        // Not waited for: a look may hang in another file system.
        self.shared.changed.notify_all();
    }
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        if self.thread.is_none() && self.request.is_none() {
            return;
        }
        let mut state = self.shared.state();
        if let Some(known) = self.thread.and_then(|thread| state.threads.get_mut(&thread)) {
            known.served = known.served.saturating_sub(1);
        }
        let request = self.request.and_then(|number| state.requests.remove(&number));
        drop(state);
        // Its wait takes the graph's lock.
        drop(request);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

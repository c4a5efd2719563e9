//! Who is critical, who waits for whom, and so on whom a critical task depends.
//!
//! A [`TaskId`] is a thread of this process or, behind a mount, a process or thread of another. Tasks hold *resources*
//! (locks; signals that they have promised to give) and are blocked on resources or on a write. A task is
//! - *critical* while it is within a scope ([`TaskGraph::enter`]), or holds a resource that makes its holder critical;
//! - *inheriting* while a critical or inheriting task is blocked on a resource that it holds.
//!
//! Inheritance is looked up, never passed on: nothing has to be undone when a lock is released or changes hands, whatever
//! the nesting. The other direction needs a push: when a task becomes critical or blocks, or a resource that is waited for
//! gets a holder, the chain task → resource → holder → … is followed, and every blocked write on it is woken, so that its
//! task asks again whether it is critical now. A task that blocks on a write registers first and asks afterwards, both under
//! the graph's lock: either it sees the critical task, or the critical task sees it.
//!
//! Relies on one lock around the graph, which is taken inside the cache's lock and never the other way round: wakers run
//! after it has been released. Walks are bounded by the number of tasks and [`MOST_STEPS`]; cycles (deadlocks of the
//! application) end them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::stats::WaitCounters;

/// Longest walk through the graph.
pub const MOST_STEPS: usize = 1024;

/// A thread of this process or a task elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl TaskId {
    /// No task in particular: never critical.
    pub const NONE: Self = Self(0);
    const THREADS: u64 = 1 << 63;

    /// A process or thread elsewhere, by its number.
    pub fn external(pid: u32) -> Self {
        Self(u64::from(pid))
    }

    /// A new number for a thread of this process.
    pub(crate) fn next_thread() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Self::THREADS | NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Why a task is critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriticalReason {
    /// It serves a request now.
    Request,
    /// A program or the configuration said so.
    Hint,
    /// A rule of the configuration says so.
    Rule,
    /// It was found to answer requests between its flushes.
    Observed,
}

/// How a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Criticality {
    /// Critical itself.
    pub critical: bool,
    /// A critical task depends on it.
    pub inherited: bool,
}

impl Criticality {
    /// Either.
    pub fn any(self) -> bool {
        self.critical || self.inherited
    }
}

/// Something that tasks hold and wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceId(u64);

impl ResourceId {
    /// A new one.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Lets a blocked task ask again how it stands.
pub trait WaitCallback: Send + Sync {
    /// Must not block for long. Called without the graph's lock.
    fn wake(&self);
}

/// What a task is blocked on.
#[derive(Clone)]
pub enum BlockedOn {
    /// A lock, or a signal.
    Resource(ResourceId),
    /// A write that is not durable yet.
    Write(Arc<dyn WaitCallback>),
}

#[derive(Default)]
struct Resource {
    /// Each as often as it holds it.
    holders: Vec<TaskId>,
    waiters: Vec<TaskId>,
    /// Holding it makes critical, whichever task waits.
    ceiling: bool,
    /// Who gave the signal last, and will perhaps give the next, if no task has promised it.
    guess: Option<TaskId>,
}

#[derive(Default)]
struct Graph {
    scopes: HashMap<TaskId, Vec<CriticalReason>>,
    blocked: HashMap<TaskId, Vec<(u64, BlockedOn)>>,
    resources: HashMap<ResourceId, Resource>,
    held: HashMap<TaskId, Vec<ResourceId>>,
    next_block: u64,
}

/// The tasks that share devices, and their dependencies.
#[derive(Default)]
pub struct TaskGraph {
    graph: Mutex<Graph>,
    /// Waits for locks and signals.
    pub waits: WaitCounters,
}

type Wakers = Vec<Arc<dyn WaitCallback>>;

impl Graph {
    fn holders(&self, id: ResourceId) -> Vec<TaskId> {
        match self.resources.get(&id) {
            Some(resource) if resource.holders.is_empty() => resource.guess.into_iter().collect(),
            Some(resource) => resource.holders.clone(),
            None => Vec::new(),
        }
    }

    /// Resources that `task` holds or is guessed to hold.
    fn held_by(&self, task: TaskId) -> impl Iterator<Item = &Resource> {
        let held = self.held.get(&task).into_iter().flatten();
        held.filter_map(|id| self.resources.get(id))
            .filter(move |resource| resource.holders.contains(&task) || resource.holders.is_empty())
    }

    fn is_critical(&self, task: TaskId) -> bool {
        let holds_ceiling = || self.held_by(task).any(|resource| resource.ceiling && resource.holders.contains(&task));
        self.scopes.contains_key(&task) || holds_ceiling()
    }

    fn criticality(&self, task: TaskId) -> Criticality {
        if task == TaskId::NONE {
            return Criticality::default();
        }
        let mut seen = HashSet::from([task]);
        let mut todo = vec![task];
        let mut inherited = false;
        while let Some(next) = todo.pop() {
            let waiters = self.held_by(next).flat_map(|resource| resource.waiters.iter().copied());
            for waiter in waiters {
                if waiter != task && self.is_critical(waiter) {
                    inherited = true;
                }
                if seen.len() < MOST_STEPS && seen.insert(waiter) {
                    todo.push(waiter);
                }
            }
            if inherited {
                break;
            }
        }
        Criticality { critical: self.is_critical(task), inherited }
    }

    /// The blocked writes on which `task` depends, if a critical task depends on `task`.
    fn ripple(&self, task: TaskId) -> Wakers {
        let mut wakers = Vec::new();
        if !self.criticality(task).any() {
            return wakers;
        }
        let mut seen = HashSet::from([task]);
        let mut todo = vec![task];
        while let Some(next) = todo.pop() {
            for (_, on) in self.blocked.get(&next).into_iter().flatten() {
                match on {
                    BlockedOn::Write(waker) => wakers.push(Arc::clone(waker)),
                    BlockedOn::Resource(id) => {
                        let new = |holder: &TaskId| seen.len() < MOST_STEPS && seen.insert(*holder);
                        todo.extend(self.holders(*id).into_iter().filter(new));
                    }
                }
            }
        }
        wakers
    }

    fn unhold(&mut self, task: TaskId, id: ResourceId) {
        let Some(held) = self.held.get_mut(&task) else { return };
        if let Some(index) = held.iter().position(|other| *other == id) {
            held.swap_remove(index);
        }
        if held.is_empty() {
            self.held.remove(&task);
        }
    }

    fn tidy(&mut self, id: ResourceId) {
        let idle = |resource: &Resource| {
            resource.holders.is_empty() && resource.waiters.is_empty() && resource.guess.is_none()
        };
        if self.resources.get(&id).is_some_and(idle) {
            self.resources.remove(&id);
        }
    }
}

impl TaskGraph {
    /// Tasks that no other part of the process knows, for tests and simulations.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The tasks of this process and of those that it serves.
    pub fn global() -> Arc<Self> {
        static GLOBAL: OnceLock<Arc<TaskGraph>> = OnceLock::new();
        Arc::clone(GLOBAL.get_or_init(Self::new))
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Graph) -> (R, Wakers)) -> R {
        let (result, wakers) = change(&mut self.graph());
        for waker in wakers {
            waker.wake();
        }
        result
    }

    /// How `task` stands now.
    pub fn criticality(&self, task: TaskId) -> Criticality {
        self.graph().criticality(task)
    }

    /// `task` is critical until the scope is dropped. Scopes nest.
    pub fn enter(self: &Arc<Self>, task: TaskId, reason: CriticalReason) -> CriticalScope {
        self.change(|graph| {
            graph.scopes.entry(task).or_default().push(reason);
            ((), graph.ripple(task))
        });
        CriticalScope { tasks: Arc::clone(self), task, reason }
    }

    /// The reasons of the scopes that `task` is in.
    pub fn reasons(&self, task: TaskId) -> Vec<CriticalReason> {
        self.graph().scopes.get(&task).cloned().unwrap_or_default()
    }

    /// `task` holds `id` until the hold is dropped: a lock it has, or a signal it owes. Holds nest.
    pub fn hold(self: &Arc<Self>, task: TaskId, id: ResourceId, ceiling: bool) -> HeldResource {
        self.change(|graph| {
            let resource = graph.resources.entry(id).or_default();
            resource.holders.push(task);
            resource.ceiling |= ceiling;
            let awaited = ceiling || !resource.waiters.is_empty();
            graph.held.entry(task).or_default().push(id);
            ((), if awaited { graph.ripple(task) } else { Vec::new() })
        });
        HeldResource { tasks: Arc::clone(self), task, id }
    }

    /// `task` is about to sleep until something happens. Says how it stands, as of after being registered.
    pub fn block(self: &Arc<Self>, task: TaskId, on: BlockedOn) -> (BlockedTask, Criticality) {
        let (number, criticality) = self.change(|graph| {
            let number = graph.next_block;
            graph.next_block += 1;
            let resource = match &on {
                BlockedOn::Resource(id) => Some(*id),
                BlockedOn::Write(_) => None,
            };
            if let Some(id) = resource {
                graph.resources.entry(id).or_default().waiters.push(task);
            }
            graph.blocked.entry(task).or_default().push((number, on));
            let wakers = if resource.is_some() { graph.ripple(task) } else { Vec::new() };
            ((number, graph.criticality(task)), wakers)
        });
        (BlockedTask { tasks: Arc::clone(self), task, number }, criticality)
    }

    /// `task` has given the signal `id`: if no task promises the next, it is guessed to give it again.
    pub fn signalled(&self, task: TaskId, id: ResourceId) {
        let graph = &mut *self.graph();
        let guess = graph.resources.entry(id).or_default().guess.replace(task);
        if guess != Some(task) {
            if let Some(old) = guess {
                graph.unhold(old, id);
            }
            graph.held.entry(task).or_default().push(id);
        }
    }

    /// The resource is gone.
    pub fn forget(&self, id: ResourceId) {
        let graph = &mut *self.graph();
        if let Some(guess) = graph.resources.get_mut(&id).and_then(|resource| resource.guess.take()) {
            graph.unhold(guess, id);
        }
        graph.tidy(id);
    }
}

/// Its task is critical while this lives.
#[must_use = "the task is critical only as long as the scope lives"]
pub struct CriticalScope {
    tasks: Arc<TaskGraph>,
    task: TaskId,
    reason: CriticalReason,
}

impl Drop for CriticalScope {
    fn drop(&mut self) {
        let mut graph = self.tasks.graph();
        let Some(reasons) = graph.scopes.get_mut(&self.task) else { return };
        if let Some(index) = reasons.iter().position(|reason| *reason == self.reason) {
            reasons.swap_remove(index);
        }
        if reasons.is_empty() {
            graph.scopes.remove(&self.task);
        }
    }
}

/// Its task holds a resource while this lives.
#[must_use = "the resource is held only as long as this lives"]
pub struct HeldResource {
    tasks: Arc<TaskGraph>,
    task: TaskId,
    id: ResourceId,
}

impl Drop for HeldResource {
    fn drop(&mut self) {
        let graph = &mut *self.tasks.graph();
        if let Some(resource) = graph.resources.get_mut(&self.id)
            && let Some(index) = resource.holders.iter().position(|holder| *holder == self.task)
        {
            resource.holders.swap_remove(index);
        }
        graph.unhold(self.task, self.id);
        graph.tidy(self.id);
    }
}

/// Its task is blocked while this lives.
pub struct BlockedTask {
    tasks: Arc<TaskGraph>,
    task: TaskId,
    number: u64,
}

impl Drop for BlockedTask {
    fn drop(&mut self) {
        let graph = &mut *self.tasks.graph();
        let Some(blocked) = graph.blocked.get_mut(&self.task) else { return };
        let Some(index) = blocked.iter().position(|(number, _)| *number == self.number) else { return };
        let (_, on) = blocked.swap_remove(index);
        if blocked.is_empty() {
            graph.blocked.remove(&self.task);
        }
        if let BlockedOn::Resource(id) = on {
            if let Some(resource) = graph.resources.get_mut(&id)
                && let Some(index) = resource.waiters.iter().position(|waiter| *waiter == self.task)
            {
                resource.waiters.swap_remove(index);
            }
            graph.tidy(id);
        }
    }
}

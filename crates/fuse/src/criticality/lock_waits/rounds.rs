//! The thread that looks for sleepers, round by round.
//!
//! Relies on what [`LockWaitDetector`](super::LockWaitDetector) registers. Looks and changes of the graph are made without
//! its lock.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quire_writecache::{BlockedOn, ResourceId, TaskId};

use super::probe::ProbeResult;
use super::{LONG, LOOKS, Request, Shared, State, Wait};
use crate::criticality::rules::CriticalityDecision;

/// Between two rounds, at least and at most.
const PERIODS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(20)];
/// So many rounds without a request, and the thread sleeps until there is one.
const IDLE_ROUNDS: u32 = 5;

impl State {
    /// The next threads in turn.
    fn in_turn(&mut self) -> Vec<u32> {
        let idle = self.threads.iter().filter(|(_, known)| known.served == 0 && !known.refused);
        let mut idle: Vec<u32> = idle.map(|(thread, _)| *thread).collect();
        idle.sort_unstable();
        let count = idle.len().min(LOOKS);
        let start = self.cursor % idle.len().max(1);
        self.cursor = start + count;
        idle.iter().cycle().skip(start).take(count).copied().collect()
    }
}

/// A request that takes long.
struct LongRequest {
    number: u64,
    file: u64,
    is_log: bool,
    holder: TaskId,
    waiter: Option<u32>,
}

enum RoundPlan {
    Sleep,
    Pause(Duration),
    Look { long: Vec<LongRequest>, threads: Vec<u32>, pause: Duration },
}

impl Shared {
    /// Looks until the mount ends.
    pub fn run(&self) {
        loop {
            let pause = self.round();
            let state = self.state();
            let state = match pause {
                None => {
                    let sleeps = |state: &mut State| state.asleep && !state.ended;
                    self.changed.wait_while(state, sleeps).unwrap_or_else(PoisonError::into_inner)
                }
                Some(pause) => {
                    let goes_on = |state: &mut State| !state.ended;
                    let waited = self.changed.wait_timeout_while(state, pause, goes_on);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            if state.ended {
                return;
            }
        }
    }

    /// Looks once; how long to pause, or `None` until there is a request.
    pub fn round(&self) -> Option<Duration> {
        let plan = self.plan();
        match plan {
            RoundPlan::Sleep => None,
            RoundPlan::Pause(pause) => Some(pause),
            RoundPlan::Look { mut long, threads, pause } => {
                let began = Instant::now();
                self.counts.rounds.fetch_add(1, Relaxed);
                for thread in threads {
                    self.look(thread, &mut long);
                }
                Some(pause.max(began.elapsed() * 4))
            }
        }
    }

    fn plan(&self) -> RoundPlan {
        let mut state = self.state();
        let busy = std::mem::replace(&mut state.busy, false);
        if state.requests.is_empty() {
            state.idle_rounds = if busy { 0 } else { state.idle_rounds + 1 };
            state.asleep = state.idle_rounds > IDLE_ROUNDS;
            return if state.asleep { RoundPlan::Sleep } else { RoundPlan::Pause(PERIODS[1]) };
        }
        state.idle_rounds = 0;
        let now = Instant::now();
        let age = |request: &Request| now.saturating_duration_since(request.began);
        let is_long = |(_, request): &(&u64, &Request)| age(request) >= LONG;
        let long = state.requests.iter().filter(is_long).map(|(number, request)| LongRequest {
            number: *number,
            file: request.file,
            is_log: request.is_log,
            holder: request.holder,
            waiter: request.wait.as_ref().map(|wait| wait.thread),
        });
        let long: Vec<LongRequest> = long.collect();
        let ages = state.requests.values().map(age);
        if long.is_empty() {
            // Until the oldest is long.
            return RoundPlan::Pause(LONG.saturating_sub(ages.max().unwrap_or_default()).max(Duration::from_millis(1)));
        }
        let youngest = ages.filter(|age| *age >= LONG).min().unwrap_or_default();
        let mut threads: Vec<u32> = long.iter().filter_map(|long| long.waiter).collect();
        if threads.len() < long.len() {
            threads.extend(state.in_turn());
        }
        threads.sort_unstable();
        threads.dedup();
        RoundPlan::Look { long, threads, pause: (youngest / 4).clamp(PERIODS[0], PERIODS[1]) }
    }

    fn look(&self, thread: u32, long: &mut [LongRequest]) {
        self.counts.looks.fetch_add(1, Relaxed);
        let seen = self.probe.look(thread);
        match seen {
            ProbeResult::Elsewhere | ProbeResult::AtFile(_) => {}
            ProbeResult::Gone => drop(self.state().threads.remove(&thread)),
            ProbeResult::Refused => self.refuse(thread),
        }
        for long in long {
            let is_here = seen == ProbeResult::AtFile(long.file) && long.holder != TaskId::external(thread);
            if long.waiter == Some(thread) && !is_here {
                let mut state = self.state();
                let wait = state.requests.get_mut(&long.number).and_then(|request| request.wait.take());
                drop(state);
                drop(wait);
                long.waiter = None;
            } else if long.waiter.is_none() && is_here {
                self.wait(thread, long);
            }
        }
    }

    /// A thread sleeps on the lock that a request holds.
    fn wait(&self, thread: u32, long: &mut LongRequest) {
        let caller = self.probe.caller(thread);
        if caller.verdict_at(long.is_log) == CriticalityDecision::Normal {
            if caller.verdict == CriticalityDecision::Normal {
                self.state().threads.remove(&thread);
            }
            return;
        }
        // Without the detector's lock: the graph wakes the task that inherits here.
        let tasks = &self.graph.tasks;
        let lock = ResourceId::next();
        let boost = self.graph.boost(&caller, long.is_log);
        let hold = tasks.hold(long.holder, lock, false);
        let (blocked, _) = tasks.block(caller.task, BlockedOn::Resource(lock));
        let wait = Wait { thread, _blocked: blocked, _hold: hold, _boost: boost };
        let mut state = self.state();
        let ended = match state.requests.get_mut(&long.number) {
            Some(request) => request.wait.replace(wait),
            None => Some(wait),
        };
        drop(state);
        if ended.is_none() {
            self.counts.inherited.fetch_add(1, Relaxed);
            long.waiter = Some(thread);
        }
    }

    fn refuse(&self, thread: u32) {
        if let Some(known) = self.state().threads.get_mut(&thread) {
            known.refused = true;
        }
        if self.counts.refused.fetch_add(1, Relaxed) == 0 {
            tracing::warn!(thread, "the system doesn't tell what threads of others sleep in (it tells root)");
        }
    }
}

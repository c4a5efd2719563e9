//! The versions of one block that are not durable yet, and what may happen to them: the protocol that keeps their order.
//!
//! ```text
//!              issue                  completed              flushed
//!   queued ───────────▶ issued ──────────────────▶ written ───────────▶ done
//!     │                    │                          │
//!     │ begin_log          │ logged (this version     │ logged
//!     ▼                    ▼  or a newer one)         ▼
//!   logging ──▶ done    re-issued ──completed──▶ gone (what the device says no longer matters)
//! ```
//! At most one version is queued (a newer one replaces it), at most one is on its way to the slow device (*in flight*), and
//! any number are on their way to the log. The rules:
//! - **One flight**: no second write of the block is issued to the slow device before the first has ended, so the older
//!   can't land on the newer. That holds for write-back too ([`Slot::in_flight`]).
//! - **Log over slow**: while a version is in the log or on its way there, newer versions go to the log too. So a flight is
//!   always older than the log, and whatever it does to the slow device will be repaired by write-back.
//! - **Re-issue**: a version queued, issued or written may be written to the log as well. Once it is there the flight is
//!   *re-issued*: waiters go on, and its completion, whenever it comes and whatever it says, only ends the flight.
//! - **Truncations**: a truncation may take a block's versions away ([`Slot::truncate_away`]). A flight that is under way
//!   then is *void*: it is never read, no task waits for it, and until it has ended no other is begun.
//! - **Numbers**: each flight has a number of its own; an ending with another number is ignored.
//!
//! Pure state without locks, clocks or devices, so that loom can explore it (`tests/loom_cache.rs`); `D` is what a version
//! holds. Relies on its user to hold one lock over the slot and the log's map.

/// The version that waits for a thread to issue it.
#[derive(Clone, Debug)]
pub struct QueuedVersion<D> {
    /// What is to be written.
    pub data: D,
    /// Oldest write that this stands for (it may have replaced some).
    pub oldest: u64,
    /// When it was queued; the queue's clock.
    pub since_ns: u64,
    /// A task waits for it.
    pub urgent: bool,
    /// Who: a task's number.
    pub task: u64,
    /// It goes to the slow device, for a flush of which a task waits anyway.
    pub direct: bool,
}

/// How far a flight has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflightState {
    /// The slow device has it.
    Issued,
    /// The slow device has said that it is done; a flush that begins later makes it durable. The number is that of
    /// the volume's flushes begun by then.
    Written(u64),
    /// The log holds this version or a newer one.
    Reissued,
    /// A truncation took the version away while it was under way: it is no version of the block any more, and its end only
    /// ends the flight. Else it would be read again once the file has grown.
    Void,
}

impl InflightState {
    /// Whether the flight's version still stands for writes.
    fn counts(self) -> bool {
        matches!(self, Self::Issued | Self::Written(_))
    }
}

/// The version on its way to the slow device.
#[derive(Clone, Debug)]
pub struct InflightWrite<D> {
    /// Its number, never used for another.
    pub number: u64,
    /// How far.
    pub state: InflightState,
    /// What is written; kept until it is durable.
    pub data: D,
    /// Oldest write that this stands for.
    pub oldest: u64,
}

/// A version on its way to the log.
#[derive(Clone, Debug)]
pub struct LogWrite<D> {
    /// Where in the log; higher is newer.
    pub lsn: u64,
    /// What is written.
    pub data: D,
    /// Oldest write that this stands for.
    pub oldest: u64,
}

/// What [`Slot::completed`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOutcome {
    /// Written, a flush makes it durable.
    Written,
    /// The device failed; the version is queued again, or a newer one stands for it.
    Requeued,
    /// The log had overtaken it: nothing changes but that the flight is over.
    Discarded,
    /// Not this slot's flight.
    Stale,
}

/// All versions of one block that are not durable yet.
#[derive(Clone, Debug)]
pub struct Slot<D> {
    /// The newest version, if it is not on its way.
    pub queued: Option<QueuedVersion<D>>,
    /// The oldest, if the slow device has it.
    pub flight: Option<InflightWrite<D>>,
    /// Those in between, in order.
    pub logging: Vec<LogWrite<D>>,
}

impl<D> Default for Slot<D> {
    fn default() -> Self {
        Self { queued: None, flight: None, logging: Vec::new() }
    }
}

impl<D: Clone> Slot<D> {
    /// A new version waits. It replaces one that waits already and stands for it.
    pub fn put(&mut self, mut newer: QueuedVersion<D>) {
        if let Some(older) = &self.queued {
            newer.oldest = newer.oldest.min(older.oldest);
            newer.since_ns = newer.since_ns.min(older.since_ns);
            newer.urgent |= older.urgent;
            newer.direct |= older.direct;
        }
        self.queued = Some(newer);
    }

    /// Whether a version may be issued to the slow device now. `is_logged`: the log holds a version that write-back has
    /// not taken over yet.
    pub fn may_issue(&self, is_logged: bool) -> bool {
        self.queued.is_some() && !self.in_flight() && !self.goes_over_log(is_logged)
    }

    /// Whether the next version must go to the log to keep the order.
    pub fn goes_over_log(&self, is_logged: bool) -> bool {
        is_logged || !self.logging.is_empty()
    }

    /// The queued version is given to the slow device, in flight `number`, which was never used before.
    ///
    /// # Panics
    /// If there is nothing to issue or a flight is under way.
    pub fn issue(&mut self, number: u64) {
        assert!(!self.in_flight() && self.logging.is_empty(), "one way at a time");
        let queued = self.queued.take().expect("something to issue");
        // What was written but not flushed is replaced: the newer version stands for it.
        let oldest = self.flight.as_ref().map_or(queued.oldest, |written| written.oldest.min(queued.oldest));
        self.flight = Some(InflightWrite { number, state: InflightState::Issued, data: queued.data, oldest });
    }

    /// The slow device has ended flight `number`. `epoch` counts the volume's flushes begun so far; `now_ns` is the
    /// queue's clock, for a version that must wait again.
    pub fn completed(&mut self, number: u64, ok: bool, epoch: u64, now_ns: u64) -> CompletionOutcome {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.number == number) else {
            return CompletionOutcome::Stale;
        };
        match (flight.state, ok) {
            (InflightState::Issued, true) => {
                flight.state = InflightState::Written(epoch);
                CompletionOutcome::Written
            }
            (InflightState::Issued, false) => {
                self.requeue(now_ns);
                CompletionOutcome::Requeued
            }
            (InflightState::Reissued | InflightState::Void, _) => {
                self.flight = None;
                CompletionOutcome::Discarded
            }
            (InflightState::Written(_), _) => CompletionOutcome::Stale,
        }
    }

    /// A flush that was the volume's number `epoch` has ended well: versions written before it began are durable.
    /// Returns whether one was.
    pub fn flushed(&mut self, epoch: u64) -> bool {
        let done = self.written_at().is_some_and(|at| at < epoch);
        if done {
            self.flight = None;
        }
        done
    }

    /// The device failed: a version that was written and not flushed must be written anew, elsewhere.
    pub fn unwrite(&mut self, now_ns: u64) {
        if self.written_at().is_some() {
            self.requeue(now_ns);
        }
    }

    fn requeue(&mut self, now_ns: u64) {
        let Some(flight) = self.flight.take() else { return };
        if let Some(newer) = &mut self.queued {
            newer.oldest = newer.oldest.min(flight.oldest);
        } else if let Some(newer) = self.logging.last_mut() {
            newer.oldest = newer.oldest.min(flight.oldest);
        } else {
            let InflightWrite { data, oldest, .. } = flight;
            self.queued = Some(QueuedVersion { data, oldest, since_ns: now_ns, urgent: true, task: 0, direct: false });
        }
    }

    /// The version that must be written to the log so that everything up to now is durable: the newest one that is
    /// neither there nor on its way there. With the oldest write that it stands for.
    pub fn adoptable(&self) -> Option<(&D, u64)> {
        if let Some(queued) = &self.queued {
            return Some((&queued.data, queued.oldest));
        }
        let flight = self.flight.as_ref().filter(|flight| flight.state.counts())?;
        self.logging.is_empty().then_some((&flight.data, flight.oldest))
    }

    /// A version as new as any is on its way to the log at `lsn`. It stands for the one that was queued.
    pub fn begin_log(&mut self, lsn: u64, data: D, oldest: u64) {
        let oldest = self.queued.take().map_or(oldest, |queued| queued.oldest.min(oldest));
        self.logging.push(LogWrite { lsn, data, oldest });
    }

    /// The log holds the version at `lsn`. A flight is older: it no longer matters. So are versions on their way to
    /// lower places.
    pub fn logged(&mut self, lsn: u64) {
        self.logging.retain(|logging| logging.lsn > lsn);
        match self.flight.as_mut().map(|flight| (flight.state, flight)) {
            Some((InflightState::Issued, flight)) => flight.state = InflightState::Reissued,
            Some((InflightState::Written(_), _)) => self.flight = None,
            Some((InflightState::Reissued | InflightState::Void, _)) | None => {}
        }
    }

    /// The log could not take the version at `lsn`. It waits again unless a newer one stands for it.
    pub fn log_failed(&mut self, lsn: u64, now_ns: u64) {
        let Some(index) = self.logging.iter().position(|logging| logging.lsn == lsn) else { return };
        let failed = self.logging.remove(index);
        if let Some(newer) = self.logging.get_mut(index) {
            newer.oldest = newer.oldest.min(failed.oldest);
        } else if let Some(newer) = &mut self.queued {
            newer.oldest = newer.oldest.min(failed.oldest);
        } else {
            let LogWrite { data, oldest, .. } = failed;
            self.queued = Some(QueuedVersion { data, oldest, since_ns: now_ns, urgent: true, task: 0, direct: false });
        }
    }

    /// Whether a write up to number `seqno` is not durable yet.
    pub fn unsettled(&self, seqno: u64) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.oldest <= seqno)
            || self.logging.iter().any(|logging| logging.oldest <= seqno)
            || self.flight.as_ref().is_some_and(|flight| flight.state.counts() && flight.oldest <= seqno)
    }

    /// The newest version that is newer than what the log holds.
    pub fn above_log(&self) -> Option<&D> {
        let queued = self.queued.as_ref().map(|queued| &queued.data);
        queued.or_else(|| self.logging.last().map(|logging| &logging.data))
    }

    /// The version that is newer than what the slow device surely holds, but older than the log.
    pub fn below_log(&self) -> Option<&D> {
        self.flight.as_ref().filter(|flight| flight.state != InflightState::Void).map(|flight| &flight.data)
    }

    /// Whether the slow device may still write an older version.
    pub fn in_flight(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| !matches!(flight.state, InflightState::Written(_)))
    }

    /// Flushes begun when the slow device had the version that is neither durable nor overtaken.
    pub fn written_at(&self) -> Option<u64> {
        match self.flight.as_ref()?.state {
            InflightState::Written(at) => Some(at),
            InflightState::Issued | InflightState::Reissued | InflightState::Void => None,
        }
    }

    /// The block was truncated away: no version of it counts any more. None may be on its way to the log.
    pub fn truncate_away(&mut self) {
        self.queued = None;
        match self.flight.as_mut().filter(|flight| !matches!(flight.state, InflightState::Written(_))) {
            Some(flight) => flight.state = InflightState::Void,
            None => self.flight = None,
        }
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.queued.is_none() && self.flight.is_none() && self.logging.is_empty()
    }
}

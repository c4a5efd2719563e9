//! Which operations fail, and how.
//!
//! Relies on the order in which operations are submitted, not on the order in which they end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use quire_sys::transfer::Extent;

use crate::error::{DeviceError, DeviceOperation};

/// When a fault strikes. Writes through a queue or [`crate::Device::run`] are of the kind [`DeviceOperation::Write`], durable ones of
/// the kind [`DeviceOperation::DurableWrite`]; each kind is counted by itself, over all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// At operation number `n` (from 0) of this kind, once.
    Nth(DeviceOperation, u64),
    /// At every operation of this kind from number `n` on.
    From(DeviceOperation, u64),
    /// At every operation of this kind that touches a byte from the first place up to (not with) the second: a bad spot.
    Within(DeviceOperation, u64, u64),
    /// At everything that goes beyond this many bytes written, durably written and allocated in all: the disk is full.
    Beyond(u64),
}

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Nothing is done and the operation fails with this error number.
    Error(i32),
    /// The first half of every part of a write is done, then it fails with this error number.
    Torn(i32),
    /// Of a write only some sectors of 512 bytes arrive, then it fails.
    Sectors {
        /// With this error number.
        errno: i32,
        /// Decides which sectors.
        seed: u64,
    },
    /// The first half of every part (in whole blocks) is moved, then a read ends as if the file did, and a write as if
    /// nothing more were taken. [`crate::Device::read_at`] returns half of what is there.
    Short,
}

/// The rules, and what has happened so far.
#[derive(Debug)]
pub(super) struct FaultPlan {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    rules: Vec<(FaultTrigger, InjectedFault)>,
    /// Operations so far, by kind.
    counts: Vec<(DeviceOperation, u64)>,
    filled_bytes: u64,
    struck: u64,
}

impl FaultPlan {
    pub(super) fn new(rules: Vec<(FaultTrigger, InjectedFault)>) -> Self {
        Self { seen: Mutex::new(Seen { rules, ..Seen::default() }) }
    }

    /// Other rules hold from here on; operations are counted on.
    pub(super) fn set_rules(&self, rules: Vec<(FaultTrigger, InjectedFault)>) {
        self.seen().rules = rules;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a fault has struck.
    pub(super) fn struck(&self) -> u64 {
        self.seen().struck
    }

    /// Counts an operation on these parts of a file and says what is to become of it.
    pub(super) fn next(&self, action: DeviceOperation, parts: &[Extent]) -> Option<InjectedFault> {
        let mut seen = self.seen();
        let index = seen.counts.iter().position(|(known, _)| *known == action).unwrap_or_else(|| {
            seen.counts.push((action, 0));
            seen.counts.len() - 1
        });
        let number = seen.counts[index].1;
        seen.counts[index].1 += 1;
        let fills =
            matches!(action, DeviceOperation::Write | DeviceOperation::DurableWrite | DeviceOperation::Allocate);
        let reach = seen.filled_bytes + parts.iter().map(|part| part.len as u64).sum::<u64>();
        let strikes = |trigger: &FaultTrigger| match *trigger {
            FaultTrigger::Nth(kind, n) => kind == action && n == number,
            FaultTrigger::From(kind, n) => kind == action && number >= n,
            FaultTrigger::Within(kind, from, to) => {
                let touches = |part: &Extent| part.offset < to && part.offset + part.len as u64 > from;
                kind == action && parts.iter().any(touches)
            }
            FaultTrigger::Beyond(limit) => fills && reach > limit,
        };
        let fault = seen.rules.iter().find(|(trigger, _)| strikes(trigger)).map(|(_, fault)| *fault);
        if fault.is_some() {
            seen.struck += 1;
        } else if fills {
            seen.filled_bytes = reach;
        }
        fault
    }

    /// For operations that are done or not.
    pub(super) fn check(&self, action: DeviceOperation, file: &str, parts: &[Extent]) -> Result<(), DeviceError> {
        let Some(fault) = self.next(action, parts) else { return Ok(()) };
        let errno = match fault {
            InjectedFault::Error(errno) | InjectedFault::Torn(errno) | InjectedFault::Sectors { errno, .. } => errno,
            InjectedFault::Short => crate::errno::EIO,
        };
        Err(DeviceError::from_errno(action, file, errno))
    }
}

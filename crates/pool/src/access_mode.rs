//! What a page is wanted for, and what that takes.
//!
//! Relies on the page's state alone.

use crate::counters::WaitCause;
use crate::page_state::{LockMode, PageStatus, StateSnapshot};

/// What the page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// To be read.
    Read,
    /// To be changed.
    Write,
    /// To be changed all over: what it holds doesn't matter.
    Overwrite,
}

impl AccessMode {
    /// The lock that a thread takes which has read the page.
    pub(crate) fn hold(self) -> LockMode {
        if self == Self::Read { LockMode::Shared } else { LockMode::Exclusive }
    }

    /// Whether the page can be had as it is.
    pub(crate) fn is_possible(self, seen: StateSnapshot) -> bool {
        if self == Self::Read { seen.can_lock_shared() } else { seen.can_lock_exclusive() }
    }

    /// Why a thread that finds the page so has to wait.
    pub(crate) fn cause(self, seen: StateSnapshot) -> WaitCause {
        match seen.status() {
            PageStatus::Reading => WaitCause::Reading,
            PageStatus::Evicting => WaitCause::Evicting,
            PageStatus::Writing if self != Self::Read && seen.shared() == 0 => WaitCause::Writing,
            _ if seen.is_exclusive() => WaitCause::Changing,
            _ => WaitCause::Readers,
        }
    }
}

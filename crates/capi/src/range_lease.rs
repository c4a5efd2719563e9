//! Memory that is in use: no two ranges may share any, and what is adopted must be what mechanisms can work on.
//!
//! Relies on forks waiting for [`NoFork`], and on `/proc/self/maps`; where that can't be read, the caller is believed.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quire_sys::fork_lock::NoFork;
use quire_sys::proc_maps;

use crate::api_error::ApiError;

static LEASED: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// The list of what is leased, for a moment. No child is forked in it, for which the list would be locked for ever: a child may release
/// what it has from its parent, if only because its program's destructors do.
struct LeaseList {
    // Dropped in this order: forks go on when the list is free.
    leased: MutexGuard<'static, Vec<Range<usize>>>,
    /// `None` where forks can't be held up.
    _no_fork: Option<NoFork>,
}

impl LeaseList {
    fn lock() -> Self {
        // Before the lock, so that no thread has the list while it waits for a fork that waits for another thread.
        let no_fork = NoFork::begin().ok();
        Self { leased: LEASED.lock().unwrap_or_else(PoisonError::into_inner), _no_fork: no_fork }
    }
}

/// The right of one range to a piece of memory. It ends when this is dropped.
#[derive(Debug)]
pub struct RangeLease(Range<usize>);

impl RangeLease {
    /// Leases `len` bytes at `base`, unless some of them are leased already.
    pub fn new(base: usize, len: usize) -> Result<Arc<Self>, ApiError> {
        let memory = base..base.saturating_add(len);
        let mut list = LeaseList::lock();
        if let Some(other) = list.leased.iter().find(|other| meet(other, &memory)) {
            let why = format!(
                "a range or a snapshot of it still has {:#x}..{:#x}; release them first",
                other.start, other.end
            );
            return Err(ApiError::Memory { base, len, why });
        }
        list.leased.push(memory.clone());
        Ok(Arc::new(Self(memory)))
    }
}

impl Drop for RangeLease {
    fn drop(&mut self) {
        let mut list = LeaseList::lock();
        if let Some(at) = list.leased.iter().position(|other| *other == self.0) {
            list.leased.swap_remove(at);
        }
    }
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// What a snapshot has to do with the memory that its range is on.
#[derive(Clone, Debug)]
pub enum LeaseHold {
    /// It is the program's, which gets it back when the last hold is dropped.
    Adopted(Arc<RangeLease>),
    /// It is the library's. With some mechanisms it goes when the range does, and may belong to other code afterwards; so the lease
    /// must not outlive the range, not even for a moment.
    Own {
        /// The memory.
        memory: Range<usize>,
        /// Never upgraded, only asked whether it still is.
        lease: Weak<RangeLease>,
    },
}

impl LeaseHold {
    /// Of a snapshot of a range with `lease`.
    pub fn new(lease: &Arc<RangeLease>, adopted: bool) -> Self {
        match adopted {
            true => Self::Adopted(Arc::clone(lease)),
            false => Self::Own { memory: lease.0.clone(), lease: Arc::downgrade(lease) },
        }
    }

    /// Whether some of `len` bytes at `base` belong to the range.
    pub fn meets(&self, base: usize, len: usize) -> bool {
        let other = base..base.saturating_add(len);
        match self {
            Self::Adopted(lease) => meet(&lease.0, &other),
            Self::Own { memory, lease } => lease.strong_count() > 0 && meet(memory, &other),
        }
    }
}

/// Whether `len` bytes at `base` are private anonymous memory that can be read and written.
pub fn check_memory(base: usize, len: usize) -> Result<(), ApiError> {
    let end = base.saturating_add(len);
    let (mut at, mut buffer) = (base, vec![0; proc_maps::BUFFER_BYTES]);
    let listed = proc_maps::each(&mut buffer, |mapping| {
        if mapping.start <= at && at < mapping.end && mapping.anonymous {
            at = mapping.end;
        }
        mapping.start < end
    });
    if listed.is_err() || at >= end {
        return Ok(());
    }
    let why = format!(
        "at {at:#x} there is no private anonymous memory that can be read and written; take some from \
         mmap(MAP_PRIVATE | MAP_ANONYMOUS)"
    );
    Err(ApiError::Memory { base, len, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use quire_snapshot::PageRange;
    use quire_sys::child::{WaitStatus, fork_by_library};
    use quire_sys::fork_lock::is_fork_waiting;

    #[test]
    fn no_two_leases_meet_and_a_dropped_one_is_free_again() {
        // Addresses that no mapping has.
        let base = 0xffff_9000_0000_0000;
        let lease = RangeLease::new(base, 0x4000).unwrap();
        for (base, len) in [(base, 0x1000), (base + 0x3000, 0x2000), (base - 0x1000, 0x2000), (base - 1, 0x9000)] {
            assert!(RangeLease::new(base, len).unwrap_err().to_string().contains("release"), "{base:#x}");
        }
        let behind = RangeLease::new(base + 0x4000, 0x1000).unwrap();
        drop(lease);
        assert!(RangeLease::new(base, 0x4000).is_ok() && RangeLease::new(base, 0x5000).is_err());
        drop(behind);
    }

    #[test]
    fn a_child_that_is_forked_while_another_thread_has_the_list_can_lease_and_let_go() {
        let base = 0xffff_b000_0000_0000;
        let mut inherited = Some(RangeLease::new(base, 0x1000).unwrap());
        let (is_forked, list) = (AtomicBool::new(false), LeaseList::lock());
        let mut child = std::thread::scope(|scope| {
            let forker = scope.spawn(|| {
                let mut in_child = || {
                    drop(inherited.take());
                    i32::from(RangeLease::new(base, 0x2000).is_err())
                };
                // SAFETY: the child takes the list, allocates as the C library lets it after `fork`, and ends.
                let child = unsafe { fork_by_library(&mut in_child) }.unwrap();
                is_forked.store(true, Ordering::SeqCst);
                child
            });
            while !is_forked.load(Ordering::SeqCst) && !is_fork_waiting() {
                std::thread::yield_now();
            }
            drop(list);
            forker.join().unwrap()
        });
        let ending = child.wait_for(Duration::from_secs(60));
        child.kill();
        assert_eq!(ending, Some(WaitStatus::Exited(0)), "`None`: it waits for a thread that it does not have");
    }

    #[test]
    fn a_snapshot_holds_adopted_memory_and_lets_go_of_other() {
        let base = 0xffff_a000_0000_0000;
        let lease = RangeLease::new(base, 0x2000).unwrap();
        let holds = [true, false].map(|adopted| LeaseHold::new(&lease, adopted));
        assert!(holds.iter().all(|hold| hold.meets(base + 0x1fff, 1) && !hold.meets(base + 0x2000, 1)));
        drop(lease);
        let [adopted, own] = holds;
        assert!(adopted.meets(base, 1) && RangeLease::new(base, 1).is_err());
        drop(adopted);
        assert!(!own.meets(base, 1) && RangeLease::new(base, 1).is_ok());
    }

    #[test]
    fn only_anonymous_memory_without_gaps_can_be_adopted() {
        let span = PageRange::allocate(1 << 20).unwrap();
        let base = span.base() as usize;
        assert!(check_memory(base, 1 << 20).is_ok());
        assert!(check_memory(base, 1 << 40).is_err());
        let text = check_memory as *const () as usize & !4095;
        assert!(check_memory(text, 4096).unwrap_err().to_string().contains("private anonymous"));
        assert!(check_memory(4096, 4096).is_err());
    }
}

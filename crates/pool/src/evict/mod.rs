//! Which clean pages go first, behind one small trait over page numbers, so that a policy can be tried on traces alone.
//!
//! Relies on the caller to know how often a page was touched (`Pages`): a hit must not reach a policy's queues. The pool
//! keeps a count of up to three touches in the page's state; [`replay()`] plays the pool for traces.
//!
//! [`PolicyKind::S3Fifo`] is the pool's choice; `docs/design/pool.md` has the comparison.

mod clock;
mod ghost_queue;
mod lru2;
mod replay;
mod s3fifo;
pub mod traces;

pub use replay::{ReplayResult, replay};

use clock::Clock;
use lru2::Lru2;
use s3fifo::S3Fifo;

/// What became of a page that a policy wants evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictOutcome {
    /// It is evicted.
    Evicted,
    /// A thread has it locked; it stays.
    InUse,
    /// It isn't clean (any more): its entry must be forgotten.
    Stale,
}

/// What a policy may ask about pages.
pub trait ResidentPages {
    /// How often `page` was touched since its count last decayed: 0 to 3.
    fn touches(&mut self, page: u64) -> u8;
    /// Lowers the touches of `page` to `most`.
    fn decay(&mut self, page: u64, most: u8);
    /// Tries to evict `page`.
    fn take(&mut self, page: u64) -> EvictOutcome;
}

/// An order of clean pages.
pub trait EvictionPolicy: Send {
    /// `page` has become clean, and has no entry.
    fn insert(&mut self, page: u64);

    /// Tries to evict `wanted` pages; gives up after having looked at all entries a few times.
    fn evict(&mut self, wanted: usize, pages: &mut dyn ResidentPages);

    /// Entries.
    fn len(&self) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the entries that `keep` doesn't agree to.
    fn retain(&mut self, keep: &mut dyn FnMut(u64) -> bool);

    /// `page` was touched. Only for policies that need every touch, which the pool doesn't report.
    fn touch(&mut self, page: u64) {
        let _ = page;
    }
}

/// Which policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// Two queues and a memory of what went: what is touched once leaves by the small queue.
    #[default]
    S3Fifo,
    /// One queue with second chances.
    Clock,
    /// The page whose last touch but one is the longest ago. It needs every touch, so in a pool, which reports none, it is a
    /// queue without chances: for comparison by [`replay()`].
    Lru2,
}

impl PolicyKind {
    /// An empty order for about `capacity` pages.
    pub fn policy(self, capacity: usize) -> Box<dyn EvictionPolicy> {
        match self {
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Clock => Box::new(Clock::default()),
            Self::Lru2 => Box::new(Lru2::new(capacity)),
        }
    }
}

/// How many times a policy looks at each of its entries before it gives up: once for each touch that can keep a page, and
/// once more.
const ROUNDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// Pages with touches, of which some are in use and some not clean.
    #[derive(Default)]
    struct TestPages {
        touches: HashMap<u64, u8>,
        in_use: HashSet<u64>,
        dirty: HashSet<u64>,
        taken: Vec<u64>,
    }

    impl ResidentPages for TestPages {
        fn touches(&mut self, page: u64) -> u8 {
            self.touches.get(&page).copied().unwrap_or(0)
        }

        fn decay(&mut self, page: u64, most: u8) {
            self.touches.entry(page).and_modify(|touches| *touches = (*touches).min(most));
        }

        fn take(&mut self, page: u64) -> EvictOutcome {
            if self.dirty.contains(&page) {
                return EvictOutcome::Stale;
            }
            if self.in_use.contains(&page) {
                return EvictOutcome::InUse;
            }
            self.taken.push(page);
            EvictOutcome::Evicted
        }
    }

    const ALL: [PolicyKind; 3] = [PolicyKind::S3Fifo, PolicyKind::Clock, PolicyKind::Lru2];

    #[test]
    fn as_many_pages_go_as_are_wanted_and_each_once() {
        for kind in ALL {
            let mut policy = kind.policy(100);
            (0..100).for_each(|page| policy.insert(page));
            let mut pages = TestPages::default();
            policy.evict(30, &mut pages);
            assert_eq!((pages.taken.len(), policy.len()), (30, 70), "{kind:?}");
            policy.evict(1000, &mut pages);
            let distinct: HashSet<u64> = pages.taken.iter().copied().collect();
            assert_eq!((pages.taken.len(), distinct.len(), policy.len()), (100, 100, 0), "{kind:?}");
        }
    }

    #[test]
    fn pages_in_use_stay_and_dirty_ones_lose_their_entry() {
        for kind in ALL {
            let mut policy = kind.policy(10);
            (0..10).for_each(|page| policy.insert(page));
            let mut pages = TestPages { in_use: [1, 2].into(), dirty: [3, 4, 5].into(), ..TestPages::default() };
            policy.evict(10, &mut pages);
            pages.taken.sort_unstable();
            assert_eq!(pages.taken, [0, 6, 7, 8, 9], "{kind:?}");
            assert_eq!(policy.len(), 2, "{kind:?}");
            pages.in_use.clear();
            policy.evict(10, &mut pages);
            assert!(policy.is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn entries_can_be_forgotten() {
        for kind in ALL {
            let mut policy = kind.policy(10);
            (0..10).for_each(|page| policy.insert(page));
            policy.retain(&mut |page| page % 2 == 0);
            let mut pages = TestPages::default();
            policy.evict(10, &mut pages);
            pages.taken.sort_unstable();
            assert_eq!(pages.taken, [0, 2, 4, 6, 8], "{kind:?}");
        }
    }

    #[test]
    fn touched_pages_outlive_untouched_ones() {
        for kind in [PolicyKind::S3Fifo, PolicyKind::Clock] {
            let mut policy = kind.policy(100);
            (0..100).for_each(|page| policy.insert(page));
            let mut pages = TestPages { touches: (0..50).map(|page| (page, 3)).collect(), ..TestPages::default() };
            // S3-FIFO keeps the last tenth for new pages, touched or not.
            policy.evict(40, &mut pages);
            assert!(pages.taken.iter().all(|&page| page >= 50), "{kind:?} {:?}", pages.taken);
        }
    }
}

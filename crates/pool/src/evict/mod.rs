//! Which clean pages go first, behind one small trait over page numbers, so that a policy can be tried on traces alone.
//!
//! Relies on the caller to know how often a page was touched ([`Pages`]): a hit must not reach a policy's queues. The pool
//! keeps a count of up to three touches in the page's word; [`replay()`] plays the pool for traces.
//!
//! [`Kind::S3Fifo`] is the pool's choice; `docs/design/pool.md` has the comparison.

mod clock;
mod ghosts;
mod lru2;
mod replay;
mod s3fifo;
pub mod traces;

pub use replay::{Outcome, replay};

use clock::Clock;
use lru2::Lru2;
use s3fifo::S3Fifo;

/// What became of a page that a policy wants evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is evicted.
    Yes,
    /// Somebody uses it; it stays.
    InUse,
    /// It isn't clean (any more): its entry must be forgotten.
    Gone,
}

/// What a policy may ask about pages.
pub trait Pages {
    /// How often `page` was touched since it was last cooled: 0 to 3.
    fn touches(&mut self, page: u64) -> u8;
    /// Lowers the touches of `page` to `most`.
    fn cool(&mut self, page: u64, most: u8);
    /// Tries to evict `page`.
    fn take(&mut self, page: u64) -> Taken;
}

/// An order of clean pages.
pub trait Policy: Send {
    /// `page` has become clean, and has no entry.
    fn insert(&mut self, page: u64);

    /// Tries to evict `wanted` pages; gives up after having looked at all entries a few times.
    fn evict(&mut self, wanted: usize, pages: &mut dyn Pages);

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
pub enum Kind {
    /// Two queues and a memory of what went: what is touched once leaves by the small queue.
    #[default]
    S3Fifo,
    /// One queue with second chances.
    Clock,
    /// The page whose last touch but one is the longest ago. It needs every touch, so in a pool, which reports none, it is a
    /// queue without chances: for comparison by [`replay()`].
    Lru2,
}

impl Kind {
    /// An empty order for about `capacity` pages.
    pub fn policy(self, capacity: usize) -> Box<dyn Policy> {
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
    struct Desk {
        touches: HashMap<u64, u8>,
        in_use: HashSet<u64>,
        dirty: HashSet<u64>,
        taken: Vec<u64>,
    }

    impl Pages for Desk {
        fn touches(&mut self, page: u64) -> u8 {
            self.touches.get(&page).copied().unwrap_or(0)
        }

        fn cool(&mut self, page: u64, most: u8) {
            self.touches.entry(page).and_modify(|touches| *touches = (*touches).min(most));
        }

        fn take(&mut self, page: u64) -> Taken {
            if self.dirty.contains(&page) {
                return Taken::Gone;
            }
            if self.in_use.contains(&page) {
                return Taken::InUse;
            }
            self.taken.push(page);
            Taken::Yes
        }
    }

    const ALL: [Kind; 3] = [Kind::S3Fifo, Kind::Clock, Kind::Lru2];

    #[test]
    fn as_many_pages_go_as_are_wanted_and_each_once() {
        for kind in ALL {
            let mut policy = kind.policy(100);
            (0..100).for_each(|page| policy.insert(page));
            let mut desk = Desk::default();
            policy.evict(30, &mut desk);
            assert_eq!((desk.taken.len(), policy.len()), (30, 70), "{kind:?}");
            policy.evict(1000, &mut desk);
            let distinct: HashSet<u64> = desk.taken.iter().copied().collect();
            assert_eq!((desk.taken.len(), distinct.len(), policy.len()), (100, 100, 0), "{kind:?}");
        }
    }

    #[test]
    fn pages_in_use_stay_and_dirty_ones_lose_their_entry() {
        for kind in ALL {
            let mut policy = kind.policy(10);
            (0..10).for_each(|page| policy.insert(page));
            let mut desk = Desk { in_use: [1, 2].into(), dirty: [3, 4, 5].into(), ..Desk::default() };
            policy.evict(10, &mut desk);
            desk.taken.sort_unstable();
            assert_eq!(desk.taken, [0, 6, 7, 8, 9], "{kind:?}");
            assert_eq!(policy.len(), 2, "{kind:?}");
            desk.in_use.clear();
            policy.evict(10, &mut desk);
            assert!(policy.is_empty(), "{kind:?}");
        }
    }

    #[test]
    fn entries_can_be_forgotten() {
        for kind in ALL {
            let mut policy = kind.policy(10);
            (0..10).for_each(|page| policy.insert(page));
            policy.retain(&mut |page| page % 2 == 0);
            let mut desk = Desk::default();
            policy.evict(10, &mut desk);
            desk.taken.sort_unstable();
            assert_eq!(desk.taken, [0, 2, 4, 6, 8], "{kind:?}");
        }
    }

    #[test]
    fn touched_pages_outlive_untouched_ones() {
        for kind in [Kind::S3Fifo, Kind::Clock] {
            let mut policy = kind.policy(100);
            (0..100).for_each(|page| policy.insert(page));
            let mut desk = Desk { touches: (0..50).map(|page| (page, 3)).collect(), ..Desk::default() };
            // S3-FIFO keeps the last tenth for new pages, touched or not.
            policy.evict(40, &mut desk);
            assert!(desk.taken.iter().all(|&page| page >= 50), "{kind:?} {:?}", desk.taken);
        }
    }
}

//! What signal handlers leave to be told to queues and sets: a list that is added to without locks and without memory.
//!
//! Relies on a link for each page, so that a page is in the list at most once whatever is to be told of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, Reservation};

use crate::cache_padded::{CachePadded, slot};

/// The page needs an entry in its queue of clean pages.
pub(super) const ENQUEUE: u64 = 1;
/// The page has become dirty.
pub(super) const DIRTY: u64 = 2;
/// The page is in the list, or about to be.
const LINKED: u64 = 4;
const FLAGS: u64 = ENQUEUE | DIRTY | LINKED;
/// The next page's number plus one is above the flags.
const NEXT_SHIFT: u32 = 3;

/// The list, with a head for each core.
#[derive(Debug)]
pub(super) struct PendingUpdates {
    links: *const AtomicU64,
    pages: u64,
    heads: Box<[CachePadded<AtomicU64>]>,
    /// Threads that have flagged a page and not yet linked it.
    linking: AtomicUsize,
    len: AtomicUsize,
    /// Behind `links`.
    _memory: Reservation,
}

// SAFETY: the pointer leads into the reservation, to atomics that live as long.
unsafe impl Send for PendingUpdates {}
// SAFETY: threads that share the list reach the atomics behind the pointer, and nothing else.
unsafe impl Sync for PendingUpdates {}

impl PendingUpdates {
    /// An empty list for `pages` pages.
    pub(super) fn new(pages: u64, cores: usize) -> Result<Self, MemError> {
        let memory = Reservation::new(pages as usize * size_of::<AtomicU64>())?;
        memory.commit(0..memory.len())?;
        // Where there are no huge pages it fails, and nothing is lost.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        Ok(Self {
            links: memory.base().cast_const().cast(),
            pages,
            heads: (0..cores.max(1)).map(|_| CachePadded::default()).collect(),
            linking: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            _memory: memory,
        })
    }

    fn link(&self, page: u64) -> &AtomicU64 {
        assert!(page < self.pages, "the page was looked up before");
        // SAFETY: `page` was compared with the number of links just now, which all lie in the committed reservation; zeroed memory is
        // a valid atomic.
        unsafe { &*self.links.add(page as usize) }
    }

    /// Adds an update of `page`: [`ENQUEUE`] or [`DIRTY`].
    pub(super) fn push(&self, page: u64, flag: u64) {
        let link = self.link(page);
        self.linking.fetch_add(1, Ordering::SeqCst);
        if link.fetch_or(flag | LINKED, Ordering::SeqCst) & LINKED == 0 {
            let head = &self.heads[slot() % self.heads.len()];
            let mut next = head.load(Ordering::Relaxed);
            loop {
                // Others may add flags meanwhile; what is above them is ours until the page is in the list.
                let _ = link
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now & FLAGS | next << NEXT_SHIFT));
                match head.compare_exchange_weak(next, page + 1, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => next = now,
                }
            }
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        self.linking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Pages in the list, about.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Waits until every page that was flagged before this call is in the list.
    pub(super) fn settle(&self) {
        while self.linking.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// Empties the list, telling `each` page and its flags.
    pub(super) fn drain(&self, mut each: impl FnMut(u64, u64)) {
        for head in &self.heads {
            let mut at = head.swap(0, Ordering::Acquire);
            while at != 0 {
                let page = at - 1;
                self.len.fetch_sub(1, Ordering::Relaxed);
                // From here on the page can be linked again.
                let link = self.link(page).swap(0, Ordering::AcqRel);
                each(page, link & FLAGS);
                at = link >> NEXT_SHIFT;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[test]
    fn a_page_is_told_once_with_all_its_flags() {
        let pending = PendingUpdates::new(100, 2).unwrap();
        pending.push(7, ENQUEUE);
        pending.push(3, DIRTY);
        pending.push(7, DIRTY);
        assert_eq!(pending.len(), 2);
        let mut told = BTreeMap::new();
        pending.drain(|page, flags| assert!(told.insert(page, flags & !LINKED).is_none()));
        assert_eq!(told, BTreeMap::from([(3, DIRTY), (7, ENQUEUE | DIRTY)]));
        pending.drain(|_, _| panic!("it is empty"));
        pending.push(7, ENQUEUE);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn nothing_is_lost_between_threads_that_push_and_one_that_drains() {
        let pending = PendingUpdates::new(64, 2).unwrap();
        let told = Mutex::new(vec![0_u32; 64]);
        let drain = || {
            pending.settle();
            pending.drain(|page, flags| told.lock().unwrap()[page as usize] += u32::from(flags & DIRTY != 0));
        };
        std::thread::scope(|threads| {
            for thread in 0..3 {
                let pending = &pending;
                threads.spawn(move || (0..64 * 200).for_each(|step| pending.push((step + thread * 21) % 64, DIRTY)));
            }
            (0..200).for_each(|_| drain());
        });
        drain();
        assert!(told.lock().unwrap().iter().all(|&times| (1..=600).contains(&times)));
        assert_eq!(pending.len(), 0);
    }
}

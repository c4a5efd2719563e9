//! In which order writers and the copier thread claim pages, copy them, publish the copies and wait for each other.
//!
//! It is written once, over what a mechanism does with bytes: [`CopyProtocol`] is what `CopyOnWrite` runs, and what loom runs in
//! `tests/loom_preimage.rs` with pages of one word.
//!
//! Relies on [`copy_state`] for the state of a page and on [`current_epoch`](crate::current_epoch) for the newest epoch. Nothing here
//! takes a lock or allocates memory, so a signal handler may call it.

use std::ops::Range;

use crate::copy_state::{self, CopyState};
use crate::current_epoch::{CurrentEpoch, PinCount};
use crate::sync::AtomicU32;

/// The words of one epoch.
pub trait PageWords: PinCount {
    /// The word of `page`.
    fn word(&self, page: usize) -> &AtomicU32;
}

/// A range of pages whose writers copy them first. The methods with a body are the protocol.
pub trait CopyProtocol {
    /// What is kept for an epoch.
    type Slot: PageWords;

    /// The newest epoch.
    fn current(&self) -> &CurrentEpoch<Self::Slot>;

    /// Runs `then` on the slot of the newest epoch, if there is one; it can't be recycled meanwhile.
    fn with_current<T>(&self, then: impl FnOnce(&Self::Slot) -> T) -> Option<T>;

    /// The pages of the region that holds `page`.
    fn region_pages(&self, page: usize) -> Range<usize>;

    /// Counts the first write of `page` in `slot`'s epoch. Whether its whole region is to be copied now.
    fn count_write(&self, slot: &Self::Slot, page: usize) -> bool;

    /// Copies `pages`, which the calling thread has claimed, to neighbouring pages of the store, and returns the number of the first one
    /// there; `None` if they are lost. `is_single`: a write needs this page, and no other is copied with it.
    fn copy_claimed(&self, slot: &Self::Slot, pages: Range<usize>, is_single: bool) -> Option<u32>;

    /// Returns when no thread is copying the page of `word` any more.
    fn await_copy(&self, word: &AtomicU32);

    /// Runs `copy` while no child can be forked, if that is to be had.
    fn while_unforked(&self, copy: impl FnOnce()) -> CopyAttempt;

    /// `page` is about to be changed for the first time in this epoch. Returns the pages that may be changed then.
    fn first_write(&self, page: usize) -> Range<usize> {
        let safe = self.with_current(|slot| {
            if self.count_write(slot, page) {
                let region = self.region_pages(page);
                self.copy_unclaimed(slot, region.clone());
                self.await_all(slot, region.clone());
                region
            } else {
                self.copy_page(slot, page);
                page..page + 1
            }
        });
        copy_state::before_change();
        safe.unwrap_or_else(|| self.region_pages(page))
    }

    /// `page` is announced for the first time in this epoch. It may be changed then; its neighbours are announced themselves.
    fn announced_write(&self, page: usize) {
        self.with_current(|slot| {
            let copies_whole = self.count_write(slot, page);
            if is_copied(slot, page) {
                return;
            }
            if copies_whole {
                self.copy_unclaimed(slot, self.region_pages(page));
                self.await_all(slot, page..page + 1);
            } else {
                self.copy_page(slot, page);
            }
        });
        copy_state::before_change();
    }

    /// Copies `pages` ahead of the writers. `false` if no view wants them any more.
    fn copy_ahead(&self, pages: Range<usize>) -> bool {
        let copied = self.with_current(|slot| {
            if self.while_unforked(|| self.copy_unclaimed(slot, pages.clone())) == CopyAttempt::Made {
                self.await_all(slot, pages);
            }
        });
        copied.is_some()
    }

    /// Sees to it that `page` is safe.
    fn copy_page(&self, slot: &Self::Slot, page: usize) {
        let copy = || self.copy_claimed(slot, page..page + 1, true);
        if !copy_state::save(slot.word(page), copy, || self.current().is_newest(slot)) {
            self.await_copy(slot.word(page));
        }
    }

    /// Copies those of `pages`, all of one region, that no thread has claimed yet. Other threads may still be copying some.
    fn copy_unclaimed(&self, slot: &Self::Slot, pages: Range<usize>) {
        let mut page = pages.start;
        while page < pages.end {
            if copy_state::claim(slot.word(page)).is_err() {
                page += 1;
                continue;
            }
            let start = page;
            page += 1;
            while page < pages.end && copy_state::claim(slot.word(page)).is_ok() {
                page += 1;
            }
            self.copy_run(slot, start..page);
        }
    }

    /// Copies `pages`, which the calling thread has claimed, and publishes what was copied if it is what `slot`'s epoch began with.
    /// Writers hold still during a cut, but the copier thread doesn't: it may be at a page of the epoch before, which writers of the new
    /// one change after having copied it for that. Then the new epoch has the right copy, for views of the old one too.
    fn copy_run(&self, slot: &Self::Slot, pages: Range<usize>) {
        let Some(held) = self.copy_claimed(slot, pages.clone(), false) else {
            pages.for_each(|page| copy_state::mark_lost(slot.word(page)));
            return;
        };
        let is_newest = self.current().is_newest(slot);
        for (index, page) in pages.enumerate() {
            copy_state::publish_or_release(slot.word(page), held + index as u32, is_newest);
        }
    }

    /// Returns when no thread is copying any of `pages`.
    fn await_all(&self, slot: &Self::Slot, pages: Range<usize>) {
        for page in pages {
            if copy_state::load(slot.word(page)) == CopyState::Copying {
                self.await_copy(slot.word(page));
            }
        }
    }
}

/// Whether the copier thread could copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAttempt {
    /// It did.
    Made,
    /// A fork that does not end was in the way.
    HeldUp,
}

/// Whether a writer need not copy `page` any more.
pub fn is_copied<S: PageWords>(slot: &S, page: usize) -> bool {
    matches!(copy_state::load(slot.word(page)), CopyState::Held(_) | CopyState::Lost)
}

//! The epochs that a view still needs, oldest first.
//!
//! Relies on [`super::copy_on_write::CopyOnWrite`] for the copies. Readers look from their own epoch towards the newest under the read half of
//! a lock; a cut appends under the write half. An epoch whose views are gone while older ones live has copies that those need:
//! they are merged into its predecessor, so that any number of cuts can be made while one old view lives.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use quire_sys::fork_lock::NoFork;

use super::copy_on_write::{CopyOnWrite, is_held_up};
use super::slot::EpochSlot;
use crate::copy_protocol::PageWords;
use crate::copy_state::{self, CopyState};
use crate::origin::{MechanismError, ViewError};
use crate::page::PAGE_SIZE;
use crate::racy;

/// One epoch: the time between a cut and the next.
pub(crate) struct Epoch {
    number: u64,
    pub(crate) slot: Arc<EpochSlot>,
    /// No view of this very epoch lives.
    is_over: AtomicBool,
}

impl Epoch {
    /// The last view of this epoch is gone.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// See the module.
pub(crate) struct EpochChain {
    cow: Arc<CopyOnWrite>,
    epochs: RwLock<Vec<Arc<Epoch>>>,
    next_number: AtomicU64,
    /// Held by the thread that begins an epoch.
    opening: Mutex<()>,
    /// Held by the thread that collects garbage.
    collecting: Mutex<()>,
}

impl EpochChain {
    pub(crate) fn new(cow: Arc<CopyOnWrite>) -> Self {
        // Enough for the epochs that can be, so that a cut never allocates for it.
        let epochs = RwLock::new(Vec::with_capacity(super::copy_on_write::MOST_EPOCHS + 1));
        Self { cow, epochs, next_number: AtomicU64::new(0), opening: Mutex::default(), collecting: Mutex::default() }
    }

    fn read_epochs(&self) -> RwLockReadGuard<'_, Vec<Arc<Epoch>>> {
        self.epochs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the chain. No child is forked meanwhile, in which views could not be read then; so `change` allocates and frees
    /// nothing, as an allocator may keep its lock through a fork.
    fn change_epochs<T>(&self, change: impl FnOnce(&mut Vec<Arc<Epoch>>) -> T) -> T {
        // Without it only a child whose fork meets this very moment finds the chain locked, and says so.
        let _no_fork = NoFork::begin();
        change(&mut self.epochs.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins an epoch. Writers hold still.
    pub(crate) fn cut(&self) -> Result<Arc<Epoch>, MechanismError> {
        let _alone = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cow.is_full() {
            // The copier thread may get no processor time for long, and epochs that no view needs must not be in the way.
            self.collect_garbage();
        }
        let slot = self.cow.open(self.leaving())?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let epoch = Arc::new(Epoch { number, slot, is_over: AtomicBool::new(false) });
        let appended = Arc::clone(&epoch);
        // No thread has written since the slot was opened, so it doesn't matter to readers that it is in the chain only now.
        self.change_epochs(|epochs| epochs.push(appended));
        self.cow.figures.cuts.fetch_add(1, Ordering::Relaxed);
        Ok(epoch)
    }

    /// Whether the newest epoch is one that only older views need: it can be tidied away after the next cut.
    pub(crate) fn has_garbage(&self) -> bool {
        self.read_epochs().iter().any(|epoch| epoch.is_over.load(Ordering::Acquire))
    }

    /// Copies `to.len()` bytes at `offset`, all of one page, as they were when `epoch` began.
    pub(crate) fn read_in_page(&self, epoch: &Epoch, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        let epochs = self.read_epochs();
        self.read_from(&epochs, epoch, offset, to)
    }

    /// As [`EpochChain::read_in_page`], in a forked child: the chain does not change any more.
    pub(crate) fn read_in_child(&self, epoch: &Epoch, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        match self.epochs.try_read() {
            Ok(epochs) => self.read_from(&epochs, epoch, offset, to),
            Err(TryLockError::Poisoned(epochs)) => self.read_from(&epochs.into_inner(), epoch, offset, to),
            Err(TryLockError::WouldBlock) => {
                Err(ViewError::Gone("this process was forked while a cut was made or undone".into()))
            }
        }
    }

    fn read_from(&self, epochs: &[Arc<Epoch>], epoch: &Epoch, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        let page = offset / PAGE_SIZE;
        let own = epochs.partition_point(|other| other.number < epoch.number);
        let words = epochs[own..].iter().map(|newer| newer.slot.word(page));
        let (into, len) = (to.as_mut_ptr(), to.len());
        let held = |held| {
            let from = self.cow.store.page(held).wrapping_add(offset % PAGE_SIZE);
            // SAFETY: a published copy isn't changed or given back while its epoch is in the chain, and the lock keeps it there; `to`
            // is the caller's alone, and the bytes are within one page.
            unsafe { std::ptr::copy_nonoverlapping(from, into, len) };
        };
        // SAFETY: the range is mapped for as long as views of it live; a writer may change the page meanwhile, and then the copy is
        // thrown away. The lock keeps the newest epoch the newest.
        let live = || unsafe { racy::copy(self.cow.span.at(offset), into, len) };
        copy_state::read(words, held, live).map_err(|copy_state::LostPage| self.cow.loss(page))
    }

    /// Takes epochs out of the chain that no view needs any more, the oldest first. Returns whether there was one.
    pub(crate) fn collect_garbage(&self) -> bool {
        let _alone = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut did_something = false;
        while let Some((index, epoch, before)) = self.next_garbage() {
            if let Some(before) = before
                && !self.merge_down(&epoch.slot, &before.slot)
            {
                break;
            }
            // Only this function removes, and a cut only appends, so the index still holds.
            let removed = self.change_epochs(|epochs| epochs.remove(index));
            drop(removed);
            self.cow.retire(&epoch.slot);
            self.cow.recycle(Arc::clone(&epoch.slot));
            did_something = true;
        }
        did_something
    }

    /// Epochs that only older views need and that no collection takes away before the next cut: the newest one, or none.
    fn leaving(&self) -> usize {
        usize::from(self.read_epochs().last().is_some_and(|epoch| epoch.is_over.load(Ordering::Acquire)))
    }

    /// The oldest epoch that is over and can be taken out, and its predecessor. Writers may still be copying for the newest one,
    /// so that stays until the next cut if an older one lives.
    fn next_garbage(&self) -> Option<(usize, Arc<Epoch>, Option<Arc<Epoch>>)> {
        let epochs = self.read_epochs();
        let index = epochs.iter().position(|epoch| epoch.is_over.load(Ordering::Acquire))?;
        if index > 0 && index + 1 == epochs.len() {
            return None;
        }
        let before = index.checked_sub(1).map(|before| Arc::clone(&epochs[before]));
        Some((index, Arc::clone(&epochs[index]), before))
    }

    /// Gives `before` the copies of the epoch after it that it lacks. No writer copies for either any more; readers find a page in one or
    /// the other. `false` if a fork is in the way: then it is done with the next collection.
    fn merge_down(&self, slot: &EpochSlot, before: &EpochSlot) -> bool {
        for region in 0..self.cow.coverage.regions() {
            if slot.is_untouched(region) {
                continue;
            }
            // As in `CopyOnWrite::while_unforked`: a child must not get a word without its copy.
            let no_fork = NoFork::begin();
            if is_held_up(&no_fork) {
                return false;
            }
            before.note_merged(region);
            for page in self.cow.pages_of(region) {
                if copy_state::load(before.word(page)) != CopyState::Unsaved {
                    continue;
                }
                match copy_state::load(slot.word(page)) {
                    CopyState::Held(held) => self.cow.copy_down(before, page, held),
                    CopyState::Lost => copy_state::mark_lost(before.word(page)),
                    CopyState::Unsaved | CopyState::Copying => {}
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy_on_write::MOST_EPOCHS;
    use super::super::coverage::CopyCosts;
    use super::*;
    use crate::mechanism::{Mechanism, OriginOptions};
    use crate::span::PageRange;

    const COSTS: CopyCosts =
        CopyCosts { alone_percent: 125, start_percent: 80, least_percent: 60, most_percent: 95, rest_percent: 101 };

    /// A chain, and no copier thread that collects its garbage.
    fn chain() -> EpochChain {
        let span = PageRange::allocate(1 << 20).unwrap();
        let options = OriginOptions { background: false, ..OriginOptions::default() };
        EpochChain::new(Arc::new(CopyOnWrite::new(span, Mechanism::Barrier, &options, &COSTS, None).unwrap()))
    }

    #[test]
    fn cuts_go_on_while_the_copier_gets_no_processor_time() {
        let chain = chain();
        let kept = chain.cut().unwrap();
        for number in 0..4 * MOST_EPOCHS {
            let epoch = chain.cut().unwrap_or_else(|refused| panic!("cut {number}: {refused}"));
            epoch.end();
        }
        kept.end();
    }

    #[test]
    fn as_many_views_as_may_be_can_be_alive_and_no_more() {
        let chain = chain();
        let mut alive: Vec<_> = (1..MOST_EPOCHS).map(|_| chain.cut().unwrap()).collect();
        // The newest epoch is over, and stays until the next cut.
        chain.cut().unwrap().end();
        alive.push(chain.cut().unwrap());
        let refused = chain.cut().err().expect("one too many");
        assert!(refused.to_string().contains("64 snapshots"), "{refused}");
        alive.swap_remove(5).end();
        chain.cut().unwrap().end();
    }
}

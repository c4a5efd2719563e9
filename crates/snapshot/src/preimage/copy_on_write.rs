//! Copy on write, done by the writers: a thread that is about to change a page first sees to it that the newest view has a
//! copy.
//!
//! Relies on writers holding still during a cut, so that a first write belongs to one epoch. [`CopyProtocol::first_write`] may be
//! called from a signal handler: it takes no lock and allocates nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quire_sys::fork_lock::NoFork;

use super::coverage::{CopyCosts, CostModel, RegionCoverage};
use super::slot::EpochSlot;
use super::store::{PreimageStore, RUN_BYTES};
use crate::copy_protocol::{CopyAttempt, CopyProtocol, PageWords, is_copied};
use crate::copy_state::{self, CopyState};
use crate::current_epoch::{self, CurrentEpoch};
use crate::mechanism::{Mechanism, OriginOptions};
use crate::origin::{MechanismError, OriginStats, PreimageConsumer, ViewError};
use crate::page::PAGE_SIZE;
use crate::racy;
use crate::span::PageRange;

/// Most epochs whose views live at the same time.
pub(crate) const MOST_EPOCHS: usize = 64;
/// How often a thread looks at a page that another one is copying before it gives up its processor.
const SPINS: u32 = 200;
/// One page in so many is compared to estimate how many pages of a precopied region were needed.
const SAMPLE: usize = 8;

/// See the module.
pub(crate) struct CopyOnWrite {
    pub(crate) span: PageRange,
    pub(crate) options: OriginOptions,
    mechanism: Mechanism,
    pub(crate) store: PreimageStore,
    /// Every slot ever made. A slot stays where it is for as long as this lives.
    slots: Mutex<Slots>,
    /// The slot of the newest epoch; null if no view of it lives.
    current: CurrentEpoch<EpochSlot>,
    pub(crate) coverage: RegionCoverage,
    pub(crate) figures: OriginCounters,
    consumer: Option<Arc<dyn PreimageConsumer>>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Arc<EpochSlot>>,
    free: Vec<Arc<EpochSlot>>,
    open: usize,
}

/// Counters behind [`OriginStats`].
#[derive(Default)]
pub(crate) struct OriginCounters {
    pub(crate) cuts: AtomicU64,
    pub(crate) last_cut_ns: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) collapsed: AtomicU64,
    copied: AtomicU64,
    precopied: AtomicU64,
    needed: AtomicU64,
    unneeded: AtomicU64,
    waits: AtomicU64,
    wait_total_ns: AtomicU64,
    wait_longest_ns: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl CopyOnWrite {
    /// For `span`.
    pub(crate) fn new(
        span: PageRange,
        mechanism: Mechanism,
        options: &OriginOptions,
        costs: &CopyCosts,
        consumer: Option<Arc<dyn PreimageConsumer>>,
    ) -> Result<Self, MechanismError> {
        let regions = span.len().div_ceil(options.region_bytes);
        // Views hold at most what was written since their cuts, so several of them may hold several times the range; each
        // epoch may leave its last run (and one taken in a race) nearly empty. These are addresses, not memory.
        let several = span.len().saturating_mul(4).saturating_add(2 * MOST_EPOCHS * RUN_BYTES);
        let capacity_bytes = options.budget_bytes.unwrap_or(several);
        let cow = Self {
            mechanism,
            store: PreimageStore::new(capacity_bytes.min(1 << 40))?,
            slots: Mutex::default(),
            current: CurrentEpoch::none(),
            coverage: RegionCoverage::new(regions, options.pages_per_region(), options.precopy, costs),
            figures: OriginCounters::default(),
            consumer,
            options: *options,
            span,
        };
        // The first cut finds its slot ready, and the second if the first one's view still lives.
        let ready = [cow.new_slot()?, cow.new_slot()?];
        cow.with_slots(|slots| slots.free.extend(ready));
        Ok(cow)
    }

    fn with_slots<T>(&self, then: impl FnOnce(&mut Slots) -> T) -> T {
        then(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn new_slot(&self) -> Result<Arc<EpochSlot>, MechanismError> {
        let slot = Arc::new(EpochSlot::new(self.span.pages(), self.options.pages_per_region())?);
        self.with_slots(|slots| slots.all.push(Arc::clone(&slot)));
        Ok(slot)
    }

    /// Whether as many epochs are open as may be, those counted that are over and not recycled yet.
    pub(crate) fn is_full(&self) -> bool {
        self.with_slots(|slots| slots.open >= MOST_EPOCHS)
    }

    /// A slot for a new epoch, for which writers copy from now on. Writers hold still. Of the epochs that are open `leaving` don't
    /// count, as the next collection takes them away.
    pub(crate) fn open(&self, leaving: usize) -> Result<Arc<EpochSlot>, MechanismError> {
        let ready = self.with_slots(|slots| {
            if slots.open >= MOST_EPOCHS + leaving {
                return Err(MechanismError::Exhausted {
                    mechanism: self.mechanism,
                    what: "64 snapshots of one range are alive",
                    suggestion: "drop some",
                });
            }
            slots.open += 1;
            Ok(slots.free.pop())
        })?;
        let slot = match ready {
            Some(slot) => slot,
            None => self.new_slot().inspect_err(|_| self.with_slots(|slots| slots.open -= 1))?,
        };
        let before = self.current.set(&slot);
        // The copier thread may be at a page of the epoch before, and notices by itself (`CopyProtocol::copy_run`); but a consumer can't
        // be told afterwards that it was handed the wrong bytes.
        if self.consumer.is_some() {
            // SAFETY: `slots.all` keeps every slot that was ever set for as long as `self` lives.
            unsafe { before.as_ref() }.into_iter().for_each(current_epoch::wait_until_unpinned);
        }
        Ok(slot)
    }

    /// No view will read `slot`'s epoch any more: writers stop copying for it. Returns when none is still doing so.
    pub(crate) fn retire(&self, slot: &Arc<EpochSlot>) {
        self.current.retire(slot);
    }

    /// Feeds a retired epoch's counts to the cost model, and frees its slot. Takes a while; belongs in the background.
    pub(crate) fn recycle(&self, slot: Arc<EpochSlot>) {
        let (mut needed_all, mut unneeded_all) = (0, 0);
        let mut cost_model = CostModel::default();
        for region in 0..self.coverage.regions() {
            let seen = slot.counts(region);
            if seen.precopied == 0 {
                self.coverage.record(region, seen.written, &mut cost_model);
                continue;
            }
            let (needed, written) = if self.mechanism.needs_announcement() {
                // Every first write was announced, so the count is exact.
                (seen.written.saturating_sub(seen.single).min(seen.precopied), seen.written)
            } else {
                let needed = seen.precopied - self.unchanged(&slot, region).min(seen.precopied);
                (needed, seen.single + needed)
            };
            self.coverage.record(region, written, &mut cost_model);
            needed_all += needed as u64;
            unneeded_all += (seen.precopied - needed) as u64;
        }
        add(&self.figures.needed, needed_all);
        add(&self.figures.unneeded, unneeded_all);
        self.coverage.close(&cost_model);
        if self.options.keep_bytes > 0 {
            self.store.note_epoch();
        }
        slot.reset(&self.store);
        self.with_slots(|slots| {
            slots.open -= 1;
            slots.free.push(slot);
        });
    }

    /// How many copied pages of `region` are still as they were, estimated from a sample: these need not have been copied.
    /// (Tracking by dirty bits, as the paper does, needs the kernel; leaving pages protected would split huge pages.)
    fn unchanged(&self, slot: &EpochSlot, region: usize) -> usize {
        let (mut same, mut looked) = (0, 0);
        let phase = self.figures.cuts.load(Ordering::Relaxed) as usize % SAMPLE;
        for page in self.pages_of(region).skip(phase).step_by(SAMPLE) {
            if let CopyState::Held(held) = copy_state::load(slot.word(page)) {
                // SAFETY: a page of the range and one of the store, both mapped; the former may be changing, which the
                // comparison bears.
                same += usize::from(unsafe { racy::equal(self.address(page), self.store.page(held), PAGE_SIZE) });
                looked += 1;
            }
        }
        let seen = slot.counts(region);
        (same * (seen.single + seen.precopied)).checked_div(looked).unwrap_or(0)
    }

    fn address(&self, page: usize) -> *mut u8 {
        self.span.at(page * PAGE_SIZE)
    }

    /// Pages of `region`.
    pub(crate) fn pages_of(&self, region: usize) -> Range<usize> {
        let per_region = self.options.pages_per_region();
        region * per_region..((region + 1) * per_region).min(self.span.pages())
    }

    /// The region that holds `page`.
    pub(crate) fn region_of(&self, page: usize) -> usize {
        page / self.options.pages_per_region()
    }

    /// Copies page `held` of the store for `slot`, as its copy of `page`. No writer copies for `slot` any more.
    pub(crate) fn copy_down(&self, slot: &EpochSlot, page: usize, held: u32) {
        if copy_state::claim(slot.word(page)).is_err() {
            return;
        }
        match slot.take_pages(1, &self.store) {
            Some(own) => {
                // SAFETY: both are pages of the store: a published one, and one just taken.
                unsafe { std::ptr::copy_nonoverlapping(self.store.page(held), self.store.page(own), PAGE_SIZE) };
                copy_state::publish(slot.word(page), own);
            }
            None => copy_state::mark_lost(slot.word(page)),
        }
    }

    /// Whether a view depends on what writers keep.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Gives `pages`, which this thread has claimed, to the consumer if there is one. They are lost to views then.
    fn hand_over(&self, slot: &EpochSlot, pages: Range<usize>) -> bool {
        let Some(consumer) = &self.consumer else { return false };
        let _lost = Lost { slot, pages: pages.clone() };
        consumer.preimage(pages.start * PAGE_SIZE, self.address(pages.start), pages.len() * PAGE_SIZE);
        true
    }

    /// Why `page` has no copy.
    pub(crate) fn loss(&self, page: usize) -> ViewError {
        match self.consumer {
            Some(_) => ViewError::HandedOver { offset: page * PAGE_SIZE },
            None => ViewError::GivenUp { budget_bytes: self.store.capacity_bytes().max(RUN_BYTES) },
        }
    }

    /// Whether `pages` have all been copied for the newest view, which lives.
    pub(crate) fn is_safe(&self, pages: Range<usize>) -> bool {
        self.with_current(|slot| pages.clone().all(|page| is_copied(slot, page))).unwrap_or(false)
    }

    /// Figures.
    pub(crate) fn stats(&self) -> OriginStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let figures = &self.figures;
        OriginStats {
            cuts: get(&figures.cuts),
            last_cut_ns: get(&figures.last_cut_ns),
            copied_pages: get(&figures.copied),
            precopied_pages: get(&figures.precopied),
            needed_pages: get(&figures.needed),
            unneeded_pages: get(&figures.unneeded),
            faults: get(&figures.faults),
            waits: get(&figures.waits),
            wait_total_ns: get(&figures.wait_total_ns),
            wait_longest_ns: get(&figures.wait_longest_ns),
            held_bytes_now: self.store.used_bytes(),
            held_bytes_peak: self.store.used_bytes_peak(),
            rejoined_regions: get(&figures.collapsed),
            threshold_percent: self.coverage.threshold_percent(),
        }
    }
}

impl CopyProtocol for CopyOnWrite {
    type Slot = EpochSlot;

    fn current(&self) -> &CurrentEpoch<EpochSlot> {
        &self.current
    }

    fn with_current<T>(&self, then: impl FnOnce(&EpochSlot) -> T) -> Option<T> {
        // SAFETY: `with_pinned` demands that slots which were ever set live: `slots.all` keeps them as long as `self` lives.
        unsafe { self.current.with_pinned(then) }
    }

    fn region_pages(&self, page: usize) -> Range<usize> {
        self.pages_of(self.region_of(page))
    }

    fn count_write(&self, slot: &EpochSlot, page: usize) -> bool {
        let region = self.region_of(page);
        let written = slot.count_written(region);
        self.coverage.copies_whole(region, written)
    }

    fn copy_claimed(&self, slot: &EpochSlot, pages: Range<usize>, is_single: bool) -> Option<u32> {
        let (region, count) = (self.region_of(pages.start), pages.len());
        add(&self.figures.copied, count as u64);
        if is_single {
            slot.count_single(region);
        } else {
            add(&self.figures.precopied, count as u64);
            slot.count_precopied(region, count);
        }
        if self.hand_over(slot, pages.clone()) {
            return None;
        }
        let held = slot.take_pages(count, &self.store)?;
        // SAFETY: the range is mapped; the pages of the store were just taken, neighbours in memory as in number, so they are this
        // thread's.
        unsafe { racy::copy(self.address(pages.start), self.store.page(held), count * PAGE_SIZE) };
        Some(held)
    }

    fn await_copy(&self, word: &AtomicU32) {
        let start = Instant::now();
        let mut looks = 0;
        while copy_state::load(word) == CopyState::Copying {
            looks += 1;
            if looks < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let wait_ns = start.elapsed().as_nanos() as u64;
        add(&self.figures.waits, 1);
        add(&self.figures.wait_total_ns, wait_ns);
        self.figures.wait_longest_ns.fetch_max(wait_ns, Ordering::Relaxed);
    }

    fn while_unforked(&self, copy: impl FnOnce()) -> CopyAttempt {
        // Writers may hold still for a fork, but the copier thread doesn't: the child must not get a word without its copy. A
        // consumer keeps no copies, and it may wait for a thread that forks.
        let no_fork = self.consumer.is_none().then(NoFork::begin);
        if no_fork.as_ref().is_some_and(is_held_up) {
            return CopyAttempt::HeldUp;
        }
        copy();
        CopyAttempt::Made
    }
}

/// Whether a stretch without forks was not to be had because one is under way that does not end: then the work waits.
pub(crate) fn is_held_up(no_fork: &std::io::Result<NoFork>) -> bool {
    no_fork.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

/// Pages that are lost when this is dropped: a writer that waits for them must not wait for a consumer that has panicked.
struct Lost<'a> {
    slot: &'a EpochSlot,
    pages: Range<usize>,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.pages.clone().for_each(|page| copy_state::mark_lost(self.slot.word(page)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Precopy;

    const COSTS: CopyCosts =
        CopyCosts { alone_percent: 125, start_percent: 80, least_percent: 60, most_percent: 95, rest_percent: 101 };

    #[test]
    fn a_copy_that_a_cut_has_overtaken_is_not_kept() {
        let span = PageRange::allocate(4 << 20).unwrap();
        let options = OriginOptions { precopy: Precopy::None, background: false, ..OriginOptions::default() };
        let cow = CopyOnWrite::new(span, Mechanism::Barrier, &options, &COSTS, None).unwrap();
        let (first, page) = (cow.open(0).unwrap(), 3);
        // The copier thread has come so far when the next cut is made:
        copy_state::claim(first.word(page)).unwrap();
        copy_state::claim(first.word(page + 1)).unwrap();
        let second = cow.open(0).unwrap();
        cow.announced_write(page);
        // SAFETY: inside the span, which only this test uses.
        unsafe { cow.address(page).write_bytes(7, PAGE_SIZE) };
        cow.copy_run(&first, page..page + 2);
        assert_eq!(
            (copy_state::load(first.word(page)), copy_state::load(first.word(page + 1))),
            (CopyState::Unsaved, CopyState::Unsaved)
        );
        let CopyState::Held(held) = copy_state::load(second.word(page)) else { panic!("the second epoch has no copy") };
        // SAFETY: a published page of the store.
        assert_eq!(unsafe { *cow.store.page(held) }, 0);
    }

    #[test]
    fn the_default_budget_is_four_times_the_range_and_256_mib() {
        let capacity_bytes = |budget_bytes| {
            let span = PageRange::allocate(4 << 20).unwrap();
            let options = OriginOptions { background: false, budget_bytes, ..OriginOptions::default() };
            CopyOnWrite::new(span, Mechanism::Barrier, &options, &COSTS, None).unwrap().store.capacity_bytes()
        };
        assert_eq!((capacity_bytes(None), capacity_bytes(Some(8 << 20))), ((16 << 20) + (256 << 20), 8 << 20));
    }
}

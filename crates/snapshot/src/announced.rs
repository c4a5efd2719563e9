//! `barrier` over any range: writers announce what they are going to change.
//!
//! Relies on [`crate::keep`]. Unlike the arena's [`Barrier`](crate::Barrier), which streams one snapshot within a fixed
//! budget and has one writer, this takes any number of views and writers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Instant;

use quire_sys::mem::Reservation;

use crate::claim;
use crate::keep::chain::Chain;
use crate::keep::core::Core;
use crate::keep::keeper::{Chores, Keeper};
use crate::keep::locality::Costs;
use crate::keep::view::{KeptView, Lease, Owner};
use crate::mechanism::{Mechanism, Options};
use crate::origin::{Consumer, Origin, OriginStats, Refused, View};
use crate::page::PAGE_SIZE;
use crate::span::Span;

/// A page alone costs hardly more than with its region, so copies that nobody needs are dear, and the rest of a region is
/// never copied for speed.
const COSTS: Costs =
    Costs { alone_percent: 125, start_percent: 80, least_percent: 60, most_percent: 95, rest_percent: 101 };

/// The origin.
pub(crate) struct Announced(Arc<Shared>, #[expect(dead_code, reason = "held")] Lease);

struct Shared {
    core: Arc<Core>,
    keeper: Arc<Keeper>,
    chain: Chain,
    /// For each page the number of the epoch in which it was last announced, 16 bits each.
    announced: Reservation,
    epoch: AtomicU32,
}

impl Announced {
    pub(crate) fn new(span: Span, options: &Options, consumer: Option<Arc<dyn Consumer>>) -> Result<Self, Refused> {
        let announced = Reservation::new(span.pages() * 2)?;
        announced.commit(0..announced.len())?;
        let core = Arc::new(Core::new(span, Mechanism::Barrier, options, &COSTS, consumer)?);
        let shared = Arc::new(Shared {
            keeper: Arc::new(Keeper::new(options.background)),
            chain: Chain::new(Arc::clone(&core)),
            announced,
            epoch: AtomicU32::new(1),
            core,
        });
        shared.keeper.start(&shared).map_err(|source| Refused::System {
            mechanism: Mechanism::Barrier,
            call: "clone",
            source,
            suggestion: "Raise the limit of threads, or turn `background` off.",
        })?;
        let lease = Lease::new(Arc::clone(&shared) as Arc<dyn Owner>);
        Ok(Self(shared, lease))
    }
}

impl Shared {
    fn mark(&self, page: usize) -> &AtomicU16 {
        assert!(page < self.core.span.pages(), "page {page} of {}", self.core.span.pages());
        // SAFETY: committed for 2 bytes a page, aligned, zeroed, used only as AtomicU16, and lives as long as `self`.
        unsafe { &*self.announced.base().cast::<AtomicU16>().add(page) }
    }

    #[cold]
    #[inline(never)]
    fn first_write(&self, page: usize, epoch: u16) {
        // A page that another thread was copying when this process was forked would be waited for in vain.
        if self.keeper.is_forked() {
            return;
        }
        // Marked afterwards: another thread must not take the page for safe before it is.
        self.core.announced_write(page);
        self.mark(page).store(epoch, Ordering::Release);
        self.keeper.nudge();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeper.stop();
    }
}

impl Chores for Shared {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn chain(&self) -> &Chain {
        &self.chain
    }

    fn copy_ahead(&self, region: usize, pages: Range<usize>) -> bool {
        self.core.copy_ahead(region, pages)
    }

    fn mend(&self) -> bool {
        false
    }
}

impl Owner for Shared {
    fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Origin for Announced {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Barrier
    }

    fn base(&self) -> *mut u8 {
        self.0.core.span.base()
    }

    fn len(&self) -> usize {
        self.0.core.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, Refused> {
        let start = Instant::now();
        let shared = &self.0;
        if shared.keeper.is_forked() {
            return Err(Refused::forked(Mechanism::Barrier));
        }
        let owner: Arc<dyn Owner> = Arc::clone(shared) as Arc<dyn Owner>;
        let epoch = shared.chain.cut()?;
        let next = shared.epoch.load(Ordering::Relaxed) + 1;
        if next > u32::from(u16::MAX) {
            // Once in 65,535 cuts the numbers begin again. Writers hold still, so nobody looks at the marks.
            shared.announced.release(0..shared.announced.len())?;
            shared.epoch.store(1, Ordering::Release);
        } else {
            shared.epoch.store(next, Ordering::Release);
        }
        shared.core.figures.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        shared.keeper.note_cut(&**shared);
        Ok(Arc::new(KeptView::new(owner, epoch)))
    }

    #[inline]
    fn prepare_write(&self, range: Range<usize>) {
        let shared = &*self.0;
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
        if range.is_empty() {
            return;
        }
        let epoch = shared.epoch.load(Ordering::Acquire) as u16;
        for page in range.start / PAGE_SIZE..=(range.end - 1) / PAGE_SIZE {
            if shared.mark(page).load(Ordering::Acquire) != epoch {
                shared.first_write(page, epoch);
            }
        }
        claim::before_change();
    }

    fn settle(&self) {
        self.0.keeper.settle(&*self.0);
    }

    fn stats(&self) -> OriginStats {
        self.0.core.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Precopy;
    use crate::origin::ViewError;

    fn origin(len: usize, options: Options) -> Announced {
        Announced::new(Span::allocate(len).unwrap(), &options, None).unwrap()
    }

    fn write(origin: &Announced, offset: usize, value: u8) {
        origin.prepare_write(offset..offset + 1);
        // SAFETY: inside the span; this test is the only writer, and the write was announced.
        unsafe { origin.base().add(offset).write_volatile(value) };
    }

    fn byte(view: &Arc<dyn View>, offset: usize) -> u8 {
        let mut byte = [0];
        view.read(offset, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn each_view_shows_the_moment_of_its_cut() {
        let origin = origin(8 << 20, Options::default());
        write(&origin, 5000, 1);
        let first = origin.cut().unwrap();
        write(&origin, 5000, 2);
        let second = origin.cut().unwrap();
        let third = origin.cut().unwrap();
        write(&origin, 5000, 3);
        assert_eq!([&first, &second, &third].map(|view| byte(view, 5000)), [1, 2, 2]);
        drop(second);
        assert_eq!((byte(&first, 5000), byte(&third, 5000), byte(&first, 0)), (1, 2, 0));
        drop(origin);
        assert_eq!(byte(&first, 5000), 1);
    }

    #[test]
    fn the_need_of_precopied_pages_is_counted_exactly() {
        let origin =
            origin(4 << 20, Options { precopy: Precopy::Threshold(50), background: false, ..Options::default() });
        let cut_and_write = |pages: usize| {
            let view = origin.cut().unwrap();
            (0..pages).for_each(|page| write(&origin, page * PAGE_SIZE, 1));
            drop(view);
            let stats = origin.stats();
            (stats.copied_pages, stats.precopied_pages, stats.needed_pages, stats.unneeded_pages)
        };
        assert_eq!(cut_and_write(300), (300, 0, 0, 0));
        assert_eq!(cut_and_write(400), (300 + 512, 512, 400, 112));
        assert_eq!(cut_and_write(10), (300 + 1024, 1024, 410, 614));
        assert_eq!(cut_and_write(10), (310 + 1024, 1024, 410, 614));
    }

    #[test]
    fn a_view_that_outgrows_its_budget_says_so_and_the_others_stay() {
        let budget_bytes = Some(2 << 20);
        let origin = origin(8 << 20, Options { budget_bytes, background: false, ..Options::default() });
        let view = origin.cut().unwrap();
        (0..513).for_each(|page| write(&origin, page * PAGE_SIZE, 1));
        assert_eq!(byte(&view, 0), 0);
        let error = view.read(512 * PAGE_SIZE, &mut [0]).unwrap_err().to_string();
        assert!(error.contains("2097152") && error.contains("raise the budget"), "{error}");
        drop(view);
        let view = origin.cut().unwrap();
        write(&origin, 512 * PAGE_SIZE, 9);
        assert_eq!(byte(&view, 512 * PAGE_SIZE), 1);
    }

    #[test]
    fn an_old_view_lives_through_any_number_of_cuts_in_little_memory() {
        let origin = origin(8 << 20, Options { background: false, ..Options::default() });
        let old = origin.cut().unwrap();
        for cut in 0..500 {
            let view = origin.cut().unwrap();
            write(&origin, cut * 4096, cut as u8 | 1);
            write(&origin, 0, cut as u8);
            assert_eq!(byte(&view, cut * 4096), 0);
        }
        (0..500).for_each(|page| assert_eq!(byte(&old, page * 4096), 0));
        assert!(origin.stats().held_bytes_now <= 8 << 20, "{:?}", origin.stats());
    }

    #[derive(Default)]
    struct Sum(std::sync::Mutex<Vec<(usize, u8, usize)>>);

    // SAFETY: a barrier calls its consumer in the announcing thread, not in a signal handler.
    unsafe impl Consumer for Sum {
        fn preimage(&self, offset: usize, bytes: *const u8, len: usize) {
            // SAFETY: `len` bytes may be read during the call.
            self.0.lock().unwrap().push((offset, unsafe { *bytes }, len));
        }
    }

    #[test]
    fn a_consumer_gets_each_page_once_before_it_changes() {
        let sum = Arc::new(Sum::default());
        let options = Options { precopy: Precopy::Threshold(80), background: false, ..Options::default() };
        let consumer = Arc::clone(&sum) as Arc<dyn Consumer>;
        let origin = Announced::new(Span::allocate(4 << 20).unwrap(), &options, Some(consumer)).unwrap();
        write(&origin, 5000, 1);
        assert_eq!(sum.0.lock().unwrap().len(), 0, "no view is open");
        let view = origin.cut().unwrap();
        (2..5).for_each(|value| write(&origin, 4096, value));
        assert_eq!(*sum.0.lock().unwrap(), [(4096, 0, 4096)]);
        assert!(matches!(view.read(4096, &mut [0]), Err(ViewError::HandedOver { offset: 4096 })));
        assert_eq!((byte(&view, 0), origin.stats().held_bytes_now), (0, 0));
    }

    #[test]
    fn the_sixty_fifth_view_is_refused_until_one_is_dropped() {
        let origin = origin(1 << 20, Options { background: false, ..Options::default() });
        let mut views: Vec<_> = (0..64).map(|_| origin.cut().unwrap()).collect();
        assert!(origin.cut().unwrap_err().to_string().contains("drop some"));
        drop(views.remove(30));
        assert!(origin.cut().is_ok());
    }
}

//! `barrier` over any range: writers announce what they are going to change.
//!
//! Relies on [`crate::preimage`]. Any number of views and writers may use it. (The arena has a barrier of its own,
//! [`WriteBarrier`](crate::stream::WriteBarrier): one writer, one snapshot that is streamed out within a fixed budget.)

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use quire_sys::mem::Reservation;

use crate::copy_protocol::CopyProtocol;
use crate::copy_state;
use crate::mechanism::{Mechanism, OriginOptions};
use crate::origin::{MechanismError, PreimageConsumer};
use crate::page::PAGE_SIZE;
use crate::preimage::coverage::CopyCosts;
use crate::preimage::engine::PreimageEngine;
use crate::preimage::origin::{PreimageOrigin, WriteDetector};
use crate::preimage::view::EpochView;
use crate::span::PageRange;

/// A page copied alone costs hardly more than one copied with its region. So unneeded copies weigh heavily, and the rest of a
/// region is never copied for speed.
const COSTS: CopyCosts =
    CopyCosts { alone_percent: 125, start_percent: 80, least_percent: 60, most_percent: 95, rest_percent: 101 };

/// The origin.
pub(crate) type BarrierOrigin = PreimageOrigin<AnnouncedPages>;

/// Puts the mechanism on `span`.
pub(crate) fn attach(
    span: PageRange,
    options: &OriginOptions,
    consumer: Option<Arc<dyn PreimageConsumer>>,
) -> Result<BarrierOrigin, MechanismError> {
    let announced = Reservation::new(span.pages() * 2)?;
    announced.commit(0..announced.len())?;
    let engine = PreimageEngine::new(span, Mechanism::Barrier, options, &COSTS, consumer)?;
    PreimageOrigin::start(Arc::new(AnnouncedPages { engine, announced, epoch: AtomicU32::new(1) }))
}

/// Which pages the writers have announced in which epoch.
pub(crate) struct AnnouncedPages {
    engine: PreimageEngine,
    /// For each page the number of the epoch in which it was last announced, 16 bits each.
    announced: Reservation,
    epoch: AtomicU32,
}

impl AnnouncedPages {
    fn mark(&self, page: usize) -> &AtomicU16 {
        let pages = self.engine.cow.span.pages();
        assert!(page < pages, "page {page} of {pages}");
        // SAFETY: the table is committed for 2 bytes a page (checked above), aligned to a page, zero at first, used only as
        // AtomicU16, and lives as long as `self`.
        unsafe { &*self.announced.base().cast::<AtomicU16>().add(page) }
    }

    #[cold]
    #[inline(never)]
    fn first_write(&self, page: usize, epoch: u16) {
        // Another thread may have been copying the page when this process was forked: waiting for that would never end.
        if self.engine.copier.is_forked() {
            return;
        }
        // Marked afterwards: another thread must not take the page for safe before it is.
        self.engine.cow.announced_write(page);
        self.mark(page).store(epoch, Ordering::Release);
        self.engine.copier.nudge();
    }
}

impl WriteDetector for AnnouncedPages {
    const MECHANISM: Mechanism = Mechanism::Barrier;

    fn engine(&self) -> &PreimageEngine {
        &self.engine
    }

    fn begin_epoch(self: &Arc<Self>) -> Result<EpochView, MechanismError> {
        let epoch = self.engine.chain.cut()?;
        // If the marks can't be reset, dropping the view ends the epoch.
        let view = EpochView::new(self, epoch);
        let next = self.epoch.load(Ordering::Relaxed) + 1;
        if next > u32::from(u16::MAX) {
            // Once in 65,535 cuts the numbers begin again. Writers hold still, so no thread reads the marks.
            self.announced.release(0..self.announced.len())?;
            self.epoch.store(1, Ordering::Release);
        } else {
            self.epoch.store(next, Ordering::Release);
        }
        Ok(view)
    }

    #[inline]
    fn prepare_write(&self, range: Range<usize>) {
        let epoch = self.epoch.load(Ordering::Acquire) as u16;
        for page in range.start / PAGE_SIZE..=(range.end - 1) / PAGE_SIZE {
            if self.mark(page).load(Ordering::Acquire) != epoch {
                self.first_write(page, epoch);
            }
        }
        copy_state::before_change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::Precopy;
    use crate::origin::{Origin, View, ViewError};

    fn origin(len: usize, options: OriginOptions) -> BarrierOrigin {
        attach(PageRange::allocate(len).unwrap(), &options, None).unwrap()
    }

    fn write(origin: &BarrierOrigin, offset: usize, value: u8) {
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
        let origin = origin(8 << 20, OriginOptions::default());
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
        let origin = origin(
            4 << 20,
            OriginOptions { precopy: Precopy::Threshold(50), background: false, ..OriginOptions::default() },
        );
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
        let origin = origin(8 << 20, OriginOptions { budget_bytes, background: false, ..OriginOptions::default() });
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
        let origin = origin(8 << 20, OriginOptions { background: false, ..OriginOptions::default() });
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
    unsafe impl PreimageConsumer for Sum {
        fn preimage(&self, offset: usize, bytes: *const u8, len: usize) {
            // SAFETY: `preimage` is promised `len` bytes that may be read during the call; no call has fewer than a page.
            self.0.lock().unwrap().push((offset, unsafe { *bytes }, len));
        }
    }

    #[test]
    fn a_consumer_gets_each_page_once_before_it_changes() {
        let sum = Arc::new(Sum::default());
        let options = OriginOptions { precopy: Precopy::Threshold(80), background: false, ..OriginOptions::default() };
        let consumer = Arc::clone(&sum) as Arc<dyn PreimageConsumer>;
        let origin = attach(PageRange::allocate(4 << 20).unwrap(), &options, Some(consumer)).unwrap();
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
        let origin = origin(1 << 20, OriginOptions { background: false, ..OriginOptions::default() });
        let mut views: Vec<_> = (0..64).map(|_| origin.cut().unwrap()).collect();
        assert!(origin.cut().unwrap_err().to_string().contains("drop some"));
        drop(views.remove(30));
        assert!(origin.cut().is_ok());
    }
}

//! `memcpy`: the eager baseline. A cut copies everything, the view is that copy.
//!
//! Relies on writers holding still during a cut, as every mechanism does.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, Origin, OriginStats, View, ViewError, check};
use crate::page::PAGE_SIZE;
use crate::racy;
use crate::span::PageRange;

/// The range that is copied.
pub(crate) struct MemcpyOrigin {
    span: PageRange,
    stats: Arc<MemcpyStats>,
}

#[derive(Default)]
struct MemcpyStats {
    cuts: AtomicU64,
    last_cut_ns: AtomicU64,
    held_bytes: AtomicU64,
    held_bytes_peak: AtomicU64,
}

impl MemcpyOrigin {
    pub(crate) fn new(span: PageRange) -> Result<Self, MechanismError> {
        Ok(Self { span, stats: Arc::default() })
    }
}

/// One copy.
struct MemcpyView {
    span: PageRange,
    stats: Arc<MemcpyStats>,
}

impl MemcpyView {
    fn of(span: &PageRange, stats: &Arc<MemcpyStats>) -> Result<Self, MechanismError> {
        let copy = PageRange::allocate(span.len())?;
        // SAFETY: both are mapped for their whole length, and no other code knows `copy`, which is new. A writer that
        // breaks the duty to hold still tears the copy, but nothing is undefined.
        unsafe { racy::copy(span.base(), copy.base(), span.len()) };
        let held = stats.held_bytes.fetch_add(copy.len() as u64, Ordering::Relaxed) + copy.len() as u64;
        stats.held_bytes_peak.fetch_max(held, Ordering::Relaxed);
        Ok(Self { span: copy, stats: Arc::clone(stats) })
    }
}

impl Drop for MemcpyView {
    fn drop(&mut self) {
        self.stats.held_bytes.fetch_sub(self.span.len() as u64, Ordering::Relaxed);
    }
}

impl Origin for MemcpyOrigin {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Memcpy
    }

    fn base(&self) -> *mut u8 {
        self.span.base()
    }

    fn len(&self) -> usize {
        self.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        let start = Instant::now();
        let copy = MemcpyView::of(&self.span, &self.stats)?;
        self.stats.cuts.fetch_add(1, Ordering::Relaxed);
        self.stats.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(Arc::new(copy))
    }

    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
    }

    fn settle(&self) {}

    fn stats(&self) -> OriginStats {
        let cuts = self.stats.cuts.load(Ordering::Relaxed);
        OriginStats {
            cuts,
            last_cut_ns: self.stats.last_cut_ns.load(Ordering::Relaxed),
            copied_pages: cuts * (self.len() / PAGE_SIZE) as u64,
            held_bytes_now: self.stats.held_bytes.load(Ordering::Relaxed),
            held_bytes_peak: self.stats.held_bytes_peak.load(Ordering::Relaxed),
            ..OriginStats::default()
        }
    }
}

impl View for MemcpyView {
    fn len(&self) -> usize {
        self.span.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.span.len())?;
        // SAFETY: inside the copy (checked), which lives as long as `self`; `to` is borrowed mutably. Another thread may be
        // writing the copy through `as_ptr`, hence the racy copy.
        unsafe { racy::copy(self.span.base().wrapping_add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        Some(self.span.base())
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        Ok(Arc::new(MemcpyView::of(&self.span, &self.stats)?))
    }

    fn held_bytes(&self) -> usize {
        self.span.len()
    }
}

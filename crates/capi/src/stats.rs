//! What a range has done and cost.
//!
//! Relies on the figures that mechanisms count.

use quire_snapshot::OriginStats;

use crate::boundary;
use crate::extensible_struct::{self, ExtensibleStruct};
use crate::handle;
use crate::range::quire_range;
use crate::status::quire_status;

/// What a range has done and cost since it was made, except where "now" says otherwise. Figures that a mechanism has no
/// way to know stay zero. Set struct_size to sizeof(quire_stats) before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_stats {
    /// sizeof(quire_stats), so that later versions may have further fields.
    pub struct_size: usize,
    /// Cuts made.
    pub cuts: u64,
    /// How long the last cut took, in nanoseconds: the time for which writers stalled.
    pub last_cut_ns: u64,
    /// Pages copied because a thread wrote to them, or to their region.
    pub copied_pages: u64,
    /// Of these, pages copied with their region before a thread wrote to them.
    pub precopied_pages: u64,
    /// Precopied pages found to have been written later.
    pub needed_pages: u64,
    /// Precopied pages found not to have been.
    pub unneeded_pages: u64,
    /// Faults taken in threads that write.
    pub faults: u64,
    /// Waits of threads that write for a copy that another thread was making.
    pub waits: u64,
    /// Total of these waits, in nanoseconds.
    pub wait_total_ns: u64,
    /// Longest of these waits, in nanoseconds.
    pub wait_longest_ns: u64,
    /// Bytes held now for snapshots.
    pub held_bytes_now: u64,
    /// Most bytes held at once.
    pub held_bytes_peak: u64,
    /// Huge pages that were split and made whole again.
    pub rejoined_regions: u64,
    /// Of a region's pages, the share in percent from which it is copied whole now; over 100 for never.
    pub threshold_percent: u64,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_stats {}
const _: () = assert!(size_of::<quire_stats>() == 15 * 8, "a gap, or a field that the header's readers don't know");

impl From<&OriginStats> for quire_stats {
    fn from(stats: &OriginStats) -> Self {
        Self {
            struct_size: size_of::<Self>(),
            cuts: stats.cuts,
            last_cut_ns: stats.last_cut_ns,
            copied_pages: stats.copied_pages,
            precopied_pages: stats.precopied_pages,
            needed_pages: stats.needed_pages,
            unneeded_pages: stats.unneeded_pages,
            faults: stats.faults,
            waits: stats.waits,
            wait_total_ns: stats.wait_total_ns,
            wait_longest_ns: stats.wait_longest_ns,
            held_bytes_now: stats.held_bytes_now,
            held_bytes_peak: stats.held_bytes_peak,
            rejoined_regions: stats.rejoined_regions,
            threshold_percent: stats.threshold_percent.into(),
        }
    }
}

/// Fills *stats. Any thread may ask at any time.
///
/// # Safety
/// `range` is a range that is not released; `*stats` may be written, and its `struct_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_stats(range: *const quire_range, stats: *mut quire_stats) -> quire_status {
    boundary::status(|| {
        let range = handle::get("range", range)?;
        let figures = quire_stats::from(&range.origin().stats());
        // SAFETY: `extensible_struct::write` refuses NULL and unaligned addresses; that `struct_size` is set and as many bytes
        // may be written is the duty of this function's callers.
        unsafe { extensible_struct::write("stats", stats, &figures) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_places() {
        let stats = quire_stats::from(&OriginStats { cuts: 1, threshold_percent: 80, faults: 3, ..Default::default() });
        assert_eq!((stats.cuts, stats.faults, stats.threshold_percent), (1, 3, 80));
        assert_eq!(std::mem::offset_of!(quire_stats, faults), 56);
    }
}

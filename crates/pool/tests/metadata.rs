//! What the pool keeps beside the pages, counted by the allocator: no more than a hundredth of the frames. Alone in its
//! program, so that no other test's memory is counted.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::PAGE;
use quire_device::{NullDevice, ReadPattern};
use quire_pool::{Map, MapOptions, PageNo, Pool, PoolConfig, TierConfig};

/// Counts what is allocated.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: `System::alloc` demands a size that isn't zero, and so does `alloc` of its caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `System::dealloc` demands memory that `System` has given for this layout: `dealloc` demands memory of this allocator, and all
        // of that is the system's.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FRAMES: usize = 32 << 10;
const FILE_PAGES: u64 = 16 * FRAMES as u64;

/// Most bytes taken while `use_map` works, per frame.
fn bytes_per_frame(use_map: impl Fn(&Map, u64)) -> f64 {
    let before = TAKEN.load(Ordering::Relaxed);
    // A second tier has lists of its own.
    let config =
        PoolConfig { budget_bytes: FRAMES * PAGE, shards: 2, tier: TierConfig::off(), ..PoolConfig::default() };
    let pool = Pool::new(config).unwrap();
    let device = Arc::new(NullDevice::new(FILE_PAGES * PAGE as u64, ReadPattern::Untouched));
    let map = pool.map(device, MapOptions { read_ahead_pages: 0, ..MapOptions::default() }).unwrap();
    let mut most = 0;
    for step in 0..3 * FRAMES as u64 {
        use_map(&map, step);
        most = most.max(TAKEN.load(Ordering::Relaxed).saturating_sub(before));
    }
    most as f64 / FRAMES as f64
}

/// A page of the file that jumps about.
fn anywhere(step: u64) -> PageNo {
    PageNo((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % FILE_PAGES)
}

#[test]
fn metadata_takes_no_more_than_a_hundredth_of_the_frames() {
    let read = bytes_per_frame(|map, step| drop(map.read(anywhere(step)).unwrap()));
    let written = bytes_per_frame(|map, step| drop(map.overwrite(anywhere(step)).unwrap()));
    let in_order = bytes_per_frame(|map, step| drop(map.overwrite(PageNo(step)).unwrap()));
    println!("bytes a frame: {read:.1} read at random, {written:.1} written at random, {in_order:.1} written in order");
    for figure in [read, written, in_order] {
        assert!(figure <= PAGE as f64 / 100.0, "{figure:.1} bytes a frame");
    }
}

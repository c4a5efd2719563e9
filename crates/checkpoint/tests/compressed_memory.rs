//! What a save that compresses holds beside the data and the pre-images.
//!
//! Relies on being the only test of its process: the memory that is looked at is the process's.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use quire_checkpoint::{Codec, DumpOptions, DumpProgress, dump};
use quire_device::DiskDirectory;
use quire_snapshot::PAGES_PER_REGION;
use quire_sys::proc::resident_kinds;

const PAGES: u32 = 24 * PAGES_PER_REGION as u32;
const BUDGET_PAGES: usize = 256;
/// What README and `docs/design/compression.md` promise beside the budget.
const BESIDE_BYTES: u64 = 16 << 20;

fn own_bytes() -> u64 {
    resident_kinds().expect("Linux tells").anonymous_bytes
}

#[test]
fn a_save_that_compresses_holds_16_mib_beside_the_budget_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskDirectory::new(folder.path());
    let mut world = World::new(PAGES, BUDGET_PAGES);
    (0..PAGES).for_each(|page| world.write(page, page as u8));
    world.model.clear();
    for codec in Codec::ALL {
        let options = DumpOptions { compression: Some(codec), ..DumpOptions::default() };
        let (snapshot, progress, is_over) = (world.cut(), DumpProgress::new(), AtomicBool::new(false));
        let before = own_bytes();
        let peak = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut peak = 0;
                while !is_over.load(Ordering::Acquire) {
                    peak = peak.max(own_bytes());
                    std::thread::yield_now();
                }
                peak
            });
            let summary = dump(snapshot, &meta(1), &disk, NAME, &progress, &options).unwrap();
            is_over.store(true, Ordering::Release);
            assert!(summary.regions_compressed > 20, "{summary:?}");
            watching.join().unwrap()
        });
        assert!(world.barrier.try_finish());
        let (extra, most) = (peak.saturating_sub(before), (BUDGET_PAGES * 4096) as u64 + BESIDE_BYTES);
        assert!(extra > 2 << 20, "{codec:?}: the peak was missed: {extra}");
        assert!(extra <= most, "{codec:?}: {extra} bytes of {most}");
    }
}

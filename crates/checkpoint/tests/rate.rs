//! A dump that may write only so many bytes a second.

use std::thread;

use quire_checkpoint::{DumpError, DumpPhase, DumpProgress, dump};
use quire_device::MemoryDirectory;
use quire_snapshot::PAGES_PER_REGION;

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;

/// Sleeps until the first pages are written. At a byte a second the next ones are hours away.
fn await_first_pages(progress: &DumpProgress) {
    while progress.pages_done() == 0 {
        thread::yield_now();
    }
}

#[test]
fn a_limit_holds_until_it_is_lifted() {
    let mut world = World::varied(3 * REGION);
    let (snapshot, memory, progress) = (world.cut(), MemoryDirectory::new(), DumpProgress::new());
    progress.limit_rate(1);
    thread::scope(|scope| {
        let dumper = scope.spawn(|| dump(snapshot, &meta(1), &memory, NAME, &progress, &small_writes()));
        await_first_pages(&progress);
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(progress.phase() == DumpPhase::Data && progress.pages_done() <= u64::from(REGION));
        progress.limit_rate(0);
        dumper.join().unwrap().unwrap();
    });
    assert_same(&image(&memory).1, &world.model);
}

#[test]
fn a_dump_that_waits_for_its_rate_can_be_cancelled() {
    let mut world = World::varied(3 * REGION);
    let (snapshot, memory, progress) = (world.cut(), MemoryDirectory::new(), DumpProgress::new());
    progress.limit_rate(1);
    thread::scope(|scope| {
        let dumper = scope.spawn(|| dump(snapshot, &meta(1), &memory, NAME, &progress, &small_writes()));
        await_first_pages(&progress);
        progress.cancel();
        assert!(matches!(dumper.join().unwrap(), Err(DumpError::Cancelled { .. })));
    });
    assert!(names(&memory).is_empty());
}

#[test]
fn a_writer_that_needs_buffers_does_not_wait_for_the_rate() {
    let mut world = World::varied(4 * REGION);
    world.barrier.set_budget(40 * 4096).unwrap();
    let expected = world.model.clone();
    let (snapshot, memory, progress) = (world.cut(), MemoryDirectory::new(), DumpProgress::new());
    progress.limit_rate(1);
    thread::scope(|scope| {
        let dumper = scope.spawn(|| dump(snapshot, &meta(1), &memory, NAME, &progress, &small_writes()));
        // Many times the pages that there are buffers for: it ends only if the dump goes on meanwhile.
        for page in expected.keys() {
            world.write(*page, 200);
        }
        progress.limit_rate(0);
        dumper.join().unwrap().unwrap();
    });
    assert_same(&image(&memory).1, &expected);
}

//! An image holds exactly the memory at the cut, however it is written, whatever is written meanwhile.

use std::sync::Arc;

use proptest::prelude::*;
use quire_checkpoint::{DumpOptions, DumpPhase, DumpProgress, Image, dump, load};
use quire_device::{CacheMode, Directory, DiskDirectory, DiskModel, IoEngine, MemoryDirectory, ThrottledDirectory};
use quire_snapshot::{BackgroundPriority, PAGES_PER_REGION};

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_image_is_the_memory_at_the_cut_while_writes_go_on(
        page_count in 1u32..3 * REGION,
        before in prop::collection::vec((any::<u32>(), any::<u8>()), 0..200),
        during in prop::collection::vec((any::<u32>(), any::<u8>()), 0..400),
        budget in 1usize..40,
        write_pages in 1usize..20,
    ) {
        let mut world = World::new(page_count, budget);
        for (page, value) in before {
            world.write(page % page_count, value);
        }
        let expected = world.model.clone();
        let snapshot = world.cut();
        let memory = MemoryDirectory::new();
        let options = DumpOptions { write_bytes: write_pages * 4096, buffers: 3, ..DumpOptions::default() };
        std::thread::scope(|scope| {
            let dumper = scope.spawn(|| {
                dump(snapshot, &meta(5), &memory, NAME, &DumpProgress::new(), &options)
            });
            for (page, value) in during {
                world.write(page % page_count, value);
            }
            dumper.join().unwrap()
        }).unwrap();
        prop_assert!(world.barrier.try_finish());
        let (epoch, found) = image(&memory);
        prop_assert_eq!(epoch, 5);
        assert_same(&found, &expected);
        world.check();
    }
}

#[test]
fn what_the_writer_says_is_told_by_the_image() {
    let (memory, bytes, model) = saved(700);
    let info = Image::open(&memory, NAME).unwrap().info();
    assert_eq!((info.epoch, info.root, info.note.as_str()), (1, 77, "test"));
    assert_eq!(info.created_unix_ms, 1_700_000_000_001);
    assert_eq!((info.page_count, info.region_count, info.version), (700, 2, 2));
    assert_eq!(info.present_pages, model.len() as u64);
    assert_eq!(info.present_bytes(), model.len() as u64 * 4096);
    assert_eq!(info.file_bytes, bytes.len() as u64);
    assert_eq!(info.file, memory.path_of(NAME));
}

#[test]
fn figures_of_a_dump_add_up() {
    let mut world = World::varied(2 * REGION);
    let snapshot = world.cut();
    let (memory, progress) = (MemoryDirectory::new(), DumpProgress::new());
    assert_eq!(progress.phase(), DumpPhase::Waiting);
    let summary = dump(snapshot, &meta(1), &memory, NAME, &progress, &DumpOptions::default()).unwrap();
    assert_eq!(progress.phase(), DumpPhase::Done);
    assert_eq!((progress.pages_done(), progress.pages_total()), (summary.pages, summary.pages));
    assert_eq!(summary.pages, world.model.len() as u64);
    // Header, footer and a table of one page.
    assert_eq!(summary.bytes_written, (summary.pages + 3) * 4096);
    assert_eq!(summary.file_bytes, memory.bytes(NAME).unwrap().len() as u64);
    assert_eq!(names(&memory), [NAME]);
}

#[test]
fn a_region_full_of_pre_images_is_written_before_its_turn() {
    let mut world = World::varied(4 * REGION);
    world.barrier.set_budget(64 * 4096).unwrap();
    let expected = world.model.clone();
    let snapshot = world.cut();
    let late: Vec<u32> = expected.keys().copied().filter(|page| page / REGION == 3).take(50).collect();
    for page in late {
        world.write(page, 200);
    }
    let (memory, progress) = (MemoryDirectory::new(), DumpProgress::new());
    dump(snapshot, &meta(1), &memory, NAME, &progress, &small_writes()).unwrap();
    assert!(progress.regions_preferred() >= 1);
    assert_same(&image(&memory).1, &expected);
}

#[test]
fn pre_images_far_apart_are_written_one_by_one() {
    let regions = 24;
    let mut world = World::new(regions * REGION, 32);
    for region in 0..regions {
        world.write(region * REGION + 5, 1);
        world.write(region * REGION + 300, 2);
    }
    let expected = world.model.clone();
    let snapshot = world.cut();
    for region in 0..regions {
        world.write(region * REGION + 300, 9);
    }
    let (memory, progress) = (MemoryDirectory::new(), DumpProgress::new());
    dump(snapshot, &meta(1), &memory, NAME, &progress, &small_writes()).unwrap();
    assert!(progress.preimages_spilled() > 0);
    assert_same(&image(&memory).1, &expected);
}

#[test]
fn an_image_without_pages_is_an_image() {
    for page_count in [0, 600] {
        let memory = MemoryDirectory::new();
        World::new(page_count, 8).save(&memory, 3).unwrap();
        let image = Image::open(&memory, NAME).unwrap();
        assert_eq!(image.info().present_pages, 0);
        let summary = image.verify(|_, _| {}).unwrap();
        assert_eq!((summary.regions, summary.damage.len()), (0, 0));
        let loaded = load(&image, &options(), |_, _| {}).unwrap();
        assert_eq!(loaded.committed_bytes, page_count as usize * 4096);
    }
}

#[test]
fn verifying_and_loading_tell_how_far_they_are() {
    let (memory, ..) = saved(3 * REGION + 9);
    let image = Image::open(&memory, NAME).unwrap();
    let mut told = Vec::new();
    image.verify(|done, total| told.push((done, total))).unwrap();
    assert_eq!(told, (0..=4).map(|done| (done, 4)).collect::<Vec<_>>());
    told.clear();
    load(&image, &options(), |done, total| told.push((done, total))).unwrap();
    assert_eq!(told, (1..=4).map(|done| (done, 4)).collect::<Vec<_>>());
}

/// Dumps, verifies and loads in `directory`, and again over the first image.
fn goes_round(directory: &dyn Directory) {
    let mut world = World::varied(2 * REGION + 100);
    for epoch in 1..=2 {
        world.write(3, epoch as u8);
        let snapshot = world.cut();
        let progress = DumpProgress::new();
        let options = DumpOptions {
            write_bytes: 256 << 10,
            buffers: 4,
            background: Some(BackgroundPriority { nice: 5, idle_io: true }),
            ..DumpOptions::default()
        };
        let summary = dump(snapshot, &meta(epoch), directory, NAME, &progress, &options).unwrap();
        assert!(world.barrier.try_finish());
        let (found_epoch, found) = image(directory);
        assert_eq!(found_epoch, epoch, "{}", summary.mode);
        assert_same(&found, &world.model);
        assert_eq!(names(directory), [NAME]);
    }
}

#[test]
fn every_way_to_a_disk_gives_the_same_image() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        for caching in [CacheMode::Direct, CacheMode::Buffered] {
            let folder = tempfile::tempdir().unwrap();
            goes_round(&DiskDirectory::new(folder.path()).with(caching, engine));
        }
    }
}

#[test]
fn a_file_system_in_memory_serves_too() {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => goes_round(&DiskDirectory::new(folder.path())),
        Err(error) => quire_sys::testing::skipped(format!("/dev/shm: {error}")),
    }
}

#[test]
fn a_slow_device_gives_the_same_image() {
    let pace = DiskModel { bytes_per_s: 400 << 20, operation_ns: 1000, ..DiskModel::default() };
    goes_round(&ThrottledDirectory::new(Arc::new(MemoryDirectory::new()), pace));
}

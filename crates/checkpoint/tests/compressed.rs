//! Compressed images and deltas hold exactly the memory at the cut, take less space, and survive what others survive.
//!
//! Relies on `World`, and on real files where space and mappings count.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use proptest::prelude::*;
use quire_checkpoint::{
    Codec, CopyOptions, DumpError, DumpProgress, DumpSummary, Image, ImageChain, copy_chain, dump, dump_delta,
    remove_stale,
};
use quire_device::{
    Directory, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno,
};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;

/// Bytes that no codec makes smaller, which follow from `seed`.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(PAGE_SIZE);
    while bytes.len() < PAGE_SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// A page of the kind that `draw` says: of noise, of a pattern, or of zeros.
fn drawn(page: u32, draw: u8) -> Vec<u8> {
    match draw % 4 {
        0 => noise(u64::from(page) << 8 | u64::from(draw)),
        1 => vec![0; PAGE_SIZE],
        _ => pattern(page, draw),
    }
}

/// Restores the chain on disk by mapping, with all that it has in the background, and checks it.
fn check_mapped(disk: &DiskDirectory, model: &Pages) -> u32 {
    let chain = ImageChain::open(disk, NAME).unwrap();
    let page_count = chain.info().page_count;
    let mut mapped = chain.map(&options()).unwrap();
    assert_same(&held(&mut mapped.barrier, page_count), model);
    assert!(mapped.barrier.try_finish());
    adopt_all(&mut mapped.barrier, &mut mapped.restore).unwrap();
    assert_same(&held(&mut mapped.barrier, page_count), model);
    mapped.regions_loaded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn chains_of_every_mixture_of_codecs_and_pages_are_the_memory_at_the_last_cut(
        page_count in 1u32..3 * REGION,
        saves in prop::collection::vec(
            (prop::collection::vec((any::<u32>(), any::<u8>(), 1u32..40), 0..60), 0usize..3),
            1..4,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskDirectory::new(folder.path());
        let mut world = World::new(page_count, 4096);
        world.track();
        let mut links = Vec::new();
        for (epoch, (writes, codec)) in (1..).zip(saves) {
            for (page, draw, run) in writes {
                let page = page % page_count;
                for page in page..(page + run).min(page_count) {
                    match draw {
                        0..16 => world.empty(page),
                        _ => world.write_bytes(page, drawn(page, draw)),
                    }
                }
            }
            world.compression = [None, Some(Codec::Lz4), Some(Codec::Zstd)][codec];
            let is_compressed = world.compression.is_some();
            match links.is_empty() {
                true => links = world.begin_chain(&disk, epoch).unwrap(),
                false => drop(world.save_delta(&disk, &mut links, epoch).unwrap()),
            }
            let opened = ImageChain::open(&disk, NAME).unwrap();
            if epoch == 1 {
                prop_assert_eq!(opened.info().version, if is_compressed { 3 } else { 2 });
                prop_assert!(is_compressed || opened.info().compression.codec.is_none());
            }
            let (found_epoch, pages) = chain(&disk);
            prop_assert_eq!(found_epoch, epoch);
            assert_same(&pages, &world.model);
            check_mapped(&disk, &world.model);
        }
    }

    #[test]
    fn a_compressed_image_is_the_memory_at_the_cut_while_writes_go_on(
        before in prop::collection::vec((any::<u32>(), any::<u8>()), 0..200),
        during in prop::collection::vec((any::<u32>(), any::<u8>()), 0..400),
        budget in 1usize..40,
    ) {
        let mut world = World::new(2 * REGION, budget);
        world.compression = Some(Codec::Lz4);
        for (page, draw) in before {
            world.write_bytes(page % (2 * REGION), drawn(page, draw));
        }
        let (expected, snapshot, options) = (world.model.clone(), world.cut(), world.dump_options());
        let memory = MemoryDirectory::new();
        std::thread::scope(|scope| {
            let dumper = scope.spawn(|| dump(snapshot, &meta(5), &memory, NAME, &DumpProgress::new(), &options));
            for (page, value) in during {
                world.write(page % (2 * REGION), value);
            }
            dumper.join().unwrap()
        }).unwrap();
        prop_assert!(world.barrier.try_finish());
        assert_same(&image(&memory).1, &expected);
    }
}

/// Dumps memory whose first region is compressed before pages of it get their first content, which `dump` must leave out.
fn grow_behind_the_dump(codec: Codec, is_delta: bool) {
    const AT_CUT: std::ops::Range<u32> = 10..300;
    let mut world = World::new(3 * REGION, 16);
    world.compression = Some(codec);
    if is_delta {
        world.track();
        (0..3 * REGION).for_each(|page| world.write(page, 1));
    }
    let memory = MemoryDirectory::new();
    let links = world.begin_chain(&memory, 1).unwrap();
    // What the region is compressed to takes many pages, among them the place of page 50.
    for page in AT_CUT.filter(|&page| page != 50) {
        world.write_bytes(page, if page % 3 == 0 { noise(page.into()) } else { pattern(page, 3) });
    }
    (REGION..3 * REGION).for_each(|page| world.write(page, 9));
    if is_delta {
        [5, 50, 400].into_iter().for_each(|page| world.empty(page));
    }
    let (expected, options, progress) = (world.model.clone(), world.dump_options(), DumpProgress::new());
    let page_count = world.page_count;
    let snapshot =
        if is_delta { world.barrier.cut_changes(page_count).unwrap() } else { world.barrier.cut(page_count).unwrap() };
    progress.limit_rate(1);
    let summary = std::thread::scope(|scope| {
        let dumper = scope.spawn(|| match is_delta {
            true => dump_delta(snapshot, &links, &meta(2), &memory, NAME, &progress, &options),
            false => dump(snapshot, &meta(2), &memory, NAME, &progress, &options),
        });
        // The rate holds the dumper up behind the first region, until the writer is short of buffers.
        while progress.pages_done() == 0 {
            std::thread::yield_now();
        }
        let in_first = [5, 50, 400];
        let elsewhere = (0..6).flat_map(|at| [REGION + 60 * at, 2 * REGION + 60 * at]);
        in_first.into_iter().chain(elsewhere).for_each(|page| world.write(page, 77));
        while progress.preimages_spilled() == 0 {
            std::thread::yield_now();
        }
        progress.limit_rate(0);
        dumper.join().unwrap()
    })
    .unwrap();
    assert!(summary.regions_compressed > 0);
    assert_same(&chain(&memory).1, &expected);
}

#[test]
fn pages_that_get_content_behind_a_dump_that_compresses_do_not_get_into_it() {
    for codec in Codec::ALL {
        grow_behind_the_dump(codec, false);
        grow_behind_the_dump(codec, true);
    }
}

/// Regions 0 and 1 of patterns, 2 of noise, 3 absent, 4 with few pages.
fn mixed(codec: Codec) -> World {
    let mut world = World::new(4 * REGION + 60, 4096);
    world.compression = Some(codec);
    (0..2 * REGION).for_each(|page| world.write(page, 7));
    (2 * REGION..3 * REGION).for_each(|page| world.write_bytes(page, noise(page.into())));
    (4 * REGION + 20..4 * REGION + 40).for_each(|page| world.write(page, 9));
    world
}

#[test]
fn what_compresses_takes_less_space_on_the_disk_and_the_rest_is_mapped() {
    for codec in Codec::ALL {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskDirectory::new(folder.path());
        let mut world = mixed(codec);
        let summary = world.save(&disk, 1).unwrap();
        assert_eq!(summary.pages, world.model.len() as u64);
        assert_eq!(summary.regions_compressed, 3);
        // Header, footer, and a table of one page.
        assert_eq!(summary.bytes_written + summary.saved_bytes, (summary.pages + 3) * PAGE_SIZE as u64);
        assert!(summary.saved_bytes > 3 << 20, "{}", summary.saved_bytes);
        let on_disk = |path: &std::path::Path| std::fs::metadata(path.join(NAME)).unwrap().blocks() * 512;
        let most = summary.bytes_written + (256 << 10);
        assert!(on_disk(folder.path()) <= most, "{} of {most}", on_disk(folder.path()));
        let info = Image::open(&disk, NAME).unwrap().info();
        assert_eq!((info.version, info.compression.codec, info.compression.regions), (3, Some(codec), 3));
        assert_eq!(info.compression.stored_bytes, info.present_bytes() - summary.saved_bytes);
        assert_eq!(check_mapped(&disk, &world.model), 3, "the region of noise is mapped");
        let other = tempfile::tempdir().unwrap();
        copy_chain(&disk, NAME, &DiskDirectory::new(other.path()), CopyOptions::default(), |_, _| {}).unwrap();
        assert!(on_disk(other.path()) <= most, "{} of {most}", on_disk(other.path()));
        assert!(std::fs::read(other.path().join(NAME)).unwrap() == std::fs::read(folder.path().join(NAME)).unwrap());
    }
}

#[test]
fn a_compressed_delta_takes_less_space_over_any_image_and_a_clone_reads_it() {
    for (codec, below) in [(Codec::Lz4, None), (Codec::Zstd, Some(Codec::Lz4)), (Codec::Lz4, Some(Codec::Zstd))] {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskDirectory::new(folder.path());
        let mut world = mixed(codec);
        world.compression = below;
        world.track();
        let mut links = world.begin_chain(&disk, 1).unwrap();
        world.compression = Some(codec);
        (100..300).for_each(|page| world.write(page, 50));
        world.empty(200);
        (2 * REGION..2 * REGION + 9).for_each(|page| world.write_bytes(page, noise(u64::from(page) + 99)));
        let summary = world.save_delta(&disk, &mut links, 2).unwrap();
        assert_eq!((summary.is_delta, summary.pages, summary.regions_compressed), (true, 208, 1));
        assert_eq!(summary.bytes_written + summary.saved_bytes, (208 + 3) * PAGE_SIZE as u64);
        let opened = ImageChain::open(&disk, NAME).unwrap();
        let delta = opened.deltas().remove(0);
        assert_eq!((delta.compression.codec, delta.compression.regions), (Some(codec), 1));
        assert_eq!(delta.compression.stored_bytes, 208 * PAGE_SIZE as u64 - summary.saved_bytes);
        assert_same(&chain(&disk).1, &world.model);
        check_mapped(&disk, &world.model);
        let page_count = opened.info().page_count;
        let mut cloned = opened.map_shared(&options()).unwrap();
        assert_same(&held(&mut cloned.barrier, page_count), &world.model);
        while !cloned.check.status().is_done() {
            assert_eq!(cloned.check.status().failed, None);
            std::thread::yield_now();
        }
        let copy = MemoryDirectory::new();
        copy_chain(&disk, NAME, &copy, CopyOptions::default(), |_, _| {}).unwrap();
        assert_same(&chain(&copy).1, &world.model);
    }
}

#[test]
fn a_region_of_which_pages_were_written_one_by_one_is_stored_as_it_is() {
    let regions = 24;
    let mut world = World::new(regions * REGION, 32);
    world.compression = Some(Codec::Zstd);
    for region in 0..regions {
        (0..8).for_each(|page| world.write(region * REGION + page, 1));
    }
    let (expected, snapshot) = (world.model.clone(), world.cut());
    for region in 0..regions {
        world.write(region * REGION + 3, 9);
    }
    let memory = MemoryDirectory::new();
    let summary = dump(snapshot, &meta(1), &memory, NAME, &DumpProgress::new(), &world.dump_options()).unwrap();
    assert!(summary.preimages_spilled > 0 && summary.regions_compressed > 0, "{summary:?}");
    assert!(summary.regions_compressed + summary.preimages_spilled <= u64::from(regions), "{summary:?}");
    assert_same(&image(&memory).1, &expected);
}

#[test]
fn a_limit_of_the_rate_counts_what_is_written() {
    let mut world = World::new(32 * REGION, 64);
    world.compression = Some(Codec::Zstd);
    (0..32 * REGION).for_each(|page| world.write_bytes(page, vec![page as u8 | 1; PAGE_SIZE]));
    let (snapshot, memory, progress, options) =
        (world.cut(), MemoryDirectory::new(), DumpProgress::new(), world.dump_options());
    // All pages would take four minutes at that rate; what they are compressed to takes about a second.
    progress.limit_rate(256 << 10);
    let summary = dump(snapshot, &meta(1), &memory, NAME, &progress, &options).unwrap();
    assert_eq!((progress.pages_done(), summary.regions_compressed), (summary.pages, 32));
    assert!(summary.bytes_written < 512 << 10, "{summary:?}");
    assert_same(&image(&memory).1, &world.model);
}

/// An image and a delta of `codec`, and a world that has moved on. What is to be saved next, and what was.
fn begun(codec: Codec) -> (MemoryDirectory, World, Vec<quire_checkpoint::LinkId>, Pages) {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(300);
    world.compression = Some(codec);
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    (0..40).for_each(|page| world.write(page * 3, 2));
    world.save_delta(&memory, &mut links, 2).unwrap();
    let had = world.model.clone();
    (0..60).for_each(|page| world.write(page + 50, 3));
    (200..210).for_each(|page| world.write_bytes(page, noise(page.into())));
    world.empty(1);
    (memory, world, links, had)
}

fn save_next(
    world: &mut World,
    links: &mut Vec<quire_checkpoint::LinkId>,
    directory: &dyn Directory,
    full: bool,
) -> Result<DumpSummary, DumpError> {
    match full {
        true => world.save(directory, 3),
        false => world.save_delta(directory, links, 3),
    }
}

#[test]
fn whenever_the_power_goes_the_old_or_the_new_compressed_chain_is_whole() {
    let cuts = || [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((1..=6).map(PowerCut::KeepSome));
    for (codec, full) in [(Codec::Lz4, true), (Codec::Lz4, false), (Codec::Zstd, true), (Codec::Zstd, false)] {
        let (memory, mut world, mut links, _) = begun(codec);
        let start = memory.steps();
        assert!(save_next(&mut world, &mut links, &memory, full).unwrap().regions_compressed > 0);
        let mut found_epochs = [0; 4];
        for step in start..=memory.steps() {
            let (memory, mut world, mut links, had) = begun(codec);
            memory.power_off_at(step);
            let result = save_next(&mut world, &mut links, &memory, full);
            for cut in cuts() {
                let found = memory.after_power_cut(cut);
                remove_stale(&found, NAME).unwrap();
                let (epoch, pages) = chain(&found);
                assert_same(&pages, if epoch == 2 { &had } else { &world.model });
                assert!(epoch == 3 || result.is_err(), "a save that ended well was lost at step {step}, {cut:?}");
                found_epochs[epoch as usize] += 1;
            }
        }
        assert!(found_epochs[1] == 0 && found_epochs[2] > 10 && found_epochs[3] > 5, "{found_epochs:?}");
    }
}

#[test]
fn a_write_that_fails_leaves_the_chain_as_it_was_wherever_it_is() {
    for full in [true, false] {
        for number in 0.. {
            let (memory, mut world, mut links, had) = begun(Codec::Lz4);
            // A full disk stays so: the write is tried again where another test has freed files meanwhile.
            let rules = vec![(
                FaultTrigger::From(quire_device::DeviceOperation::Write, number),
                InjectedFault::Error(errno::ENOSPC),
            )];
            let faulty = FaultInjector::new(Arc::new(memory.clone()), rules);
            let result = save_next(&mut world, &mut links, &faulty, full);
            assert_same(&chain(&memory).1, if result.is_ok() { &world.model } else { &had });
            if faulty.struck() == 0 {
                assert!(number > 2, "{number}");
                break;
            }
            assert!(result.is_err());
        }
    }
}

#[test]
fn a_dump_that_compresses_can_be_cancelled() {
    let mut world = World::varied(3 * REGION);
    world.compression = Some(Codec::Zstd);
    let (snapshot, memory, progress, options) =
        (world.cut(), MemoryDirectory::new(), DumpProgress::new(), world.dump_options());
    progress.limit_rate(1);
    std::thread::scope(|scope| {
        let dumper = scope.spawn(|| dump(snapshot, &meta(1), &memory, NAME, &progress, &options));
        while progress.pages_done() == 0 {
            std::thread::yield_now();
        }
        progress.cancel();
        assert!(matches!(dumper.join().unwrap(), Err(DumpError::Cancelled { .. })));
    });
    assert!(names(&memory).is_empty());
}

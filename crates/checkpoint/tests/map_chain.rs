//! A mapped chain serves at once what its deltas hold, however their pages are scattered, and ends as verified memory.
//!
//! Relies on real files in a temporary directory. Regions are exchanged as the owner of the memory would.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use quire_checkpoint::{ImageChain, ImageError, ImagePart, MappedImage, RestoreOptions};
use quire_device::{Directory, DiskDirectory};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};
use tempfile::TempDir;

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;
const PAGES: u32 = 6 * REGION;
/// The system's default.
const MAPPINGS: usize = 65_530;

struct Saved {
    folder: TempDir,
    disk: DiskDirectory,
    model: Pages,
}

/// An image of pages in all regions but the last, and a delta of each of `changes`.
fn saved(changes: &[&[u32]]) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskDirectory::new(folder.path());
    let mut world = World::new(PAGES, 64);
    (0..5 * REGION).filter(|page| page % 3 > 0).for_each(|page| world.write(page, 1));
    world.track();
    let mut links = world.begin_chain(&disk, 1).unwrap();
    for (epoch, pages) in (2..).zip(changes) {
        pages.iter().for_each(|&page| world.write(page, epoch as u8));
        world.save_delta(&disk, &mut links, epoch).unwrap();
    }
    Saved { folder, disk, model: world.model }
}

fn mapped(disk: &dyn Directory, max_mappings: usize) -> MappedImage {
    ImageChain::open(disk, NAME).unwrap().map_with(&options(), max_mappings).unwrap()
}

/// Pages of `region` that lie alone.
fn scattered(region: u32, count: u32) -> Vec<u32> {
    (0..count).map(|number| region * REGION + number * 5 + 1).collect()
}

#[test]
fn pages_of_deltas_are_mapped_where_they_lie_and_needed_no_more_after_the_exchange() {
    let first: Vec<u32> = (40..90).chain(REGION - 3..REGION + 3).chain(scattered(3, 20)).collect();
    // Over the delta before, beyond the image's pages, and between its pages.
    let second: Vec<u32> = (60..70).chain([5 * REGION + 7, 5 * REGION + 8, 3 * REGION + 6]).collect();
    let Saved { folder, disk, model } = saved(&[&first, &second]);
    let MappedImage { barrier, mut restore, damage, regions_loaded, delta_runs, .. } = mapped(&disk, MAPPINGS);
    // Three of 40..90, two around the end of the first region, 20 scattered ones, one in the last region.
    assert_eq!((damage.len(), regions_loaded, delta_runs), (0, 0, 26));
    let mut world = World::of(barrier, PAGES, model);
    world.check();
    world.track();
    for page in [50, 65, 3 * REGION + 6, 5 * REGION + 7, 4 * REGION] {
        world.write(page, 77);
    }
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    assert_eq!(restore.status().regions_total, 6);
    assert_eq!(world.barrier.changed_pages(), Some(5), "what a delta holds has not changed since");
    drop(restore);
    // A process that still had a page of a file mapped would be killed by touching it now.
    for name in names(&disk) {
        std::fs::File::options().write(true).open(folder.path().join(name)).unwrap().set_len(0).unwrap();
    }
    world.check();
}

#[test]
fn regions_with_too_many_runs_are_read_first_and_not_exchanged() {
    let changed: Vec<u32> = scattered(1, 65).into_iter().chain(scattered(2, 64)).collect();
    let Saved { disk, model, folder: _folder } = saved(&[&changed]);
    let MappedImage { barrier, mut restore, regions_loaded, delta_runs, .. } = mapped(&disk, MAPPINGS);
    assert_eq!((regions_loaded, delta_runs, restore.status().regions_total), (1, 64, 4));
    let mut world = World::of(barrier, PAGES, model);
    world.check();
    for page in [REGION + 1, REGION + 2, 2 * REGION + 1] {
        world.write(page, 9);
    }
    adopt_all(&mut world.barrier, &mut restore).unwrap();
    world.check();
}

#[test]
fn no_more_runs_are_mapped_than_the_system_has_mappings_for() {
    let changed: Vec<u32> =
        [(0, 9), (1, 4), (2, 30), (4, 1)].iter().flat_map(|&(r, count)| scattered(r, count)).collect();
    let Saved { disk, model, folder: _folder } = saved(&[&changed]);
    // Those with the fewest runs are mapped.
    for (max_mappings, expected) in [(0, (4, 0)), (4, (3, 1)), (55, (2, 5)), (56, (1, 14)), (4 * 44, (0, 44))] {
        let mut mapped = mapped(&disk, max_mappings);
        let found = (mapped.regions_loaded, mapped.delta_runs);
        assert_eq!(found, expected, "{max_mappings} mappings");
        adopt_all(&mut mapped.barrier, &mut mapped.restore).unwrap();
        World::of(mapped.barrier, PAGES, model.clone()).check();
    }
}

#[test]
fn regions_with_many_runs_are_exchanged_in_smaller_steps() {
    let changed: Vec<u32> = (0..5).flat_map(|region| scattered(region, 30)).collect();
    let Saved { disk, folder: _folder, .. } = saved(&[&changed]);
    let MappedImage { mut restore, barrier: _memory, .. } = mapped(&disk, MAPPINGS);
    let start = Instant::now();
    while restore.status().staged < 5 {
        assert!(start.elapsed() < PATIENCE && restore.status().failed.is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut sizes = Vec::new();
    while let Some(regions) = restore.next_ready(16) {
        sizes.push(regions.len());
        restore.adopted(regions);
    }
    assert_eq!(sizes, [2, 2, 1]);
}

/// Flips a bit of the first page of the first delta that is `rank`.
fn flip(saved: &Saved, rank: usize) -> usize {
    let path = saved.folder.path().join(format!("{NAME}.delta-1"));
    let mut bytes = std::fs::read(&path).unwrap();
    let offset = PAGE_SIZE * (1 + rank);
    bytes[offset + 9] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    offset
}

fn assert_told(error: &ImageError, saved: &Saved, offset: usize) {
    let ImageError::Damaged { file, part: ImagePart::Data, offset: found, .. } = error else { panic!("{error}") };
    let path = saved.folder.path().join(format!("{NAME}.delta-1"));
    assert_eq!((file.as_str(), *found), (path.to_str().unwrap(), offset as u64));
}

#[test]
fn damage_of_a_mapped_page_of_a_delta_is_told_in_the_background() {
    let saved = saved(&[&[3, 4, 5]]);
    let offset = flip(&saved, 1);
    let mut strict = mapped(&saved.disk, MAPPINGS);
    assert_told(&adopt_all(&mut strict.barrier, &mut strict.restore).unwrap_err(), &saved, offset);
    let accepting = RestoreOptions { accept_damaged: true, ..options() };
    let mut found = ImageChain::open(&saved.disk, NAME).unwrap().map(&accepting).unwrap();
    adopt_all(&mut found.barrier, &mut found.restore).unwrap();
    assert_eq!((found.restore.status().damaged, found.damage.len()), (1, 0));
    let mut model = saved.model;
    model.get_mut(&4).unwrap()[9] ^= 1;
    World::of(found.barrier, PAGES, model).check();
}

#[test]
fn damage_of_a_page_that_is_read_first_is_told_at_once() {
    let saved = saved(&[&scattered(0, 70)]);
    let offset = flip(&saved, 2);
    let open = || ImageChain::open(&saved.disk, NAME).unwrap();
    assert_told(&open().map(&options()).err().unwrap(), &saved, offset);
    let accepting = RestoreOptions { accept_damaged: true, ..options() };
    let mut found = open().map(&accepting).unwrap();
    assert_told(&found.damage[0], &saved, offset);
    adopt_all(&mut found.barrier, &mut found.restore).unwrap();
    assert_eq!((found.restore.status().damaged, found.damage.len()), (0, 1));
}

#[test]
fn damage_of_a_page_that_a_newer_delta_has_is_told_too() {
    let saved = saved(&[&[3, 4, 5], &[4]]);
    let offset = flip(&saved, 1);
    let mut found = mapped(&saved.disk, MAPPINGS);
    assert_told(&adopt_all(&mut found.barrier, &mut found.restore).unwrap_err(), &saved, offset);
    let loaded = ImageChain::open(&saved.disk, NAME).unwrap().load(&options(), |_, _| {});
    assert_told(&loaded.err().unwrap(), &saved, offset);
    // The page that counts is sound, and is used.
    let accepting = RestoreOptions { accept_damaged: true, ..options() };
    let mut found = ImageChain::open(&saved.disk, NAME).unwrap().map(&accepting).unwrap();
    adopt_all(&mut found.barrier, &mut found.restore).unwrap();
    World::of(found.barrier, PAGES, saved.model.clone()).check();
}

#[derive(Clone, Debug)]
enum Change {
    Write(u32, u32, u8),
    Empty(u32, u32),
    Save,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        6 => (0..PAGES, 1..30u32, any::<u8>()).prop_map(|(page, count, value)| Change::Write(page, count, value)),
        1 => (0..PAGES, 1..30u32).prop_map(|(page, count)| Change::Empty(page, count)),
        1 => (0..6u32).prop_map(|region| Change::Empty(region * REGION, REGION)),
        2 => Just(Change::Save),
    ];
    prop::collection::vec(change, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_chain_is_mapped_and_loaded_as_the_memory_at_its_last_cut(
        changes in changes(),
        max_mappings in prop_oneof![0..120usize, Just(MAPPINGS)],
        writes in prop::collection::vec((0..PAGES, any::<u8>()), 0..20),
        exchanged in 0..4u32,
    ) {
        let Saved { disk, model, folder: _folder } = saved(&[]);
        let mut world = World::new(PAGES, 64);
        for (page, bytes) in &model {
            world.barrier.mark_present(*page..page + 1);
            world.barrier.write(*page as usize * PAGE_SIZE, bytes).unwrap();
        }
        world.model = model;
        world.track();
        let mut links = world.begin_chain(&disk, 1).unwrap();
        for (epoch, change) in (2..).zip(changes.into_iter().chain([Change::Save])) {
            match change {
                Change::Write(page, count, value) => {
                    (page..(page + count).min(PAGES)).for_each(|page| world.write(page, value));
                }
                Change::Empty(page, count) => (page..(page + count).min(PAGES)).for_each(|page| world.empty(page)),
                Change::Save => drop(world.save_delta(&disk, &mut links, epoch).unwrap()),
            }
        }
        let mut loaded = ImageChain::open(&disk, NAME).unwrap().load(&options(), |_, _| {}).unwrap();
        assert_same(&held(&mut loaded.barrier, PAGES), &world.model);
        let MappedImage { barrier, mut restore, delta_runs, .. } = mapped(&disk, max_mappings);
        prop_assert!(delta_runs as usize <= max_mappings / 4);
        let mut world = World::of(barrier, PAGES, world.model);
        world.barrier.set_restoring(true);
        world.check();
        for (page, value) in writes {
            world.write(page, value);
            adopt(&mut world.barrier, &mut restore, exchanged);
        }
        world.check();
        adopt_all(&mut world.barrier, &mut restore).unwrap();
        world.check();
    }
}

//! An image with deltas over it brings back the memory at the last cut, and a chain whose links don't fit is refused.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use quire_checkpoint::delta_format::{DeltaFooter, DeltaHeader, DeltaLayout};
use quire_checkpoint::{
    DumpError, DumpOptions, DumpProgress, ImageChain, ImageError, ImagePart, LinkId, RestoreOptions, dump,
};
use quire_device::{Directory, DiskDirectory, MemoryDirectory};
use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::*;

const REGION: u32 = PAGES_PER_REGION as u32;

fn delta(number: usize) -> String {
    format!("{NAME}.delta-{number}")
}

/// An image and two deltas over it, with pages that got content, lost it, and got it again, and a memory that grew.
fn saved_chain(directory: &dyn Directory) -> (World, Vec<LinkId>, Pages) {
    let mut world = World::new(3 * REGION + 100, 4096);
    for page in (0..3 * REGION).filter(|page| page % 5 < 2 || (REGION..2 * REGION).contains(page)) {
        world.write(page, 1);
    }
    world.page_count = 2 * REGION + 40;
    world.model.retain(|page, _| *page < 2 * REGION + 40);
    world.track();
    let mut links = world.begin_chain(directory, 1).unwrap();
    (0..20).for_each(|page| world.write(page * 3, 2));
    // A whole region, of which no page of the image counts any more.
    (REGION..2 * REGION).for_each(|page| world.empty(page));
    world.save_delta(directory, &mut links, 2).unwrap();
    let between = world.model.clone();
    world.page_count = 3 * REGION + 70;
    for page in (2 * REGION + 30..3 * REGION).step_by(7).chain([3 * REGION + 69, 5, REGION + 9]) {
        world.write(page, 3);
    }
    world.empty(6);
    for page in (2 * REGION + 40..3 * REGION).filter(|page| page % 5 < 2) {
        world.model.entry(page).or_insert_with(|| pattern(page, 1));
    }
    // What lay beyond the image's last page is as it was; it must be written to be part of a delta.
    let beyond: Vec<u32> = (2 * REGION + 40..3 * REGION).filter(|page| page % 5 < 2).collect();
    for page in beyond {
        let bytes = world.model[&page].clone();
        world.barrier.write(page as usize * PAGE_SIZE, &bytes).unwrap();
    }
    world.save_delta(directory, &mut links, 3).unwrap();
    (world, links, between)
}

#[test]
fn a_chain_is_loaded_as_the_memory_at_its_last_cut() {
    let memory = MemoryDirectory::new();
    let (world, links, _) = saved_chain(&memory);
    assert_eq!(names(&memory), [NAME.to_owned(), delta(1), delta(2)]);
    let opened = ImageChain::open(&memory, NAME).unwrap();
    assert_eq!(opened.links(), Some(links));
    assert_eq!(opened.deltas().iter().map(|delta| delta.epoch).collect::<Vec<_>>(), [2, 3]);
    let (epoch, pages) = chain(&memory);
    assert_eq!(epoch, 3);
    assert_same(&pages, &world.model);
}

#[test]
fn a_mapped_chain_shows_the_last_cut_at_once_and_when_all_is_exchanged() {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskDirectory::new(folder.path());
    let (world, ..) = saved_chain(&disk);
    let mut mapped = ImageChain::open(&disk, NAME).unwrap().map(&options()).unwrap();
    assert!(mapped.damage.is_empty() && mapped.committed_bytes == world.page_count as usize * PAGE_SIZE);
    assert_same(&held(&mut mapped.barrier, world.page_count), &world.model);
    let mut world = World::of(mapped.barrier, world.page_count, world.model);
    world.barrier.set_restoring(true);
    world.track();
    world.write(3, 77);
    world.write(8, 78);
    let start = Instant::now();
    while !mapped.restore.status().done {
        match mapped.restore.next_ready(2) {
            Some(regions) => {
                world.barrier.migrate_regions(regions.clone(), mapped.restore.staging()).unwrap();
                mapped.restore.adopted(regions);
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(start.elapsed() < PATIENCE && mapped.restore.status().failed.is_none());
    }
    // In the first region a page has lost its content, in the third one there are too many runs.
    assert_eq!((mapped.restore.status().regions_total, mapped.regions_loaded, mapped.delta_runs), (2, 2, 2));
    world.barrier.set_restoring(false);
    assert_eq!(world.barrier.changed_pages(), Some(2), "only what was written since");
    world.check();
    // It goes on where it was.
    let mut links = ImageChain::open(&disk, NAME).unwrap().links().unwrap();
    world.barrier.settle(false);
    assert_eq!(world.save_delta(&disk, &mut links, 4).unwrap().pages, 2);
    assert_same(&chain(&disk).1, &world.model);
}

#[test]
fn time_and_space_of_a_delta_follow_what_changed() {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(8 * REGION);
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    for page in (0..8 * REGION).step_by(100) {
        world.write(page, 9);
    }
    let changed = (8 * REGION).div_ceil(100);
    let summary = world.save_delta(&memory, &mut links, 2).unwrap();
    assert!(summary.is_delta && summary.pages == u64::from(changed));
    assert_eq!(summary.file_bytes, (u64::from(changed) + 3) * PAGE_SIZE as u64);
    assert_eq!(summary.bytes_written, summary.file_bytes);
    assert_eq!(world.save_delta(&memory, &mut links, 3).unwrap().pages, 0);
    assert_same(&chain(&memory).1, &world.model);
}

#[test]
fn a_full_image_takes_the_place_of_the_whole_chain() {
    let memory = MemoryDirectory::new();
    let (mut world, ..) = saved_chain(&memory);
    let mut links = world.begin_chain(&memory, 4).unwrap();
    assert_eq!(names(&memory), [NAME]);
    world.write(0, 9);
    world.save_delta(&memory, &mut links, 5).unwrap();
    assert_same(&chain(&memory).1, &world.model);
}

#[test]
fn a_chain_that_is_kept_can_be_opened_under_its_other_name() {
    let memory = MemoryDirectory::new();
    let (mut world, ..) = saved_chain(&memory);
    let options = DumpOptions { keep_replaced_as: Some("kept".into()), ..small_writes() };
    let snapshot = world.cut();
    dump(snapshot, &meta(4), &memory, NAME, &DumpProgress::new(), &options).unwrap();
    assert_eq!(names(&memory), [NAME, "kept", "kept.delta-1", "kept.delta-2"]);
    assert_eq!(ImageChain::open(&memory, "kept").unwrap().info().epoch, 3);
}

/// What opening the chain is refused with.
fn refused(directory: &MemoryDirectory) -> ImageError {
    ImageChain::open(directory, NAME).expect_err("the chain was accepted")
}

fn wrong_base(directory: &MemoryDirectory) -> String {
    let error = refused(directory);
    assert!(matches!(error, ImageError::WrongBase { .. }) && !error.is_damage(), "{error}");
    assert!(ImageChain::open_damaged(directory, NAME).is_err(), "no damage, so nothing to accept");
    error.to_string()
}

#[test]
fn links_that_do_not_belong_together_are_refused() {
    let memory = MemoryDirectory::new();
    let (mut world, ..) = saved_chain(&memory);
    let (image, first) = (memory.bytes(NAME).unwrap(), memory.bytes(&delta(1)).unwrap());
    memory.remove(&delta(1)).unwrap();
    assert!(wrong_base(&memory).contains("deltas between them are missing"));
    memory.put(&delta(1), &first);
    chain(&memory);
    // Another image of the same epoch.
    let other = MemoryDirectory::new();
    world.save(&other, 1).unwrap();
    memory.put(NAME, &other.bytes(NAME).unwrap());
    assert!(wrong_base(&memory).contains("it was made for another file"));
    memory.remove(NAME).unwrap();
    let text = wrong_base(&memory);
    assert!(text.contains(&memory.path_of(&delta(1))) && text.contains("there is no such file"), "{text}");
    memory.put(NAME, &image);
    memory.put(&delta(2), &first);
    assert!(wrong_base(&memory).contains("it was made for another file"));
}

#[test]
fn only_deltas_of_the_same_history_that_are_older_are_leftovers() {
    let memory = MemoryDirectory::new();
    saved_chain(&memory);
    let mut world = World::varied(100);
    let newer = MemoryDirectory::new();
    for (history, is_leftover) in [(9, true), (8, false), (0, false)] {
        let snapshot = world.cut();
        let meta = quire_checkpoint::ImageMeta { history, ..meta(7) };
        dump(snapshot, &meta, &newer, NAME, &DumpProgress::new(), &small_writes()).unwrap();
        memory.put(NAME, &newer.bytes(NAME).unwrap());
        assert_eq!(ImageChain::open(&memory, NAME).is_ok(), is_leftover, "history {history}");
    }
    memory.put(NAME, &{
        let snapshot = world.cut();
        dump(snapshot, &meta(7), &newer, NAME, &DumpProgress::new(), &small_writes()).unwrap();
        newer.bytes(NAME).unwrap()
    });
    let mut found = ImageChain::open(&memory, NAME).unwrap();
    assert_eq!((found.deltas().len(), found.info().epoch), (0, 7));
    assert_eq!(found.remove_leftover(&memory).unwrap(), 2);
    assert_eq!(names(&memory), [NAME]);
}

#[test]
fn a_delta_is_not_written_over_links_that_have_changed() {
    let memory = MemoryDirectory::new();
    let (mut world, links, _) = saved_chain(&memory);
    let first = memory.bytes(&delta(1)).unwrap();
    for exchanged in [None, Some(&first[..PAGE_SIZE]), Some(&first[..100]), Some(&[])] {
        memory.remove(&delta(1)).unwrap();
        if let Some(bytes) = exchanged {
            memory.put(&delta(1), bytes);
        }
        world.write(1, 50);
        let error = world.save_delta(&memory, &mut links.clone(), 4).unwrap_err();
        assert!(matches!(error, DumpError::BaseChanged { .. }), "{error}");
        memory.put(&delta(1), &first);
    }
    assert_eq!(chain(&memory).0, 3);
    world.save_delta(&memory, &mut links.clone(), 4).unwrap();
    assert_same(&chain(&memory).1, &world.model);
}

#[test]
fn an_image_that_no_delta_may_follow_is_one_that_older_programs_read() {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(50);
    let meta = quire_checkpoint::ImageMeta { chained: false, ..meta(1) };
    dump(world.cut(), &meta, &memory, NAME, &DumpProgress::new(), &small_writes()).unwrap();
    let found = ImageChain::open(&memory, NAME).unwrap();
    assert_eq!((found.info().version, found.links()), (1, None));
}

/// The chain of [`saved_chain`] with its second delta changed by `change`.
fn with_delta(change: impl FnOnce(&mut Vec<u8>)) -> (MemoryDirectory, Pages, Pages) {
    let memory = MemoryDirectory::new();
    let (world, _, between) = saved_chain(&memory);
    let mut bytes = memory.bytes(&delta(2)).unwrap();
    change(&mut bytes);
    memory.put(&delta(2), &bytes);
    (memory, world.model, between)
}

#[test]
fn a_flipped_bit_anywhere_in_a_delta_is_noticed_and_told_with_its_part() {
    let (memory, model, between) = with_delta(|_| {});
    let bytes = memory.bytes(&delta(2)).unwrap();
    let header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
    let layout = DeltaLayout::new(header.changed_pages.get());
    let (data, table, footer) = (PAGE_SIZE, layout.table_offset() as usize, layout.footer_offset() as usize);
    let parts = [(0, ImagePart::Header), (table, ImagePart::Table), (footer, ImagePart::Footer)];
    for (start, part) in parts {
        for at in (0..PAGE_SIZE).filter(|at| *at < 150 || at % 97 == 0 || at + 24 > PAGE_SIZE) {
            let mut bytes = bytes.clone();
            bytes[start + at] ^= 0x10;
            memory.put(&delta(2), &bytes);
            let error = refused(&memory);
            assert!(matches!(error, ImageError::Damaged { part: found, .. } if found == part), "{part} {at}: {error}");
            assert!(error.to_string().contains(&memory.path_of(&delta(2))), "{error}");
        }
        // What came before it is used if that is accepted.
        let (left, damage) = ImageChain::open_damaged(&memory, NAME).unwrap();
        assert!(damage.len() == 1 && damage[0].is_damage(), "{damage:?}");
        let pages = left.info().page_count;
        assert_same(&held(&mut left.load(&options(), |_, _| {}).unwrap().barrier, pages), &between);
    }
    for at in [data, data + 2 * PAGE_SIZE + 5, table - PAGE_SIZE, table - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        memory.put(&delta(2), &bytes);
        let opened = || ImageChain::open(&memory, NAME).unwrap();
        let damage = opened().verify(|_, _| {}).unwrap().damage;
        let [ImageError::Damaged { part: ImagePart::Data, offset, .. }] = damage.as_slice() else {
            panic!("{damage:?}")
        };
        assert_eq!(*offset as usize, at / PAGE_SIZE * PAGE_SIZE);
        assert_eq!(opened().load(&options(), |_, _| {}).err().as_ref(), damage.first());
        let accepting = RestoreOptions { accept_damaged: true, ..options() };
        let mut loaded = opened().load(&accepting, |_, _| {}).unwrap();
        assert_eq!(loaded.summary.damage, damage);
        let found = held(&mut loaded.barrier, opened().info().page_count);
        let wrong = found.iter().filter(|(page, bytes)| model.get(page).is_some_and(|model| model != *bytes));
        assert_eq!(wrong.count(), 1);
    }
    for len in [0, 100, PAGE_SIZE, table, bytes.len() - 1] {
        memory.put(&delta(2), &bytes[..len]);
        assert!(refused(&memory).is_damage(), "{len} bytes");
    }
    memory.put(&delta(2), &bytes);
    chain(&memory);
}

#[test]
fn deltas_that_a_damaged_image_can_not_be_matched_with_are_told_beside_its_damage() {
    let memory = MemoryDirectory::new();
    saved_chain(&memory);
    let bytes = memory.bytes(NAME).unwrap();
    memory.put(NAME, &bytes[..bytes.len() - PAGE_SIZE]);
    let (left, damage) = ImageChain::open_damaged(&memory, NAME).unwrap();
    assert_eq!(left.deltas(), []);
    let [image, ImageError::WrongBase { file, .. }] = damage.as_slice() else { panic!("{damage:?}") };
    assert!(image.is_damage() && *file == memory.path_of(&delta(1)), "{image}");
}

#[test]
fn a_delta_of_a_newer_version_is_refused_whatever_else_is_in_it() {
    for checksum in [0, 1] {
        let (memory, ..) = with_delta(|bytes| {
            let mut header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
            header.version = 7.into();
            header.checksum = (header.own_checksum() + checksum).into();
            bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
        });
        assert!(matches!(refused(&memory), ImageError::Version { found: 7, known: 2, .. }));
        assert!(ImageChain::open_damaged(&memory, NAME).is_err(), "it isn't damaged");
    }
}

#[test]
fn unused_bytes_of_a_delta_that_are_not_zero_are_told_with_their_place_even_under_right_checksums() {
    type Change = fn(&mut DeltaHeader);
    let changes: [(Change, u64); 4] = [
        (|header| header.changed_regions = 1.into(), 136),
        (|header| header.changed_regions = (1 << 24).into(), 139),
        (|header| header.unused[0] = 1, 140),
        (|header| header.unused[3947] = 1, 4087),
    ];
    let place = |memory: &MemoryDirectory| match refused(memory) {
        ImageError::Damaged { part, offset, .. } => (part, offset),
        other => panic!("{other}"),
    };
    for (change, offset) in changes {
        let (memory, ..) = with_delta(|bytes| {
            let mut header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
            change(&mut header);
            header.checksum = header.own_checksum().into();
            bytes[..PAGE_SIZE].copy_from_slice(header.as_bytes());
        });
        assert_eq!(place(&memory), (ImagePart::Header, offset));
    }
    for at in [0, 4031] {
        let mut start = 0;
        let (memory, ..) = with_delta(|bytes| {
            start = bytes.len() - PAGE_SIZE;
            let mut footer = DeltaFooter::read_from_bytes(&bytes[start..]).unwrap();
            footer.unused[at] = 1;
            footer.checksum = footer.own_checksum().into();
            bytes[start..].copy_from_slice(footer.as_bytes());
        });
        assert_eq!(place(&memory), (ImagePart::Footer, (start + 48 + at) as u64));
    }
}

/// With entry `at` of the table changed, and everything sealed again.
fn with_entry(at: usize, change: impl FnOnce(&mut quire_checkpoint::delta_format::DeltaEntry)) -> ImageError {
    let (memory, ..) = with_delta(|bytes| {
        let header = DeltaHeader::read_from_bytes(&bytes[..PAGE_SIZE]).unwrap();
        let layout = DeltaLayout::new(header.changed_pages.get());
        let (table, end) = (layout.table_offset() as usize, bytes.len() - PAGE_SIZE);
        let used = header.changed_pages.get() as usize * 16;
        let mut entries = <[quire_checkpoint::delta_format::DeltaEntry]>::ref_from_bytes(&bytes[table..table + used])
            .unwrap()
            .to_vec();
        change(&mut entries[at]);
        bytes[table..table + used].copy_from_slice(entries.as_bytes());
        let footer = DeltaFooter::new(&header, &entries, &[]);
        bytes[end..].copy_from_slice(footer.as_bytes());
    });
    refused(&memory)
}

#[test]
fn a_table_that_makes_no_sense_is_refused_even_under_right_checksums() {
    let errors = [
        with_entry(3, |entry| entry.page = 0.into()),
        with_entry(3, |entry| entry.page = u32::MAX.into()),
        with_entry(3, |entry| entry.present = 2.into()),
        with_entry(3, |entry| entry.present = 0.into()),
    ];
    for error in errors {
        assert!(matches!(error, ImageError::Damaged { part: ImagePart::Table, .. }), "{error}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u8),
    Empty(u32),
    Delta,
    Full,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..300u32, any::<u8>()).prop_map(|(page, value)| Step::Write(page, value)),
        3 => (0..300u32).prop_map(Step::Empty),
        3 => Just(Step::Delta),
        1 => Just(Step::Full),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_history_of_changes_saves_and_restarts_is_brought_back(steps in prop::collection::vec(step(), 1..60)) {
        let memory = MemoryDirectory::new();
        let mut world = World::varied(300);
        world.track();
        let mut links = world.begin_chain(&memory, 1).unwrap();
        let (mut epoch, mut saved) = (1, world.model.clone());
        for step in steps {
            epoch += 1;
            match step {
                Step::Write(page, value) => world.write(page, value),
                Step::Empty(page) => world.empty(page),
                Step::Delta => {
                    world.save_delta(&memory, &mut links, epoch).unwrap();
                    saved = world.model.clone();
                }
                Step::Full => {
                    links = world.begin_chain(&memory, epoch).unwrap();
                    saved = world.model.clone();
                }
                Step::Restart => {
                    let loaded = ImageChain::open(&memory, NAME).unwrap().load(&options(), |_, _| {}).unwrap();
                    world = World::of(loaded.barrier, 300, saved.clone());
                    world.track();
                }
            }
            assert_same(&chain(&memory).1, &saved);
        }
    }
}

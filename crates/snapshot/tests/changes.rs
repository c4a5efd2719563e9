//! Snapshots of changes, one over the other, equal the memory at the last cut, whatever is written, given back, abandoned and
//! kept in between.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use quire_snapshot::{PAGE_SIZE, Snapshot, SnapshotError, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::Reservation;

const PAGES: u32 = 70;

/// Memory behind a barrier; beside it the value that each page is full of, if it has content, and which changed since the
/// last snapshot that was kept.
struct World {
    barrier: WriteBarrier,
    model: Vec<Option<u8>>,
    changed: BTreeSet<u32>,
}

impl World {
    fn new() -> Self {
        let memory = Arc::new(Reservation::new(PAGES as usize * PAGE_SIZE).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let config = WriteBarrierConfig { budget_bytes: 128 * PAGE_SIZE };
        Self {
            barrier: WriteBarrier::new(memory, config).unwrap(),
            model: vec![None; PAGES as usize],
            changed: BTreeSet::new(),
        }
    }

    fn write(&mut self, page: u32, value: u8) {
        self.barrier.mark_present(page..page + 1);
        self.barrier.write(page as usize * PAGE_SIZE, &[value; PAGE_SIZE]).unwrap();
        self.model[page as usize] = Some(value);
        self.changed.insert(page);
    }

    /// Only where no snapshot is open, as the barrier has it.
    fn give_back(&mut self, page: u32) {
        if !self.barrier.release_pages(page..page + 1) {
            return;
        }
        self.model[page as usize] = None;
        self.changed.insert(page);
    }
}

/// Takes all pages of `snapshot`, and puts those that belong to it over `image`.
fn put_over(snapshot: &mut Snapshot, image: &mut [Option<u8>]) {
    let mut bytes = vec![0; PAGE_SIZE];
    for page in 0..snapshot.page_count() {
        let taken = snapshot.take(page, &mut bytes) == TakeOutcome::Copied;
        if snapshot.changed().is_none_or(|changed| changed.contains(page)) {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]) || !taken);
            image[page as usize] = taken.then_some(bytes[0]);
        } else {
            assert!(!taken, "page {page} does not belong to the snapshot");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, u8),
    GiveBack(u32),
    /// A snapshot, of everything or of changes, during which pages are written, and which is then kept or not.
    Save {
        all: bool,
        kept: Option<bool>,
        meanwhile: Vec<(u32, u8)>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let meanwhile = prop::collection::vec((0..PAGES, 1..=u8::MAX), 0..12);
    prop_oneof![
        6 => (0..PAGES, 1..=u8::MAX).prop_map(|(page, value)| Step::Write(page, value)),
        2 => (0..PAGES).prop_map(Step::GiveBack),
        2 => (prop::bool::weighted(0.2), prop::option::of(any::<bool>()), meanwhile)
            .prop_map(|(all, kept, meanwhile)| Step::Save { all, kept, meanwhile }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changes_put_over_what_was_kept_give_the_memory_at_the_cut(
        before in prop::collection::vec((0..PAGES, 1..=u8::MAX), 0..40),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new();
        for (page, value) in before {
            world.write(page, value);
        }
        let mut image = vec![None; PAGES as usize];
        put_over(&mut world.barrier.cut(PAGES).unwrap(), &mut image);
        world.barrier.track_changes(true).unwrap();
        world.changed.clear();
        for step in steps {
            match step {
                Step::Write(page, value) => world.write(page, value),
                Step::GiveBack(page) => world.give_back(page),
                Step::Save { all, kept, meanwhile } => {
                    prop_assert_eq!(world.barrier.changed_pages(), Some(world.changed.len() as u64));
                    let mut snapshot = match all {
                        true => world.barrier.cut(PAGES).unwrap(),
                        false => world.barrier.cut_changes(PAGES).unwrap(),
                    };
                    let (at_cut, changed) = (world.model.clone(), std::mem::take(&mut world.changed));
                    if let Some(pages) = snapshot.changed() {
                        prop_assert_eq!(pages.pages_in(0..PAGES).collect::<BTreeSet<_>>(), changed.clone());
                    }
                    meanwhile.into_iter().for_each(|(page, value)| world.write(page, value));
                    let mut next = image.clone();
                    put_over(&mut snapshot, &mut next);
                    for (page, (found, wanted)) in next.iter().zip(&at_cut).enumerate() {
                        // A page that had no content may be found as one of zeros if it was written since.
                        prop_assert!(found.unwrap_or(0) == wanted.unwrap_or(0), "page {}", page);
                    }
                    drop(snapshot);
                    match kept {
                        Some(true) => image = next,
                        _ => world.changed.extend(changed),
                    }
                    // Where nothing is said (a thread that could not be started), the next cut decides as for a failure.
                    if let Some(kept) = kept {
                        world.barrier.settle(kept);
                    } else {
                        drop(world.barrier.cut(PAGES).unwrap());
                        world.barrier.settle(false);
                    }
                }
            }
        }
    }
}

#[test]
fn changes_are_known_across_the_wrap_of_snapshot_numbers() {
    let mut world = World::new();
    (0..PAGES).for_each(|page| world.write(page, 1));
    world.barrier.track_changes(true).unwrap();
    for round in 0..600u32 {
        world.write(round % 7, 2 + (round % 200) as u8);
        if round % 5 == 4 {
            let snapshot = world.barrier.cut_changes(PAGES).unwrap();
            assert_eq!(snapshot.changed().unwrap().count(), 5, "round {round}");
            drop(snapshot);
            world.barrier.settle(true);
        } else {
            // Numbers are used up by saves that fail, too.
            drop(world.barrier.cut_changes(PAGES).unwrap());
            world.barrier.settle(false);
        }
    }
}

#[test]
fn a_page_written_just_before_tracking_began_is_noted_when_it_is_written_again() {
    let mut world = World::new();
    world.write(3, 1);
    world.barrier.track_changes(true).unwrap();
    world.write(3, 2);
    assert_eq!(world.barrier.changed_pages(), Some(1));
}

#[test]
fn nothing_is_known_and_nothing_kept_where_changes_are_not_tracked() {
    let mut world = World::new();
    assert!(matches!(world.barrier.cut_changes(PAGES), Err(SnapshotError::Untracked)));
    assert_eq!(world.barrier.changed_pages(), None);
    world.barrier.track_changes(true).unwrap();
    let snapshot = world.barrier.cut_changes(PAGES).unwrap();
    assert!(matches!(world.barrier.track_changes(false), Err(SnapshotError::Busy)));
    drop(snapshot);
    world.barrier.track_changes(false).unwrap();
    assert!(matches!(world.barrier.cut_changes(PAGES), Err(SnapshotError::Untracked)));
}

#[test]
fn a_writer_keeps_no_preimage_of_a_page_that_the_snapshot_does_not_need() {
    let mut world = World::new();
    (0..PAGES).for_each(|page| world.write(page, 1));
    world.barrier.track_changes(true).unwrap();
    (0..5).for_each(|page| world.write(page, 2));
    let snapshot = world.barrier.cut_changes(PAGES).unwrap();
    (0..PAGES).for_each(|page| world.write(page, 3));
    assert_eq!(world.barrier.stats().preimage_pages, 5);
    drop(snapshot);
}

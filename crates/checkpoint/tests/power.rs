//! The power may go at any step of a save, and any part of what was not flushed may survive it: what is found afterwards
//! is the whole previous image or the whole new one.
//!
//! Relies on `MemoryDirectory`, which keeps what is durable apart from what is not.

use quire_checkpoint::{Image, ImageError, remove_stale};
use quire_device::{MemoryDirectory, PowerCut};

use crate::common::*;

const PAGES: u32 = 300;

fn cuts(seeds: u64) -> impl Iterator<Item = PowerCut> {
    [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((1..=seeds).map(PowerCut::KeepSome))
}

/// The worlds of epochs 1 and 2. Epoch 2 lacks pages of epoch 1, has others, and is longer.
fn worlds() -> (World, World) {
    let old = World::varied(PAGES);
    let mut new = World::new(PAGES + 40, 64);
    for page in (0..PAGES + 40).filter(|page| page % 5 != 1) {
        new.write(page, 250);
    }
    (old, new)
}

/// Steps of a save of epoch 2 over one of epoch 1 (or over nothing).
fn steps_of_a_save(with_old: bool) -> std::ops::Range<u64> {
    let (mut old, mut new) = worlds();
    let memory = MemoryDirectory::new();
    if with_old {
        old.save(&memory, 1).unwrap();
    }
    let start = memory.steps();
    new.save(&memory, 2).unwrap();
    start..memory.steps()
}

#[test]
fn whenever_the_power_goes_the_old_or_the_new_image_is_whole() {
    let steps = steps_of_a_save(true);
    assert!(steps.end - steps.start > 20, "{steps:?}");
    let mut found_epochs = [0; 3];
    for step in steps.start..=steps.end {
        let (mut old, mut new) = worlds();
        let memory = MemoryDirectory::new();
        old.save(&memory, 1).unwrap();
        memory.power_off_at(step);
        let result = new.save(&memory, 2);
        assert_eq!(result.is_ok(), step == steps.end, "{result:?}");
        for cut in cuts(12) {
            let found = memory.after_power_cut(cut);
            remove_stale(&found, NAME).unwrap();
            assert_eq!(names(&found), [NAME], "step {step}, {cut:?}");
            let (epoch, pages) = image(&found);
            assert_same(&pages, if epoch == 1 { &old.model } else { &new.model });
            assert!(epoch == 2 || result.is_err(), "a save that ended well was lost at step {step}, {cut:?}");
            found_epochs[epoch as usize] += 1;
        }
    }
    assert!(found_epochs[1] > 100 && found_epochs[2] > 10, "{found_epochs:?}");
}

#[test]
fn a_first_save_is_there_whole_or_not_at_all() {
    let steps = steps_of_a_save(false);
    for step in steps.start..=steps.end {
        let (_, mut new) = worlds();
        let memory = MemoryDirectory::new();
        memory.power_off_at(step);
        let result = new.save(&memory, 2);
        for cut in cuts(6) {
            let found = memory.after_power_cut(cut);
            match Image::open(&found, NAME) {
                Ok(_) => assert_same(&image(&found).1, &new.model),
                Err(ImageError::Missing { .. }) => assert!(result.is_err()),
                Err(error) => panic!("step {step}, {cut:?}: {error}"),
            }
        }
    }
}

#[test]
fn the_power_going_between_two_saves_loses_neither() {
    let (mut old, mut new) = worlds();
    let memory = MemoryDirectory::new();
    old.save(&memory, 1).unwrap();
    for cut in cuts(4) {
        assert_eq!(image(&memory.after_power_cut(cut)).0, 1);
    }
    new.save(&memory, 2).unwrap();
    for cut in cuts(4) {
        assert_eq!(image(&memory.after_power_cut(cut)).0, 2);
    }
}

//! Defragmentation of slabs: objects keep their content wherever they move, free pages go back, and damage is not believed.

use quire_arena::{Arena, ArenaError, GRANULE, Handle};
use quire_snapshot::PAGE_SIZE;

use crate::common::{arena, fill, holds, image, move_object, reopen};

#[test]
fn slabs_that_are_mostly_empty_become_full_ones_and_free_pages() {
    let mut arena = arena();
    // Large objects between them, so that few regions become free as a whole.
    let mut large = Vec::new();
    let mut objects: Vec<(Handle, usize, u8)> = Vec::new();
    for number in 0..60_000usize {
        let size = [64, 200, 1000][number % 3];
        objects.push((arena.alloc(size).unwrap(), size, number as u8));
        if number % 1000 == 0 {
            large.push(arena.alloc(40_000).unwrap());
        }
    }
    for &(handle, size, value) in &objects {
        fill(&mut arena, handle, size, value);
    }
    let stays = |index: usize| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0;
    for (index, &(handle, ..)) in objects.iter().enumerate() {
        if !stays(index) {
            arena.free(handle).unwrap();
        }
    }
    let mut index = 0;
    objects.retain(|_| {
        index += 1;
        stays(index - 1)
    });
    while arena.trim(64) > 0 {}
    let before = arena.stats();
    assert_eq!(arena.evacuate(objects[0].0).unwrap(), None, "without a plan nothing moves");
    while !arena.plan_defrag(100).0 {}
    let mut moved = 0;
    for object in &mut objects {
        if let Some(copy) = move_object(&mut arena, object.0).unwrap() {
            (object.0, moved) = (copy, moved + 1);
        }
    }
    assert!(moved > objects.len() / 2, "{moved}");
    while arena.trim(64) > 0 {}
    let (mut cursor, mut released) = (0, 0);
    loop {
        let trimmed = arena.trim_runs(cursor, 1000);
        (cursor, released) = (trimmed.cursor, released + trimmed.released_pages);
        if cursor == 0 {
            break;
        }
    }
    let after = arena.stats();
    assert!(before.fragmentation() > 2.5 && after.fragmentation() < 1.2, "{before:?} {after:?}");
    assert!(released > 100, "{released}");
    assert_eq!((after.allocated_bytes, after.objects), (before.allocated_bytes, before.objects));
    assert!(objects.iter().all(|&(handle, size, value)| holds(&arena, handle, size, value)));
    assert_eq!(arena.trim_runs(0, usize::MAX).released_pages, 0, "nothing is given back twice");
    let more: Vec<Handle> = (0..5000).map(|_| arena.alloc(1000).unwrap()).collect();
    more.iter().for_each(|&handle| fill(&mut arena, handle, 1000, 9));
    assert!(objects.iter().all(|&(handle, size, value)| holds(&arena, handle, size, value)));
}

/// Objects of 64 bytes with content, a quarter of those that fit into so many slabs, and the first of each slab among them.
fn thinned(arena: &mut Arena, slabs: usize) -> Vec<(Handle, u8)> {
    let all: Vec<Handle> = (0..64 * slabs).map(|_| arena.alloc(64).unwrap()).collect();
    all.iter().enumerate().for_each(|(index, &handle)| fill(arena, handle, 64, index as u8 | 1));
    let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(index, _)| index % 4 == 0);
    go.into_iter().for_each(|(_, handle)| arena.free(handle).unwrap());
    stay.into_iter().map(|(index, handle)| (handle, index as u8 | 1)).collect()
}

/// Moves what is to move; returns how many objects were.
fn move_all(arena: &mut Arena, objects: &mut [(Handle, u8)]) -> usize {
    let mut moved = 0;
    for object in objects.iter_mut() {
        if let Some(copy) = move_object(arena, object.0).unwrap() {
            (object.0, moved) = (copy, moved + 1);
        }
    }
    assert!(objects.iter().all(|&(handle, value)| holds(arena, handle, 64, value)));
    moved
}

fn page_of(handle: Handle) -> u64 {
    handle.raw() * GRANULE as u64 / PAGE_SIZE as u64
}

#[test]
fn a_slab_that_became_another_one_since_the_plan_is_not_filled() {
    let mut arena = arena();
    let mut objects = thinned(&mut arena, 100);
    while !arena.plan_defrag(100).0 {}
    let gone: Vec<Handle> = objects.drain(16..64).map(|(handle, _)| handle).collect();
    gone.iter().for_each(|&handle| arena.free(handle).unwrap());
    let mut others: Vec<Handle> = (0..32 * 3).map(|_| arena.alloc(128).unwrap()).collect();
    assert!(others.iter().all(|&other| gone.iter().any(|&gone| page_of(gone) == page_of(other))));
    // Each has room.
    for index in [70, 40, 10] {
        arena.free(others.swap_remove(index)).unwrap();
    }
    others.iter().for_each(|&handle| fill(&mut arena, handle, 128, 9));
    assert!(move_all(&mut arena, &mut objects) > 1000);
    assert!(others.iter().all(|&handle| holds(&arena, handle, 128, 9)));
}

/// The descriptor of the page in which an object lies.
fn descriptor_of(handle: Handle) -> usize {
    page_of(handle) as usize * 16
}

#[test]
fn a_slab_that_is_in_no_list_is_not_filled() {
    let mut memory = arena();
    let mut objects = thinned(&mut memory, 100);
    let first = objects[0].0;
    let mut bytes = image(&mut memory);
    (8..16).for_each(|at| bytes.insert(descriptor_of(first) + at, 0));
    let mut broken = reopen(&bytes).unwrap();
    while !broken.plan_defrag(100).0 {}
    assert!(move_all(&mut broken, &mut objects) > 500);
    assert!(objects[16..].iter().all(|&(handle, _)| page_of(handle) != page_of(first)));
}

#[test]
fn pages_that_one_descriptor_calls_free_are_not_given_back() {
    let mut memory = arena();
    let objects = thinned(&mut memory, 100);
    let mut bytes = image(&mut memory);
    // A free run of 20 pages, in no list.
    let run = [1, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let at = descriptor_of(objects[16 * 50].0);
    run.into_iter().enumerate().for_each(|(byte, value)| bytes.insert(at + byte, value));
    let mut broken = reopen(&bytes).unwrap();
    broken.trim_runs(0, usize::MAX);
    assert!(objects.iter().all(|&(handle, value)| holds(&broken, handle, 64, value)));
}

#[test]
fn what_is_no_object_is_not_moved() {
    let mut arena = arena();
    let object = arena.alloc(1024).unwrap();
    let refused = |handle| matches!(arena.is_sparse(handle), Err(ArenaError::BadHandle { .. }));
    assert!(arena.is_sparse(object).is_ok());
    assert!(refused(Handle::from_raw(object.raw() + 1)), "in the middle of a slot");
    assert!(refused(Handle::from_raw(object.raw() + 1024 / GRANULE as u64)), "a slot that was never used");
}

#[test]
fn free_runs_are_not_given_back_under_a_snapshot() {
    let mut arena = arena();
    let handles: Vec<Handle> = (0..20).map(|_| arena.alloc(100_000).unwrap()).collect();
    handles.iter().for_each(|&handle| fill(&mut arena, handle, 100_000, 1));
    handles.iter().step_by(2).for_each(|&handle| arena.free(handle).unwrap());
    let snapshot = arena.cut().unwrap();
    assert_eq!(arena.trim_runs(0, usize::MAX).released_pages, 0);
    drop(snapshot);
    assert!(arena.try_finish());
    // A run that reaches into the next region is given back in two pieces.
    assert!(arena.trim_runs(0, usize::MAX).released_pages >= 9 * 100_000usize.div_ceil(PAGE_SIZE));
    assert!(handles.iter().skip(1).step_by(2).all(|&handle| holds(&arena, handle, 100_000, 1)));
}

#[test]
fn single_free_pages_are_given_back_where_they_are_many() {
    let mut arena = arena();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        // A slab of each size is filled, in turn.
        stay.extend((0..64).map(|_| arena.alloc(64).unwrap()));
        go.extend((0..32).map(|_| arena.alloc(128).unwrap()));
    }
    stay.iter().for_each(|&handle| fill(&mut arena, handle, 64, 3));
    go.iter().for_each(|&handle| arena.free(handle).unwrap());
    while arena.trim(64) > 0 {}
    let before = arena.stats();
    let trimmed = arena.trim_runs(0, usize::MAX);
    assert!(trimmed.released_pages > 1900 && trimmed.cursor == 0, "{trimmed:?} of {before:?}");
    assert!(arena.stats().backed_bytes() + 1900 * 4096 < before.backed_bytes());
    assert!(stay.iter().all(|&handle| holds(&arena, handle, 64, 3)));
}

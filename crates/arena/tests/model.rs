//! The arena against a simple model: objects keep their content, never overlap, and all space comes back.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_arena::{ALIGNED_MIN, Arena, ArenaConfig, ArenaError, GRANULE, Handle};
use quire_snapshot::PAGE_SIZE;

use crate::common::{arena, fill, holds, image, move_object, reopen, reopen_within};

/// Moves what is to move, by a plan of so many looks more, and gives runs back.
fn defrag(arena: &mut Arena, model: &mut BTreeMap<Handle, (usize, u8)>, looks: usize) {
    for (handle, item) in model.clone() {
        if let Some(copy) = move_object(arena, handle).unwrap() {
            model.remove(&handle);
            assert!(model.insert(copy, item).is_none());
        }
    }
    let (is_made, taken) = arena.plan_defrag(looks);
    assert!(taken <= looks);
    let released = arena.stats().released_bytes;
    let trimmed = arena.trim_runs(0, looks);
    assert_eq!(arena.stats().released_bytes - released, (trimmed.released_pages * PAGE_SIZE) as u64);
    if is_made && looks.is_multiple_of(3) {
        arena.forget_defrag();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize, u8),
    Free(usize),
    Rewrite(usize, u8),
    Defrag(usize),
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..600usize, 3 => Just(1000usize), 3 => 600..40_000usize, 1 => 40_000..3_000_000usize]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (size(), any::<u8>()).prop_map(|(size, value)| Step::Alloc(size, value)),
        2 => any::<usize>().prop_map(Step::Free),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, value)| Step::Rewrite(at, value)),
        1 => (1..5000usize).prop_map(Step::Defrag),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn objects_keep_their_content_and_all_space_comes_back(steps in prop::collection::vec(step(), 1..300)) {
        let mut arena = arena();
        let mut model: BTreeMap<Handle, (usize, u8)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Alloc(size, value) => {
                    let handle = arena.alloc(size).unwrap();
                    let usable = arena.usable_size(handle).unwrap();
                    prop_assert!(usable >= size && usable == Arena::class_size(size));
                    fill(&mut arena, handle, usable, value);
                    prop_assert!(model.insert(handle, (usable, value)).is_none());
                }
                Step::Free(at) if !model.is_empty() => {
                    let handle = *model.keys().nth(at % model.len()).unwrap();
                    let (len, value) = model.remove(&handle).unwrap();
                    prop_assert!(holds(&arena, handle, len, value));
                    arena.free(handle).unwrap();
                }
                Step::Rewrite(at, new) if !model.is_empty() => {
                    let handle = *model.keys().nth(at % model.len()).unwrap();
                    let entry = model.get_mut(&handle).unwrap();
                    entry.1 = new;
                    fill(&mut arena, handle, entry.0, new);
                }
                Step::Defrag(looks) => defrag(&mut arena, &mut model, looks),
                _ => {}
            }
            let stats = arena.stats();
            prop_assert_eq!(stats.allocated_bytes, model.values().map(|(len, _)| *len as u64).sum::<u64>());
            prop_assert_eq!(stats.objects, model.len() as u64);
            prop_assert!(stats.used_bytes >= stats.allocated_bytes);
        }
        for (handle, (len, value)) in &model {
            prop_assert!(holds(&arena, *handle, *len, *value));
        }
        for handle in model.keys() {
            arena.free(*handle).unwrap();
        }
        let stats = arena.stats();
        prop_assert_eq!(stats.allocated_bytes, 0);
        // What is left are slabs kept for their classes, at most one each.
        prop_assert!(stats.used_bytes <= 128 * 128 * 1024);
        while arena.trim(64) > 0 {}
        prop_assert!(arena.stats().backed_bytes() <= stats.used_bytes + (2 << 20) * 128);
    }

    #[test]
    fn damaged_allocator_data_gives_errors_never_panics(
        damage in prop::collection::vec((0..5000usize, any::<u8>()), 1..40),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut memory = arena();
        let handles: Vec<Handle> = (1..200).map(|size| memory.alloc(size * 37).unwrap()).collect();
        for handle in handles.iter().step_by(3) {
            memory.free(*handle).unwrap();
        }
        let mut bytes = image(&mut memory);
        // Descriptors in use start behind those of the metadata pages.
        for (at, value) in damage {
            let at = if at < 1000 { at + 16 } else { 16 * 1024 + (at - 1000) };
            bytes.insert(at, value);
        }
        let Ok(mut broken) = reopen(&bytes) else { return Ok(()) };
        for step in steps {
            match step {
                Step::Alloc(size, value) => if let Ok(handle) = broken.alloc(size)
                    && let Ok(bytes) = broken.bytes_mut(handle, 0, size) { bytes.fill(value) },
                Step::Free(at) => { let _ = broken.free(handles[at % handles.len()]); }
                Step::Rewrite(at, _) => {
                    let _ = broken.free(Handle::from_raw(at as u64));
                    let _ = broken.usable_size(Handle::from_raw(at as u64));
                    let _ = broken.trim(2);
                }
                Step::Defrag(looks) => {
                    let _ = broken.plan_defrag(looks);
                    for &handle in &handles {
                        let _ = move_object(&mut broken, handle);
                    }
                    let _ = broken.trim_runs(looks as u32, 1000);
                }
            }
        }
    }
}

#[test]
fn an_image_opens_as_the_same_arena_and_goes_on_growing() {
    let mut first = arena();
    let handles: Vec<Handle> = (0..3000)
        .map(|at| {
            let handle = first.alloc(at % 2000 + 1).unwrap();
            fill(&mut first, handle, at % 2000 + 1, at as u8);
            handle
        })
        .collect();
    let big = first.alloc(5 << 20).unwrap();
    fill(&mut first, big, 5 << 20, 77);
    first.set_root(big);
    let mut second = reopen(&image(&mut first)).unwrap();
    assert_eq!(second.root(), big);
    assert_eq!(second.stats(), first.stats());
    for (at, handle) in handles.iter().enumerate() {
        assert!(holds(&second, *handle, at % 2000 + 1, at as u8));
    }
    assert!(holds(&second, big, 5 << 20, 77));
    second.free(big).unwrap();
    let more = second.alloc(30 << 20).unwrap();
    fill(&mut second, more, 30 << 20, 1);
    assert!(holds(&second, handles[17], 18, 17));
}

#[test]
fn free_regions_go_back_to_the_system_but_not_under_a_snapshot() {
    let mut arena = arena();
    let big = arena.alloc(64 << 20).unwrap();
    fill(&mut arena, big, 64 << 20, 1);
    arena.free(big).unwrap();
    let backed = arena.stats().backed_bytes();
    let snapshot = arena.cut().unwrap();
    assert_eq!(arena.trim(100), 0);
    drop(snapshot);
    assert!(arena.try_finish());
    assert!(arena.trim(4) == 4 && arena.trim(100) >= 26);
    assert!(arena.stats().backed_bytes() + (60 << 20) <= backed);
    let again = arena.alloc(64 << 20).unwrap();
    assert!(holds(&arena, again, 64 << 20, 0), "released pages read as zero");
}

#[test]
fn handles_that_name_nothing_are_refused() {
    let mut arena = arena();
    let handle = arena.alloc(100).unwrap();
    assert!(arena.bytes(Handle::NULL, 0, 1).is_err());
    assert!(arena.bytes(handle, 0, usize::MAX).is_err());
    assert!(arena.bytes(handle, usize::MAX, 1).is_err());
    assert!(arena.get::<[u8; 64]>(Handle::from_raw(u64::MAX)).is_err());
    assert!(arena.free(Handle::from_raw(handle.raw() + 1)).is_err(), "not a slot's start");
    assert!(arena.free(Handle::from_raw(1)).is_err(), "metadata");
    arena.free(handle).unwrap();
}

#[test]
fn a_full_arena_says_so_and_works_on() {
    let mut arena = Arena::create(ArenaConfig { max_bytes: 16 << 20, budget_bytes: 1 << 20 }).unwrap();
    let mut handles = Vec::new();
    let error = loop {
        match arena.alloc(10_000) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ArenaError::OutOfMemory { .. }));
    assert!(handles.len() > 1000);
    arena.free(handles.pop().unwrap()).unwrap();
    arena.alloc(10_000).unwrap();
    assert!(matches!(arena.alloc(2 << 30), Err(ArenaError::OutOfMemory { .. })));
}

#[test]
fn objects_beyond_the_first_chunk_work() {
    let mut arena = Arena::create(ArenaConfig { max_bytes: 3 << 30, budget_bytes: 1 << 20 }).unwrap();
    // Large objects that are never touched cost no memory.
    let first = arena.alloc(900 << 20).unwrap();
    let second = arena.alloc(900 << 20).unwrap();
    assert!(second.raw() as usize * GRANULE > 1 << 30);
    fill(&mut arena, second, 10, 4);
    let small = arena.alloc(64).unwrap();
    fill(&mut arena, small, 64, 5);
    arena.free(first).unwrap();
    arena.free(second).unwrap();
    assert!(holds(&arena, small, 64, 5));
}

/// An arena that is full up to 64 GiB and beyond, of objects that were never touched.
fn wide_arena() -> (Arena, Vec<Handle>) {
    let mut arena = Arena::create(ArenaConfig { max_bytes: 256 << 30, budget_bytes: 1 << 20 }).unwrap();
    let mut hoard = Vec::new();
    while hoard.last().is_none_or(|last: &Handle| last.is_narrow()) {
        hoard.push(arena.alloc((1 << 30) - (4 << 20)).unwrap());
    }
    (arena, hoard)
}

#[test]
fn objects_beyond_64_gib_are_named_kept_and_freed() {
    let (mut arena, hoard) = wide_arena();
    let sizes = [1, 16, 100, 4097, 20_000, 40_000, 3 << 20];
    let handles: Vec<Handle> = (0..200)
        .map(|at| {
            let len = sizes[at % sizes.len()];
            let handle = arena.alloc(len).unwrap();
            fill(&mut arena, handle, len, at as u8);
            handle
        })
        .collect();
    assert!(handles.iter().all(|handle| !handle.is_narrow() && handle.raw() as usize * GRANULE > 64 << 30));
    assert!(handles.iter().zip(sizes.iter().cycle()).all(|(handle, &len)| len < ALIGNED_MIN || handle.is_aligned()));
    for (at, &handle) in handles.iter().enumerate() {
        assert!(holds(&arena, handle, sizes[at % sizes.len()], at as u8));
        arena.free(handle).unwrap();
    }
    let committed = arena.stats().committed_bytes;
    hoard.iter().for_each(|&handle| arena.free(handle).unwrap());
    assert_eq!(arena.stats().allocated_bytes, 0);
    for _ in &hoard {
        arena.alloc((1 << 30) - (4 << 20)).unwrap();
    }
    assert_eq!(arena.stats().committed_bytes, committed, "what is free below is used again");
}

#[test]
fn an_image_of_what_lies_beyond_64_gib_has_no_pages_for_what_is_free_below() {
    let (mut arena, hoard) = wide_arena();
    let handles: Vec<Handle> = (0..1000).map(|_| arena.alloc(900).unwrap()).collect();
    for (at, &handle) in handles.iter().enumerate() {
        fill(&mut arena, handle, 900, at as u8);
    }
    arena.set_root(handles[7]);
    hoard.into_iter().for_each(|handle| arena.free(handle).unwrap());
    while arena.trim(1024) > 0 {}
    let image = image(&mut arena);
    assert!(image.page_count > 64 << 18);
    // Those of descriptors are there: 4 MiB for each GiB.
    assert!(image.pages.len() < 70_000, "{} pages", image.pages.len());
    assert!(matches!(reopen_within(&image, 64 << 30), Err(ArenaError::System(_) | ArenaError::BadSuperblock { .. })));
    let mut second = reopen_within(&image, 128 << 30).unwrap();
    assert_eq!(second.root(), handles[7]);
    for (at, &handle) in handles.iter().enumerate() {
        assert!(holds(&second, handle, 900, at as u8));
    }
    second.free(handles[3]).unwrap();
    assert!(second.may_be_wide() && second.alloc(30 << 20).is_ok());
}

#[test]
fn an_arena_has_the_version_of_how_far_it_has_reached() {
    let version = |arena: &mut Arena| image(arena).pages[&0][8];
    let mut small = Arena::create(ArenaConfig { max_bytes: 256 << 30, budget_bytes: 1 << 20 }).unwrap();
    small.alloc(100).unwrap();
    assert_eq!(version(&mut small), 1);
    let (mut large, hoard) = wide_arena();
    hoard.into_iter().for_each(|handle| large.free(handle).unwrap());
    while large.trim(1024) > 0 {}
    assert_eq!(version(&mut large), 2);
}

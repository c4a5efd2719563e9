//! Pages that are isolated: what a child sees that is forked then, what comes back when the system refuses, what is refused.
//!
//! Relies on userfaultfd; where it is forbidden the tests say so and do nothing.

use quire_sys::child::{WaitStatus, fork_by_library};
use quire_sys::fork_lock;
use quire_sys::userfault::{RegisterModes, Userfault};

use super::super::isolate::IsolatedPages;
use super::*;

const FILE_FAULTS: RegisterModes = RegisterModes { missing: true, write_protect: false, minor: true };

fn can_isolate() -> bool {
    open_userfault().inspect_err(|reason| quire_sys::testing::skipped(reason)).is_ok()
}

/// An origin of two regions with private pages over what the file has: a view lives.
fn written_origin() -> (ScootOrigin, Arc<dyn View>) {
    let origin = origin(2 * REGION_SIZE, SETTINGS[2]);
    (0..512).for_each(|page| put(origin.base(), page * PAGE_SIZE, 1));
    let view = origin.cut().unwrap();
    (0..512).step_by(3).for_each(|page| put(origin.base(), page * PAGE_SIZE, 2));
    put(origin.base(), REGION_SIZE + PAGE_SIZE, 2);
    (origin, view)
}

fn is_as_written(base: *mut u8) -> bool {
    let sound = |page: usize| get(base, page * PAGE_SIZE) == if page.is_multiple_of(3) { 2 } else { 1 };
    (0..512).all(sound) && get(base, REGION_SIZE + PAGE_SIZE) == 2 && get(base, REGION_SIZE) == 0
}

#[test]
fn a_child_that_is_forked_while_pages_are_set_aside_has_them() {
    if !can_isolate() {
        return;
    }
    let (origin, _view) = written_origin();
    let memory: &super::super::backing::BackingFile = &origin.state.backing;
    let base = origin.base() as usize;
    let isolated = IsolatedPages::new(memory, memory.layout.positions(&(0..2)), FILE_FAULTS).unwrap();
    let ending = std::thread::scope(|scope| {
        let forker = scope.spawn(move || {
            // SAFETY: the child reads memory.
            let child = unsafe { fork_by_library(&mut || i32::from(!is_as_written(base as *mut u8))) };
            child.unwrap().wait()
        });
        while !fork_lock::is_fork_waiting() {
            std::thread::yield_now();
        }
        drop(isolated);
        forker.join().unwrap()
    });
    assert_eq!(ending, WaitStatus::Exited(0));
    assert!(is_as_written(origin.base()));
}

#[test]
fn pages_come_back_when_the_system_moves_no_mapping() {
    if !can_isolate() {
        return;
    }
    let (origin, view) = written_origin();
    let memory: &super::super::backing::BackingFile = &origin.state.backing;
    let isolated = IsolatedPages::new(memory, memory.layout.positions(&(0..2)), FILE_FAULTS).unwrap();
    isolated.end_by_copying().unwrap();
    assert!(is_as_written(origin.base()));
    assert_eq!(seen(&*view, 0), 1);
    // The stretch is as good as it was: it can be merged.
    drop(view);
    origin.settle();
    assert!(is_as_written(origin.base()));
    let view = origin.cut().unwrap();
    put(origin.base(), 0, 3);
    assert_eq!((seen(&*view, 0), seen(&*view, PAGE_SIZE), get(origin.base(), 0)), (2, 1, 3));
}

#[test]
fn a_range_that_cannot_be_set_aside_is_refused_and_keeps_its_bytes() {
    if !can_isolate() {
        return;
    }
    let span = PageRange::allocate(4 * REGION_SIZE).unwrap();
    (0..4 * REGION_SIZE).step_by(PAGE_SIZE).for_each(|offset| put(span.base(), offset, 7));
    let other = Userfault::open(0).unwrap();
    let modes = RegisterModes { missing: true, ..RegisterModes::default() };
    // SAFETY: memory of this test, all of it there, so no thread faults and sleeps.
    unsafe { other.register(span.base().wrapping_add(2 * REGION_SIZE), REGION_SIZE, modes) }.unwrap();
    let attached = ScootOrigin::with_userfault(span.clone(), &options(SETTINGS[0]), open_userfault().ok());
    let Err(refusal) = attached else { panic!("another userfaultfd has the range: it can't be isolated") };
    assert!(refusal.to_string().contains("isolating pages"), "{refusal}");
    let all_there = || (0..4 * REGION_SIZE).step_by(PAGE_SIZE).all(|offset| get(span.base(), offset) == 7);
    assert!(all_there());
    // Closing it is not enough: a child that another test forks just now has it open, too.
    other.unregister(span.base().wrapping_add(2 * REGION_SIZE), REGION_SIZE).unwrap();
    drop(other);
    let origin = attach(span.clone(), SETTINGS[0], &options(SETTINGS[0]));
    let view = origin.cut().unwrap();
    put(origin.base(), 3 * REGION_SIZE, 8);
    assert_eq!(seen(&*view, 3 * REGION_SIZE), 7);
    drop((view, origin));
    put(span.base(), 3 * REGION_SIZE, 7);
    assert!(all_there());
}

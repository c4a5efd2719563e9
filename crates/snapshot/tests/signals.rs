//! Threads that block SIGBUS, and write to memory that `uffd` protects.
//!
//! Relies on being a process of its own: where such a thread is, mechanisms are attached in another way.

use std::os::unix::fs::FileExt;

use quire_snapshot::{
    Mechanism, MechanismError, Origin, OriginOptions, PAGE_SIZE, PageRange, Precopy, View, attach, merges_in_background,
};
use quire_sys::signal::block_all_here;

fn origin(len: usize, options: &OriginOptions) -> Option<Box<dyn Origin>> {
    match attach(Mechanism::Uffd, PageRange::allocate(len).unwrap(), options) {
        Ok(origin) => Some(origin),
        Err(refusal @ MechanismError::Unsupported { .. }) => {
            quire_sys::testing::skipped(refusal);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Writes in a thread that blocks every signal that can be blocked.
fn write_deaf(origin: &dyn Origin, offsets: impl Iterator<Item = usize> + Send, value: u8) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_all_here();
            // SAFETY: inside the range, which only this thread uses.
            offsets.for_each(|offset| unsafe { origin.base().wrapping_add(offset).write_volatile(value) });
        });
    });
}

fn byte(view: &dyn View, offset: usize) -> u8 {
    let mut byte = [0];
    view.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_thread_that_blocks_sigbus_writes_where_faults_are_served() {
    for background in [false, true] {
        let options = OriginOptions {
            serve_faults: true,
            background,
            precopy: Precopy::Threshold(80),
            ..OriginOptions::default()
        };
        let Some(origin) = origin(8 << 20, &options) else { return };
        let pages = || (0..2048).map(|page| page * PAGE_SIZE);
        for round in 1..5 {
            let view = origin.cut().unwrap();
            write_deaf(&*origin, pages(), round);
            assert!(pages().all(|offset| byte(&*view, offset) == round - 1));
            drop(view);
            origin.settle();
        }
        assert!(origin.stats().faults > 0);
        // A system call that writes sleeps like a store, where faults of the kernel can be had.
        let view = origin.cut().unwrap();
        let file = quire_sys::map::memory_file("source", 4096).unwrap();
        // SAFETY: this test's memory, and only this thread uses these bytes during the call.
        let target = unsafe { std::slice::from_raw_parts_mut(origin.base(), 4096) };
        if merges_in_background().is_ok() {
            assert_eq!(file.read_at(target, 0).unwrap(), 4096);
        }
        assert_eq!(byte(&*view, 0), 4);
    }
}

#[test]
fn faults_are_served_where_a_thread_blocks_sigbus_when_the_mechanism_is_attached() {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let deaf = std::thread::spawn(move || {
        block_all_here();
        tell.send(()).unwrap();
        let _ = ended.recv();
    });
    told.recv().unwrap();
    let origin = origin(2 << 20, &OriginOptions { background: false, ..OriginOptions::default() });
    drop(end);
    deaf.join().unwrap();
    let Some(origin) = origin else { return };
    let view = origin.cut().unwrap();
    write_deaf(&*origin, [0].into_iter(), 2);
    assert_eq!((byte(&*view, 0), byte(&*origin.cut().unwrap(), 0)), (0, 2));
}

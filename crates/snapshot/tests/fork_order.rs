//! A fork that waits for a lock of the program's, which a thread holds that cuts: both go on.
//!
//! Relies on handlers of `pthread_atfork` running in reverse order before a fork: the one that waits was there before the
//! mechanisms' own, so the fork counts as under way when it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quire_snapshot::{Mechanism, OriginOptions, PageRange, attach};
use quire_sys::atfork;
use quire_sys::child::{WaitStatus, fork_by_library};
use quire_sys::testing::skipped;

/// The program's lock, which its cuts and its forks take.
static LOCKED: AtomicBool = AtomicBool::new(false);
static WAITS: AtomicBool = AtomicBool::new(false);

extern "C" fn lock() {
    WAITS.store(true, Ordering::SeqCst);
    while LOCKED.swap(true, Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

extern "C" fn unlock() {
    LOCKED.store(false, Ordering::SeqCst);
}

#[test]
fn a_cut_under_a_lock_that_a_fork_waits_for_ends() {
    // SAFETY: the functions use atomics, and sleep.
    unsafe { atfork::around_forks(lock, unlock, unlock) }.unwrap();
    for mechanism in [Mechanism::Barrier, Mechanism::Uffd, Mechanism::Scoot] {
        let span = PageRange::allocate(4 << 20).unwrap();
        let origin = match attach(mechanism, span, &OriginOptions::default()) {
            Ok(origin) => origin,
            Err(refusal) => {
                skipped(refusal);
                continue;
            }
        };
        let write = |value: u8| {
            origin.prepare_write(0..1);
            // SAFETY: the first byte of a range that this test alone uses.
            unsafe { origin.base().write_volatile(value) };
        };
        write(1);
        drop(origin.cut().unwrap());
        lock();
        WAITS.store(false, Ordering::SeqCst);
        let ending = std::thread::scope(|scope| {
            // SAFETY: the child ends at once.
            let forker = scope.spawn(|| unsafe { fork_by_library(&mut || 7) }.unwrap().wait());
            while !WAITS.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let view = origin.cut().unwrap();
            write(2);
            let mut byte = [0];
            view.read(0, &mut byte).unwrap();
            assert_eq!(byte, [1], "{mechanism}");
            unlock();
            forker.join().unwrap()
        });
        assert_eq!(ending, WaitStatus::Exited(7), "{mechanism}");
        origin.settle();
    }
}

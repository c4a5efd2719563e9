//! The reader's thread running behind everything else, until a writer depends on it.
//!
//! Relies on `quire_sys::thread` for the processor and on `quire_sys::io_priority` for the disk.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use quire_sys::io_priority::IoPriority;
use quire_sys::thread::{self, ThreadId};

/// How far behind everything else a reader runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundPriority {
    /// By how many nice values; 0 leaves the thread as it is.
    pub nice: i32,
    /// The disk serves its requests when no other one wants it, where the disk's scheduler heeds that.
    pub idle_io: bool,
}

/// The reader's thread, and what it had before it stepped back.
#[derive(Debug, Default)]
pub(crate) struct BackgroundThread {
    /// Kernel number of the thread; 0 for none. Written after the rest, which a thread that reads it therefore sees.
    number: AtomicI32,
    /// A writer depends on the reader. Either that writer finds the number, or the reader finds this after it has set the number
    /// (both accesses of both are `SeqCst`).
    is_wanted: AtomicBool,
    was_lowered: AtomicBool,
    nice: AtomicI32,
    has_idle_io: AtomicBool,
    io: AtomicU32,
}

impl BackgroundThread {
    /// Lets the calling thread step back. A part that the system refuses, or would not let us take back, is left out. Returns
    /// whether its processor priority is lowered.
    pub(crate) fn step_back(&self, priority: BackgroundPriority) -> bool {
        let own = thread::current();
        let nice = thread::nice_of(own).filter(|nice| {
            priority.nice > 0 && thread::can_raise_again() && thread::set_nice(own, nice.saturating_add(priority.nice))
        });
        let io = IoPriority::of(own).filter(|_| priority.idle_io && IoPriority::IDLE.set(own));
        self.was_lowered.store(nice.is_some(), Ordering::Relaxed);
        self.nice.store(nice.unwrap_or(0), Ordering::Relaxed);
        self.has_idle_io.store(io.is_some(), Ordering::Relaxed);
        self.io.store(io.map_or(0, IoPriority::raw), Ordering::Relaxed);
        self.number.store(own.raw(), Ordering::SeqCst);
        if self.is_wanted.load(Ordering::SeqCst) {
            self.raise();
        }
        nice.is_some()
    }

    /// There is no reader yet.
    pub(crate) fn forget(&self) {
        self.is_wanted.store(false, Ordering::SeqCst);
        self.number.store(0, Ordering::SeqCst);
    }

    /// Gives the thread back what it had, at once or as soon as it steps back. If the system refuses, the writer waits as it
    /// would have to anyway.
    pub(crate) fn raise(&self) {
        self.is_wanted.store(true, Ordering::SeqCst);
        let Some(thread) = ThreadId::from_raw(self.number.load(Ordering::SeqCst)) else { return };
        if self.was_lowered.load(Ordering::Relaxed) {
            thread::set_nice(thread, self.nice.load(Ordering::Relaxed));
        }
        if self.has_idle_io.load(Ordering::Relaxed) {
            IoPriority::from_raw(self.io.load(Ordering::Relaxed)).set(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_steps_back_is_raised_by_another_one_to_what_it_had() {
        let state = BackgroundThread::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = thread::current();
                let before = (thread::nice_of(own), IoPriority::of(own));
                let lowered = state.step_back(BackgroundPriority { nice: 3, idle_io: true });
                assert_eq!(lowered, thread::can_raise_again());
                assert_eq!(IoPriority::of(own), Some(IoPriority::IDLE));
                assert_eq!(thread::nice_of(own) != before.0, lowered);
                std::thread::scope(|inner| inner.spawn(|| state.raise()).join().unwrap());
                assert_eq!((thread::nice_of(own), IoPriority::of(own)), before);
            });
        });
    }

    #[test]
    fn a_thread_that_is_wanted_before_it_steps_back_keeps_what_it_has() {
        let state = BackgroundThread::default();
        state.raise();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = thread::current();
                let before = (thread::nice_of(own), IoPriority::of(own));
                state.step_back(BackgroundPriority { nice: 3, idle_io: true });
                assert_eq!((thread::nice_of(own), IoPriority::of(own)), before);
            });
        });
    }

    #[test]
    fn a_reader_that_is_forgotten_is_raised_no_more() {
        let state = BackgroundThread::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                state.step_back(BackgroundPriority { nice: 0, idle_io: true });
                state.forget();
                state.raise();
                assert_eq!(IoPriority::of(thread::current()), Some(IoPriority::IDLE));
            });
        });
    }
}

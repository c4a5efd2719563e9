//! Buffers for pre-images: a fixed number, reused, so that a snapshot's extra memory has a ceiling.
//!
//! Relies on one writer (takes buffers) and one reader (gives them back). Free buffers travel in a ring of one producer
//! and one consumer, so neither ever holds a lock that the other could wait for.

use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use quire_sys::map::{self, MapAdvice};
use quire_sys::mem::{MemError, Reservation};

use crate::page::{PAGE_SIZE, REGION_SIZE};
use crate::stream::page_state::MAX_BUFFERS;
use crate::stream::race_detector::RaceDetector;
use crate::stream::ring::Ring;
use crate::sync::{AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, fence};

/// How long a wait lasts before the waiter looks again by itself; a backstop, not the way it is woken.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct BufferPool {
    memory: Reservation,
    total: u32,
    /// Who copies into and out of the buffers.
    pub(crate) race_detector: RaceDetector,
    /// Buffers that the reader has freed.
    free: Ring,
    /// Buffers from here on were never used since the last trim: their memory may not be backed.
    fresh: AtomicU32,
    /// Bytes from the start that the reader has backed ahead of use.
    populated_bytes: AtomicUsize,
    held: AtomicU32,
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

impl BufferPool {
    pub(crate) fn new(budget_bytes: usize) -> Result<Self, MemError> {
        let total = (budget_bytes / PAGE_SIZE).clamp(1, MAX_BUFFERS as usize) as u32;
        let memory = Reservation::new(total as usize * PAGE_SIZE)?;
        memory.commit(0..memory.len())?;
        // The writer's first copy must not wait until the kernel has cleared a huge page, nor until the reader, which backs the same one,
        // has done so: 0.1 ms, and 4 ms where a hypervisor has to find the memory first. Without this advice both work, later.
        let _ = map::advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        Ok(Self {
            memory,
            total,
            race_detector: RaceDetector::new(total as usize),
            free: Ring::new(total),
            fresh: AtomicU32::new(0),
            populated_bytes: AtomicUsize::new(0),
            held: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            freed: Condvar::new(),
        })
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Buffers that hold a pre-image now.
    pub(crate) fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// Address of a buffer of [`PAGE_SIZE`] bytes.
    pub(crate) fn buffer(&self, index: u32) -> NonNull<u8> {
        assert!(index < self.total, "buffer {index} of {}", self.total);
        NonNull::new(self.memory.base().wrapping_add(index as usize * PAGE_SIZE)).expect("a mapping is never at null")
    }

    /// Writer: a free buffer, if there is one.
    pub(crate) fn take(&self) -> Option<u32> {
        let index = match self.free.take() {
            Some(index) => index,
            None => {
                let fresh = self.fresh.load(Ordering::Relaxed);
                if fresh == self.total {
                    return None;
                }
                self.fresh.store(fresh + 1, Ordering::Relaxed);
                fresh
            }
        };
        self.held.fetch_add(1, Ordering::Relaxed);
        Some(index)
    }

    /// Reader: the buffer's content has been collected.
    pub(crate) fn give_back(&self, index: u32) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.free.give(index);
        self.wake();
    }

    /// Wakes the writer if it waits, for a buffer or for a page.
    pub(crate) fn wake(&self) {
        // Between what was done for the writer and the look whether it waits; with the one in `wait`, either this thread sees the
        // writer wait, or the writer sees what was done.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            // The lock is taken so that a writer between its last look and its sleep can't miss the call.
            drop(self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            self.freed.notify_all();
        }
    }

    /// Writer: sleeps until `ready` gives something.
    pub(crate) fn wait<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        self.waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = loop {
            if let Some(result) = ready() {
                break result;
            }
            guard = self.freed.wait_timeout(guard, LOOK_AGAIN).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        drop(guard);
        self.waiting.store(0, Ordering::Relaxed);
        result
    }

    /// Whether the writer waits. From here on it sleeps, unless what it waits for is there when it looks once more.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Reader: backs the buffers that the writer will take next, so that its copies meet no page faults.
    pub(crate) fn warm_ahead(&self) {
        let used = self.fresh.load(Ordering::Relaxed) as usize * PAGE_SIZE;
        let populated = self.populated_bytes.load(Ordering::Relaxed);
        let most = self.total as usize * PAGE_SIZE;
        if used + REGION_SIZE / 2 < populated || populated >= most {
            return;
        }
        let next = populated..(populated + REGION_SIZE).min(most);
        let end = next.end;
        // Without it the writer meets the faults itself: slower, not wrong.
        let _ = self.memory.populate(next);
        self.populated_bytes.store(end, Ordering::Relaxed);
    }

    /// Empties the ring between snapshots: all buffers are free and count as fresh.
    ///
    /// Call only when no snapshot is open.
    pub(crate) fn reset(&self) {
        self.free.clear();
        self.fresh.store(0, Ordering::Relaxed);
        self.held.store(0, Ordering::Relaxed);
    }

    /// Gives a region of backed buffers back to the system; returns its bytes, 0 when nothing is left.
    ///
    /// Call only when no snapshot is open.
    pub(crate) fn trim(&self) -> usize {
        let populated = self.populated_bytes.load(Ordering::Relaxed);
        if populated == 0 {
            return 0;
        }
        let start = populated.saturating_sub(1) / REGION_SIZE * REGION_SIZE;
        let last: Range<usize> = start..populated;
        let bytes = last.len();
        let _ = self.memory.release(last);
        self.populated_bytes.store(start, Ordering::Relaxed);
        bytes
    }

    /// Notes that buffers were used beyond what was backed ahead, so that a trim reaches them.
    pub(crate) fn note_use(&self) {
        let used = (self.fresh.load(Ordering::Relaxed) as usize * PAGE_SIZE)
            .next_multiple_of(REGION_SIZE)
            .min(self.memory.len());
        self.populated_bytes.fetch_max(used, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_more_buffers_are_handed_out_than_the_budget_allows() {
        let pool = BufferPool::new(3 * PAGE_SIZE).unwrap();
        let all: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all, [0, 1, 2]);
        pool.give_back(1);
        assert_eq!(pool.held(), 2);
        assert_eq!(pool.take(), Some(1));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn a_waiting_writer_gets_the_buffer_that_the_reader_frees() {
        let pool = BufferPool::new(PAGE_SIZE).unwrap();
        assert_eq!(pool.take(), Some(0));
        std::thread::scope(|scope| {
            scope.spawn(|| pool.give_back(0));
            assert_eq!(pool.wait(|| pool.take()), 0);
        });
    }

    #[test]
    fn trimming_gives_back_all_that_was_backed() {
        let pool = BufferPool::new(8 << 20).unwrap();
        pool.warm_ahead();
        while pool.take().is_some() {}
        pool.note_use();
        pool.reset();
        let freed: usize = std::iter::from_fn(|| Some(pool.trim()).filter(|&bytes| bytes > 0)).sum();
        assert_eq!(freed, 8 << 20);
    }
}

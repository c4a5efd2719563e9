//! How threads that need memory and the writers and evictors that free it wake each other.
//!
//! Relies on an event count: a thread that is about to sleep reads the count, asks once more whether there is something to do, and
//! sleeps only while the count stays. So no event is missed, and one that no thread waits for costs no system call. The end is
//! no event but a state: a thread that first learns of it when it goes to sleep does not sleep either, however it read the count.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use quire_sys::futex::{self, FutexScope};

/// A count of events that can be slept on.
#[derive(Debug, Default)]
pub(crate) struct EventCount {
    count: AtomicU32,
    asleep: AtomicU32,
    /// No thread sleeps here any more.
    closed: AtomicBool,
}

impl EventCount {
    /// The count so far.
    pub(crate) fn current(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Ends all sleep here, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.notify_all();
    }

    /// Whether [`EventCount::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Sleeps until there was an event after `seen` or the end, at most for `limit`.
    pub(crate) fn wait(&self, seen: u32, limit: Option<Duration>) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        // A look after having said so: an event or the end from here on finds this thread. The end may have come before `seen`
        // was read, and no event follows it.
        if !self.is_closed() && self.count.load(Ordering::SeqCst) == seen {
            futex::wait(&self.count, seen, limit, FutexScope::Process);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// Something has happened that concerns every sleeper.
    pub(crate) fn notify_all(&self) {
        self.notify(i32::MAX as u32);
    }

    /// Something has happened of which so many can make use; the others sleep on, as long as they said.
    pub(crate) fn notify(&self, most: u32) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.count, most, FutexScope::Process);
        }
    }
}

/// What writers and users of a pool tell each other.
#[derive(Debug, Default)]
pub(crate) struct MemoryPressure {
    /// For writers: there may be something to write.
    pub(crate) wanted: EventCount,
    /// For threads that need memory: some may have become free. They try again after a short sleep, too.
    pub(crate) freed: EventCount,
    /// Users that have found no memory.
    low_memory_waits: AtomicU32,
    /// Pages under writeback.
    writeback_pages: AtomicUsize,
}

/// Counts a user as low_memory_waits while it lives.
pub(crate) struct LowMemoryWait<'a>(&'a MemoryPressure);

impl MemoryPressure {
    /// The caller has found no memory.
    pub(crate) fn begin_low_memory_wait(&self) -> LowMemoryWait<'_> {
        self.low_memory_waits.fetch_add(1, Ordering::SeqCst);
        LowMemoryWait(self)
    }

    /// Whether a thread waits for memory.
    pub(crate) fn is_memory_low(&self) -> bool {
        self.low_memory_waits.load(Ordering::SeqCst) > 0
    }

    /// Memory of so many pages has become free or evictable. No more threads are woken than can have some: any other would find
    /// nothing and sleep again.
    pub(crate) fn progress(&self, pages: usize) {
        if pages > 0 && self.is_memory_low() {
            self.freed.notify(u32::try_from(pages).unwrap_or(u32::MAX).min(i32::MAX as u32));
        }
    }

    /// Writeback of so many pages begins.
    pub(crate) fn begin_writeback(&self, pages: usize) {
        self.writeback_pages.fetch_add(pages, Ordering::SeqCst);
    }

    /// Writeback of so many pages has ended.
    pub(crate) fn end_writeback(&self, pages: usize) {
        // First, so that a thread that sees no page under writeback sees this, too.
        self.progress(pages);
        self.writeback_pages.fetch_sub(pages, Ordering::SeqCst);
    }

    /// Whether nothing was freed since `seen`, and no page is under writeback. Writeback ends when the device answers, however slow it is, so a
    /// thread that needs memory waits for it, as in the kernel.
    pub(crate) fn is_stuck_since(&self, seen: u32) -> bool {
        self.writeback_pages.load(Ordering::SeqCst) == 0 && self.freed.current() == seen
    }

    /// Has the writers end.
    pub(crate) fn stop(&self) {
        self.wanted.close();
    }

    /// Whether the writers should end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.wanted.is_closed()
    }
}

impl Drop for LowMemoryWait<'_> {
    fn drop(&mut self) {
        self.0.low_memory_waits.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_by_an_event_and_not_put_to_sleep_after_one() {
        let events = EventCount::default();
        let seen = events.current();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while events.current() == seen {
                    events.wait(seen, None);
                }
            });
            events.notify_all();
        });
        events.wait(seen, None);
        events.wait(events.current(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_thread_that_reads_the_count_after_the_end_does_not_sleep() {
        let events = EventCount::default();
        assert!(!events.is_closed(), "a worker looks whether it goes on, and is interrupted");
        events.close();
        // It goes on with what it was at, reads the count and finds nothing to do. No event will come.
        events.wait(events.current(), None);
    }

    #[test]
    fn the_end_wakes_every_sleeper() {
        let events = EventCount::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !events.is_closed() {
                        events.wait(events.current(), None);
                    }
                });
            }
            events.close();
        });
    }
}

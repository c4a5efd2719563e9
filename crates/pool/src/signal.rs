//! How users who need memory and writers who make it wake each other.
//!
//! Relies on counting events: who is about to sleep reads the count, looks once more whether there is something to do, and
//! sleeps only while the count stays. So no event is missed, and one that nobody waits for costs no system call. The end is
//! no event but a state: a thread that first learns of it when it goes to sleep does not sleep either, however it read the count.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quire_sys::futex::{self, Scope};

/// A count of events that can be slept on.
#[derive(Debug, Default)]
pub(crate) struct Events {
    count: AtomicU32,
    asleep: AtomicU32,
    /// No thread sleeps here any more.
    closed: AtomicBool,
}

impl Events {
    /// The count so far.
    pub(crate) fn seen(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Ends all sleep here, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.raise();
    }

    /// Whether [`Events::close`] was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Sleeps until there was an event after `seen` or the end, at most for `limit`.
    pub(crate) fn wait(&self, seen: u32, limit: Option<Duration>) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        // A look after having said so: an event or the end from here on finds this thread. The end may have come before `seen`
        // was read, and no event follows it.
        if !self.is_closed() && self.count.load(Ordering::SeqCst) == seen {
            futex::wait(&self.count, seen, limit, Scope::Process);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// Something has happened that concerns everybody.
    pub(crate) fn raise(&self) {
        self.raise_for(i32::MAX as u32);
    }

    /// Something has happened of which so many can make use; the others sleep on, as long as they said.
    pub(crate) fn raise_for(&self, most: u32) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.count, most, Scope::Process);
        }
    }
}

/// What writers and users of a pool tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    /// For writers: there may be something to write.
    pub(crate) wanted: Events,
    /// For users: memory may have become free. Who sleeps on it looks again after a nap, too.
    pub(crate) freed: Events,
    /// Users that have found no memory.
    starving: AtomicU32,
}

/// Counts a user as starving while it lives.
pub(crate) struct Starving<'a>(&'a Signal);

impl Signal {
    /// The caller has found no memory.
    pub(crate) fn starve(&self) -> Starving<'_> {
        self.starving.fetch_add(1, Ordering::SeqCst);
        Starving(self)
    }

    /// Whether anybody waits for memory.
    pub(crate) fn is_starving(&self) -> bool {
        self.starving.load(Ordering::SeqCst) > 0
    }

    /// Memory of so many pages has become free or evictable. Nobody more is woken than can have some: whoever else is, finds
    /// nothing and sleeps again.
    pub(crate) fn progress(&self, pages: usize) {
        if pages > 0 && self.is_starving() {
            self.freed.raise_for(u32::try_from(pages).unwrap_or(u32::MAX).min(i32::MAX as u32));
        }
    }

    /// Sends the writers home.
    pub(crate) fn stop(&self) {
        self.wanted.close();
    }

    /// Whether the writers should go home.
    pub(crate) fn is_stopping(&self) -> bool {
        self.wanted.is_closed()
    }
}

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_by_an_event_and_not_put_to_sleep_after_one() {
        let events = Events::default();
        let seen = events.seen();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while events.seen() == seen {
                    events.wait(seen, None);
                }
            });
            events.raise();
        });
        events.wait(seen, None);
        events.wait(events.seen(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_thread_that_reads_the_count_after_the_end_does_not_sleep() {
        let events = Events::default();
        assert!(!events.is_closed(), "a worker looks whether it goes on, and is interrupted");
        events.close();
        // It goes on with what it was at, reads the count and finds nothing to do. No event will come.
        events.wait(events.seen(), None);
    }

    #[test]
    fn the_end_wakes_every_sleeper() {
        let events = Events::default();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !events.is_closed() {
                        events.wait(events.seen(), None);
                    }
                });
            }
            events.close();
        });
    }
}

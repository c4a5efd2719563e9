//! A pool of threads that carries transfers out with ordinary reads and writes, where io_uring is forbidden.
//!
//! Relies on nothing but positioned reads and writes. Each queue has its own threads: they are started when there is more
//! work than threads without any, sleep when there is none, and end with the queue. A transfer is one thread's work, so
//! a caller that wants many parts at once makes them transfers of their own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use quire_sys::io_priority::IoPriority;
use quire_sys::thread::{self, spawn_unsignalled};
use quire_sys::transfer::Transfer;

use crate::device::{Completion, Queue};
use crate::open_file::OpenFile;

/// More threads than this gain nothing: they only wait for the device, or for each other.
const MAX_THREADS: usize = 16;

pub(crate) struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    most: usize,
    in_flight: usize,
}

struct Shared {
    target: Arc<OpenFile>,
    work: Mutex<Work>,
    /// There is work, or no more will come.
    wanted: Condvar,
    done: Mutex<VecDeque<Completion>>,
    /// Something is done.
    ended: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Transfer>,
    /// ThreadPool that sleep until there is work.
    idle: usize,
    closed: bool,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; sleeps until there is one. `None` when no more will come.
    fn next(&self) -> Option<Transfer> {
        let mut work = self.work();
        loop {
            if let Some(job) = work.jobs.pop_front() {
                return Some(job);
            }
            if work.closed {
                return None;
            }
            work.idle += 1;
            work = self.wanted.wait(work).unwrap_or_else(PoisonError::into_inner);
            work.idle -= 1;
        }
    }

    fn carry_out(&self, mut transfer: Transfer) {
        let result = self.target.run(&mut transfer);
        self.done().push_back(Completion { transfer, result });
        self.ended.notify_one();
    }

    fn work_off(&self) {
        while let Some(job) = self.next() {
            self.carry_out(job);
        }
    }
}

impl ThreadPool {
    pub(crate) fn new(target: Arc<OpenFile>, depth: usize) -> Self {
        let shared = Shared {
            target,
            work: Mutex::default(),
            wanted: Condvar::new(),
            done: Mutex::default(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared), workers: Vec::new(), most: depth.clamp(1, MAX_THREADS), in_flight: 0 }
    }

    /// Starts `threads` more, as far as they are allowed and the system has them.
    fn start(&mut self, threads: usize) {
        for _ in 0..threads.min(self.most - self.workers.len()) {
            let shared = Arc::clone(&self.shared);
            let name = format!("quire-io-{}", self.workers.len());
            let work_off = move || {
                // A maker that is raised later, since a writer waits for it, can't raise this thread, too.
                IoPriority::NORMAL.set(thread::current());
                shared.work_off();
            };
            match spawn_unsignalled(&name, work_off) {
                Ok(worker) => self.workers.push(worker),
                Err(_) => break,
            }
        }
    }

    /// Hands work out.
    fn hand_out(&mut self, transfers: impl IntoIterator<Item = Transfer>) {
        let mut work = self.shared.work();
        let before = work.jobs.len();
        work.jobs.extend(transfers);
        let added = work.jobs.len() - before;
        let lacking = work.jobs.len().saturating_sub(work.idle);
        drop(work);
        self.in_flight += added;
        self.start(lacking);
        if added == 1 {
            self.shared.wanted.notify_one();
        } else {
            self.shared.wanted.notify_all();
        }
        if self.workers.is_empty() {
            self.work_here();
        }
    }

    /// There are no threads to be had, so the caller does it.
    fn work_here(&mut self) {
        loop {
            let Some(job) = self.shared.work().jobs.pop_front() else { return };
            self.shared.carry_out(job);
        }
    }
}

impl Queue for ThreadPool {
    fn submit(&mut self, transfer: Transfer) {
        transfer.check();
        self.hand_out([transfer]);
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        transfers.iter().for_each(Transfer::check);
        self.hand_out(transfers);
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.in_flight == 0 {
            return None;
        }
        let mut done = self.shared.done();
        loop {
            if let Some(finished) = done.pop_front() {
                self.in_flight -= 1;
                return Some(finished);
            }
            done = self.shared.ended.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let finished = self.shared.done().pop_front()?;
        self.in_flight -= 1;
        Some(finished)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // The threads end when no more work can come, after what was submitted.
        self.shared.work().closed = true;
        self.shared.wanted.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;

    use quire_sys::buffer::Buffer;
    use quire_sys::rw::RwFlags;
    use quire_sys::transfer::{Direction, Extent};

    use super::*;

    fn threads(depth: usize) -> ThreadPool {
        let target = OpenFile::new("zero".into(), File::open("/dev/zero").unwrap(), RwFlags::NONE);
        ThreadPool::new(Arc::new(target), depth)
    }

    fn reads(count: u64) -> Vec<Transfer> {
        let extents = vec![Extent { offset: 0, start: 0, len: 4096 }];
        let buffers = Buffer::several(count as usize, 4096).unwrap().into_iter();
        let read = |(tag, buffer)| Transfer { direction: Direction::Read, buffer, extents: extents.clone(), tag };
        (0..count).zip(buffers).map(read).collect()
    }

    #[test]
    fn threads_are_started_when_there_is_work_for_them() {
        let mut queue = threads(64);
        assert!(queue.workers.is_empty() && queue.complete().is_none());
        queue.submit(reads(1).remove(0));
        assert_eq!(queue.workers.len(), 1);
        queue.complete().unwrap().result.unwrap();
        queue.submit_all(reads(100));
        assert_eq!(queue.workers.len(), MAX_THREADS);
        assert_eq!(std::iter::from_fn(|| queue.complete()).count(), 100);
    }

    #[test]
    fn no_more_threads_are_started_than_the_depth_asks_for() {
        for (depth, most) in [(0, 1), (1, 1), (3, 3)] {
            let mut queue = threads(depth);
            queue.submit_all(reads(40));
            assert_eq!(queue.workers.len(), most);
            let tags: BTreeSet<u64> = std::iter::from_fn(|| queue.complete()).map(|ended| ended.transfer.tag).collect();
            assert_eq!(tags, (0..40).collect());
        }
    }

    #[test]
    fn without_threads_the_caller_does_the_work() {
        let mut queue = threads(4);
        queue.most = 0;
        queue.submit_all(reads(5));
        assert_eq!((queue.workers.len(), queue.in_flight()), (0, 5));
        assert_eq!(std::iter::from_fn(|| queue.poll()).count(), 5);
    }

    #[test]
    fn threads_end_with_their_queue_after_its_work() {
        let mut queue = threads(8);
        let shared = Arc::downgrade(&queue.shared);
        queue.submit_all(reads(30));
        drop(queue);
        assert!(shared.upgrade().is_none(), "a thread still holds the queue");
    }
}

//! Pages that were asked for ahead of their use arrive: a thread that touches one, polls, or needs memory settles them.
//!
//! Relies on [`ReadaheadQueue`] for who may wait on a queue, and on the tag of a transfer for which pages it was.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use quire_device::{Completion, Queue, Transfer};

use crate::counters::PoolCounter;
use crate::mapped_file::MappedFile;
use crate::page::PageRun;
use crate::page_state::LockMode;
use crate::pool_state::PoolState;
use crate::readahead_queue::{ReadaheadQueue, TakenQueue};

/// Gives back the pages of a read that failed. They are absent again, and a thread that needs one reads it and gets the error.
pub(crate) fn give_up(shared: &PoolState, map: &MappedFile, run: PageRun) {
    let pages: Vec<u64> = run.iter().collect();
    // SAFETY: `begin_read` has claimed the pages for the reader that calls this, so no guard refers to them, and the device has
    // ended the transfer that wrote to them.
    if let Err(error) = unsafe { map.frames.discard(&pages) } {
        // Their memory stays taken, and so do their credits.
        tracing::error!(%error, "memory of pages that could not be read is lost");
    } else {
        shared.credits.give(pages.len());
    }
    map.counters.add(PoolCounter::FailedReads, pages.len());
    for page in pages {
        map.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
        map.follow_up(page, map.state(page).fail_read());
    }
    shared.pressure.progress(run.pages as usize);
}

/// A read ahead has ended.
fn settle(shared: &PoolState, map: &MappedFile, finished: Completion) {
    let run = PageRun::from_tag(finished.transfer.tag);
    let result = finished.result;
    if finished.transfer.buffer.is_empty()
        && let Err(error) = &result
    {
        map.lose_memory(error);
    }
    // The pages are lent until here.
    drop(finished.transfer);
    match result {
        Ok(()) => {
            for part in run.by_group() {
                let afters: Vec<_> = part.iter().map(|page| (page, map.state(page).end_read(LockMode::None))).collect();
                let mut clean = map.shard(part.start).clean();
                afters.iter().filter(|(_, after)| after.enqueue).for_each(|&(page, _)| clean.insert(page));
                drop(clean);
                for (page, mut after) in afters {
                    after.enqueue = false;
                    map.follow_up(page, after);
                }
            }
            shared.pressure.progress(run.pages as usize);
        }
        Err(error) => {
            tracing::debug!(%error, "reading ahead");
            give_up(shared, map, run);
        }
    }
}

/// Deals with everything that has ended; returns how many transfers.
fn settle_ended(shared: &PoolState, map: &MappedFile, queue: &mut dyn Queue) -> usize {
    let mut count = 0;
    while let Some(finished) = queue.poll() {
        settle(shared, map, finished);
        count += 1;
    }
    count
}

/// Waits for one transfer, and deals with all that have ended by then.
fn settle_some(shared: &PoolState, map: &MappedFile, queue: &mut dyn Queue) {
    if let Some(finished) = queue.complete() {
        settle(shared, map, finished);
    }
    settle_ended(shared, map, queue);
}

/// Settles what arrives on the readahead queue `number` until `done`.
pub(crate) fn drive(shared: &PoolState, map: &MappedFile, number: usize, done: impl Fn() -> bool) {
    let shared_queue = &map.readahead_queues[number];
    loop {
        match shared_queue.take(true, &done) {
            TakenQueue::Done => return,
            TakenQueue::None => shared_queue.put_back(None),
            TakenQueue::Queue(mut queue) => {
                settle_some(shared, map, &mut *queue);
                shared_queue.put_back(Some(queue));
            }
        }
    }
}

/// Settles what has arrived on any readahead queue, without waiting; returns how many transfers.
pub(crate) fn poll(shared: &PoolState, map: &MappedFile) -> usize {
    let mut count = 0;
    for shared_queue in &map.readahead_queues {
        if let Some(mut queue) = shared_queue.try_take() {
            count += settle_ended(shared, map, &mut *queue);
            shared_queue.put_back(Some(queue));
        }
    }
    count
}

/// Waits for something to arrive on a readahead queue of any map; whether there was anything to wait for.
pub(crate) fn await_any(shared: &PoolState) -> bool {
    let maps = shared.maps();
    for map in &maps {
        for shared_queue in &map.readahead_queues {
            if let Some(mut queue) = shared_queue.try_take() {
                settle_some(shared, map, &mut *queue);
                shared_queue.put_back(Some(queue));
                return true;
            }
        }
    }
    false
}

/// Waits until nothing is in flight on any readahead queue. The map is closing: no thread submits any more.
pub(crate) fn drain(shared: &PoolState, map: &MappedFile) {
    for shared_queue in &map.readahead_queues {
        let queue = match shared_queue.take(false, || false) {
            TakenQueue::Queue(mut queue) => {
                while queue.in_flight() > 0 {
                    settle_some(shared, map, &mut *queue);
                }
                Some(queue)
            }
            TakenQueue::None | TakenQueue::Done => None,
        };
        shared_queue.put_back(queue);
    }
}

/// Starts `transfers`, whose pages are claimed, on the readahead queue `number`. Waits only while it is as full as it may be.
pub(crate) fn submit(shared: &PoolState, map: &MappedFile, number: usize, transfers: Vec<Transfer>) {
    let shared_queue = &map.readahead_queues[number];
    let depth = shared.config.queue_depth;
    let mut waiting: VecDeque<Transfer> = transfers.into();
    while !waiting.is_empty() {
        let taken = match shared_queue.take(false, || false) {
            TakenQueue::Queue(queue) => Some(queue),
            TakenQueue::None | TakenQueue::Done => ReadaheadQueue::open(&*map.device, depth),
        };
        let Some(mut queue) = taken else {
            // Without a queue it is no reading ahead, but the pages come.
            for mut transfer in waiting.drain(..) {
                let result = map.device.run(&mut transfer);
                settle(shared, map, Completion { transfer, result });
            }
            shared_queue.put_back(None);
            return;
        };
        settle_ended(shared, map, &mut *queue);
        if queue.in_flight() >= depth {
            settle_some(shared, map, &mut *queue);
        }
        let room = depth.saturating_sub(queue.in_flight()).min(waiting.len());
        queue.submit_all(waiting.drain(..room).collect());
        map.counters.read_depth.note(queue.in_flight());
        shared_queue.put_back(Some(queue));
    }
}

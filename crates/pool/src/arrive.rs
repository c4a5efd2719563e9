//! Pages that were asked for ahead of their use arrive: noticed by whoever touches one, asks, or needs memory.
//!
//! Relies on [`Lane`] for who may wait on a queue, and on the tag of a transfer for which pages it was.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use quire_device::{Finished, Queue, Transfer};

use crate::counters::Count;
use crate::lane::{Found, Lane};
use crate::mapped::Mapped;
use crate::page::Run;
use crate::shared::Shared;
use crate::word::Hold;

/// Gives back the pages of a read that failed. They are absent again, and whoever needs one reads it and gets the error.
pub(crate) fn give_up(shared: &Shared, map: &Mapped, run: Run) {
    let pages: Vec<u64> = run.iter().collect();
    // SAFETY: the pages are claimed for reading, by us, and the read has ended.
    if let Err(error) = unsafe { map.frames.discard(&pages) } {
        // Their memory stays taken, and so do their credits.
        tracing::error!(%error, "memory of pages that could not be read is lost");
    } else {
        shared.credits.give(pages.len());
    }
    map.counters.add(Count::FailedReads, pages.len());
    for page in pages {
        map.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
        map.follow_up(page, map.word(page).fail_read());
    }
    shared.signal.progress(run.pages as usize);
}

/// A read ahead has ended.
fn settle(shared: &Shared, map: &Mapped, finished: Finished) {
    let run = Run::from_tag(finished.transfer.tag);
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
                let afters: Vec<_> = part.iter().map(|page| (page, map.word(page).end_read(Hold::None))).collect();
                let mut clean = map.shard(part.start).clean();
                afters.iter().filter(|(_, after)| after.enqueue).for_each(|&(page, _)| clean.insert(page));
                drop(clean);
                for (page, mut after) in afters {
                    after.enqueue = false;
                    map.follow_up(page, after);
                }
            }
            shared.signal.progress(run.pages as usize);
        }
        Err(error) => {
            tracing::debug!(%error, "reading ahead");
            give_up(shared, map, run);
        }
    }
}

/// Deals with everything that has ended; returns how many transfers.
fn settle_ended(shared: &Shared, map: &Mapped, queue: &mut dyn Queue) -> usize {
    let mut count = 0;
    while let Some(finished) = queue.poll() {
        settle(shared, map, finished);
        count += 1;
    }
    count
}

/// Waits for one transfer, and deals with all that have ended by then.
fn settle_some(shared: &Shared, map: &Mapped, queue: &mut dyn Queue) {
    if let Some(finished) = queue.complete() {
        settle(shared, map, finished);
    }
    settle_ended(shared, map, queue);
}

/// Sees to the lane's arrivals until `done`.
pub(crate) fn drive(shared: &Shared, map: &Mapped, lane: usize, done: impl Fn() -> bool) {
    let lane = &map.lanes[lane];
    loop {
        match lane.take(true, &done) {
            Found::Done => return,
            Found::None => lane.put_back(None),
            Found::Queue(mut queue) => {
                settle_some(shared, map, &mut *queue);
                lane.put_back(Some(queue));
            }
        }
    }
}

/// Deals with what has arrived on any lane, without waiting; returns how many transfers.
pub(crate) fn poll(shared: &Shared, map: &Mapped) -> usize {
    let mut count = 0;
    for lane in &map.lanes {
        if let Some(mut queue) = lane.try_take() {
            count += settle_ended(shared, map, &mut *queue);
            lane.put_back(Some(queue));
        }
    }
    count
}

/// Waits for something to arrive on some lane of some map; whether there was anything to wait for.
pub(crate) fn await_any(shared: &Shared) -> bool {
    let maps = shared.maps();
    for map in &maps {
        for lane in &map.lanes {
            if let Some(mut queue) = lane.try_take() {
                settle_some(shared, map, &mut *queue);
                lane.put_back(Some(queue));
                return true;
            }
        }
    }
    false
}

/// Waits until nothing is in flight on any lane. Nobody submits any more.
pub(crate) fn drain(shared: &Shared, map: &Mapped) {
    for lane in &map.lanes {
        let queue = match lane.take(false, || false) {
            Found::Queue(mut queue) => {
                while queue.in_flight() > 0 {
                    settle_some(shared, map, &mut *queue);
                }
                Some(queue)
            }
            Found::None | Found::Done => None,
        };
        lane.put_back(queue);
    }
}

/// Starts `transfers`, whose pages are claimed, on a lane. Waits only while the lane is as full as it may be.
pub(crate) fn submit(shared: &Shared, map: &Mapped, lane: usize, transfers: Vec<Transfer>) {
    let lane = &map.lanes[lane];
    let depth = shared.config.queue_depth;
    let mut waiting: VecDeque<Transfer> = transfers.into();
    while !waiting.is_empty() {
        let taken = match lane.take(false, || false) {
            Found::Queue(queue) => Some(queue),
            Found::None | Found::Done => Lane::open(&*map.device, depth),
        };
        let Some(mut queue) = taken else {
            // Without a queue it is no reading ahead, but the pages come.
            for mut transfer in waiting.drain(..) {
                let result = map.device.run(&mut transfer);
                settle(shared, map, Finished { transfer, result });
            }
            lane.put_back(None);
            return;
        };
        settle_ended(shared, map, &mut *queue);
        if queue.in_flight() >= depth {
            settle_some(shared, map, &mut *queue);
        }
        let room = depth.saturating_sub(queue.in_flight()).min(waiting.len());
        queue.submit_all(waiting.drain(..room).collect());
        map.counters.read_depth.note(queue.in_flight());
        lane.put_back(Some(queue));
    }
}

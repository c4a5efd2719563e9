//! Reading pages ahead of their use: because a user asks for it, or because a stream is coming their way.
//!
//! Relies on [`crate::completion`] for what has been started. Nothing here waits for memory: what there is no credit for is not
//! read ahead.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use quire_device::Direction;

use crate::cache_padded::slot;
use crate::config::AccessAdvice;
use crate::counters::PoolCounter;
use crate::credits::Credit;
use crate::mapped_file::MappedFile;
use crate::page::runs;
use crate::page_state::{LockMode, PageStatus};
use crate::pool_state::PoolState;
use crate::readahead_streams::ReadaheadWindow;
use crate::{completion, paths, reclaim};

/// Most bytes that one transfer moves. Larger ones gain nothing, and their pages arrive late.
const RUN_BYTES: usize = 256 << 10;

/// Starts reading those of `pages` that are absent, in the order given; neighbours go together. Returns how many were
/// started; it stops where memory ends.
pub(crate) fn prefetch(shared: &PoolState, map: &MappedFile, pages: impl Iterator<Item = u64>) -> usize {
    if map.check_memory().is_err() {
        return 0;
    }
    let number = slot() % map.readahead_queues.len();
    let mut claimed = Vec::new();
    for page in pages {
        // The last page may be a part of one, which is no work for a queue.
        let Some((state, ..)) = map.find(page).filter(|_| !map.is_tail(page)) else { continue };
        if state.load().status() != PageStatus::Absent {
            continue;
        }
        let Some(credit) = reclaim::credit_at_once(shared, map, page) else { break };
        let Some(credit) = from_tier(shared, map, page, credit) else { continue };
        if state.begin_read(Some(number)).is_ok() {
            credit.spend();
            map.shard(page).resident.fetch_add(1, Ordering::Relaxed);
            claimed.push(page);
        }
    }
    if claimed.is_empty() {
        return 0;
    }
    let _entered = tracing::trace_span!("pool_ahead", map = map.device.name(), pages = claimed.len()).entered();
    let most = (RUN_BYTES / map.frames.page_bytes()) as u64;
    // SAFETY: `transfer` demands pages that are claimed until the transfer is dropped, and that no other thread uses: `begin_read` has claimed
    // them for reading, and the claims end when the transfers are settled.
    let transfers: Vec<_> =
        runs(&claimed, most).into_iter().map(|run| unsafe { map.frames.transfer(Direction::Read, run) }).collect();
    map.counters.add(PoolCounter::Ahead, claimed.len());
    map.counters.add(PoolCounter::AheadReads, transfers.len());
    completion::submit(shared, map, number, transfers);
    claimed.len()
}

/// Brings an absent page in from the second tier, with the credit that it returns otherwise. Only a page that is likely to be there
/// is claimed for that: one that is read by a queue names the queue as it is claimed.
fn from_tier<'a>(shared: &'a PoolState, map: &MappedFile, page: u64, credit: Credit<'a>) -> Option<Credit<'a>> {
    let state = map.state(page);
    if !paths::is_in_tier(shared, map, page) || state.begin_read(None).is_err() {
        return Some(credit);
    }
    // SAFETY: `begin_read` has claimed the page, and the claim ends below, after the slice was used.
    if !paths::read_tier(shared, map, page, unsafe { map.frames.claimed(page) }, true) {
        // Nothing was written to its place.
        map.follow_up(page, state.fail_read());
        return Some(credit);
    }
    credit.spend();
    map.shard(page).resident.fetch_add(1, Ordering::Relaxed);
    map.follow_up(page, state.end_read(LockMode::None));
    shared.pressure.progress(1);
    None
}

/// Pages that the map may read ahead of a stream: no more than a part of the pool.
fn window(shared: &PoolState, map: &MappedFile) -> u32 {
    let most = u32::try_from(shared.credits.total() / 8).unwrap_or(u32::MAX);
    if map.advice() == AccessAdvice::Random { 0 } else { map.options.read_ahead_pages.min(most) }
}

/// `page` has been missed: reads ahead if it continues a stream.
pub(crate) fn after_miss(shared: &PoolState, map: &MappedFile, page: u64) {
    let window = window(shared, map);
    if window > 0 {
        let eager = map.advice() == AccessAdvice::Sequential;
        let own = &map.streams[slot() % map.streams.len()];
        let order = own.lock().unwrap_or_else(PoisonError::into_inner).missed(page, window, eager);
        carry_out(shared, map, order);
    }
}

/// The marked `page` has been touched: the stream that it belongs to is continued.
pub(crate) fn after_mark(shared: &PoolState, map: &MappedFile, page: u64) {
    let window = window(shared, map);
    // Most often by the thread that has begun it.
    let cores = map.streams.len();
    let order = (0..cores).find_map(|step| {
        let streams = &map.streams[(slot() + step) % cores];
        streams.lock().unwrap_or_else(PoisonError::into_inner).reached(page, window)
    });
    carry_out(shared, map, order);
}

fn carry_out(shared: &PoolState, map: &MappedFile, order: Option<ReadaheadWindow>) {
    let Some(ReadaheadWindow { pages, mark }) = order else { return };
    prefetch(shared, map, pages);
    if let Some((state, ..)) = map.find(mark) {
        state.mark();
    }
}

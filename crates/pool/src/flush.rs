//! `flush` and `sync`: what was written to a map before the call is durable when it returns.
//!
//! Relies on every change being in a shard's sets from before its guard is dropped until it is on the device: a page is
//! found dirty, or being written, or it is on the device already.

use std::ops::Range;

use crate::error::PoolError;
use crate::futex::Futex;
use crate::mapped_file::MappedFile;
use crate::page::GROUP_PAGES;
use crate::page_state::{PageStatus, StateSnapshot};
use crate::paths::WritePath;
use crate::pool_state::PoolState;
use crate::writeback::write_groups;

/// Makes the changes of `pages` durable. Waits for writers that hold one of them.
///
/// # Errors
/// [`PoolError::Poisoned`], now or from an earlier failure.
pub(crate) fn flush(shared: &PoolState, map: &MappedFile, pages: Range<u64>) -> Result<(), PoolError> {
    let span = tracing::debug_span!("pool_flush", map = map.device.name(), from = pages.start, to = pages.end);
    let _entered = span.enter();
    map.check()?;
    let (dirty, writing) = listed(map, &pages);
    write_held(shared, map, &dirty)?;
    // What others were writing when we came, or have claimed before us. A page that they fail to write poisons the map.
    for page in dirty.into_iter().chain(writing) {
        map.state(page).wait(&Futex, |seen| seen.status() != PageStatus::Writing);
    }
    map.check()?;
    map.device.flush().map_err(|error| map.poison(&error))
}

/// Writes what is dirty without waiting for threads that have a page locked, and makes nothing durable.
///
/// # Errors
/// As [`flush`].
pub(crate) fn write_all(shared: &PoolState, map: &MappedFile) -> Result<(), PoolError> {
    map.check()?;
    let (dirty, _) = listed(map, &(0..map.pages()));
    write(shared, map, &dirty).map(drop)
}

/// Pages of the range that are dirty, and those that are being written, both rising.
fn listed(map: &MappedFile, pages: &Range<u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut dirty, mut writing) = (Vec::new(), Vec::new());
    for shard in map.shards() {
        shard.dirty().list(pages, &mut dirty, &mut writing);
    }
    dirty.sort_unstable();
    (dirty, writing)
}

/// Writes those of `pages`, which rise, that no other thread is writing; waits for threads that are changing one of them.
fn write_held(shared: &PoolState, map: &MappedFile, pages: &[u64]) -> Result<(), PoolError> {
    let mut held = write(shared, map, pages)?;
    while !held.is_empty() {
        // A group is written whole, so other pages of it may be held, too.
        held.retain(|page| pages.binary_search(page).is_ok());
        for &page in &held {
            map.state(page).wait(&Futex, |seen: StateSnapshot| !seen.is_exclusive());
        }
        held = write(shared, map, &held)?;
    }
    Ok(())
}

/// Writes the groups of `pages`, which rise; returns pages of these groups that a thread is changing, rising, too.
fn write(shared: &PoolState, map: &MappedFile, pages: &[u64]) -> Result<Vec<u64>, PoolError> {
    let mut groups: Vec<u64> = pages.iter().map(|page| page / GROUP_PAGES).collect();
    groups.dedup();
    let own_queue = map.write_queues.len() - 1;
    let written = write_groups(shared, map, own_queue, WritePath::Direct, &groups);
    written.error.map_or(Ok(written.in_use), Err)
}

//! Writer threads: they sleep until more is dirty than should be, or a thread needs memory, and then write the densest
//! groups of their shards first.
//!
//! Relies on each shard belonging to one writer, so that no two claim the same groups.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crate::dirty_set::DirtyGroup;
use crate::error::PoolError;
use crate::mapped_file::{MappedFile, Shard};
use crate::paths::WritePath;
use crate::pool_state::PoolState;
use crate::writeback::write_groups;
use quire_sys::thread::spawn_unsignalled;

/// Most groups picked at a time.
const PICKED_GROUPS: usize = 512;
/// Groups of a shard considered for that, in turn: threads that make pages dirty wait meanwhile.
const SEEN_GROUPS: usize = 2048;

/// Starts the pool's writers.
///
/// # Errors
/// [`PoolError::Thread`]; those that were started have ended then.
pub(crate) fn start(shared: &Arc<PoolState>) -> Result<Vec<JoinHandle<()>>, PoolError> {
    let mut threads = Vec::new();
    for number in 0..shared.config.writers {
        let own = Arc::clone(shared);
        let thread = spawn_unsignalled(&format!("quire-pool-{number}"), move || {
            own.config.call_on_thread_start();
            Writer { shared: &own, number }.work();
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                stop(shared, threads);
                return Err(PoolError::Thread { cause: error.to_string() });
            }
        }
    }
    Ok(threads)
}

/// Has the writers end, and waits for them.
pub(crate) fn stop(shared: &PoolState, threads: Vec<JoinHandle<()>>) {
    shared.pressure.stop();
    for thread in threads {
        // A writer that panicked has said so.
        let _ = thread.join();
    }
}

struct Writer<'a> {
    shared: &'a PoolState,
    number: usize,
}

impl Writer<'_> {
    fn work(&self) {
        let shared = self.shared;
        let mut is_writing = false;
        while !shared.pressure.is_stopping() {
            let seen = shared.pressure.wanted.current();
            let excess = shared.dirty_marks().excess(shared.dirty_pages(), is_writing);
            is_writing = excess > 0;
            // Pages that are written while threads wait for memory are victims: they go as soon as they are clean.
            let is_memory_low = shared.pressure.is_memory_low();
            let path = if is_memory_low { WritePath::EvictDirty } else { WritePath::Direct };
            let wanted = if is_memory_low && !is_writing { shared.evict_pages() } else { excess };
            if wanted == 0 || self.write(wanted, path) == 0 {
                is_writing = false;
                shared.pressure.wanted.wait(seen, None);
            }
        }
    }

    /// Shards that this writer looks after.
    fn shards<'m>(&self, map: &'m MappedFile) -> impl Iterator<Item = &'m Shard> {
        map.shards().iter().skip(self.number).step_by(self.shared.config.writers).map(|shard| &shard.0)
    }

    /// Writes about `wanted` pages of the map that has the most dirty ones; returns how many.
    fn write(&self, wanted: usize, path: WritePath) -> usize {
        let dirty_of = |map: &Arc<MappedFile>| self.shards(map).map(|shard| shard.dirty().len()).sum::<usize>();
        let mut maps: Vec<_> = self.shared.maps().into_iter().filter(|map| !map.is_poisoned()).collect();
        maps.sort_by_cached_key(|map| Reverse(dirty_of(map)));
        for map in maps {
            let work = || {
                let groups = self.pick(&map, wanted);
                write_groups(self.shared, &map, self.number, path, &groups).pages
            };
            let pages = map.while_open(|| self.shared.config.with_writeback_hooks(work)).flatten().unwrap_or(0);
            if pages > 0 {
                return pages;
            }
        }
        0
    }

    /// Groups with about `wanted` dirty pages, the densest of the next ones, sorted by offset.
    fn pick(&self, map: &MappedFile, wanted: usize) -> Vec<u64> {
        let mut densest: BinaryHeap<Reverse<DirtyGroup>> = BinaryHeap::new();
        for shard in self.shards(map) {
            let dirty = shard.dirty();
            let first = shard.cursor.load(Ordering::Relaxed);
            for group in dirty.groups(first).take(SEEN_GROUPS) {
                shard.cursor.store(group.number + 1, Ordering::Relaxed);
                if densest.len() < PICKED_GROUPS {
                    densest.push(Reverse(group));
                } else if densest.peek().is_some_and(|Reverse(sparsest)| sparsest.pages < group.pages) {
                    densest.pop();
                    densest.push(Reverse(group));
                }
            }
        }
        let mut pages = 0;
        let mut groups: Vec<u64> = Vec::new();
        // The order is that of `Reverse`: the densest come first.
        for Reverse(group) in densest.into_sorted_vec() {
            if pages >= wanted {
                break;
            }
            pages += group.pages as usize;
            groups.push(group.number);
        }
        groups.sort_unstable();
        groups
    }
}

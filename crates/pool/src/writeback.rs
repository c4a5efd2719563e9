//! Dirty pages go to the device: claimed group by group, merged to runs, several in flight.
//!
//! Relies on the shard's lock for claims, so that a thread that locks a shard finds a page dirty or being written, never
//! neither. A page that is being written can be read; a writer of it waits, since a copy would take memory just when
//! there is none, and a device that is given a changing page may store half a change.

use std::sync::PoisonError;

use quire_device::{Completion, DeviceError, DeviceOperation, Direction, Queue, Transfer};

use crate::counters::PoolCounter;
use crate::error::PoolError;
use crate::mapped_file::MappedFile;
use crate::page::{GROUP_PAGES, PageRun, runs};
use crate::paths::WritePath;
use crate::pool_state::PoolState;
use crate::relocated_pages;

/// Most bytes of one write.
const RUN_BYTES: usize = 1 << 20;
/// Groups claimed at a time: enough to merge over their borders, few enough that writers of these pages don't wait long.
const STEP_GROUPS: usize = 16;

/// What a batch of writes has achieved.
#[derive(Debug, Default)]
pub(crate) struct WritebackResult {
    /// Pages that are on the device now.
    pub(crate) pages: usize,
    /// Pages that a thread was changing.
    pub(crate) in_use: Vec<u64>,
    /// The first failure; the map is poisoned then.
    pub(crate) error: Option<PoolError>,
}

/// Writes the dirty pages of `groups`, which rise, and waits until they are written. `queue` is the number of the map's
/// queue that the caller may use; `path` says why they are written.
pub(crate) fn write_groups(
    shared: &PoolState,
    map: &MappedFile,
    queue: usize,
    path: WritePath,
    groups: &[u64],
) -> WritebackResult {
    let span = tracing::debug_span!("pool_writeback", map = map.device.name(), groups = groups.len());
    let _entered = span.enter();
    let depth = shared.config.queue_depth;
    let mut place = map.write_queues[queue].lock().unwrap_or_else(PoisonError::into_inner);
    if place.is_none() {
        let opened = map.device.queue(depth);
        *place = opened.inspect_err(|error| tracing::warn!(%error, "no queue for writing")).ok();
    }
    let mut job = WritebackJob { shared, map, path, written: WritebackResult::default(), begun: 0, settled: 0 };
    let mut steps = groups.chunks(STEP_GROUPS);
    let mut more = true;
    while more || place.as_ref().is_some_and(|queue| queue.in_flight() > 0) {
        more = more && job.written.error.is_none();
        let room = place.as_ref().map_or(1, |queue| depth.saturating_sub(queue.in_flight()));
        if more && room > 0 {
            let Some(step) = steps.next() else {
                more = false;
                continue;
            };
            let claimed = job.claim(step);
            let transfers = job.protect(claimed);
            job.start(place.as_deref_mut(), transfers);
        } else if let Some(finished) = place.as_mut().and_then(|queue| queue.complete()) {
            job.finish(finished);
        }
        while let Some(finished) = place.as_mut().and_then(|queue| queue.poll()) {
            job.finish(finished);
        }
        job.announce();
    }
    std::mem::take(&mut job.written)
}

struct WritebackJob<'a> {
    shared: &'a PoolState,
    map: &'a MappedFile,
    path: WritePath,
    written: WritebackResult,
    /// Pages whose writes have begun and were not announced yet.
    begun: usize,
    /// Those whose writes have ended.
    settled: usize,
}

impl Drop for WritebackJob<'_> {
    /// After a panic no thread waits for the writes of this job.
    fn drop(&mut self) {
        self.shared.pressure.end_writeback(self.begun);
    }
}

impl WritebackJob<'_> {
    /// Claims the dirty pages of some groups and makes transfers of them.
    fn claim(&mut self, groups: &[u64]) -> Vec<Transfer> {
        let mut pages = Vec::new();
        for &group in groups {
            let (before, first) = (pages.len(), group * GROUP_PAGES);
            let in_use = &mut self.written.in_use;
            self.map.shard(first).dirty().claim(group, &mut pages, |page| {
                let claimed = self.map.state(page).begin_write().is_ok();
                if !claimed {
                    in_use.push(page);
                }
                claimed
            });
            self.shared.sub_dirty(self.map.shard_of(first), pages.len() - before);
        }
        let most = (RUN_BYTES / self.map.frames.page_bytes()) as u64;
        let mut transfers = self.relocated(&mut pages);
        // SAFETY: `transfer` demands pages that are claimed until the transfer is dropped, and that others at most read: `begin_write` has
        // claimed them for writing, and the claims end after the transfers have been finished.
        let plain = |run| unsafe { self.map.frames.transfer(Direction::Write, run) };
        transfers.extend(runs(&pages, most).into_iter().map(plain));
        let begun = transfers.iter().map(|transfer| PageRun::from_tag(transfer.tag).pages as usize).sum();
        self.shared.pressure.begin_writeback(begun);
        self.begun += begun;
        transfers.iter_mut().for_each(|transfer| self.map.cut_at_end(transfer));
        transfers
    }

    /// Takes the relocated pages out of `pages`, which are claimed for writing, and makes transfers of them.
    fn relocated(&self, pages: &mut Vec<u64>) -> Vec<Transfer> {
        let Some(frames) = self.map.spare_frames_if_any().filter(|frames| frames.held() > 0) else { return Vec::new() };
        // A page that is being written stays where it is.
        let moved = pages.extract_if(.., |page| self.map.state(*page).load().is_relocated());
        let transfer = |page| {
            let frame = frames.frame_of(page).expect("a relocated page that is in memory has a frame");
            // SAFETY: `transfer` demands a page that is claimed until the transfer is dropped, and that others at most read: `relocated` gets
            // pages that `begin_write` has claimed for writing, and the claims end after the transfers have been finished.
            unsafe { frames.transfer(Direction::Write, frame, page) }
        };
        moved.map(transfer).collect()
    }

    /// Passes on the transfers whose pages can't be stored to any more; the others have failed.
    fn protect(&mut self, transfers: Vec<Transfer>) -> Vec<Transfer> {
        let mut passed = Vec::with_capacity(transfers.len());
        for transfer in transfers {
            match self.map.frames.protect(PageRun::from_tag(transfer.tag)) {
                Ok(()) => passed.push(transfer),
                Err(error) => {
                    let error = DeviceError::new(DeviceOperation::Write, self.map.device.name(), &error);
                    self.finish(Completion { transfer, result: Err(error) });
                }
            }
        }
        passed
    }

    fn start(&mut self, queue: Option<&mut (dyn Queue + 'static)>, transfers: Vec<Transfer>) {
        for transfer in &transfers {
            self.map.counters.merged(PageRun::from_tag(transfer.tag).pages);
        }
        self.map.counters.add(PoolCounter::Writes, transfers.len());
        if let Some(queue) = queue {
            queue.submit_all(transfers);
            self.map.counters.write_depth.note(queue.in_flight());
            return;
        }
        for mut transfer in transfers {
            let result = self.map.device.run(&mut transfer);
            self.finish(Completion { transfer, result });
        }
    }

    /// A write has ended.
    fn finish(&mut self, finished: Completion) {
        let run = PageRun::from_tag(finished.transfer.tag);
        // The pages are lent until here.
        drop(finished.transfer);
        let result = finished.result.and_then(|()| self.trim(run));
        let failed = result.is_err();
        if let Err(error) = result {
            let poison = self.map.poison(&error);
            self.written.error.get_or_insert(poison);
        } else {
            self.written.pages += run.pages as usize;
            self.map.counters.add(PoolCounter::Written, run.pages as usize);
            self.map.counters.add(self.path.counter(), run.pages as usize);
        }
        for part in run.by_group() {
            if failed {
                self.shared.add_dirty(self.map.shard_of(part.start), part.pages as usize);
            }
            let mut dirty = self.map.shard(part.start).dirty();
            let afters: Vec<_> = part
                .iter()
                .map(|page| {
                    dirty.written(page, failed);
                    (page, self.map.state(page).end_write(failed))
                })
                .collect();
            drop(dirty);
            for (page, after) in afters {
                self.map.follow_up(page, after);
                // Its leases may have ended while it was written.
                relocated_pages::settle(self.shared, self.map, page);
            }
        }
        self.settled += run.pages as usize;
    }

    /// Tells threads that wait for memory what has been written since the last time.
    fn announce(&mut self) {
        let ended = std::mem::take(&mut self.settled);
        self.begun -= ended;
        self.shared.pressure.end_writeback(ended);
    }

    /// Whole blocks are written; what that has added to the end of the file is cut off again.
    fn trim(&self, run: PageRun) -> Result<(), DeviceError> {
        if !self.map.is_tail(run.start + run.pages - 1) {
            return Ok(());
        }
        let _alone = self.map.length.lock().unwrap_or_else(PoisonError::into_inner);
        let len = self.map.len();
        if self.map.device.len()? > len { self.map.device.set_len(len) } else { Ok(()) }
    }
}

//! Flushes of the slow devices: when one begins, and what its end means.
//!
//! A flush begins when a task waits for it, when what it would make durable takes much memory, or after a while. Which
//! volumes that concerns is kept up to date with every change, so that no thread ever looks through all of them.
//!
//! Relies on at most one flush of a volume at a time.

use quire_device::DeviceError;

use crate::cache_state::CacheState;
use crate::ids::{BlockAddr, VolumeId};
use crate::jobs::FlushJob;
use crate::volume::FlushWanted;

/// What was written is flushed after this time even if no task waits: until then its bytes are kept in memory.
pub(super) const FLUSH_AFTER_NS: u64 = 1_000_000_000;

impl FlushJob {
    /// The next flush, if one is due. `hold_back`: only of what critical tasks wait for.
    pub fn begin(cache_state: &mut CacheState, now_ns: u64, hold_back: bool) -> Option<Self> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = (Excluded(cache_state.flush.last), Unbounded);
        let wanted = cache_state.flush.due.range(after).next().or_else(|| cache_state.flush.due.first()).copied();
        let tight = cache_state.totals.written * 2 >= cache_state.queue_blocks.max(1);
        let aged = || {
            let old = cache_state.flush.unflushed.iter().take_while(|(ns, _)| tight || ns + FLUSH_AFTER_NS <= now_ns);
            let idle = |id: &VolumeId| {
                cache_state.volumes.get(id).is_some_and(|volume| {
                    !volume.flush.is_under_way && volume.alive().is_some() && volume.is_unflushed()
                })
            };
            old.map(|(_, id)| *id).find(idle)
        };
        let hasty = || cache_state.flush.due.iter().find(|id| cache_state.is_hasty(**id)).copied();
        let id = if hold_back { hasty() } else { wanted.or_else(aged) }?;
        cache_state.flush.last = id;
        cache_state.set_unflushed(id, None);
        let volume = cache_state.volumes.get_mut(&id)?;
        volume.flush.epoch += 1;
        volume.flush.is_under_way = true;
        volume.flush.wanted = FlushWanted::No;
        cache_state.stats.slow_flushes += 1;
        let (device, epoch, incarnation) = (volume.device.clone()?, volume.flush.epoch, volume.incarnation);
        cache_state.judge_flush(id);
        Some(Self { volume: id, incarnation, device, epoch })
    }

    /// The flush has ended. A flush may settle very many versions, and others need the cache state meanwhile: about `most` are
    /// settled, from block `from` on (0 at first), and the block to go on with is returned. `None`: that was all.
    pub fn finish(
        &self,
        cache_state: &mut CacheState,
        result: &Result<(), DeviceError>,
        now_ns: u64,
        from: u64,
        most: usize,
    ) -> Option<u64> {
        let id = self.volume;
        let volume = cache_state.volumes.get_mut(&id).filter(|volume| volume.incarnation == self.incarnation)?;
        if let Err(error) = result {
            volume.flush.is_under_way = false;
            cache_state.lose_slow(id, error, now_ns);
            return None;
        }
        if volume.dead.is_none() {
            let range = BlockAddr { volume: id, block: from }..=BlockAddr { volume: id, block: u64::MAX };
            let addrs: Vec<BlockAddr> = cache_state.versions.written.range(range).take(most.max(1)).copied().collect();
            for addr in &addrs {
                cache_state.with_slot(*addr, |slot| slot.flushed(self.epoch));
            }
            if let Some(last) = addrs.last().filter(|_| addrs.len() == most.max(1)) {
                return Some(last.block + 1);
            }
        }
        if let Some(volume) = cache_state.volumes.get_mut(&id) {
            volume.flush.is_under_way = false;
            if volume.dead.is_none() {
                volume.flush.unsynced = false;
                volume.flush.len_change = volume.flush.len_change.filter(|change| change.epoch >= self.epoch);
            }
            if volume.tally.written > 0 && volume.flush.unflushed_since_ns.is_none() {
                cache_state.set_unflushed(id, Some(now_ns));
            }
        }
        cache_state.judge_flush(id);
        None
    }
}

//! Reading through the cache: the newest version of every block, wherever it is.
//!
//! Relies on looking where a block is under the cache state's lock and reading without it. A block found in the log may
//! have left it by the time it is read; so the map is asked again, and if it changed, the block is looked for anew. A block of the
//! log is verified ([`crate::block_sums`]).

use std::time::Instant;

use quire_device::{Device, DeviceError};

use crate::cache_state::BlockLocation;
use crate::error::CacheError;
use crate::format::AREA_OFFSET;
use crate::ids::{BLOCK_BYTES, BlockAddr, VolumeId};
use crate::shared::SharedCache;
use crate::stats::WaitCause;
use crate::tasks::TaskId;

impl SharedCache {
    /// Reads from `offset` on up to the end of the volume; returns how many bytes.
    pub(crate) fn read(&self, id: VolumeId, offset: u64, into: &mut [u8], task: TaskId) -> Result<usize, CacheError> {
        let len = {
            let cache_state = self.cache_state();
            let volume = cache_state.volumes.get(&id).filter(|volume| volume.device.is_some());
            volume.ok_or(CacheError::Unattached(id))?.len
        };
        let count = len.saturating_sub(offset).min(into.len() as u64) as usize;
        let unit = BLOCK_BYTES as u64;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let skip = (at % unit) as usize;
            let part = (BLOCK_BYTES - skip).min(count - done);
            let addr = BlockAddr { volume: id, block: at / unit };
            let found = self.cache_state().find(addr);
            let wanted =
                match found {
                    BlockLocation::Memory(piece) => {
                        into[done..done + part].copy_from_slice(&piece.bytes()[skip..skip + part]);
                        part
                    }
                    BlockLocation::Log(position) => {
                        if self.read_log(addr, position, skip, &mut into[done..done + part])? { part } else { 0 }
                    }
                    BlockLocation::Slow => {
                        let run = self.slow_run(addr, skip, count - done);
                        self.read_slow(id, at, &mut into[done..done + run], task)?;
                        run
                    }
                };
            done += wanted;
        }
        Ok(count)
    }

    /// How many of `most` bytes from `skip` into `addr` on are on the slow device.
    fn slow_run(&self, addr: BlockAddr, skip: usize, most: usize) -> usize {
        let cache_state = self.cache_state();
        let mut run = (BLOCK_BYTES - skip).min(most);
        let mut next = addr.plus(1);
        while run < most && matches!(cache_state.find(next), BlockLocation::Slow) {
            run = (run + BLOCK_BYTES).min(most);
            next = next.plus(1);
        }
        run
    }

    /// Whether the bytes were still there. The block is read whole, to be verified: what is read here may be a part of a block that
    /// is written again, with a new checksum.
    fn read_log(&self, addr: BlockAddr, position: u64, skip: usize, into: &mut [u8]) -> Result<bool, CacheError> {
        let (area, sums) = {
            let cache_state = self.cache_state();
            (cache_state.log.ring.area_bytes(), cache_state.log.sums.expected([position]))
        };
        let mut block = [0; BLOCK_BYTES];
        let read = read_exactly(&*self.fast, AREA_OFFSET + position % area, &mut block);
        let result = read.and_then(|()| sums.check(std::iter::once(position), &block, &*self.fast, area));
        if !self.cache_state().still_logged(addr, position) {
            return Ok(false);
        }
        result.map_err(|cause| CacheError::Read { volume: addr.volume, cause })?;
        into.copy_from_slice(&block[skip..skip + into.len()]);
        Ok(true)
    }

    fn read_slow(&self, id: VolumeId, offset: u64, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        let (device, floor) = {
            let cache_state = self.cache_state();
            let volume = cache_state.volumes.get(&id).ok_or(CacheError::Unattached(id))?;
            let (first, end) = (offset / BLOCK_BYTES as u64, (offset + into.len() as u64).div_ceil(BLOCK_BYTES as u64));
            if let Some(cause) = &cache_state.fast.dead
                && let Some(block) = volume.lost.iter().find(|block| (first..end).contains(block))
            {
                let (lost_bytes, first_offset) = ((volume.lost.len() * BLOCK_BYTES) as u64, block * BLOCK_BYTES as u64);
                return Err(CacheError::Lost { cause: cause.clone(), volume: id, lost_bytes, first_offset });
            }
            // A device that lacks a truncation has what lay behind it still.
            (volume.device.clone().ok_or(CacheError::Unattached(id))?, volume.truncations.floor())
        };
        if offset >= floor {
            into.fill(0);
            return Ok(());
        }
        let began = Instant::now();
        let result = {
            let _using = self.use_slow(task);
            device.read_at(offset, into)
        };
        self.waits.note(WaitCause::SlowRead, self.criticality(task).any(), began.elapsed().as_nanos() as u64);
        let got = result.map_err(|cause| CacheError::Read { volume: id, cause })?;
        // A volume may be longer than its device: what lies between was truncated or is still to be written.
        let known = floor.saturating_sub(offset).min(got as u64) as usize;
        into[known..].fill(0);
        Ok(())
    }

    /// A block of which a write changes a part, with zeros beyond the end of the volume. The appending task wrote it just now.
    pub(crate) fn read_edge(&self, addr: BlockAddr, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        if let Some(known) =
            self.cache_state().volumes.get(&addr.volume).and_then(|volume| volume.tail.block(addr.block))
        {
            into.copy_from_slice(known.bytes());
            return Ok(());
        }
        self.read_block(addr, into, task)
    }

    /// A whole block, with zeros beyond the end of the volume.
    pub(crate) fn read_block(&self, addr: BlockAddr, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        let got = self.read(addr.volume, addr.offset(), into, task)?;
        into[got..].fill(0);
        Ok(())
    }
}

fn read_exactly(device: &dyn Device, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
    let got = device.read_at(offset, into)?;
    if got == into.len() {
        return Ok(());
    }
    let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    Err(DeviceError::new(quire_device::DeviceOperation::Read, device.name(), &end).at(offset, into.len() as u64))
}

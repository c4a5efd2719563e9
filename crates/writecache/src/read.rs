//! Reading through the cache: the newest version of every block, wherever it is.
//!
//! Relies on looking where a block is under the ledger's lock and reading without it. A block found in the log may have left
//! it by the time it is read; so the map is asked again, and if it changed, the block is looked for anew.

use std::time::Instant;

use quire_device::{Device, DeviceError};

use crate::error::CacheError;
use crate::format::AREA_OFFSET;
use crate::ids::{BLOCK_BYTES, Place, VolumeId};
use crate::ledger::Found;
use crate::shared::Shared;
use crate::stats::Cause;
use crate::tasks::TaskId;

impl Shared {
    /// Reads from `offset` on up to the end of the volume; returns how many bytes.
    pub(crate) fn read(&self, id: VolumeId, offset: u64, into: &mut [u8], task: TaskId) -> Result<usize, CacheError> {
        let len = {
            let ledger = self.ledger();
            let volume = ledger.volumes.get(&id).filter(|volume| volume.device.is_some());
            volume.ok_or(CacheError::Unattached(id))?.len
        };
        let count = len.saturating_sub(offset).min(into.len() as u64) as usize;
        let unit = BLOCK_BYTES as u64;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let skip = (at % unit) as usize;
            let part = (BLOCK_BYTES - skip).min(count - done);
            let place = Place { volume: id, block: at / unit };
            let found = self.ledger().find(place);
            let wanted = match found {
                Found::Memory(piece) => {
                    into[done..done + part].copy_from_slice(&piece.bytes()[skip..skip + part]);
                    part
                }
                Found::Log(position) => {
                    if self.read_log(place, position, skip, &mut into[done..done + part])? {
                        part
                    } else {
                        0
                    }
                }
                Found::Slow => {
                    let run = self.slow_run(place, skip, count - done);
                    self.read_slow(id, at, &mut into[done..done + run], task)?;
                    run
                }
            };
            done += wanted;
        }
        Ok(count)
    }

    /// How many of `most` bytes from `skip` into `place` on are on the slow device.
    fn slow_run(&self, place: Place, skip: usize, most: usize) -> usize {
        let ledger = self.ledger();
        let mut run = (BLOCK_BYTES - skip).min(most);
        let mut next = place.plus(1);
        while run < most && matches!(ledger.find(next), Found::Slow) {
            run = (run + BLOCK_BYTES).min(most);
            next = next.plus(1);
        }
        run
    }

    /// Whether the bytes were still there.
    fn read_log(&self, place: Place, position: u64, skip: usize, into: &mut [u8]) -> Result<bool, CacheError> {
        let area = self.ledger().ring.area_bytes();
        let result = read_exactly(&*self.fast, AREA_OFFSET + position % area + skip as u64, into);
        if !self.ledger().still_logged(place, position) {
            return Ok(false);
        }
        result.map_err(|cause| CacheError::Read { volume: place.volume, cause })?;
        Ok(true)
    }

    fn read_slow(&self, id: VolumeId, offset: u64, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        let (device, floor) = {
            let ledger = self.ledger();
            let volume = ledger.volumes.get(&id).ok_or(CacheError::Unattached(id))?;
            let (first, end) = (offset / BLOCK_BYTES as u64, (offset + into.len() as u64).div_ceil(BLOCK_BYTES as u64));
            if let Some(cause) = &ledger.fast_dead
                && let Some(block) = volume.lost.iter().find(|block| (first..end).contains(block))
            {
                let (lost_bytes, first_offset) = ((volume.lost.len() * BLOCK_BYTES) as u64, block * BLOCK_BYTES as u64);
                return Err(CacheError::Lost { cause: cause.clone(), volume: id, lost_bytes, first_offset });
            }
            // A device that lacks a cut has what lay behind it still.
            (volume.device.clone().ok_or(CacheError::Unattached(id))?, volume.cuts.floor())
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
        self.waits.note(Cause::SlowRead, self.standing(task).any(), began.elapsed().as_nanos() as u64);
        let got = result.map_err(|cause| CacheError::Read { volume: id, cause })?;
        // A volume may be longer than its device: what lies between was cut or is still to be written.
        let known = floor.saturating_sub(offset).min(got as u64) as usize;
        into[known..].fill(0);
        Ok(())
    }

    /// A block of which a write changes a part, with zeros beyond the end of the volume. Whoever appends wrote it himself just now.
    pub(crate) fn read_edge(&self, place: Place, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        if let Some(known) = self.ledger().volumes.get(&place.volume).and_then(|volume| volume.tail.block(place.block))
        {
            into.copy_from_slice(known.bytes());
            return Ok(());
        }
        self.read_block(place, into, task)
    }

    /// A whole block, with zeros beyond the end of the volume.
    pub(crate) fn read_block(&self, place: Place, into: &mut [u8], task: TaskId) -> Result<(), CacheError> {
        let got = self.read(place.volume, place.offset(), into, task)?;
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
    Err(DeviceError::new(quire_device::Action::Read, device.name(), &end).at(offset, into.len() as u64))
}

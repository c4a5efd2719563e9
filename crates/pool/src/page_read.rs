//! The bytes of an absent page come from the second tier, the system's page cache or the device.
//!
//! Relies on the page being claimed for reading by the caller.

use std::io;

use quire_device::{DeviceError, DeviceOperation, Direction};

use crate::access_mode::AccessMode;
use crate::counters::PoolCounter;
use crate::mapped_file::MappedFile;
use crate::page::PageRun;
use crate::paths;
use crate::pool_state::PoolState;
use crate::spare_frames::{SpareFrame, SpareFrames};

/// A page's frame, if it isn't at its address.
type Elsewhere<'a> = Option<(&'a SpareFrames, SpareFrame)>;

/// Brings the bytes of a page that is claimed for reading into its place, or (`elsewhere`) into a spare frame.
///
/// # Safety
/// The caller has claimed the page for reading, and ends the claim after this function has returned. A spare frame is the caller's alone.
pub(crate) unsafe fn read(
    shared: &PoolState,
    map: &MappedFile,
    page: u64,
    want: AccessMode,
    elsewhere: Elsewhere<'_>,
) -> Result<(), DeviceError> {
    map.check_memory()?;
    if want == AccessMode::Overwrite {
        map.counters.add(PoolCounter::Overwritten, 1);
        return Ok(());
    }
    map.counters.add(PoolCounter::Misses, 1);
    if map.is_tail(page) {
        map.counters.add(PoolCounter::ReadDirect, 1);
        // SAFETY: `claimed` demands a claim that lasts as long as the slice: `read` demands one that lasts until it has returned.
        return read_tail(map, page, unsafe { claimed(map, page, elsewhere) });
    }
    // SAFETY: `claimed` demands a claim that lasts as long as the slice: `read` demands one that lasts until it has returned. The slice is
    // used before the transfer below is made.
    let bytes = unsafe { claimed(map, page, elsewhere) };
    if paths::read_tier(shared, map, page, bytes, true) || paths::read_cached(shared, map, page, bytes) {
        return Ok(());
    }
    // SAFETY: both functions demand a claim that lasts until the transfer is dropped, which this function does before it returns: `read`
    // demands one that lasts until then, so no other thread uses the page's bytes, at its address or in the frame.
    let mut transfer = unsafe {
        match elsewhere {
            None => map.frames.transfer(Direction::Read, PageRun { start: page, pages: 1 }),
            Some((frames, frame)) => frames.transfer(Direction::Read, frame, page),
        }
    };
    paths::read_direct(shared, map, 1, || map.device.run(&mut transfer))
}

/// The bytes of a page that the caller has claimed.
///
/// # Safety
/// The claim lasts as long as the slice is used.
unsafe fn claimed<'a>(map: &'a MappedFile, page: u64, elsewhere: Elsewhere<'a>) -> &'a mut [u8] {
    // SAFETY: both functions demand that no other thread uses the bytes as long as the slice is used: `claimed` demands a claim of that
    // length, of the page at its address or of the frame.
    unsafe {
        match elsewhere {
            None => map.frames.claimed(page),
            Some((frames, frame)) => frames.claimed(frame),
        }
    }
}

/// As [`read`], for the last page of a file that ends inside it. The rest of the page is zero.
fn read_tail(map: &MappedFile, page: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
    let offset = page * bytes.len() as u64;
    let len = (map.len() - offset).min(bytes.len() as u64) as usize;
    let got = map.device.read_at(offset, &mut bytes[..len])?;
    if got < len {
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(DeviceError::new(DeviceOperation::Read, map.device.name(), &end).at(offset, len as u64));
    }
    Ok(())
}

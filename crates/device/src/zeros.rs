//! Zeros at the end of a file that grows: they take space wherever nothing better is known, and make later writes to that
//! space change no metadata.
//!
//! Relies on [`Device::run`].

use quire_sys::buffer::Buffer;
use quire_sys::file::DIRECT_ALIGN;
use quire_sys::transfer::{Direction, Extent, Transfer};

use crate::device::Device;
use crate::error::DeviceError;

/// Zeros written at once, in bytes.
const STEP_BYTES: u64 = 1 << 20;

/// Writes zeros over whole blocks from `from` (rounded up: the rest of its block is zero and has its space) to `to`
/// (rounded up).
pub(crate) fn write(device: &dyn Device, from: u64, to: u64) -> Result<(), DeviceError> {
    let unit = DIRECT_ALIGN as u64;
    let (mut offset, end) = (from.next_multiple_of(unit), to.next_multiple_of(unit));
    if offset >= end {
        return Ok(());
    }
    let len = STEP_BYTES.min(end - offset) as usize;
    let buffer = Buffer::new(len).map_err(|_| DeviceError::no_memory(device.name()))?;
    let extents = vec![Extent { offset, start: 0, len }];
    let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
    while offset < end {
        let len = STEP_BYTES.min(end - offset) as usize;
        transfer.extents[0] = Extent { offset, start: 0, len };
        device.run(&mut transfer)?;
        offset += len as u64;
    }
    Ok(())
}

//! What the first bytes of a segment's file say: in use, spare, nothing, or damaged.
//!
//! Relies on `format` for the bytes. A header is one sector, which a power cut leaves either as it was or as it should be.

use quire_device::{Device, DeviceError};
use zerocopy::FromBytes;

use super::format::{
    DATA_OFFSET, IN_FORCE, MAGIC, OLDEST_VERSION, RECORD_HEADER_BYTES, RecordHeader, SPARE, SegmentHeader, VERSION,
};

/// Read at once where a whole file is looked at.
const WINDOW_BYTES: usize = 1 << 20;

/// What the first bytes of a file are.
pub(crate) enum HeaderArea {
    /// A segment in use.
    Segment(Box<SegmentHeader>),
    /// A file that holds nothing.
    Spare,
    /// Zeros, or a file that ends before there is anything else.
    Blank,
    /// A header of a version that isn't known.
    OtherVersion(u32),
    /// None of these.
    Damaged,
}

/// Reads the header of a file.
pub(crate) fn read(device: &dyn Device) -> Result<HeaderArea, DeviceError> {
    let mut area = vec![0; DATA_OFFSET as usize];
    let got = device.read_at(0, &mut area)?;
    area.truncate(got);
    if area.iter().all(|byte| *byte == 0) {
        return Ok(HeaderArea::Blank);
    }
    Ok(SegmentHeader::read_from_prefix(&area).map_or(HeaderArea::Damaged, |(header, _)| judge(header)))
}

fn judge(header: SegmentHeader) -> HeaderArea {
    let (version, flags) = (header.version.get(), header.flags.get());
    if header.magic != MAGIC {
        return HeaderArea::Damaged;
    }
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        // The checksum may lie elsewhere in another version; but if it fits a known one, only this number is damaged.
        let known = |version: u32| {
            let known = SegmentHeader { version: version.into(), ..header };
            known.checksum.get() == known.own_checksum()
        };
        let damaged = (OLDEST_VERSION..=VERSION).any(known);
        return if damaged { HeaderArea::Damaged } else { HeaderArea::OtherVersion(version) };
    }
    if header.checksum.get() != header.own_checksum() || u64::from(header.data_offset.get()) != DATA_OFFSET {
        return HeaderArea::Damaged;
    }
    match flags {
        SPARE => HeaderArea::Spare,
        0 | IN_FORCE if header.first_sequence.get() > 0 => HeaderArea::Segment(Box::new(header)),
        _ => HeaderArea::Damaged,
    }
}

/// The last of the records behind a header that is lost, by their numbers and lengths alone: their checksums can't be
/// checked. `None` if there is no record.
pub(crate) fn last_sequence_behind(device: &dyn Device) -> Result<Option<u64>, DeviceError> {
    let (mut at, mut last) = (DATA_OFFSET, None::<u64>);
    loop {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        if device.read_at(at, &mut bytes)? < bytes.len() {
            return Ok(last);
        }
        let Ok(header) = RecordHeader::read_from_bytes(&bytes) else { return Ok(last) };
        let follows = last.is_none_or(|last| header.sequence.get() == last.saturating_add(1));
        let Some(record_bytes) = header.record_bytes().filter(|_| follows) else { return Ok(last) };
        last = Some(header.sequence.get());
        at += record_bytes;
    }
}

/// Whether a file holds nothing but zeros.
pub(crate) fn is_all_zeros(device: &dyn Device) -> Result<bool, DeviceError> {
    let (mut at, mut window) = (0, vec![0; WINDOW_BYTES]);
    loop {
        let got = device.read_at(at, &mut window)?;
        if window[..got].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if got == 0 {
            return Ok(true);
        }
        at += got as u64;
    }
}

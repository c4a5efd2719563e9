//! Reading a segment whose header is damaged.
//!
//! Relies on the checksum of the first record: whatever key of it the header gives, it fits only if it is the right one.

use quire_device::{Device, DeviceError, Directory};
use zerocopy::FromBytes;

use super::base_image::BaseImage;
use super::directory_scan::Segment;
use super::format::{
    DATA_OFFSET, MAGIC, OLDEST_VERSION, RECORD_HEADER_BYTES, RecordHeader, SegmentHeader, SegmentMeta, VERSION,
    index_of, record_checksum,
};

/// The segment in a file whose header is damaged, if the first record can be checked all the same: the key of its checksum is
/// in the header, and can be computed from the rest of it, so that one damaged byte leaves one of the two.
pub(crate) fn salvage(directory: &dyn Directory, name: &str, base: BaseImage) -> Result<Option<Segment>, DeviceError> {
    let device = directory.open(name)?;
    let mut bytes = [0; size_of::<SegmentHeader>()];
    if device.read_at(0, &mut bytes)? < bytes.len() {
        return Ok(None);
    }
    let (Ok(header), Some(index)) = (SegmentHeader::read_from_bytes(&bytes), index_of(name)) else { return Ok(None) };
    let Some(first) = first_record(&*device)? else { return Ok(None) };
    let salts = [header.salt.get(), header.own_salt()];
    let salts = salts.into_iter().chain((OLDEST_VERSION..=VERSION).map(|version| {
        let header = SegmentHeader { version: version.into(), magic: MAGIC, ..header };
        header.own_salt()
    }));
    let Some(salt) = salts.into_iter().find(|salt| first.fits(*salt)) else { return Ok(None) };
    // What was logged before its image was durable counts only with that image.
    let pending = header.flags.get() == 0 && header.base_epoch.get() > base.epoch;
    let file_bytes = device.len()?;
    let meta = SegmentMeta {
        index,
        first_sequence: first.sequence,
        dataset: base.dataset,
        base_epoch: if pending { header.base_epoch.get() } else { base.epoch },
        segment_bytes: file_bytes,
        created_unix_ms: header.created_unix_ms.get(),
        in_force: !pending,
    };
    Ok(Some(Segment { name: name.to_owned(), meta, salt, device, file_bytes }))
}

/// The first record of a segment.
struct FirstRecord {
    sequence: u64,
    checksum: u64,
    bytes: Vec<u8>,
}

impl FirstRecord {
    fn fits(&self, salt: u64) -> bool {
        record_checksum(salt, &self.bytes) == self.checksum
    }
}

fn first_record(device: &dyn Device) -> Result<Option<FirstRecord>, DeviceError> {
    let mut bytes = vec![0; RECORD_HEADER_BYTES];
    if device.read_at(DATA_OFFSET, &mut bytes)? < bytes.len() {
        return Ok(None);
    }
    let Ok(header) = RecordHeader::read_from_bytes(&bytes) else { return Ok(None) };
    let len = RECORD_HEADER_BYTES as u64 + u64::from(header.body_bytes.get());
    if header.record_bytes().is_none() || DATA_OFFSET + len > device.len()? {
        return Ok(None);
    }
    bytes.resize(len as usize, 0);
    if (device.read_at(DATA_OFFSET, &mut bytes)? as u64) < len {
        return Ok(None);
    }
    Ok(Some(FirstRecord { sequence: header.sequence.get(), checksum: header.checksum.get(), bytes }))
}

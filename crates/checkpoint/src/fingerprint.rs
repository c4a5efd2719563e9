//! Which deltas a full image has replaced: its header lists them.
//!
//! A full image is durable before the deltas over the one that it replaces are removed, and a crash may leave some of them. They
//! may be of other data, of higher epochs, or damaged. Whatever they are, they were there when the image was written, so none of
//! them is newer than it.
//!
//! Relies on a delta over an image not being in the image's list: it names the image by a checksum that covers the list.

use quire_device::{DeviceError, Directory};
use quire_snapshot::PAGE_SIZE;

use crate::delta::find_deltas;
use crate::format::{MAX_REPLACED, checksum};

/// What tells the file `name` from others: a checksum of its length and of its first and last page. Sound or not, it is one.
pub(crate) fn fingerprint(directory: &dyn Directory, name: &str) -> Result<u64, DeviceError> {
    let device = directory.open(name)?;
    let bytes = device.len()?;
    let mut read = bytes.to_le_bytes().to_vec();
    for offset in [0, bytes.saturating_sub(PAGE_SIZE as u64)] {
        let mut page = [0; PAGE_SIZE];
        let len = device.read_at(offset, &mut page)?;
        read.extend_from_slice(&page[..len]);
    }
    Ok(checksum(&read))
}

/// The fingerprints of the deltas that an image `name`, if it is written now, replaces.
///
/// # Errors
/// The directory can't be listed. A file that can't be read is left out, so that it does not keep the data from being saved.
pub(crate) fn fingerprints(directory: &dyn Directory, name: &str) -> Result<Vec<u64>, DeviceError> {
    let mut found = Vec::new();
    for (_, delta) in find_deltas(directory, name)?.into_iter().take(MAX_REPLACED) {
        match fingerprint(directory, &delta) {
            Ok(fingerprint) => found.push(fingerprint),
            Err(error) => tracing::warn!(%error, "the new image can't say that it replaces a delta"),
        }
    }
    Ok(found)
}

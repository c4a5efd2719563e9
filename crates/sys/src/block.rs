//! Block devices: opened by one user at a time, with a fixed size.
//!
//! Relies on `O_EXCL`, with which the kernel refuses a device that is mounted, part of an array, or opened so by another.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a block device for reading and writing, for the caller alone.
///
/// # Errors
/// `ENOTBLK` if it is something else (nothing else is opened, since opening can have effects), `EBUSY` if it is mounted or
/// otherwise in use, or what the system says.
pub fn open(path: &Path) -> io::Result<File> {
    let is_block = |facts: std::fs::Metadata| facts.file_type().is_block_device();
    let refused = || io::Error::from_raw_os_error(libc::ENOTBLK);
    if !is_block(std::fs::metadata(path)?) {
        return Err(refused());
    }
    let flags = OFlags::EXCL.bits().cast_signed();
    let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
    // The name may have come to mean something else in between.
    if is_block(file.metadata()?) { Ok(file) } else { Err(refused()) }
}

/// Bytes of the device.
///
/// # Errors
/// What the system says.
pub fn len(mut device: &File) -> io::Result<u64> {
    device.seek(SeekFrom::End(0))
}

/// Bytes of a sector, as far as software is concerned.
///
/// # Errors
/// What the system says; `device` is no block device.
pub fn sector_bytes(device: &File) -> io::Result<usize> {
    Ok(rustix::fs::ioctl_blksszget(device)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_device_is_not_opened() {
        for path in ["/dev/null", "/proc/self/stat", "/"] {
            assert_eq!(open(Path::new(path)).unwrap_err().raw_os_error(), Some(libc::ENOTBLK), "{path}");
        }
        assert_eq!(open(Path::new("/no/such/device")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(sector_bytes(&File::open("/dev/null").unwrap()).is_err());
    }
}

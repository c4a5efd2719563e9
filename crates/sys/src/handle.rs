//! Names of files that outlive their paths and the process: file handles, as network file servers use them.
//!
//! Relies on `name_to_handle_at` and `open_by_handle_at`. Not every file system has handles, and opening by one takes a
//! privilege (`CAP_DAC_READ_SEARCH`); callers need another way for both cases. A handle names one file for ever: when that
//! is gone, opening says `ESTALE`, even if its inode number is used again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Longest handle that the system makes, in bytes.
pub const MOST_BYTES: usize = 128;

/// A handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportHandle {
    /// What the file system calls its kind.
    pub kind: i32,
    /// What it consists of, at most [`MOST_BYTES`].
    pub bytes: Vec<u8>,
}

/// As the system wants it: the header of `struct file_handle`, with room behind it.
#[repr(C)]
struct Raw {
    head: libc::file_handle,
    room: [u8; MOST_BYTES],
}

/// The handle of an open file, which may be a mere path (`O_PATH`).
///
/// # Errors
/// `EOPNOTSUPP` or `EOVERFLOW` where the file system has none.
pub fn of(file: impl AsFd) -> io::Result<ExportHandle> {
    let mut raw = Raw { head: empty(MOST_BYTES), room: [0; MOST_BYTES] };
    let mut mount_id = 0;
    // SAFETY: the path is an empty C string; the handle says how much room follows its header, and that room is there.
    let failed = unsafe {
        libc::name_to_handle_at(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (raw.head.handle_bytes as usize).min(MOST_BYTES);
    Ok(ExportHandle { kind: raw.head.handle_type, bytes: raw.room[..len].to_vec() })
}

/// Opens the file with this handle, for reading and writing. `root` is an open directory of its file system.
///
/// # Errors
/// `ESTALE` if the file is gone, `EPERM` without the privilege.
pub fn open(root: &File, handle: &ExportHandle) -> io::Result<File> {
    Ok(File::from(opened(root, handle, libc::O_RDWR | libc::O_NONBLOCK)?))
}

/// The file with this handle as a mere place (`O_PATH`), whatever its kind. `root` is an open directory of its file system.
///
/// # Errors
/// As [`open`].
pub fn place(root: &File, handle: &ExportHandle) -> io::Result<OwnedFd> {
    opened(root, handle, libc::O_PATH | libc::O_NOFOLLOW)
}

fn opened(root: &File, handle: &ExportHandle, flags: libc::c_int) -> io::Result<OwnedFd> {
    let len = handle.bytes.len().min(MOST_BYTES);
    let mut raw = Raw { head: empty(len), room: [0; MOST_BYTES] };
    raw.head.handle_type = handle.kind;
    raw.room[..len].copy_from_slice(&handle.bytes[..len]);
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the handle says how many bytes follow its header, and they do.
    let fd = unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut raw).cast::<libc::file_handle>(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made this descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn empty(room_bytes: usize) -> libc::file_handle {
    libc::file_handle { handle_bytes: room_bytes as u32, handle_type: 0, f_handle: [] }
}

// The room must begin where the header's flexible array does.
const _: () = assert!(size_of::<libc::file_handle>() == 8 && std::mem::offset_of!(Raw, room) == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_handle_leads_back_to_its_file_or_the_system_says_why_not() {
        let scratch = ScratchFile::new("handle");
        let file = scratch.file("a");
        let Ok(handle) = of(&file) else { return };
        let root = File::open(std::env::temp_dir()).unwrap();
        match open(&root, &handle) {
            Ok(again) => assert_eq!(again.metadata().unwrap().ino(), file.metadata().unwrap().ino()),
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)), "{error}"),
        }
    }
}

//! Extended attributes of files.
//!
//! Relies on `getxattr`. A file system without them says the same as a file without the attribute.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::XattrFlags;

use crate::at::proc_path;

/// Longest value, and longest list of names, that the system allows.
const MOST_BYTES: usize = 64 << 10;

/// Room for most values: the system makes as much of its own, and clears it.
const FEW_BYTES: usize = 256;

/// Whether the file has an attribute called `name`.
pub fn is_set(path: &Path, name: &str) -> bool {
    let mut none: [u8; 0] = [];
    // With no room for it the call returns the attribute's length.
    rustix::fs::getxattr(path, name, &mut none[..]).is_ok_and(|length| length > 0)
}

/// Whether a program gets privileges when it is started, because its file has capabilities.
pub fn has_capabilities(path: &Path) -> bool {
    is_set(path, "security.capability")
}

/// The value of an attribute of an open file or place.
///
/// # Errors
/// `ENODATA` if it has none of that name; what the system says.
pub fn get(file: impl AsFd, name: &OsStr) -> io::Result<Vec<u8>> {
    value_of(|room| rustix::fs::getxattr(proc_path(&file), name, room))
}

fn value_of(ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut value = vec![0; FEW_BYTES];
    let len = match ask(&mut value) {
        Err(rustix::io::Errno::RANGE) => {
            value.resize(MOST_BYTES, 0);
            ask(&mut value)?
        }
        result => result?,
    };
    value.truncate(len);
    Ok(value)
}

/// The value of an attribute of what lies at `path`.
///
/// # Errors
/// As [`get`].
pub fn get_at(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    value_of(|room| rustix::fs::getxattr(path, name, room))
}

/// Sets an attribute of what lies at `path`.
///
/// # Errors
/// What the system says.
pub fn set_at(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, name, value, XattrFlags::empty())?)
}

/// Sets an attribute of an open file or place; `flags` as `setxattr` takes them.
///
/// # Errors
/// What the system says.
pub fn set(file: impl AsFd, name: &OsStr, value: &[u8], flags: i32) -> io::Result<()> {
    let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
    Ok(rustix::fs::setxattr(proc_path(file), name, value, flags)?)
}

/// Names of all attributes, each ended by a zero byte.
///
/// # Errors
/// What the system says.
pub fn list(file: impl AsFd) -> io::Result<Vec<u8>> {
    let mut names = vec![0; MOST_BYTES];
    let len = rustix::fs::listxattr(proc_path(file), &mut names[..])?;
    names.truncate(len);
    Ok(names)
}

/// Removes an attribute.
///
/// # Errors
/// What the system says.
pub fn remove(file: impl AsFd, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::removexattr(proc_path(file), name)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_plain_file_has_no_capabilities() {
        let own = std::env::current_exe().unwrap();
        assert!(!super::has_capabilities(&own) && !super::is_set(&own, "user.quire-none"));
    }
}

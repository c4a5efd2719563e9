//! Access control lists, as the system writes them in the value of an attribute: what a new file inherits from its directory.
//!
//! ```text
//! 4 bytes: version 2 | entries of 8 bytes: tag u16, permissions u16, id u32
//! ```
//! The kernel checks them (`FUSE_POSIX_ACL`), and the directory's file system keeps them together with the permissions. Only
//! inheritance is done here: what is made for a program is made by the daemon, and becomes the program's afterwards.
//!
//! Relies on the directory's file system for handing on the default list of a directory to the directories made in it.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use fuser::Errno;
use quire_sys::xattr;

use crate::error::FuseResult;

/// The attribute with a file's list.
pub const ACCESS: &str = "system.posix_acl_access";
/// The attribute with what a directory's new files get.
pub const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const OWNING_GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// A new file's list, and its permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedAcl {
    /// The value of [`ACCESS`].
    pub list: Vec<u8>,
    /// What `stat` shows of it.
    pub permissions: u32,
}

/// What a directory gives to its new files, if it has such a list.
///
/// # Errors
/// What the system says.
pub fn default_of(dir: impl AsFd) -> FuseResult<Option<Vec<u8>>> {
    match xattr::get(dir, OsStr::new(DEFAULT)).map_err(Errno::from) {
        Ok(list) => Ok(Some(list)),
        Err(error) if [Errno::ENODATA.code(), Errno::ENOTSUP.code()].contains(&error.code()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a file gets that is made with `mode` in a directory with this default list: of each only what `mode` allows, too.
///
/// # Errors
/// It is no list.
pub fn inherited(default: &[u8], mode: u32) -> FuseResult<InheritedAcl> {
    let entries = default.strip_prefix(&VERSION.to_le_bytes()).filter(|entries| entries.len() % 8 == 0);
    let mut list = VERSION.to_le_bytes().to_vec();
    let has_mask = tags(entries.ok_or(Errno::EIO)?).any(|tag| tag == MASK);
    let mut permissions = 0;
    for entry in entries.ok_or(Errno::EIO)?.chunks_exact(8) {
        let (tag, mut granted) = (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]));
        let shift = match tag {
            OWNER => Some(6),
            MASK => Some(3),
            // With a mask the list alone says what the owning group may.
            OWNING_GROUP if !has_mask => Some(3),
            OTHERS => Some(0),
            _ => None,
        };
        if let Some(shift) = shift {
            granted &= (mode >> shift & 7) as u16;
            permissions |= u32::from(granted) << shift;
        }
        list.extend_from_slice(&entry[..2]);
        list.extend_from_slice(&granted.to_le_bytes());
        list.extend_from_slice(&entry[4..]);
    }
    Ok(InheritedAcl { list, permissions })
}

fn tags(entries: &[u8]) -> impl Iterator<Item = u16> {
    entries.chunks_exact(8).map(|entry| u16::from_le_bytes([entry[0], entry[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut list = VERSION.to_le_bytes().to_vec();
        for (tag, granted, id) in entries {
            list.extend([tag.to_le_bytes(), granted.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        list
    }

    #[test]
    fn a_file_gets_what_both_the_list_and_its_maker_allow() {
        let default =
            list(&[(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)]);
        let made = inherited(&default, 0o640).unwrap();
        let wanted =
            list(&[(1, 6, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)]);
        assert_eq!(made, InheritedAcl { list: wanted, permissions: 0o640 });
        assert_eq!(inherited(&default, 0o666).unwrap().permissions, 0o660, "others get nothing");
        let plain = list(&[(1, 7, u32::MAX), (4, 5, u32::MAX), (0x20, 5, u32::MAX)]);
        let made = inherited(&plain, 0o660).unwrap();
        let wanted = list(&[(1, 6, u32::MAX), (4, 4, u32::MAX), (0x20, 0, u32::MAX)]);
        assert_eq!(made, InheritedAcl { list: wanted, permissions: 0o640 });
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bytes in [&[][..], &[2, 0, 0, 0, 1], &[3, 0, 0, 0]] {
            assert!(inherited(bytes, 0o777).is_err(), "{bytes:?}");
        }
    }
}

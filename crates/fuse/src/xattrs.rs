//! Extended attributes: those of files pass through; a few names on the mount's root are how to talk to the mount.
//!
//! | attribute of the root | value |
//! |---|---|
//! | `user.quire.stats` | read: figures, as JSON |
//! | `user.quire.trace` | read: the last decisions, as JSON |
//! | `user.quire.critical` | read: hints in force, one a line; written: a hint ([`Hint`]) |
//!
//! Relies on the kernel to let only the root directory's owner write there.

use std::ffi::OsStr;

use fuser::Errno;
use quire_sys::xattr;

use crate::error::Answer;
use crate::nodes::{Node, ROOT};
use crate::who::{Hint, Who};

const OWN: &str = "user.quire.";
/// Figures.
pub const STATS: &str = "user.quire.stats";
/// Decisions.
pub const TRACE: &str = "user.quire.trace";
/// Hints.
pub const CRITICAL: &str = "user.quire.critical";
/// Access control lists are not enforced here, so nobody is led to believe it.
const ACLS: &str = "system.posix_acl_";

fn is_own(number: u64, name: &OsStr) -> bool {
    number == ROOT && name.as_encoded_bytes().starts_with(OWN.as_bytes())
}

fn is_acl(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(ACLS.as_bytes())
}

/// The value of an attribute. `report` makes the text of a readable one of the mount's own.
///
/// # Errors
/// There is none of that name; what the system says.
pub fn get(
    number: u64,
    node: &Node,
    name: &OsStr,
    who: &Who,
    report: impl FnOnce(&str) -> Option<String>,
) -> Answer<Vec<u8>> {
    if is_own(number, name) {
        let name = name.to_str().ok_or(Errno::ENODATA)?;
        if name == CRITICAL {
            return Ok(who.hints().join("\n").into_bytes());
        }
        return report(name).map(String::into_bytes).ok_or(Errno::ENODATA);
    }
    if is_acl(name) {
        return Err(Errno::ENOTSUP);
    }
    Ok(xattr::get(&node.place, name)?)
}

/// Sets an attribute. Whether it was the file's.
///
/// # Errors
/// It can't be set; what the system says.
pub fn set(number: u64, node: &Node, name: &OsStr, value: &[u8], flags: i32, who: &Who) -> Answer<bool> {
    if is_own(number, name) {
        if name != CRITICAL {
            return Err(Errno::EPERM);
        }
        let words = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
        let hints: Vec<Hint> = words.lines().map(str::parse).collect::<Result<_, _>>().map_err(|_| Errno::EINVAL)?;
        hints.iter().for_each(|hint| who.take(hint));
        return Ok(false);
    }
    if is_acl(name) {
        return Err(Errno::ENOTSUP);
    }
    xattr::set(&node.place, name, value, flags)?;
    Ok(true)
}

/// Names of a file's attributes, each ended by a zero byte; not the mount's own.
///
/// # Errors
/// What the system says.
pub fn list(node: &Node) -> Answer<Vec<u8>> {
    let all = xattr::list(&node.place)?;
    let names = all.split_inclusive(|&byte| byte == 0);
    Ok(names.filter(|name| !name.starts_with(ACLS.as_bytes())).flatten().copied().collect())
}

/// Removes an attribute.
///
/// # Errors
/// There is none of that name; what the system says.
pub fn remove(number: u64, node: &Node, name: &OsStr) -> Answer<()> {
    if is_own(number, name) {
        return Err(Errno::EPERM);
    }
    Ok(xattr::remove(&node.place, name)?)
}

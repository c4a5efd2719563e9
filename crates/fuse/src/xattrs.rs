//! Extended attributes: those of files pass through; a few names on the mount's root are how to talk to the mount.
//!
//! | attribute of the root | value |
//! |---|---|
//! | `user.quire.stats` | read: figures, as JSON |
//! | `user.quire.trace` | read: the last decisions, as JSON |
//! | `user.quire.drain` | written: `1` if everything is to be brought to the directory when the mount ends, `0` if not |
//! | `user.quire.critical` | read: hints in force, one a line; written: a hint ([`CriticalityHint`]) |
//!
//! Relies on the kernel to let only the root directory's owner write there.

use std::ffi::OsStr;

use fuser::Errno;
use quire_sys::{at, task, xattr};

use crate::acl;
use crate::criticality::{CriticalityHint, CriticalityTracker};
use crate::error::FuseResult;
use crate::nodes::{LookedUpInode, ROOT};

const OWN: &str = "user.quire.";
/// Figures.
pub const STATS: &str = "user.quire.stats";
/// Decisions.
pub const TRACE: &str = "user.quire.trace";
/// Hints.
pub const CRITICAL: &str = "user.quire.critical";
/// What is to be done at the end.
const DRAIN: &str = "user.quire.drain";
/// Attributes that only administrators see.
const TRUSTED: &[u8] = b"trusted.";

/// A new value.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'a> {
    /// Of which attribute.
    pub name: &'a OsStr,
    /// What it is to be.
    pub value: &'a [u8],
    /// As `setxattr` takes them.
    pub flags: i32,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// The thread.
    pub thread: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

fn is_own(number: u64, name: &OsStr) -> bool {
    number == ROOT && name.as_encoded_bytes().starts_with(OWN.as_bytes())
}

/// The value of an attribute. `report` makes the text of a readable one of the mount's own.
///
/// # Errors
/// There is none of that name; what the system says.
pub fn get(
    number: u64,
    node: &LookedUpInode,
    name: &OsStr,
    criticality: &CriticalityTracker,
    report: impl FnOnce(&str) -> Option<String>,
) -> FuseResult<Vec<u8>> {
    if is_own(number, name) {
        let name = name.to_str().ok_or(Errno::ENODATA)?;
        if name == CRITICAL {
            return Ok(criticality.hints().join("\n").into_bytes());
        }
        return report(name).map(String::into_bytes).ok_or(Errno::ENODATA);
    }
    Ok(xattr::get(&node.place, name)?)
}

/// Whether an attribute that is set says that the mount is to be drained at its end, or not.
///
/// # Errors
/// It says something else.
pub fn drains(number: u64, name: &OsStr, value: &[u8]) -> FuseResult<Option<bool>> {
    if number != ROOT || name != DRAIN {
        return Ok(None);
    }
    match value {
        b"0" => Ok(Some(false)),
        b"1" => Ok(Some(true)),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets an attribute. Whether it was the file's.
///
/// # Errors
/// It can't be set; what the system says.
pub fn set(
    number: u64,
    node: &LookedUpInode,
    request: &SetXattr<'_>,
    credentials: &Credentials,
    criticality: &CriticalityTracker,
) -> FuseResult<bool> {
    let SetXattr { name, value, flags } = *request;
    if is_own(number, name) {
        if name != CRITICAL {
            return Err(Errno::EPERM);
        }
        let words = std::str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
        let hints: Vec<CriticalityHint> =
            words.lines().map(str::parse).collect::<Result<_, _>>().map_err(|_| Errno::EINVAL)?;
        hints.iter().for_each(|hint| criticality.take(hint));
        return Ok(false);
    }
    xattr::set(&node.place, name, value, flags)?;
    if name == acl::ACCESS {
        strip_group(node, credentials)?;
    }
    Ok(true)
}

/// A list of access is like permissions: who sets it and is not in the file's group takes the group's set-id bit away.
fn strip_group(node: &LookedUpInode, credentials: &Credentials) -> FuseResult<()> {
    let facts = at::facts(&node.place)?;
    let is_member = || credentials.gid == facts.gid || task::is_in_group(credentials.thread, facts.gid);
    if facts.permissions & 0o2000 != 0 && credentials.uid != 0 && !is_member() {
        at::set_permissions(&node.place, facts.permissions & !0o2000)?;
    }
    Ok(())
}

/// Names of a file's attributes that `credentials` may know of, each ended by a zero byte; not the mount's own.
///
/// # Errors
/// What the system says.
pub fn list(node: &LookedUpInode, credentials: &Credentials) -> FuseResult<Vec<u8>> {
    let all = xattr::list(&node.place)?;
    let names = || all.split_inclusive(|&byte| byte == 0);
    let is_hidden = |name: &&[u8]| name.starts_with(TRUSTED);
    // In a namespace of its own an ordinary user may administer, too.
    let sees_all = || credentials.uid == 0 && task::may_administer(credentials.thread);
    if !names().any(|name| is_hidden(&name)) || sees_all() {
        return Ok(all);
    }
    Ok(names().filter(|name| !is_hidden(name)).flatten().copied().collect())
}

/// Removes an attribute.
///
/// # Errors
/// There is none of that name; what the system says.
pub fn remove(number: u64, node: &LookedUpInode, name: &OsStr) -> FuseResult<()> {
    if is_own(number, name) {
        return Err(Errno::EPERM);
    }
    Ok(xattr::remove(&node.place, name)?)
}

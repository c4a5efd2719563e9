//! Which control group a mount of the kernel's groups shows as its root.
//!
//! Relies on `/proc/self/mountinfo`, which is read once: groups are mounted before a program starts, and the list may be long. It is read line by
//! line into a buffer on the stack.

use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Longer lines are passed over.
const MOST_LINE_BYTES: usize = 4096;
/// The path of a group that is longer counts as not known.
const MOST_PATH_BYTES: usize = 512;

/// The path of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CgroupMountRoot {
    bytes: [u8; MOST_PATH_BYTES],
    len: usize,
}

impl CgroupMountRoot {
    /// That of `mount`: of version 2 if it `is_unified`. The root of all groups where the system doesn't say.
    pub(crate) fn of(mount: &[u8], is_unified: bool) -> Self {
        static KNOWN: [OnceLock<CgroupMountRoot>; 2] = [OnceLock::new(), OnceLock::new()];
        let known = &KNOWN[usize::from(is_unified)];
        if let Some(group) = known.get() {
            return *group;
        }
        // No thread waits for another one's reading: that one may be in the parent of a forked child.
        let read = || {
            let path = c"/proc/self/mountinfo";
            let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
                return Self::root();
            };
            Self::find(mount, is_unified, |into| {
                loop {
                    match rustix::io::read(&file, &mut *into) {
                        Err(Errno::INTR) => {}
                        result => return result.ok(),
                    }
                }
            })
        };
        let group = read();
        let _ = known.set(group);
        group
    }

    /// The path.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn root() -> Self {
        let mut bytes = [0; MOST_PATH_BYTES];
        bytes[0] = b'/';
        Self { bytes, len: 1 }
    }

    /// As the list of mounts writes it: a few characters as octal numbers.
    fn new(escaped: &[u8]) -> Option<Self> {
        let (mut path, mut at) = (Self { bytes: [0; MOST_PATH_BYTES], len: 0 }, 0);
        while let Some(&byte) = escaped.get(at) {
            let octal = escaped.get(at + 1..at + 4).filter(|_| byte == b'\\');
            let unescaped = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
            *path.bytes.get_mut(path.len)? = unescaped.unwrap_or(byte);
            path.len += 1;
            at += if unescaped.is_some() { 4 } else { 1 };
        }
        Some(path)
    }

    /// In the list that `read` reads piece by piece. The last mount at a place is the one that is seen.
    fn find(mount: &[u8], is_unified: bool, mut read: impl FnMut(&mut [u8]) -> Option<usize>) -> Self {
        let (mut buffer, mut filled, mut is_cut) = ([0; MOST_LINE_BYTES], 0, false);
        let mut found = None;
        while let Some(count) = read(&mut buffer[filled..]).filter(|&count| count > 0) {
            filled += count;
            while let Some(end) = buffer[..filled].iter().position(|&byte| byte == b'\n') {
                if !is_cut && let Some(root) = shown_by(&buffer[..end], mount, is_unified) {
                    found = Self::new(root);
                }
                is_cut = false;
                buffer.copy_within(end + 1..filled, 0);
                filled -= end + 1;
            }
            if filled == buffer.len() {
                (filled, is_cut) = (0, true);
            }
        }
        found.unwrap_or_else(Self::root)
    }
}

/// What a line of the list says that `mount` shows, if it is about that.
fn shown_by<'l>(line: &'l [u8], mount: &[u8], is_unified: bool) -> Option<&'l [u8]> {
    let mut words = line.split(|&byte| byte == b' ');
    let (root, place) = (words.nth(3)?, words.next()?);
    let kind = words.skip_while(|&word| word != b"-").nth(1)?;
    let wanted: &[u8] = if is_unified { b"cgroup2" } else { b"cgroup" };
    (place == mount && kind == wanted).then_some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
                          30 22 0:26 /docker/12\\0403 /sys/fs/cgroup ro shared:4 master:2 - cgroup2 cgroup2 rw\n\
                          31 22 0:27 /jobs/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          32 22 0:28 / /sys/fs/cgroup/memory2 rw - cgroup cgroup rw,memory\n";

    fn shown(mounts: &str, mount: &str, is_unified: bool, piece: usize) -> String {
        let mut rest = mounts.as_bytes();
        let found = CgroupMountRoot::find(mount.as_bytes(), is_unified, |into| {
            let len = into.len().min(piece).min(rest.len());
            into[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            Some(len)
        });
        String::from_utf8(found.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_group_of_a_mount_is_found_among_all_mounts() {
        for piece in [1, 7, 100, 4096] {
            assert_eq!(shown(MOUNTS, "/sys/fs/cgroup", true, piece), "/docker/12 3");
            assert_eq!(shown(MOUNTS, "/sys/fs/cgroup/memory", false, piece), "/jobs/7");
            assert_eq!(shown(MOUNTS, "/sys/fs/cgroup", false, piece), "/", "groups of the other version");
            assert_eq!(shown(MOUNTS, "/cgroup", true, piece), "/");
        }
    }

    #[test]
    fn lines_and_paths_that_are_too_long_are_passed_over() {
        let long = format!("29 22 0:25 / /{} rw - ext4 /dev/sda rw\n", "x".repeat(3 * MOST_LINE_BYTES));
        assert_eq!(shown(&(long + MOUNTS), "/sys/fs/cgroup/memory", false, 1000), "/jobs/7");
        let deep = format!("30 22 0:26 {} /groups rw - cgroup2 cgroup2 rw\n", "/deep".repeat(200));
        assert_eq!(shown(&deep, "/groups", true, 1000), "/");
        assert_eq!(shown("30 22 0:26 /a\\9 /groups rw - cgroup2 none rw\n", "/groups", true, 1000), "/a\\9");
    }
}

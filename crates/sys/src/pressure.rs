//! How short memory is (pressure stall information, what is available, the limit of the control group), and processors.
//!
//! Relies on `/proc/pressure` (Linux 4.20, may be off), `/proc/meminfo` and cgroup v1 or v2 in their usual places.
//! Everything is read into buffers on the stack; what can't be read is `None` and means "not known to be short".

use rustix::fs::{Mode, OFlags};

const BUFFER_BYTES: usize = 8 << 10;

/// Memory as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryInfo {
    /// Share of the last ten seconds in which some task waited for memory, in percent.
    pub stalled_percent: Option<f32>,
    /// Time since the start of the machine in which some task waited for memory, in microseconds. Two readings tell what was between them,
    /// where the average of ten seconds goes on for seconds after the end of a shortage.
    pub stalled_us: Option<u64>,
    /// Bytes that could be had without swapping.
    pub available_bytes: Option<u64>,
    /// Bytes of memory of the machine.
    pub total_bytes: Option<u64>,
    /// Bytes that the control group may still take, caches that can be dropped counted as free.
    pub group_left_bytes: Option<u64>,
    /// Bytes that the control group may take in all.
    pub group_limit_bytes: Option<u64>,
}

impl MemoryInfo {
    /// Reads all of it.
    pub fn now() -> Self {
        let mut buffer = [0; BUFFER_BYTES];
        let stalls = read(b"/proc/pressure/memory\0", &mut buffer);
        let (stalled_percent, stalled_us) = (stalls.and_then(stalled), stalls.and_then(stalled_total));
        let (mut available_bytes, mut total_bytes) = (None, None);
        if let Some(text) = read(b"/proc/meminfo\0", &mut buffer) {
            available_bytes = field(text, b"MemAvailable:").map(|kib| kib * 1024);
            total_bytes = field(text, b"MemTotal:").map(|kib| kib * 1024);
        }
        let (group_left_bytes, group_limit_bytes) = group_memory().unzip();
        Self { stalled_percent, stalled_us, available_bytes, total_bytes, group_left_bytes, group_limit_bytes }
    }

    /// Bytes that there are at most, used or not: the machine's, or the group's if it may take less.
    pub fn physical_bytes(&self) -> Option<u64> {
        match (self.total_bytes, self.group_limit_bytes) {
            (Some(machine), Some(group)) => Some(machine.min(group)),
            (machine, group) => machine.or(group),
        }
    }

    /// Bytes that may be had at most: what is available, or what the group has left if that is less.
    pub fn obtainable_bytes(&self) -> Option<u64> {
        match (self.available_bytes, self.group_left_bytes) {
            (Some(machine), Some(group)) => Some(machine.min(group)),
            (machine, group) => machine.or(group),
        }
    }
}

/// Share of the last ten seconds in which some task waited for a processor, in percent; `None` when not known.
pub fn processor_stalled_percent() -> Option<f32> {
    let mut buffer = [0; 512];
    read(b"/proc/pressure/cpu\0", &mut buffer).and_then(stalled)
}

/// Time since the start of the machine in which some task waited for a processor, in microseconds; `None` when not known.
pub fn processor_stalled_us() -> Option<u64> {
    let mut buffer = [0; 512];
    read(b"/proc/pressure/cpu\0", &mut buffer).and_then(stalled_total)
}

/// `some avg10=0.12 avg60=…` of the first line.
fn stalled(text: &[u8]) -> Option<f32> {
    std::str::from_utf8(some(text, b"avg10=")?).ok()?.parse().ok()
}

/// The same line's `total=`.
fn stalled_total(text: &[u8]) -> Option<u64> {
    number(some(text, b"total=")?)
}

/// The word after `name` in the line of stalls of some tasks.
fn some<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let line = text.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"some "))?;
    line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(name))
}

/// The number after `name` at the start of a line.
fn field(text: &[u8], name: &[u8]) -> Option<u64> {
    let rest = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    number(rest)
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// What the group of this process may still take, and what in all: the tightest limit on the way up is not looked for, only its own.
fn group_memory() -> Option<(u64, u64)> {
    let mut buffer = [0; BUFFER_BYTES];
    let text = read(b"/proc/self/cgroup\0", &mut buffer)?;
    let mut path = [0; 512];
    let (mut unified, mut found) = (false, 0);
    for line in text.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (Some(_), Some(controllers), Some(place)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let memory = controllers.split(|&byte| byte == b',').any(|name| name == b"memory");
        if (memory || (controllers.is_empty() && found == 0)) && place.len() <= path.len() {
            path[..place.len()].copy_from_slice(place);
            (found, unified) = (place.len(), !memory);
        }
    }
    let place = &path[..found];
    // In a container the path may be the host's, while the mount shows the group itself as its root.
    if unified {
        left(&[b"/sys/fs/cgroup", place], b"/memory.max\0", b"/memory.current\0", b"inactive_file ")
            .or_else(|| left(&[b"/sys/fs/cgroup"], b"/memory.max\0", b"/memory.current\0", b"inactive_file "))
    } else {
        let (limit, usage) = (b"/memory.limit_in_bytes\0", b"/memory.usage_in_bytes\0");
        left(&[b"/sys/fs/cgroup/memory", place], limit, usage, b"total_inactive_file ")
            .or_else(|| left(&[b"/sys/fs/cgroup/memory"], limit, usage, b"total_inactive_file "))
    }
}

fn left(dir: &[&[u8]], limit: &[u8], usage: &[u8], cache: &[u8]) -> Option<(u64, u64)> {
    let limit_bytes = figure(dir, limit, b"")?;
    let used = figure(dir, usage, b"")?;
    let droppable = figure(dir, b"/memory.stat\0", cache).unwrap_or(0);
    Some((limit_bytes.saturating_sub(used.saturating_sub(droppable)), limit_bytes))
}

/// The number in a file, or after `name` in it. `max` is no number, so no limit is `None`.
fn figure(dir: &[&[u8]], file: &[u8], name: &[u8]) -> Option<u64> {
    let mut path = [0_u8; 640];
    let mut len = 0;
    for part in dir.iter().copied().chain([file]) {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    let mut buffer = [0; BUFFER_BYTES];
    let text = read(&path[..len], &mut buffer)?;
    if name.is_empty() { number(text) } else { field(text, name) }
}

/// Reads what fits of the file whose path is given with its closing zero.
fn read<'a>(path: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let path = std::ffi::CStr::from_bytes_with_nul(path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(&file, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(&buffer[..filled])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_left() {
        let memory = MemoryInfo::now();
        assert!(memory.available_bytes.unwrap() <= memory.total_bytes.unwrap());
        assert!(memory.obtainable_bytes().unwrap() > 0);
        assert!(processor_stalled_percent().is_none_or(|percent| (0.0..=100.0).contains(&percent)));
        assert_eq!(memory.available_bytes.map(|bytes| bytes > 0), Some(true));
        assert_eq!(memory.stalled_us.is_some(), memory.stalled_percent.is_some());
        assert!(MemoryInfo::now().stalled_us >= memory.stalled_us);
    }

    #[test]
    fn files_of_the_kernel_are_understood() {
        let text = b"some avg10=1.25 avg60=0.50 avg300=0.10 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(stalled(text), Some(1.25));
        assert_eq!(stalled_total(text), Some(12));
        assert_eq!((stalled(b"nothing"), stalled_total(b"nothing")), (None, None));
        assert_eq!(field(b"MemTotal:  16 kB\nMemAvailable:    7 kB\n", b"MemAvailable:"), Some(7));
        assert_eq!(number(b"max\n"), None);
        let memory = MemoryInfo { available_bytes: Some(9), group_left_bytes: Some(4), ..MemoryInfo::default() };
        assert_eq!(memory.obtainable_bytes(), Some(4));
        let memory = MemoryInfo { total_bytes: Some(9), ..MemoryInfo::default() };
        assert_eq!(memory.physical_bytes(), Some(9));
        assert_eq!(MemoryInfo { group_limit_bytes: Some(4), ..memory }.physical_bytes(), Some(4));
    }
}

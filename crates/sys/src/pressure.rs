//! How short memory is (pressure stall information, what is available, the limits of the control groups), and processors.
//!
//! Relies on `/proc/pressure` (Linux 4.20, may be off), `/proc/meminfo` and cgroup v1 or v2 in their usual places.
//! Everything is read into buffers on the stack; what can't be read is `None` and means "not known to be short".

use rustix::fs::{Mode, OFlags};

use crate::cgroup_mount_root::CgroupMountRoot;

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
    /// Bytes that the control group and all those above it let this process still take, caches that can be dropped counted as free. At least so
    /// many: where that is more than `available_bytes`, the caches are not asked for.
    pub group_left_bytes: Option<u64>,
    /// Bytes that the control group and all those above it may take in all: the least of their limits.
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
        let (group_left_bytes, group_limit_bytes) = group_memory(available_bytes.unwrap_or(u64::MAX)).unzip();
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

/// The files of a memory controller, each with its closing zero.
struct GroupFiles {
    /// Bounds of what a group may take: beyond them the kernel takes memory back, slows the group down or kills.
    limits: &'static [&'static [u8]],
    used: &'static [u8],
    /// The name in `memory.stat` of what is used, but can be dropped, in the group and those below.
    droppable: &'static [u8],
    /// Zero where a group's limits do not hold for the groups below; Linux 5.11 and later know no such groups.
    is_inherited: Option<&'static [u8]>,
}

const V1: GroupFiles = GroupFiles {
    limits: &[b"/memory.limit_in_bytes\0"],
    used: b"/memory.usage_in_bytes\0",
    droppable: b"total_inactive_file ",
    is_inherited: Some(b"/memory.use_hierarchy\0"),
};

const V2: GroupFiles = GroupFiles {
    limits: &[b"/memory.max\0", b"/memory.high\0"],
    used: b"/memory.current\0",
    droppable: b"inactive_file ",
    is_inherited: None,
};

/// Version 1 writes "no limit" as the greatest multiple of a page that fits.
const NO_LIMIT: u64 = 1 << 62;

/// What the groups of this process leave it to take, as far as that is less than `enough`, and what they bound it to in all.
fn group_memory(enough: u64) -> Option<(u64, u64)> {
    let mut buffer = [0; BUFFER_BYTES];
    let (place, is_unified) = group_place(read(b"/proc/self/cgroup\0", &mut buffer)?);
    let (mount, files): (&[u8], _) =
        if is_unified { (b"/sys/fs/cgroup", &V2) } else { (b"/sys/fs/cgroup/memory", &V1) };
    let shown = CgroupMountRoot::of(mount, is_unified);
    tightest(mount, path_below_root(place, shown.as_bytes()), files, enough)
}

/// The path of the group that has the memory controller, and whether it is in the unified hierarchy of version 2.
fn group_place(text: &[u8]) -> (&[u8], bool) {
    let (mut unified, mut found): (bool, &[u8]) = (false, b"");
    for line in text.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (Some(_), Some(controllers), Some(place)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let memory = controllers.split(|&byte| byte == b',').any(|name| name == b"memory");
        if memory || (controllers.is_empty() && found.is_empty()) {
            (found, unified) = (place, !memory);
        }
    }
    (found, unified)
}

/// Where the group at `place` is below the one that a mount shows as its root. In a container without a namespace for groups the paths are the
/// host's, while the mount shows the container's group: what has the rest of the path as its name there may be a stranger's.
fn path_below_root<'p>(place: &'p [u8], shown: &[u8]) -> &'p [u8] {
    let shown = shown.strip_suffix(b"/").unwrap_or(shown);
    match place.strip_prefix(shown) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
        // Another mount shows it.
        _ => b"",
    }
}

/// The least that a group on the way from `place` up to `root` leaves, as far as that is less than `enough`, and the least limit on that way.
///
/// Groups that the mount doesn't show are passed over, so the root is what is looked at last in any case.
fn tightest(root: &[u8], place: &[u8], files: &GroupFiles, enough: u64) -> Option<(u64, u64)> {
    let is_outside = place.split(|&byte| byte == b'/').any(|part| part == b"..");
    // Of a group outside this process's namespace the mount shows at most the root.
    let mut place = if is_outside { b"" } else { place.strip_suffix(b"/").unwrap_or(place) };
    let mut found: Option<(u64, u64)> = None;
    let mut is_own = true;
    loop {
        let dir = [root, place];
        if let Some(used) = figure(&dir, files.used, b"") {
            let is_inherited = files.is_inherited.and_then(|file| figure(&dir, file, b"")) != Some(0);
            if !is_own && !is_inherited {
                return found;
            }
            is_own = false;
            let enough = found.map_or(enough, |(least, _)| least.min(enough));
            if let Some((left, limit)) = left(&dir, used, files, enough) {
                found = Some(found.map_or((left, limit), |(least, lowest)| (least.min(left), lowest.min(limit))));
            }
        }
        if place.is_empty() {
            return found;
        }
        place = &place[..place.iter().rposition(|&byte| byte == b'/').unwrap_or(0)];
    }
}

/// What one group leaves, and its limit; `None` if it has none. If what it leaves is `enough` without the caches that can be dropped, these are not
/// asked for: the kernel would add the figures of all processors and of all groups below.
fn left(dir: &[&[u8]], used: u64, files: &GroupFiles, enough: u64) -> Option<(u64, u64)> {
    let limits = files.limits.iter().filter_map(|file| figure(dir, file, b""));
    let limit_bytes = limits.filter(|&bytes| bytes < NO_LIMIT).min()?;
    let unused = limit_bytes.saturating_sub(used);
    if unused >= enough {
        return Some((unused, limit_bytes));
    }
    let droppable = figure(dir, b"/memory.stat\0", files.droppable).unwrap_or(0);
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
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

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

    /// Groups as folders, with the files of one version.
    struct FakeGroups {
        root: PathBuf,
        files: GroupFiles,
    }

    impl FakeGroups {
        fn new(name: &str, files: GroupFiles) -> Self {
            let root = std::env::temp_dir().join(format!("quire-sys-groups-{name}-{}", std::process::id()));
            std::fs::create_dir(&root).unwrap();
            Self { root, files }
        }

        fn set(&self, group: &str, files: &[(&str, &str)]) {
            let folder = self.root.join(group);
            std::fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }

        fn tightest(&self, place: &str) -> Option<(u64, u64)> {
            self.tightest_below(place, u64::MAX)
        }

        fn tightest_below(&self, place: &str, enough: u64) -> Option<(u64, u64)> {
            tightest(self.root.as_os_str().as_bytes(), place.as_bytes(), &self.files, enough)
        }
    }

    impl Drop for FakeGroups {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn the_limit_of_any_group_above_holds_in_version_2() {
        let groups = FakeGroups::new("v2", V2);
        // The root of the machine has neither a limit nor a figure of what is used.
        groups.set("pod", &[("memory.max", "1000"), ("memory.high", "max"), ("memory.current", "700")]);
        groups.set("pod", &[("memory.stat", "anon 300\ninactive_file 400\nactive_file 5")]);
        groups.set("pod/one", &[("memory.max", "max"), ("memory.high", "max"), ("memory.current", "10")]);
        assert_eq!(groups.tightest("/pod/one"), Some((700, 1000)), "the pod's limit is the only one");
        assert_eq!(groups.tightest("/pod/one/"), Some((700, 1000)));
        groups.set("pod/one", &[("memory.max", "2000"), ("memory.current", "1950")]);
        assert_eq!(groups.tightest("/pod/one"), Some((50, 1000)), "what is left and the limit may be of two groups");
        groups.set("pod/one", &[("memory.high", "1960")]);
        assert_eq!(groups.tightest("/pod/one"), Some((10, 1000)), "a group is slowed down from its high on");
        groups.set("pod/one", &[("memory.high", "1900")]);
        assert_eq!(groups.tightest("/pod/one"), Some((0, 1000)));
        groups.set("other", &[("memory.max", "max"), ("memory.current", "10")]);
        assert_eq!((groups.tightest("/other"), groups.tightest("/")), (None, None), "no group has a limit");
        // A container's mount shows its group as the root, and not the host's path.
        groups.set("", &[("memory.max", "500"), ("memory.current", "100")]);
        assert_eq!(groups.tightest("/host/of/the/container"), Some((400, 500)));
        assert_eq!(groups.tightest(&"/long".repeat(400)), Some((400, 500)));
        groups.set("pod", &[("memory.max", "7"), ("memory.current", "7")]);
        assert_eq!(groups.tightest("/../pod"), Some((400, 500)), "a stranger's limit");
    }

    #[test]
    fn caches_that_can_be_dropped_are_asked_for_only_where_they_count() {
        let groups = FakeGroups::new("enough", V2);
        groups.set("pod", &[("memory.max", "1000"), ("memory.current", "700"), ("memory.stat", "inactive_file 400")]);
        groups.set("pod/one", &[("memory.max", "800"), ("memory.current", "650"), ("memory.stat", "inactive_file 50")]);
        assert_eq!(groups.tightest_below("/pod", 300), Some((300, 1000)), "enough without them");
        assert_eq!(groups.tightest_below("/pod", 301), Some((700, 1000)));
        // The inner one leaves 200, and the outer one more than that without its caches.
        assert_eq!(groups.tightest("/pod/one"), Some((200, 800)));
        groups.set("pod", &[("memory.current", "950")]);
        assert_eq!(groups.tightest("/pod/one"), Some((200, 800)), "450 with them");
    }

    #[test]
    fn a_group_is_looked_for_below_the_one_that_the_mount_shows() {
        assert_eq!(path_below_root(b"/user.slice/one", b"/"), b"/user.slice/one");
        assert_eq!(path_below_root(b"/docker/1234/one", b"/docker/1234"), b"/one");
        assert_eq!(path_below_root(b"/docker/1234", b"/docker/1234"), b"");
        assert_eq!(path_below_root(b"/docker/12345", b"/docker/1234"), b"");
        assert_eq!(path_below_root(b"/kubepods/1234", b"/docker/1234"), b"");
        assert_eq!(path_below_root(b"/", b"/../.."), b"");
    }

    #[test]
    fn the_limit_of_any_group_above_holds_in_version_1_if_it_is_inherited() {
        let groups = FakeGroups::new("v1", V1);
        let none = "9223372036854771712";
        groups.set("", &[("memory.limit_in_bytes", none), ("memory.usage_in_bytes", "5000")]);
        groups.set("slice", &[("memory.limit_in_bytes", "1000"), ("memory.usage_in_bytes", "800")]);
        groups.set(
            "slice",
            &[("memory.stat", "inactive_file 1\ntotal_inactive_file 300"), ("memory.use_hierarchy", "1")],
        );
        groups.set("slice/unit", &[("memory.limit_in_bytes", none), ("memory.usage_in_bytes", "10")]);
        assert_eq!(groups.tightest("/slice/unit"), Some((500, 1000)));
        assert_eq!(groups.tightest("/"), None);
        groups.set("slice", &[("memory.use_hierarchy", "0")]);
        assert_eq!(groups.tightest("/slice/unit"), None, "the group above bounds only itself");
        assert_eq!(groups.tightest("/slice"), Some((500, 1000)));
    }

    #[test]
    fn the_group_with_the_memory_controller_is_found() {
        assert_eq!(group_place(b"0::/user.slice/a:b\n"), (&b"/user.slice/a:b"[..], true));
        assert_eq!(group_place(b"12:cpu,memory:/one\n3:pids:/two\n0::/three\n"), (&b"/one"[..], false));
        assert_eq!(group_place(b"0::/three\n4:memory:/one\n"), (&b"/one"[..], false));
        assert_eq!(group_place(b"nothing\n"), (&b""[..], false));
    }
}

//! What the kernel reports of processes and of the machine under `/proc`.
//!
//! Relies on procfs being mounted; where it isn't, every figure is absent rather than wrong.

use std::fs;

fn field_kib(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
}

/// Bytes of memory that the process holds, shared pages counted whole.
pub fn resident_bytes(pid: Option<u32>) -> Option<u64> {
    let text = fs::read_to_string(path(pid, "statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// What kinds of memory a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentKinds {
    /// Pages of its own: those of no file, and those of a private mapping that were written.
    pub anonymous_bytes: u64,
    /// Pages of files, which other processes may share.
    pub file_bytes: u64,
}

/// What kinds of memory this process holds. Costs no walk of page tables.
pub fn resident_kinds() -> Option<ResidentKinds> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let bytes = |name: &str| Some(field_kib(&text, name)? * 1024);
    Some(ResidentKinds { anonymous_bytes: bytes("RssAnon")?, file_bytes: bytes("RssFile")? })
}

/// Bytes of memory that the process holds, shared pages counted by share. Walks page tables: slow.
pub fn proportional_bytes(pid: Option<u32>) -> Option<u64> {
    let text = fs::read_to_string(path(pid, "smaps_rollup")).ok()?;
    Some(field_kib(&text, "Pss")? * 1024)
}

/// Highest resident size since the process started, in bytes.
pub fn resident_peak_bytes(pid: Option<u32>) -> Option<u64> {
    let text = fs::read_to_string(path(pid, "status")).ok()?;
    Some(field_kib(&text, "VmHWM")? * 1024)
}

/// A figure of `/proc/meminfo` in bytes, such as `MemTotal` or `MemAvailable`.
pub fn meminfo_bytes(name: &str) -> Option<u64> {
    Some(field_kib(&fs::read_to_string("/proc/meminfo").ok()?, name)? * 1024)
}

/// The kernel's release, such as `6.18.0`.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// The name of the processor.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

fn path(pid: Option<u32>, file: &str) -> String {
    pid.map_or_else(|| format!("/proc/self/{file}"), |pid| format!("/proc/{pid}/{file}"))
}

/// Has the program's own code read into memory in large pieces, where otherwise it would come page by page as it is first
/// run. Worth it after a restart with a cold page cache; a wish, like all advice.
pub fn prefault_own_code() {
    let (Ok(maps), Ok(program)) = (fs::read_to_string("/proc/self/maps"), std::env::current_exe()) else { return };
    let program = program.to_string_lossy().into_owned();
    for line in maps.lines().filter(|line| line.ends_with(program.as_str())) {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let bound = |text: &str| usize::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) = range.split_once('-').map(|(start, end)| (bound(start), bound(end)))
        else {
            continue;
        };
        if rest.starts_with("r-x") || rest.starts_with("r--") {
            // SAFETY: only reads pages of the program's own file in ahead; nothing is changed or unmapped.
            let _ = unsafe { rustix::mm::madvise(start as *mut _, end - start, rustix::mm::Advice::LinuxPopulateRead) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_survives_the_prefault_of_its_code() {
        prefault_own_code();
        assert!(resident_bytes(None).unwrap() > 1 << 20);
    }

    #[test]
    fn this_process_holds_memory_and_the_machine_has_more() {
        let resident = resident_bytes(None).unwrap();
        assert!(resident > 0);
        assert!(proportional_bytes(None).unwrap() > 0);
        assert!(resident_peak_bytes(None).unwrap() > 0);
        assert!(meminfo_bytes("MemTotal").unwrap() > resident);
        assert_eq!(meminfo_bytes("NoSuchFigure"), None);
    }
}

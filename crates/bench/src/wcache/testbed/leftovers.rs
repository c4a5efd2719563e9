//! What a killed run left behind: processes, mounts, loop devices with their limits, directories.
//!
//! Relies on everything of a run bearing `quire-wcache-PID` in its path, its image or its command line. Only what
//! belongs to a run whose process is gone is touched.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quire_sys::ask::{TerminationSignal, to_end};

use super::loop_disk::{detach, unmount};

/// How the name of every directory of this experiment begins; the process id follows.
pub const PREFIX: &str = "quire-wcache-";

/// Clears up after all runs that ended without doing so themselves; their directories are looked for in `parents`.
pub fn clear(parents: &[&Path]) {
    let processes = processes();
    for &pid in &processes {
        // Gone already is as good.
        let _ = to_end(pid, TerminationSignal::Kill);
    }
    for _ in 0..20 {
        if processes.iter().all(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    for point in mount_points(&mounts) {
        unmount(&point);
    }
    for device in loop_devices() {
        detach(&device);
    }
    for parent in parents {
        let entries = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
        for entry in entries.filter(|entry| is_left_over(&entry.file_name().to_string_lossy())) {
            remove(&entry.path());
        }
    }
}

/// Removes a directory or a control group whose processes have ended, with all mounts and loop devices below it.
pub fn take_down(path: &Path) {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let below = |text: &str| Path::new(text).starts_with(path);
    let points: Vec<&str> =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|text| below(text)).collect();
    points.into_iter().rev().for_each(|point| unmount(Path::new(point)));
    devices_with(below).iter().for_each(|device| detach(device));
    // A control group can be removed only as a directory that seems empty, though files are in it.
    if std::fs::remove_dir(path).is_err() {
        remove(path);
    }
}

/// Removes a directory of a run. What is still mounted below it stays: removing must not reach into a disk.
pub fn remove(dir: &Path) {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_mounted = |line: &str| line.split(' ').nth(1).is_some_and(|point| Path::new(point).starts_with(dir));
    if !mounts.lines().any(is_mounted) {
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Whether `text` names a run whose process is gone.
fn is_left_over(text: &str) -> bool {
    let owners = text.match_indices(PREFIX).filter_map(|(at, _)| {
        let digits: String = text[at + PREFIX.len()..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    let mut owners = owners.peekable();
    owners.peek().is_some() && owners.all(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        // An editor or a pager that looks at such a directory is another user's.
        let ours = ["quire", "postgres", "redis-server", "pgbench", "initdb"];
        let program = line.split(['\0', ' ']).next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default().trim_end_matches(':');
        ours.contains(&name) && is_left_over(&line)
    })
    .collect()
}

/// Mount points of left-over runs, the last mounted first.
fn mount_points(mounts: &str) -> Vec<PathBuf> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let mut points: Vec<PathBuf> = points.filter(|point| is_left_over(point)).map(PathBuf::from).collect();
    points.reverse();
    points
}

fn loop_devices() -> Vec<PathBuf> {
    devices_with(is_left_over)
}

/// Loop devices over a file that is of interest by its path.
fn devices_with(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    let devices = entries.filter(|entry| {
        let image = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        is_wanted(&image)
    });
    devices.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_dead_run_is_left_over() {
        let own = std::process::id();
        assert!(is_left_over("/work/quire-wcache-4194999/slow"));
        assert!(!is_left_over(&format!("/work/quire-wcache-{own}/slow")));
        assert!(!is_left_over(&format!("/work/quire-wcache-4194999/x /work/quire-wcache-{own}/y")));
        assert!(!is_left_over("/work/quire-wcache-/slow") && !is_left_over("/work/data"));
    }

    #[test]
    fn inner_mounts_come_before_outer_ones() {
        let mounts = "a /d/quire-wcache-4194999/slow ext4 rw\nb / ext4\nc /d/quire-wcache-4194999/slow/log ext4 rw\n";
        let points = mount_points(mounts);
        assert_eq!(points.len(), 2);
        assert!(points[0].ends_with("log") && points[1].ends_with("slow"));
    }

    #[test]
    fn a_directory_of_a_dead_run_is_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let own = format!("{PREFIX}{}", std::process::id());
        for name in ["quire-wcache-4194999", &own, "else"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("file"), "x").unwrap();
        }
        clear(&[dir.path()]);
        assert!(!dir.path().join("quire-wcache-4194999").exists());
        assert!(dir.path().join(own).exists() && dir.path().join("else").exists());
    }
}

//! A disk of one's own: an image file behind a loop device, with a fresh ext4 on it.
//!
//! Relies on `losetup`, `mkfs.ext4`, `mount` and `umount`. The loop device writes to its image directly, so what it is
//! sent isn't cached a second time. All tables of the file system are written before it is used: ext4's lazy
//! initialisation would go on in the background and spend the disk's requests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::command::{program, run};
use super::device_throttle::{DeviceSpeed, DeviceThrottle};

/// A mounted disk. Dropping it unmounts it, frees the loop device and removes the image.
#[derive(Debug)]
pub struct LoopDisk {
    image: PathBuf,
    device: Option<PathBuf>,
    point: Option<PathBuf>,
}

impl LoopDisk {
    /// A disk of `bytes` in a sparse file `image`, mounted at `point`.
    ///
    /// # Errors
    /// When a program is missing or fails.
    pub fn new(image: &Path, bytes: u64, point: &Path) -> anyhow::Result<Self> {
        let file = quire_sys::file::create_new(image).with_context(|| format!("creating {}", image.display()))?;
        let mut disk = Self { image: image.to_owned(), device: None, point: None };
        file.set_len(bytes).with_context(|| format!("making {} {bytes} bytes long", image.display()))?;
        let losetup = program("losetup", "mount")?;
        let attach = |direct: &str| run(Command::new(&losetup).args(["--find", "--show", direct]).arg(image));
        // A file system without direct I/O (tmpfs of old) gives a loop device all the same.
        let device = attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?;
        disk.device = Some(PathBuf::from(device.trim()));
        let device = Path::new(device.trim());
        let mut format = Command::new(program("mkfs.ext4", "e2fsprogs")?);
        format.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-N", "32768"]).arg(device);
        run(&mut format)?;
        std::fs::create_dir_all(point).with_context(|| format!("creating {}", point.display()))?;
        run(Command::new(program("mount", "mount")?).args(["-t", "ext4"]).arg(device).arg(point))?;
        disk.point = Some(point.to_owned());
        Ok(disk)
    }

    /// From now on the disk is as slow as `speed` says.
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn throttle(&self, speed: DeviceSpeed) -> anyhow::Result<DeviceThrottle> {
        DeviceThrottle::set(&self.number()?, speed)
    }

    /// The device's number, `major:minor`.
    ///
    /// # Errors
    /// The system does not tell it.
    pub fn number(&self) -> anyhow::Result<String> {
        let device = self.device.as_ref().and_then(|device| device.file_name()).context("the disk has no device")?;
        let path = Path::new("/sys/block").join(device).join("dev");
        let number = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        ensure!(number.contains(':'), "{} says {number:?}", path.display());
        Ok(number.trim().to_owned())
    }

    /// Requests that the device has finished: reads and writes.
    pub fn requests(&self) -> Option<(u64, u64)> {
        let device = self.device.as_ref()?.file_name()?;
        let text = std::fs::read_to_string(Path::new("/sys/block").join(device).join("stat")).ok()?;
        let mut words = text.split_ascii_whitespace();
        Some((words.next()?.parse().ok()?, words.nth(3)?.parse().ok()?))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if let Some(point) = &self.point {
            unmount(point);
        }
        if let Some(device) = &self.device {
            detach(device);
        }
        // Removed even while the device is still busy: its space is then free when that ends.
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Unmounts `point`; if a process still uses it after two seconds, as soon as that ends.
pub fn unmount(point: &Path) {
    let Ok(umount) = program("umount", "mount") else { return };
    for _ in 0..20 {
        if run(Command::new(&umount).arg(point)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = run(Command::new(&umount).arg("--lazy").arg(point));
}

/// Frees a loop device, with every limit on it: the next user must not inherit them.
pub fn detach(device: &Path) {
    if let Some(name) = device.file_name()
        && let Ok(number) = std::fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))
    {
        DeviceThrottle::lift_all(number.trim());
    }
    if let Ok(losetup) = program("losetup", "mount") {
        let _ = run(Command::new(losetup).arg("--detach").arg(device));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_comes_is_slowed_down_and_leaves_nothing_behind() {
        let possible = quire_sys::ask::is_root() && Path::new("/dev/loop-control").exists();
        if !possible {
            return quire_sys::testing::skipped("not root, or no loop devices");
        }
        let dir = tempfile::tempdir_in(".").unwrap();
        let place = dir.path().canonicalize().unwrap();
        let (image, point) = (place.join("image"), place.join("point"));
        let disk = LoopDisk::new(&image, 64 << 20, &point).unwrap();
        std::fs::write(point.join("file"), "on the disk").unwrap();
        run(Command::new("sync").arg("-f").arg(&point)).unwrap();
        assert!(disk.requests().unwrap().1 > 0);
        let number = format!("{} ", disk.number().unwrap());
        let limits = "/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device";
        let is_limited = || std::fs::read_to_string(limits).unwrap().lines().any(|line| line.starts_with(&number));
        if Path::new(limits).exists() {
            let throttle = disk.throttle(DeviceSpeed { iops: 5000, bytes_per_s: 100_000_000 }).unwrap();
            assert!(is_limited());
            drop(throttle);
            assert!(!is_limited());
        }
        drop(disk);
        assert!(!image.exists() && !point.join("file").exists());
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(point.to_str().unwrap()));
    }
}

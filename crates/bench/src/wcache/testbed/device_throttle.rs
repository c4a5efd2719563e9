//! A disk with seeks: a limit on requests and bytes a second of one block device, by cgroup v1's blkio controller.
//!
//! Relies on root and on the controller being mounted where Debian has it. The limit is set in the group in which this
//! process is, and so are its children, *and* in the root group, where the kernel's own threads are: the journal of
//! ext4 and the flusher write as much to a disk as any process. When this process is in the root group, which is the rule,
//! all of them share one budget, as at a disk; otherwise the kernel's threads have one of their own.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpeed {
    /// Requests a second, reads and writes each.
    pub iops: u64,
    /// Bytes a second, reads and writes each.
    pub bytes_per_s: u64,
}

/// A limit that holds until it is lifted or dropped.
#[derive(Debug)]
pub struct DeviceThrottle {
    device: String,
    groups: Vec<PathBuf>,
}

impl DeviceThrottle {
    /// Limits the device numbered `device` (`major:minor`).
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn set(device: &str, speed: DeviceSpeed) -> anyhow::Result<Self> {
        Self::below(Path::new(CONTROLLER), &own_group(), device, speed)
    }

    fn below(controller: &Path, own: &str, device: &str, speed: DeviceSpeed) -> anyhow::Result<Self> {
        ensure!(
            controller.join("blkio.throttle.write_iops_device").is_file(),
            "slow disks are made with the blkio controller of cgroup v1, which is not at {}; boot with \
             systemd.unified_cgroup_hierarchy=0, or mount it there (mount -t cgroup -o blkio cgroup {0})",
            controller.display()
        );
        let mut groups = vec![controller.to_owned()];
        let own = own.trim_matches('/');
        if !own.is_empty() {
            groups.push(controller.join(own));
        }
        let throttle = Self { device: device.to_owned(), groups };
        throttle.write(speed)?;
        Ok(throttle)
    }

    fn write(&self, speed: DeviceSpeed) -> anyhow::Result<()> {
        for group in &self.groups {
            for direction in ["read", "write"] {
                for (unit, value) in [("iops", speed.iops), ("bps", speed.bytes_per_s)] {
                    let path = group.join(format!("blkio.throttle.{direction}_{unit}_device"));
                    std::fs::write(&path, format!("{} {value}", self.device))
                        .with_context(|| format!("limiting {} in {}", self.device, path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Takes every limit off device `device`, wherever an earlier run may have set one. What can't be lifted isn't set.
    pub fn lift_all(device: &str) {
        let groups = [PathBuf::from(CONTROLLER), Path::new(CONTROLLER).join(own_group().trim_matches('/'))];
        drop(Self { device: device.to_owned(), groups: groups.into() });
    }
}

impl Drop for DeviceThrottle {
    fn drop(&mut self) {
        // Zero means no limit. A group that is gone limits no process.
        let _ = self.write(DeviceSpeed { iops: 0, bytes_per_s: 0 });
    }
}

/// The group of the blkio controller in which this process is.
fn own_group() -> String {
    group_in(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

fn group_in(text: &str) -> String {
    let line = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next()?.split(',').any(|controller| controller == "blkio").then(|| fields.next()).flatten()
    });
    line.unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found() {
        assert_eq!(group_in("3:cpu:/a\n2:blkio,net:/b/c\n0::/\n"), "/b/c");
        assert_eq!(group_in("0::/x\n"), "/");
    }

    #[test]
    fn limits_are_set_in_both_groups_and_lifted() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(dir.path().join("blkio.throttle.write_iops_device"), "").unwrap();
        let speed = DeviceSpeed { iops: 150, bytes_per_s: 1000 };
        let throttle = DeviceThrottle::below(dir.path(), "/own", "7:3", speed).unwrap();
        let limit = |dir: &Path| std::fs::read_to_string(dir.join("blkio.throttle.write_iops_device")).unwrap();
        assert_eq!((limit(dir.path()), limit(&own)), ("7:3 150".into(), "7:3 150".into()));
        drop(throttle);
        assert_eq!(limit(&own), "7:3 0");
    }

    #[test]
    fn where_there_is_no_controller_the_cure_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let refused =
            DeviceThrottle::below(dir.path(), "/", "7:3", DeviceSpeed { iops: 1, bytes_per_s: 1 }).unwrap_err();
        assert!(refused.to_string().contains("mount -t cgroup"), "{refused}");
    }
}

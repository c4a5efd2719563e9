//! A disk that does only so many reads and writes a second while loads are measured, as the disks did for which a second tier of memory
//! was proposed: there a miss costs milliseconds.
//!
//! Relies on `wcache`'s testbed for the loop device and its limits. The process of a trial slows the disk down by itself, so that caches
//! are filled as fast as the disk beneath can.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::scale::DbioScale;
use crate::wcache::testbed::device_throttle::{DeviceSpeed, DeviceThrottle};
use crate::wcache::testbed::loop_disk::LoopDisk;

/// Files on the disk may take so many times the data: the pool's store and those of three other programs.
const STORES: u64 = 6;
/// For the file system itself.
const SPARE_BYTES: u64 = 512 << 20;

/// Which device is slowed down, and how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleSpec {
    /// `major:minor`.
    device: String,
    /// Reads a second, and writes.
    iops: u64,
}

impl ThrottleSpec {
    /// The device is slow until the result is dropped.
    ///
    /// # Errors
    /// Without root or the controller.
    pub fn set(&self) -> anyhow::Result<DeviceThrottle> {
        // Without a limit on bytes: disks of that time were not slow in a row.
        DeviceThrottle::set(&self.device, DeviceSpeed { iops: self.iops, bytes_per_s: 0 })
    }
}

/// A mounted disk for the stores. Dropping it removes it with all that is on it.
#[derive(Debug)]
pub struct SlowDisk {
    disk: LoopDisk,
    point: PathBuf,
    iops: u64,
}

impl SlowDisk {
    /// A disk for stores of this scale, in a file below `dir`.
    ///
    /// # Errors
    /// Without root, loop devices, or `mkfs.ext4`.
    pub fn new(dir: &Path, scale: &DbioScale, iops: u64) -> anyhow::Result<Self> {
        let most = scale.data.iter().copied().fold(0.0, f64::max);
        let bytes = (scale.limit_bytes() as f64 * most) as u64 * STORES + SPARE_BYTES;
        let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
        let point = dir.join("disk");
        let disk = LoopDisk::new(&dir.join("disk-image"), bytes, &point)?;
        Ok(Self { disk, point, iops })
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// What makes it slow.
    ///
    /// # Errors
    /// The system does not tell the device's number.
    pub fn throttle(&self) -> anyhow::Result<ThrottleSpec> {
        Ok(ThrottleSpec { device: self.disk.number()?, iops: self.iops })
    }
}

#[cfg(test)]
mod tests {
    use super::super::DbioArgs;
    use super::super::trial::bound_name;
    use super::super::trial_spec::{TrialSpec, TrialWork};
    use super::*;
    use crate::experiment::tests::parse;
    use crate::fastmap::testbed::Testbed;

    #[test]
    fn a_disk_is_as_slow_as_it_is_told_to_be_only_while_it_is_measured() {
        if !quire_sys::ask::is_root() || !Path::new("/dev/loop-control").exists() {
            return quire_sys::testing::skipped("not root, or no loop devices");
        }
        let dir = tempfile::tempdir_in(".").unwrap();
        let scale = DbioScale::new(&parse::<DbioArgs>("--quick --memory 32 --data 0.5 --disk-iops 200"));
        let disk = SlowDisk::new(dir.path(), &scale, scale.disk_iops.unwrap()).unwrap();
        let testbed = Testbed::stamped_file(&disk.point().join("data"), 256).unwrap();
        let throttle = Some(disk.throttle().unwrap());
        let reads_per_s = |throttle| {
            let (clients, work) = (vec![8], TrialWork::Disk);
            let spec = TrialSpec {
                testbed: testbed.clone(),
                limit_bytes: scale.limit_bytes(),
                clients,
                run_ms: 500,
                seed: 5,
                throttle,
                work,
            };
            let phases = spec.carry_out().unwrap();
            assert_eq!(phases[0].name, bound_name(8));
            phases[0].ops as f64 / 0.5
        };
        let slow = reads_per_s(throttle.clone());
        assert!(slow < 400.0, "{slow} reads a second where 200 are allowed");
        let fast = reads_per_s(None);
        assert!(fast > 2.0 * slow, "{fast} reads a second, {slow} before");
        let (point, image) = (disk.point().to_owned(), dir.path().join("disk-image"));
        drop(disk);
        assert!(!point.join("data").exists() && !image.exists());
    }
}

//! How the cache is set up.
//!
//! Relies on nothing. The defaults are for a disk with seeks behind a device that is at least ten times faster.

use std::sync::Arc;
use std::time::Duration;

use quire_device::Device;

use crate::error::CacheError;
use crate::format::{AREA_OFFSET, HEADER_BYTES};
use crate::ids::VolumeId;
use crate::policy::AdmissionPolicy;
use crate::tasks::TaskGraph;

/// Smallest log: a few records.
pub const LEAST_AREA_BYTES: u64 = 256 << 10;

/// Settings of a cache.
#[derive(Clone)]
pub struct CacheConfig {
    /// Which writes are cached.
    pub policy: AdmissionPolicy,
    /// Bytes of the fast device to use, superblocks included, when a cache is made.
    pub capacity_bytes: u64,
    /// Unit of the log, 512 or 4096 bytes, when a cache is made; by default the least that the fast device takes.
    pub granule_bytes: Option<u32>,
    /// A small file on the slow side that says which log belongs to the volumes. Without it the cache can't go on when
    /// its fast device dies.
    pub witness: Option<Arc<dyn Device>>,
    /// Most bytes waiting for the slow devices or under way to them.
    pub queue_bytes: usize,
    /// How long a write for which no task waits may stay in memory before it is issued.
    pub linger: Duration,
    /// How long a block may stay in the log before write-back takes it to the slow device, while that works.
    pub deadline: Duration,
    /// Bytes of the log taken to the slow devices in one sorted batch; of a small log an eighth, as space is free only when
    /// its batch has ended.
    pub batch_bytes: u64,
    /// Used share of the log, in percent, from which on write-back works without a deadline.
    pub low_percent: u8,
    /// Used share of the log, in percent, from which on write-back no longer holds back.
    pub high_percent: u8,
    /// Threads that issue writes to the slow devices; half of them work for one volume at most.
    pub issuers: usize,
    /// Separate runs of blocks in one piece of work for a slow device. More is better for the disk, fewer for a task that
    /// waits for one of them.
    pub runs_per_job: usize,
    /// Decisions that the trace remembers.
    pub trace_len: usize,
    /// The caller that opens the cache has made everything on the slow devices durable before (say, with `syncfs`).
    /// Otherwise, after a crash, each volume's first flush is also one of its device.
    pub slow_synced: bool,
    /// What is damaged of the log, or a damaged witness, is given up when the cache is opened; otherwise it is not opened.
    pub accept_damaged: bool,
    /// Who is critical.
    pub tasks: Arc<TaskGraph>,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            policy: AdmissionPolicy::default(),
            capacity_bytes: 256 << 20,
            granule_bytes: None,
            witness: None,
            queue_bytes: 16 << 20,
            linger: Duration::from_millis(200),
            deadline: Duration::from_secs(30),
            batch_bytes: 8 << 20,
            low_percent: 25,
            high_percent: 75,
            issuers: 4,
            runs_per_job: 8,
            trace_len: 1024,
            slow_synced: false,
            accept_damaged: false,
            tasks: TaskGraph::global(),
        }
    }
}

impl CacheConfig {
    /// Unit of the log in a new cache on `fast`.
    pub(crate) fn granule(&self, fast: &dyn Device) -> u64 {
        let least = if fast.alignment().offset_bytes <= HEADER_BYTES { HEADER_BYTES as u64 } else { 4096 };
        self.granule_bytes.map_or(least, |wanted| if wanted <= 512 { 512 } else { 4096 })
    }

    /// Bytes of the log in a new cache.
    pub(crate) fn area_bytes(&self) -> Result<u64, CacheError> {
        let area = self.capacity_bytes.saturating_sub(AREA_OFFSET) / 4096 * 4096;
        if area < LEAST_AREA_BYTES {
            let least_bytes = AREA_OFFSET + LEAST_AREA_BYTES;
            return Err(CacheError::TooSmall { bytes: self.capacity_bytes, least_bytes });
        }
        Ok(area)
    }
}

/// How the length of a volume is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeLength {
    /// A block device or preallocated file: writes beyond its end are refused. Its length is a multiple of 4096.
    Fixed,
    /// A file that ends where its last write ended. The device must take writes that end at any byte.
    Growable,
}

/// A slow device for the cache.
#[derive(Clone)]
pub struct VolumeSpec {
    /// Its name in the log.
    pub id: VolumeId,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Whether it may grow.
    pub growth: VolumeLength,
}

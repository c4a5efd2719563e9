//! How a mount is set up.
//!
//! Relies on nothing.

use std::path::PathBuf;
use std::sync::Arc;

use quire_device::Device;
use quire_writecache::CacheConfig;

use crate::criticality::CriticalityRules;

/// Stands before a device, for tests: makes it fail, or slow.
pub type DeviceWrapper = Arc<dyn Fn(Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync>;

/// Least memory for bytes on their way to the directory.
pub const LEAST_QUEUE_BYTES: usize = 16 << 20;
/// Most that is taken without being asked for.
const MOST_QUEUE_BYTES: u64 = 4 << 30;

/// Memory for bytes on their way to the directory, unless the operator says how much: an eighth of what is available. A
/// program that writes while it is full waits for the slow device, and the kernel holds the file's lock meanwhile; so there
/// is about as much as a kernel would take for a file system of its own.
fn queue_bytes() -> usize {
    let obtainable = quire_sys::pressure::MemoryInfo::now().obtainable_bytes().unwrap_or(0);
    ((obtainable / 8).min(MOST_QUEUE_BYTES) as usize).max(LEAST_QUEUE_BYTES)
}

/// Settings of a mount.
#[derive(Clone)]
pub struct MountConfig {
    /// The directory on the slow device.
    pub backing: PathBuf,
    /// Where it is to appear.
    pub mount_point: PathBuf,
    /// The log's file or block device, on the fast device.
    pub log: PathBuf,
    /// The cache's settings. Its witness is set by the mount.
    pub cache: CacheConfig,
    /// Who is critical, and which files are logs.
    pub rules: CriticalityRules,
    /// Names of programs that are critical from the beginning (`*` and `?` stand for anything).
    pub critical: Vec<String>,
    /// Find out who answers requests, for those about whom no rule says anything.
    pub auto_critical: bool,
    /// Other users may use the mount, as far as permissions allow.
    pub allow_other: bool,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Where figures are written every second, as JSON.
    pub stats_file: Option<PathBuf>,
    /// Stands before the fast device.
    pub wrap_fast: Option<DeviceWrapper>,
    /// Stands before every file of the directory.
    pub wrap_slow: Option<DeviceWrapper>,
}

impl MountConfig {
    /// The defaults for these three places.
    pub fn new(backing: impl Into<PathBuf>, mount_point: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            backing: backing.into(),
            mount_point: mount_point.into(),
            log: log.into(),
            cache: CacheConfig { capacity_bytes: 512 << 20, queue_bytes: queue_bytes(), ..CacheConfig::default() },
            rules: CriticalityRules::built_in(),
            critical: Vec::new(),
            auto_critical: false,
            allow_other: false,
            read_only: false,
            stats_file: None,
            wrap_fast: None,
            wrap_slow: None,
        }
    }
}

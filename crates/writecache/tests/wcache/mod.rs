//! What the tests of the write cache share: small caches in memory, and a device that holds writes back until told.
//!
//! Relies on `quire-device` for files in memory.

use std::sync::Arc;
use std::time::Duration;

use quire_device::{Device, Directory, MemoryDirectory};
use quire_writecache::{AdmissionPolicy, CacheConfig, TaskGraph, VolumeId, VolumeLength, VolumeSpec, WriteCache};

pub const DATA: VolumeId = VolumeId(1);
pub const LOG: VolumeId = VolumeId(2);
pub const BLOCK: usize = 4096;

/// A home for the fast device and one for the slow ones.
#[derive(Clone, Default)]
pub struct Homes {
    pub fast: MemoryDirectory,
    pub slow: MemoryDirectory,
}

impl Homes {
    /// An empty fast device, two fixed volumes of 64 blocks.
    pub fn new() -> Self {
        let homes = Self::default();
        homes.fast.put("fast", &[]);
        homes.slow.put("data", &[0; 64 * BLOCK]);
        homes.slow.put("log", &[0; 64 * BLOCK]);
        homes
    }

    pub fn fast(&self) -> Arc<dyn Device> {
        self.fast.open("fast").unwrap()
    }

    pub fn volumes(&self) -> Vec<VolumeSpec> {
        let spec =
            |id, name: &str| VolumeSpec { id, device: self.slow.open(name).unwrap(), growth: VolumeLength::Fixed };
        vec![spec(DATA, "data"), spec(LOG, "log")]
    }

    pub fn create(&self, config: CacheConfig) -> WriteCache {
        WriteCache::create(self.fast(), &self.volumes(), config).unwrap()
    }

    pub fn open(&self, config: CacheConfig) -> WriteCache {
        WriteCache::open(self.fast(), &self.volumes(), config).unwrap()
    }
}

/// A small cache that writes back only when it must, with tasks of its own.
pub fn config(policy: AdmissionPolicy) -> CacheConfig {
    CacheConfig {
        policy,
        capacity_bytes: 1 << 20,
        linger: Duration::from_secs(3600),
        deadline: Duration::from_secs(3600),
        low_percent: 100,
        high_percent: 100,
        tasks: TaskGraph::new(),
        ..CacheConfig::default()
    }
}

/// The bytes that a fixture stands for: their number, then place, number and content of each part that is not zeros, numbers in 8,
/// 8 and 4 bytes.
pub fn unfold(fixture: &[u8]) -> Vec<u8> {
    let (len, mut rest) = fixture.split_first_chunk::<8>().unwrap();
    let mut bytes = vec![0; u64::from_le_bytes(*len) as usize];
    while let Some((place, tail)) = rest.split_first_chunk::<8>() {
        let (count, tail) = tail.split_first_chunk::<4>().unwrap();
        let (part, tail) = tail.split_at(u32::from_le_bytes(*count) as usize);
        bytes[u64::from_le_bytes(*place) as usize..][..part.len()].copy_from_slice(part);
        rest = tail;
    }
    bytes
}

pub fn block(value: u8) -> Vec<u8> {
    vec![value; BLOCK]
}

/// What a file may hold after a power cut: its contents since it was last made durable.
pub struct FileModel {
    /// The newest last; never empty.
    contents: Vec<Vec<u8>>,
}

impl FileModel {
    /// A durable file.
    pub fn holding(content: Vec<u8>) -> Self {
        Self { contents: vec![content] }
    }

    pub fn newest(&self) -> &[u8] {
        self.contents.last().expect("there is always one")
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut content = self.newest().to_vec();
        let end = offset as usize + bytes.len();
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].copy_from_slice(bytes);
        self.contents.push(content);
    }

    pub fn set_len(&mut self, len: u64) {
        let mut content = self.newest().to_vec();
        content.resize(len as usize, 0);
        self.contents.push(content);
    }

    /// Everything up to now is durable.
    pub fn settle(&mut self) {
        self.contents.drain(..self.contents.len() - 1);
    }

    /// Panics if the file can't have come to hold this.
    pub fn check(&self, found: &[u8]) {
        // Of a file that grew, some sectors may be durable and others not; so it may end with any of them.
        let lens = || self.contents.iter().map(Vec::len);
        let whole = found.len().is_multiple_of(512) && lens().any(|len| len > found.len());
        assert!(whole || lens().any(|len| len == found.len()), "{} bytes, never", found.len());
        assert!(lens().min() <= Some(found.len()), "{} bytes, never so few", found.len());
        for (at, byte) in found.iter().enumerate() {
            let was = |content: &Vec<u8>| content.get(at).copied().unwrap_or(0) == *byte;
            assert!(self.contents.iter().any(was), "byte {at} is {byte}, which it never was since it was made durable");
        }
    }
}

/// All bytes of a volume.
pub fn read_all(cache: &WriteCache, id: VolumeId) -> Vec<u8> {
    let mut bytes = vec![0; 200_000];
    let got = cache.read(id, 0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

//! All kinds of directories and devices, and transfers of whole blocks.

use std::sync::Arc;

use quire_device::{
    Buffer, CacheMode, DIRECT_ALIGN, Device, Direction, Directory, DiskDirectory, DiskModel, Extent, FaultInjector,
    IoEngine, MemoryDirectory, ThrottledDirectory, Transfer,
};

pub const BLOCK: usize = DIRECT_ALIGN;
pub const ENGINES: [IoEngine; 2] = [IoEngine::Auto, IoEngine::Threads];
pub const CACHINGS: [CacheMode; 3] = [CacheMode::Direct, CacheMode::Buffered, CacheMode::DontCache];

/// Real directories in `folder`: every kind of caching with every engine.
pub fn disks(folder: &tempfile::TempDir) -> Vec<(String, Arc<dyn Directory>)> {
    let mut all: Vec<(String, Arc<dyn Directory>)> = Vec::new();
    for caching in CACHINGS {
        for engine in ENGINES {
            let name = format!("{caching:?} {engine:?}");
            let path = folder.path().join(&name);
            std::fs::create_dir(&path).unwrap();
            all.push((name, Arc::new(DiskDirectory::new(path).with(caching, engine))));
        }
    }
    all
}

/// All kinds of directories. Real ones lie in `folder`.
pub fn directories(folder: &tempfile::TempDir) -> Vec<(String, Arc<dyn Directory>)> {
    let memory = || Arc::new(MemoryDirectory::new());
    let pace = DiskModel { bytes_per_s: 8 << 30, operation_ns: 100, latency_ns: 1000, ..DiskModel::default() };
    let mut all: Vec<(String, Arc<dyn Directory>)> = vec![
        ("memory".into(), memory()),
        ("faulty without faults".into(), Arc::new(FaultInjector::new(memory(), Vec::new()))),
        ("throttled".into(), Arc::new(ThrottledDirectory::new(memory(), pace))),
    ];
    all.extend(disks(folder));
    all
}

/// A transfer of whole blocks: (block in the file, blocks) each, one behind the other in the buffer.
pub fn transfer(direction: Direction, parts: &[(u8, u8)], fill: u8, tag: u64) -> Transfer {
    let blocks: usize = parts.iter().map(|part| usize::from(part.1)).sum();
    let mut buffer = Buffer::new(blocks * BLOCK).unwrap();
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 512) as u8 ^ fill;
    }
    let mut start = 0;
    let extents = parts.iter().map(|&(block, blocks)| {
        let len = usize::from(blocks) * BLOCK;
        start += len;
        Extent { offset: u64::from(block) * BLOCK as u64, start: start - len, len }
    });
    Transfer { direction, extents: extents.collect(), buffer, tag }
}

/// Whole content of a device.
pub fn contents(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xee; device.len().unwrap() as usize];
    assert_eq!(device.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

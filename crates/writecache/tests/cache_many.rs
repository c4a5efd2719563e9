//! Thousands of small files, each a volume of its own, as behind a mount: made, written, truncated, flushed, removed, and their
//! numbers used again.
//!
//! Relies on `MemoryDirectory` for files.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quire_device::{Directory, MemoryDirectory, PowerCut};
use quire_writecache::{AdmissionPolicy, CacheConfig, VolumeId, VolumeLength, VolumeSpec, WriteCache, WriteContext};

use crate::wcache::config;

struct Folder {
    home: MemoryDirectory,
    cache: WriteCache,
    made: u64,
    /// Files by their volume's number: their names and what is in them.
    files: BTreeMap<u64, (String, Vec<u8>)>,
}

fn settings() -> CacheConfig {
    CacheConfig {
        capacity_bytes: 24 << 20,
        low_percent: 60,
        linger: Duration::from_millis(50),
        ..config(AdmissionPolicy::Sync)
    }
}

impl Folder {
    fn new() -> Self {
        let home = MemoryDirectory::with_file("fast", &[]);
        let cache = WriteCache::create(home.open("fast").unwrap(), &[], settings()).unwrap();
        Self { home, cache, made: 0, files: BTreeMap::new() }
    }

    fn spec(home: &MemoryDirectory, number: u64, name: &str) -> VolumeSpec {
        VolumeSpec { id: VolumeId(number), device: home.open(name).unwrap(), growth: VolumeLength::Growable }
    }

    fn make(&mut self, number: u64) {
        self.made += 1;
        let name = format!("file-{}", self.made);
        self.home.put(&name, &[]);
        self.cache.attach(&Self::spec(&self.home, number, &name)).unwrap();
        let bytes = self.made.to_le_bytes().repeat(20 + self.made as usize % 700);
        let context = WriteContext::current();
        let context = if self.made.is_multiple_of(3) { context } else { context.sync() };
        self.cache.write(VolumeId(number), 0, &bytes, &context).unwrap();
        self.files.insert(number, (name, bytes));
    }

    fn flush(&self, number: u64) {
        self.cache.flush(VolumeId(number), &WriteContext::current().sync()).unwrap();
    }

    fn remove(&mut self, number: u64) {
        self.cache.forget(VolumeId(number)).unwrap();
        let (name, _) = self.files.remove(&number).unwrap();
        self.home.remove(&name).unwrap();
    }

    fn check(&self) {
        for (number, (name, bytes)) in &self.files {
            let mut found = vec![0; 8192];
            let got = self.cache.read(VolumeId(*number), 0, &mut found).unwrap();
            assert!(found[..got] == bytes[..], "{name} is not what was written");
        }
    }

    fn crash(self) -> Self {
        let home = self.home.after_power_cut(PowerCut::LoseAll);
        drop(self.cache);
        let specs: Vec<_> = self.files.iter().map(|(number, (name, _))| Self::spec(&home, *number, name)).collect();
        let cache = WriteCache::open(home.open("fast").unwrap(), &specs, settings()).unwrap();
        assert_eq!(cache.report().unattached, [], "the log names a file that is gone");
        Self { home, cache, ..self }
    }
}

#[test]
fn files_come_and_go_by_the_thousand() {
    let mut folder = Folder::new();
    let count = std::env::var("QUIRE_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(800_u64);
    let began = Instant::now();
    for number in 0..count {
        folder.make(number);
        folder.flush(number);
    }
    for number in (0..count).step_by(3) {
        folder.cache.set_len(VolumeId(number), 100, &WriteContext::current()).unwrap();
        folder.files.get_mut(&number).unwrap().1.truncate(100);
        folder.flush(number);
    }
    for number in (0..count).step_by(2) {
        folder.remove(number);
        if number.is_multiple_of(4) {
            folder.make(number);
            folder.flush(number);
        }
    }
    let took = began.elapsed();
    folder.check();
    let folder = folder.crash();
    folder.check();
    folder.cache.drain().unwrap();
    for (name, bytes) in folder.files.values() {
        assert!(folder.home.bytes(name).unwrap() == *bytes, "{name} itself is not what was written");
    }
    println!("{count} files in {took:?}");
    folder.cache.close().unwrap();
}

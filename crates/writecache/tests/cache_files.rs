//! Files that grow, are truncated and go, through the write cache: whatever is done to them, and whenever the power goes,
//! each byte is one that it was given since it was last made durable.
//!
//! Relies on `MemoryDirectory` for power cuts: log and files lie in one home, so that one moment can be kept of both.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use quire_device::{Device, Directory, IoGate, MemoryDirectory, PowerCut};
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheError, ContentKind, CriticalReason, CriticalScope, VolumeId, VolumeLength,
    VolumeSpec, WriteCache, WriteContext, critical,
};

use crate::wcache::{BLOCK, FileModel, config, read_all};

/// What is done to a file.
#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, len: usize, value: u8, is_sync: bool },
    SetLen(u64),
    Flush,
    Critical(bool),
    Drain,
    Reopen,
    Crash(u8),
    Replace,
    Read,
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let write = (0u64..40_000, 1usize..12_000, any::<u8>(), any::<bool>())
        .prop_map(|(offset, len, value, is_sync)| Step::Write { offset, len, value, is_sync });
    let step = prop_oneof![
        8 => write,
        4 => (0u64..40_000).prop_map(Step::SetLen),
        1 => (0u64..10).prop_map(|blocks| Step::SetLen(blocks * BLOCK as u64)),
        4 => Just(Step::Flush),
        2 => any::<bool>().prop_map(Step::Critical),
        1 => Just(Step::Drain),
        1 => Just(Step::Reopen),
        3 => any::<u8>().prop_map(Step::Crash),
        1 => Just(Step::Replace),
        3 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..most)
}

/// A file, and everything that it may be after a power cut.
struct World {
    home: MemoryDirectory,
    cache: Option<WriteCache>,
    settings: CacheConfig,
    critical: Option<CriticalScope>,
    number: u64,
    model: FileModel,
}

impl World {
    fn new(settings: CacheConfig) -> Self {
        let home = MemoryDirectory::new();
        home.put("fast", &[]);
        home.put("file-0", &[]);
        let mut world =
            Self { home, cache: None, settings, critical: None, number: 0, model: FileModel::holding(Vec::new()) };
        let (fast, files) = (world.fast(), [world.file()]);
        world.cache = Some(WriteCache::create(fast, &files, world.settings.clone()).unwrap());
        world
    }

    fn fast(&self) -> Arc<dyn Device> {
        self.home.open("fast").unwrap()
    }

    fn file(&self) -> VolumeSpec {
        // Every second file has the number of one that is gone.
        let name = format!("file-{}", self.number);
        VolumeSpec { id: self.id(), device: self.home.open(&name).unwrap(), growth: VolumeLength::Growable }
    }

    fn id(&self) -> VolumeId {
        VolumeId(10 + self.number % 2)
    }

    fn cache(&self) -> &WriteCache {
        self.cache.as_ref().expect("it is open")
    }

    fn open(&mut self) {
        let cache = WriteCache::open(self.fast(), &[self.file()], self.settings.clone());
        self.cache = Some(cache.expect("what a crash leaves can be opened"));
    }

    fn read(&self) -> Vec<u8> {
        read_all(self.cache(), self.id())
    }

    fn take(&mut self, step: &Step) {
        let context = WriteContext::current();
        match *step {
            Step::Write { offset, len, value, is_sync } => {
                // Logs are written over with what is there already now and then, zeros among it.
                let is_log = value % 2 == 0;
                let bytes = vec![if is_log { value % 4 } else { value }; len];
                let context = if is_sync { context.sync() } else { context };
                let context = if is_log { context.content(ContentKind::Log) } else { context };
                self.cache().write(self.id(), offset, &bytes, &context).unwrap();
                self.model.write(offset, &bytes);
            }
            Step::SetLen(len) => {
                self.cache().set_len(self.id(), len, &context).unwrap();
                self.model.set_len(len);
            }
            Step::Flush => {
                self.cache().flush(self.id(), &context.sync()).unwrap();
                self.model.settle();
            }
            Step::Critical(on) => {
                let tasks = &self.settings.tasks;
                self.critical = on.then(|| tasks.enter(critical::current(), CriticalReason::Request));
            }
            Step::Drain => {
                self.cache().drain().unwrap();
                self.model.settle();
                let name = format!("file-{}", self.number);
                assert!(
                    self.home.bytes(&name).unwrap() == self.model.newest(),
                    "the file itself is not what was written"
                );
            }
            Step::Reopen => {
                self.cache.take().expect("it is open").close().unwrap();
                self.model.settle();
                self.open();
            }
            Step::Crash(how) => self.crash(how),
            Step::Replace => {
                self.cache().forget(self.id()).unwrap();
                self.number += 1;
                self.home.put(&format!("file-{}", self.number), &[]);
                let file = self.file();
                self.cache().attach(&file).unwrap();
                self.model = FileModel::holding(Vec::new());
            }
            Step::Read => assert!(self.read() == self.model.newest(), "what is read is not what was written"),
        }
    }

    fn crash(&mut self, how: u8) {
        let cut = match how % 4 {
            0 => PowerCut::LoseAll,
            1 => PowerCut::KeepAll,
            _ => PowerCut::KeepSome(u64::from(how)),
        };
        let home = self.home.after_power_cut(cut);
        drop(self.cache.take());
        self.home = home;
        self.open();
        let found = self.read();
        self.model.check(&found);
        // What can be read is durable once it has been flushed.
        self.cache().flush(self.id(), &WriteContext::current().sync()).unwrap();
        self.model = FileModel::holding(found);
    }
}

fn cases() -> u32 {
    std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn no_byte_of_a_file_is_ever_older_than_its_last_flush(steps in steps(40), policy in 0usize..6, small in any::<bool>()) {
        let settings = CacheConfig {
            linger: Duration::from_millis(if small { 0 } else { 1000 }),
            capacity_bytes: if small { 272 << 10 } else { 1 << 20 },
            queue_bytes: 64 << 10,
            low_percent: if small { 5 } else { 100 },
            ..config(AdmissionPolicy::EVERY[policy])
        };
        let mut world = World::new(settings);
        for step in &steps {
            world.take(step);
        }
        world.take(&Step::Read);
        world.take(&Step::Drain);
    }
}

fn world(policy: AdmissionPolicy) -> World {
    World::new(config(policy))
}

fn write(offset: u64, len: usize, value: u8, is_sync: bool) -> Step {
    Step::Write { offset, len, value, is_sync }
}

#[test]
fn a_truncation_that_is_not_durable_keeps_later_writes_out_of_the_log() {
    let mut world = world(AdmissionPolicy::All);
    for step in [write(0, 10_000, 1, true), Step::Drain, Step::SetLen(0), write(0, 100, 2, true), Step::Flush] {
        world.take(&step);
    }
    // The file had 10,000 bytes; had only the log been durable, it would have them again.
    world.take(&Step::Crash(0));
    assert_eq!(world.read().len(), 100);
}

#[test]
fn a_truncation_within_a_cached_block_and_growth_after_it_show_zeros_even_after_a_crash() {
    let mut world = world(AdmissionPolicy::Sync);
    for step in [write(0, 9000, 7, true), Step::Flush, Step::SetLen(5000), Step::Crash(0), Step::SetLen(9000)] {
        world.take(&step);
    }
    assert_eq!(world.read(), [vec![7; 5000], vec![0; 4000]].concat());
    world.take(&Step::Crash(1));
    world.take(&Step::Drain);
}

#[test]
fn a_truncation_in_the_log_does_not_undo_a_later_one_on_the_device_alone() {
    let mut world = world(AdmissionPolicy::Critical);
    let (critical, idle) = (Step::Critical(true), Step::Critical(false));
    // A truncation that the log knows, of everything that it knows; then one that it does not know, and a write that it does.
    for step in [critical.clone(), write(8192, 9000, 1, true), idle, Step::SetLen(8192), write(0, 20_000, 2, false)] {
        world.take(&step);
    }
    for step in [Step::Flush, Step::SetLen(5000), Step::Flush, critical, write(0, 10, 3, true), Step::Crash(0)] {
        world.take(&step);
    }
    assert_eq!(world.read().len(), 5000);
}

#[test]
fn a_truncation_of_the_device_alone_is_durable_before_one_that_the_log_holds() {
    for (how, is_flushed_between) in [(0, true), (0, false), (1, true), (2, true), (2, false)] {
        let mut world = world(AdmissionPolicy::All);
        // The log knows nothing of the file when it is truncated, and something when it grows over what was cut off.
        let mut steps = vec![write(0, 20_000, 1, true), Step::Drain, Step::SetLen(5000), write(0, 10, 2, true)];
        steps.extend(is_flushed_between.then_some(Step::Flush));
        steps.extend([Step::SetLen(12_000), Step::Flush, Step::Crash(how)]);
        for step in &steps {
            world.take(step);
        }
        let wanted = [vec![2; 10], vec![1; 4990], vec![0; 7000]].concat();
        assert!(world.read() == wanted, "power cut {how}, flushed between: {is_flushed_between}");
        world.take(&Step::Drain);
    }
}

#[test]
fn zeros_that_make_a_log_longer_are_written_though_they_change_no_block() {
    for is_sync in [true, false] {
        let mut world = world(AdmissionPolicy::All);
        for step in [write(0, 100, 0, is_sync), write(100, 50, 0, is_sync), Step::Flush, Step::Crash(0)] {
            world.take(&step);
        }
        assert_eq!(world.read().len(), 150);
    }
}

#[test]
fn what_a_log_ends_with_is_not_written_again() {
    let mut world = world(AdmissionPolicy::Wal);
    for step in [write(0, 8192, 2, true), write(0, 8192, 2, true), Step::Flush] {
        world.take(&step);
    }
    let stats = world.cache().stats();
    assert_eq!((stats.logged_bytes, stats.unchanged_bytes), (8192, 8192));
    world.take(&Step::Crash(0));
    assert_eq!(world.read(), vec![2; 8192]);
}

#[test]
fn a_file_ends_no_further_than_its_last_durable_block() {
    let mut world = world(AdmissionPolicy::Sync);
    // The second write is not durable; the log must not claim its length.
    for step in [write(0, 100, 1, true), write(50_000, 10, 2, false), write(100, 50, 3, true), Step::Crash(0)] {
        world.take(&step);
    }
    assert_eq!(world.read().len(), BLOCK);
}

/// Truncates a file to 5000 bytes while a write of 10,000 is on its way to it, from memory or from the log.
fn truncation_during_a_write(settings: CacheConfig, is_sync: bool) {
    let home = MemoryDirectory::with_file("fast", &[]);
    home.put("file", &[]);
    let gate = IoGate::default();
    gate.close();
    let device = gate.before(home.open("file").unwrap());
    let file = VolumeSpec { id: VolumeId(1), device, growth: VolumeLength::Growable };
    let cache = WriteCache::create(home.open("fast").unwrap(), &[file], settings).unwrap();
    let context = WriteContext { is_sync, ..WriteContext::current() };
    cache.write(VolumeId(1), 0, &[7; 10_000], &context).unwrap();
    gate.await_arrivals(1);
    std::thread::scope(|threads| {
        let cut = threads.spawn(|| cache.set_len(VolumeId(1), 5000, &WriteContext::current()));
        // Long enough for a truncation that does not wait, which would be undone by what stands before the gate.
        std::thread::sleep(Duration::from_millis(30));
        gate.open();
        cut.join().unwrap().unwrap();
    });
    assert!(read_all(&cache, VolumeId(1)) == [7; 5000]);
    cache.drain().unwrap();
    let found = home.bytes("file").unwrap();
    assert!(found == [7; 5000], "the file has {} bytes", found.len());
}

#[test]
fn a_write_under_way_does_not_make_a_file_long_again_that_was_cut_meanwhile() {
    truncation_during_a_write(CacheConfig { linger: Duration::ZERO, ..config(AdmissionPolicy::Critical) }, false);
}

#[test]
fn write_back_does_not_make_a_file_long_again_that_was_cut_meanwhile() {
    truncation_during_a_write(CacheConfig { low_percent: 0, ..config(AdmissionPolicy::Sync) }, true);
}

#[test]
fn an_unknown_volume_and_one_that_is_gone_are_named() {
    let world = world(AdmissionPolicy::Sync);
    let (cache, id) = (world.cache(), world.id());
    assert_eq!(cache.forget(VolumeId(99)), Ok(()));
    cache.forget(id).unwrap();
    assert_eq!(cache.set_len(id, 5, &WriteContext::current()), Err(CacheError::Unattached(id)));
    assert_eq!(cache.flush(id, &WriteContext::current()), Err(CacheError::Unattached(id)));
    let far = cache.write(id, u64::MAX - 3, &[1; 10], &WriteContext::current());
    assert!(far.is_err());
}

//! A volume that refuses everything, with others beside it in the log: these go on however long, the refused one's writers are
//! told once it has its share, and nothing that was acknowledged is lost, whenever the power goes or the log's device fails.
//!
//! Relies on `MemoryDirectory` for steps and `FaultInjector` for refusals. The cache's threads make histories differ a
//! little from run to run; every sweep is longer than the history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{
    Device, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno,
};
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheError, VolumeId, VolumeLength, VolumeSpec, WriteCache, WriteContext,
};

use crate::wcache::{BLOCK, FileModel, config, read_all};

const REFUSED: VolumeId = VolumeId(3);
const OTHER: VolumeId = VolumeId(5);
/// Of the log of [`settings`].
const LOG_BYTES: u64 = 256 << 10;

fn sync() -> WriteContext {
    WriteContext::current().sync()
}

fn settings() -> CacheConfig {
    let capacity_bytes = LOG_BYTES + 8192;
    let (granule_bytes, linger, low_percent) = (Some(4096), Duration::ZERO, 10);
    CacheConfig { capacity_bytes, granule_bytes, linger, low_percent, ..config(AdmissionPolicy::All) }
}

/// The fast device, and two files on the slow side.
#[derive(Clone)]
struct Homes {
    fast: MemoryDirectory,
    slow: MemoryDirectory,
}

impl Homes {
    fn new(one: bool) -> Self {
        let slow = MemoryDirectory::new();
        let fast = if one { slow.clone() } else { MemoryDirectory::new() };
        fast.put("fast", &[]);
        slow.put("refused", &[1; 3 * BLOCK]);
        slow.put("other", &[1; 3 * BLOCK]);
        Self { fast, slow }
    }

    fn fast(&self) -> Arc<dyn Device> {
        self.fast.open("fast").unwrap()
    }

    fn other(&self) -> VolumeSpec {
        VolumeSpec { id: OTHER, device: self.slow.open("other").unwrap(), growth: VolumeLength::Growable }
    }

    fn refused(&self, rules: Vec<(FaultTrigger, InjectedFault)>) -> VolumeSpec {
        let device = FaultInjector::new(Arc::new(self.slow.clone()), rules).open("refused").unwrap();
        VolumeSpec { id: REFUSED, device, growth: VolumeLength::Growable }
    }

    /// Both files, of which one takes nothing.
    fn specs(&self, errno: i32) -> Vec<VolumeSpec> {
        let refuse = |action| (FaultTrigger::From(action, 0), InjectedFault::Error(errno));
        vec![self.refused(vec![refuse(DeviceOperation::Write), refuse(DeviceOperation::Length)]), self.other()]
    }

    fn sound(&self) -> Vec<VolumeSpec> {
        vec![self.refused(Vec::new()), self.other()]
    }

    fn after(&self, cut: PowerCut) -> Self {
        let slow = self.slow.after_power_cut(cut);
        let fast = self.fast.after_power_cut(cut);
        if fast.bytes("other").is_some() { Self { fast: slow.clone(), slow } } else { Self { fast, slow } }
    }
}

/// What both files may hold.
struct Models {
    refused: FileModel,
    other: FileModel,
}

impl Models {
    fn new() -> Self {
        let begins = || FileModel::holding(vec![1; 3 * BLOCK]);
        Self { refused: begins(), other: begins() }
    }

    fn of(&mut self, id: VolumeId) -> &mut FileModel {
        if id == REFUSED { &mut self.refused } else { &mut self.other }
    }

    /// A write of which the program is told that it is durable.
    fn put(&mut self, cache: &WriteCache, id: VolumeId, offset: usize, bytes: &[u8]) -> Result<(), CacheError> {
        self.of(id).write(offset as u64, bytes);
        let ticket = cache.write(id, offset as u64, bytes, &sync())?;
        cache.wait(&ticket, &sync())?;
        self.of(id).settle();
        Ok(())
    }

    fn set_len(&mut self, cache: &WriteCache, id: VolumeId, len: usize) -> Result<(), CacheError> {
        self.of(id).set_len(len as u64);
        cache.set_len(id, len as u64, &sync())?;
        cache.flush(id, &sync())?;
        self.of(id).settle();
        Ok(())
    }

    fn check(&self, cache: &WriteCache) {
        self.refused.check(&read_all(cache, REFUSED));
        self.other.check(&read_all(cache, OTHER));
    }

    /// Opened with files that take everything, the cache has all of it, and brings it there.
    fn check_reopened(&self, homes: &Homes, what: &str) {
        let cache = match WriteCache::open(homes.fast(), &homes.sound(), settings()) {
            Ok(cache) => cache,
            // The power went before there was a cache.
            Err(CacheError::Recover { .. }) if self.other.newest() == [1; 3 * BLOCK] => return,
            Err(error) => panic!("{what}: {error}"),
        };
        self.check(&cache);
        let held = [REFUSED, OTHER].map(|id| read_all(&cache, id));
        cache.drain().unwrap_or_else(|error| panic!("{what}: {error}"));
        for (name, held) in ["refused", "other"].into_iter().zip(held) {
            assert!(homes.slow.bytes(name).unwrap() == held, "{what}: {name}");
        }
    }
}

/// Several laps of the log: mostly of the other file, now and then of the refused one, which is truncated, too.
fn history(cache: &WriteCache, models: &mut Models, rounds: usize) -> Result<(), CacheError> {
    models.put(cache, REFUSED, 0, &[2; 2 * BLOCK])?;
    models.put(cache, REFUSED, 2 * BLOCK + 100, &[3; BLOCK])?;
    for round in 0..rounds {
        models.put(cache, OTHER, round % 3 * BLOCK + 7 * (round % 2), &[10_u8.wrapping_add(round as u8); BLOCK])?;
        match round % 24 {
            5 => models.put(cache, REFUSED, BLOCK + 50, &[100_u8.wrapping_add(round as u8); 100])?,
            11 => models.set_len(cache, REFUSED, BLOCK + 1000)?,
            12 => models.set_len(cache, REFUSED, BLOCK / 2)?,
            17 => models.put(cache, REFUSED, 2 * BLOCK, &[150_u8.wrapping_add(round as u8); BLOCK + 10])?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn others_go_on_for_ten_laps_of_the_log_beside_a_file_that_refuses_everything() {
    for errno in [errno::EIO, errno::ENOSPC] {
        let homes = Homes::new(false);
        let cache = WriteCache::create(homes.fast(), &homes.specs(errno), settings()).unwrap();
        let mut models = Models::new();
        let done = history(&cache, &mut models, 10 * (LOG_BYTES as usize / (2 * BLOCK)));
        assert!(done.is_ok(), "{done:?} {:?} {:?}", cache.progress(), cache.stats());
        models.check(&cache);
        let stats = cache.stats();
        assert!(stats.relocated_bytes > 20 * BLOCK as u64, "{} bytes", stats.relocated_bytes);
        assert!(stats.relocated_bytes < 3 * stats.logged_bytes, "{stats:?}");
        assert!(stats.refused_blocks <= 4 || errno == errno::ENOSPC, "{}", stats.refused_blocks);
        // The device is dead, or is being tried again just now.
        assert!(homes.slow.bytes("refused").unwrap() == [1; 3 * BLOCK], "it took nothing");
        drop(cache);
        models.check_reopened(&homes, "opened again");
    }
}

#[test]
fn a_file_that_is_not_attached_because_it_refuses_holds_up_no_other() {
    let homes = Homes::new(false);
    let cache = WriteCache::create(homes.fast(), &homes.specs(errno::EIO), settings()).unwrap();
    let mut models = Models::new();
    history(&cache, &mut models, 40).unwrap();
    drop(cache);
    let cache = WriteCache::open(homes.fast(), &[homes.other()], settings()).unwrap();
    assert_eq!(cache.report().unattached, [REFUSED]);
    for round in 0..200 {
        models.put(&cache, OTHER, round % 3 * BLOCK, &[round as u8; BLOCK]).unwrap();
    }
    assert!(cache.stats().relocated_bytes > 0);
    // Found willing after all.
    cache.attach(&homes.sound()[0]).unwrap();
    models.check(&cache);
    drop(cache);
    models.check_reopened(&homes, "opened again");
}

#[test]
fn the_writers_of_a_refused_file_are_told_when_it_has_its_share_and_no_others_are() {
    let homes = Homes::new(false);
    let cache = WriteCache::create(homes.fast(), &homes.specs(errno::EIO), settings()).unwrap();
    let mut models = Models::new();
    let error = (0..500).find_map(|number| {
        models.put(&cache, OTHER, number % 3 * BLOCK, &[number as u8; BLOCK]).unwrap();
        models.put(&cache, REFUSED, number * BLOCK, &[number as u8; BLOCK]).err()
    });
    assert!(matches!(error, Some(CacheError::SlowFull { volume: REFUSED, .. })), "{error:?}");
    let share = cache.stats().refused_blocks;
    assert!(
        (8..24).contains(&share),
        "{share} blocks of two granules in a quarter of 64 granules, and what came before it died"
    );
    for number in 0..200 {
        models.put(&cache, OTHER, number % 5 * BLOCK, &[number as u8; BLOCK]).unwrap();
        if number % 50 == 0 {
            let again = models.put(&cache, REFUSED, 30 * BLOCK, &[9; BLOCK]);
            assert!(matches!(again, Err(CacheError::SlowFull { volume: REFUSED, .. })), "{again:?}");
        }
    }
    models.check(&cache);
    // With less of it, and durable so, there is room again.
    models.refused = FileModel::holding(models.refused.newest()[..BLOCK].to_vec());
    cache.set_len(REFUSED, BLOCK as u64, &sync()).unwrap();
    models.put(&cache, REFUSED, BLOCK, &[77; BLOCK]).unwrap();
    cache.attach(&homes.sound()[0]).unwrap();
    models.check(&cache);
    cache.drain().unwrap();
    assert!(homes.slow.bytes("refused").unwrap() == models.refused.newest());
}

/// The refused file gets its share of the log.
fn fill_share(cache: &WriteCache) {
    let error = (0..500).find_map(|number| {
        let ticket = cache.write(REFUSED, number * BLOCK as u64, &[number as u8; BLOCK], &sync());
        ticket.and_then(|ticket| cache.wait(&ticket, &sync())).err()
    });
    assert!(matches!(error, Some(CacheError::SlowFull { volume: REFUSED, .. })), "{error:?}");
}

#[test]
fn a_full_file_beside_a_refused_one_is_tried_again_until_it_takes_what_it_is_given() {
    const FULL: VolumeId = VolumeId(4);
    let homes = Homes::new(false);
    homes.slow.put("full", &[]);
    let refuse = |number| (FaultTrigger::Nth(DeviceOperation::Write, number), InjectedFault::Error(errno::ENOSPC));
    let injector = FaultInjector::new(Arc::new(homes.slow.clone()), (0..3).map(refuse).collect());
    let full = VolumeSpec { id: FULL, device: injector.open("full").unwrap(), growth: VolumeLength::Growable };
    let specs: Vec<_> = homes.specs(errno::EIO).into_iter().chain([full]).collect();
    let cache = WriteCache::create(homes.fast(), &specs, settings()).unwrap();
    fill_share(&cache);
    // It becomes full, and is tried again every second: each writer is told something, and from some moment on that its block is
    // durable. One such reply proves nothing: the log takes a block of a full file, too, where another block has given it room.
    let put = |block: u64| {
        let ticket = cache.write(FULL, block * BLOCK as u64, &[block as u8; BLOCK], &sync())?;
        cache.wait(&ticket, &sync())
    };
    let begun = Instant::now();
    let (mut told, mut durable_in_a_row) = (0, 0);
    for block in (0..100).cycle() {
        match put(block) {
            // While it is tried again the log can be full, and then the refused file is in the way.
            Err(CacheError::SlowFull { volume: FULL | REFUSED, .. }) => (told, durable_in_a_row) = (told + 1, 0),
            result => {
                assert_eq!(result, Ok(()));
                durable_in_a_row += 1;
            }
        }
        if told > 0 && durable_in_a_row >= 200 && !homes.slow.bytes("full").unwrap().is_empty() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it has taken nothing: {told} writers were told so");
    }
    assert_eq!(put(1), Ok(()), "it has taken something");
    cache.flush(FULL, &sync()).unwrap();
    assert_eq!(read_all(&cache, FULL)[BLOCK..2 * BLOCK], [1; BLOCK]);
}

/// Whether the log has room for the last write, if write-back begins when it is so full.
fn writer_is_told_that_memory_is_full(low_percent: u8) -> bool {
    const SECOND: VolumeId = VolumeId(4);
    let homes = Homes::new(false);
    let second = VolumeSpec { id: SECOND, ..homes.specs(errno::EIO).remove(0) };
    let specs: Vec<_> = homes.specs(errno::EIO).into_iter().chain([second]).collect();
    let config = CacheConfig { policy: AdmissionPolicy::Sync, queue_bytes: 16 * BLOCK, low_percent, ..settings() };
    let cache = WriteCache::create(homes.fast(), &specs, config).unwrap();
    if low_percent < 100 {
        cache.write(REFUSED, 0, &[7; BLOCK], &WriteContext::current()).unwrap();
        while cache.volume_state(REFUSED).unwrap().dead.is_none() {
            std::thread::yield_now();
        }
    }
    fill_share(&cache);
    let later = WriteContext::current();
    let error = (0..100).find_map(|block| cache.write(REFUSED, block * BLOCK as u64, &[7; BLOCK], &later).err());
    assert!(matches!(error, Some(CacheError::SlowFull { volume: REFUSED, .. })), "{error:?}");
    cache.write(SECOND, 0, &[7; 40 * BLOCK], &later).unwrap();
    // It waits until that file has been found to be refused, too.
    let told = cache.write(OTHER, 0, &[8; BLOCK], &later);
    assert!(matches!(told, Err(CacheError::SlowFull { volume: REFUSED | SECOND, .. })), "{told:?}");
    let told = cache.write(OTHER, 0, &[9; BLOCK], &sync()).and_then(|ticket| cache.wait(&ticket, &sync()));
    assert!(matches!(told, Ok(()) | Err(CacheError::SlowFull { volume: REFUSED | SECOND, .. })), "{told:?}");
    told.is_ok()
}

#[test]
fn a_writer_is_told_when_memory_is_full_of_what_refused_files_were_given() {
    assert!(writer_is_told_that_memory_is_full(10), "the refused file has its share, and there is more");
    assert!(
        !writer_is_told_that_memory_is_full(100),
        "the refused file had all of the log when it was found to be refused"
    );
}

#[test]
fn a_refused_file_alone_may_fill_the_log_and_is_not_moved_round_it() {
    let homes = Homes::new(false);
    let cache = WriteCache::create(homes.fast(), &homes.specs(errno::EIO)[..1], settings()).unwrap();
    let mut models = Models::new();
    let error = (0..100).find_map(|number| models.put(&cache, REFUSED, number * BLOCK, &[number as u8; BLOCK]).err());
    assert!(matches!(error, Some(CacheError::SlowFull { volume: REFUSED, .. })), "{error:?}");
    assert!(cache.stats().refused_blocks > 20, "{}", cache.stats().refused_blocks);
    assert!(matches!(cache.drain(), Err(CacheError::SlowFull { .. } | CacheError::Slow { volume: REFUSED, .. })));
    assert_eq!(cache.stats().relocated_bytes, 0, "nothing would be freed by that");
    models.refused.check(&read_all(&cache, REFUSED));
    drop(cache);
    models.check_reopened(&homes, "opened again");
}

/// Every third step, or all of them (`QUIRE_CASES=3`).
fn steps_of_sweep(most: u64) -> impl Iterator<Item = u64> {
    let rounds = std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_u64);
    (0..rounds.min(3)).flat_map(move |round| (round..most).step_by(3))
}

fn sweep(one: bool, off: impl Fn(&Homes, u64), steps: impl Fn(&Homes) -> u64) {
    let (mut relocated, mut is_longer) = (0, false);
    for step in steps_of_sweep(800) {
        let homes = Homes::new(one);
        let before = steps(&homes);
        off(&homes, before + step);
        let mut models = Models::new();
        let created = WriteCache::create(homes.fast(), &homes.specs(errno::EIO), settings());
        let error = match created {
            Ok(cache) => {
                let error = history(&cache, &mut models, 72).err();
                relocated += cache.stats().relocated_bytes;
                error
            }
            Err(_) => continue,
        };
        if steps(&homes) <= before + step {
            assert_eq!(error, None, "step {step}");
            is_longer = true;
            break;
        }
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(step)] {
            models.check_reopened(&homes.after(cut), &format!("step {step}, {cut:?}"));
        }
    }
    assert!(is_longer, "the sweep is shorter than the history");
    assert!(relocated > 0);
}

#[test]
fn the_power_of_both_devices_may_go_at_any_step_of_a_history_with_relocations() {
    sweep(true, |homes, step| homes.fast.power_off_at(step), |homes| homes.fast.steps());
}

#[test]
fn the_power_of_the_fast_device_may_go_at_any_step_of_a_history_with_relocations() {
    sweep(false, |homes, step| homes.fast.power_off_at(step), |homes| homes.fast.steps());
}

#[test]
fn the_log_may_refuse_any_read_or_write_of_a_history_with_relocations() {
    let faults = [
        (DeviceOperation::DurableWrite, InjectedFault::Error(errno::EIO)),
        (DeviceOperation::DurableWrite, InjectedFault::Error(errno::ENOSPC)),
        (DeviceOperation::DurableWrite, InjectedFault::Torn(errno::EIO)),
        (DeviceOperation::Read, InjectedFault::Error(errno::EIO)),
    ];
    for (turn, number) in steps_of_sweep(300).enumerate() {
        let (action, fault) = faults[turn % faults.len()];
        let homes = Homes::new(false);
        let rules = vec![(FaultTrigger::Nth(action, number), fault)];
        let fast = FaultInjector::new(Arc::new(homes.fast.clone()), rules).open("fast").unwrap();
        let Ok(cache) = WriteCache::create(fast, &homes.specs(errno::EIO), settings()) else { continue };
        let mut models = Models::new();
        let error = history(&cache, &mut models, 72).err();
        let told = matches!(error, None | Some(CacheError::Fast(_) | CacheError::Read { .. }))
            || matches!(error, Some(CacheError::SlowFull { volume: REFUSED, .. }));
        assert!(told, "{action:?} {number}: {error:?}");
        drop(cache);
        models.check_reopened(&homes, &format!("{action:?} {number}"));
    }
}

//! One history of a file, with the power going at every single step of either device, or of both, and with every single
//! write refused: nothing that was acknowledged is lost, and no task waits for ever.
//!
//! Relies on `MemoryDirectory` for steps and `FaultInjector` for refusals. The cache's threads make histories differ a
//! little from run to run; every sweep is longer than the history.

use std::sync::Arc;
use std::time::Duration;

use quire_device::{
    Device, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno,
};
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheError, CriticalReason, VolumeId, VolumeLength, VolumeSpec, WriteCache,
    WriteContext, critical,
};

use crate::wcache::{BLOCK, FileModel, config, read_all};

const FILE: VolumeId = VolumeId(3);

/// The homes of the fast and of the slow devices; they may be the same.
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
        slow.put("file", &[1; 3 * BLOCK]);
        slow.put("witness", &[0; 4096]);
        Self { fast, slow }
    }

    fn spec(device: Arc<dyn Device>) -> VolumeSpec {
        VolumeSpec { id: FILE, device, growth: VolumeLength::Growable }
    }

    fn file(&self) -> VolumeSpec {
        Self::spec(self.slow.open("file").unwrap())
    }

    fn fast(&self) -> Arc<dyn Device> {
        self.fast.open("fast").unwrap()
    }

    /// What is left of them when the power is back.
    fn after(&self, cut: PowerCut) -> Self {
        let slow = self.slow.after_power_cut(cut);
        let fast = self.fast.after_power_cut(cut);
        // One home is truncated in one piece.
        if fast.bytes("file").is_some() { Self { fast: slow.clone(), slow } } else { Self { fast, slow } }
    }
}

fn settings(policy: AdmissionPolicy, witness: Option<Arc<dyn Device>>) -> CacheConfig {
    CacheConfig { capacity_bytes: 272 << 10, linger: Duration::ZERO, low_percent: 10, witness, ..config(policy) }
}

/// What the history did, as far as it came.
struct Outcome {
    model: FileModel,
    error: Option<CacheError>,
}

/// Writes, truncations, flushes, by a critical task and by others, up to the first error.
fn history(cache: &WriteCache, config: &CacheConfig) -> Outcome {
    let mut model = FileModel::holding(vec![1; 3 * BLOCK]);
    let error = act(cache, config, &mut model).err();
    // Whatever has failed: this ends, one way or the other.
    let _ = (cache.flush(FILE, &WriteContext::current()), cache.drain());
    Outcome { model, error }
}

fn act(cache: &WriteCache, config: &CacheConfig, model: &mut FileModel) -> Result<(), CacheError> {
    let (now, later) = (WriteContext::current().sync(), WriteContext::current());
    let mut value = 1;
    for round in 0..6_u64 {
        let scope = (round % 2 == 0).then(|| config.tasks.enter(critical::current(), CriticalReason::Request));
        for (offset, len, context) in
            [(round * 3000, 5000, &now), (12_000 - round * 500, 9000, &later), (round * BLOCK as u64, 100, &now)]
        {
            value += 1;
            let bytes = vec![value; len];
            model.write(offset, &bytes);
            cache.write(FILE, offset, &bytes, context)?;
        }
        cache.flush(FILE, &now)?;
        model.settle();
        drop(scope);
        let len = 14_000 - round * 1500;
        model.set_len(len);
        cache.set_len(FILE, len, &now)?;
        if round == 3 {
            cache.drain()?;
            model.settle();
        }
    }
    cache.flush(FILE, &now)?;
    model.settle();
    Ok(())
}

fn check_reopened(homes: &Homes, policy: AdmissionPolicy, outcome: &Outcome, what: &str) {
    let cache = match WriteCache::open(homes.fast(), &[homes.file()], settings(policy, None)) {
        Ok(cache) => cache,
        // The power went before there was a cache.
        Err(error @ CacheError::Recover { .. }) if outcome.model.newest() == [1; 3 * BLOCK] => return drop(error),
        Err(error) => panic!("{what}: {error}"),
    };
    outcome.model.check(&read_all(&cache, FILE));
    cache.drain().unwrap();
}

const POLICIES: [AdmissionPolicy; 3] =
    [AdmissionPolicy::All, AdmissionPolicy::Critical, AdmissionPolicy::CriticalProcessIo];

fn fates(step: u64) -> [PowerCut; 3] {
    [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(step)]
}

/// Every third step under policies in turn; nine rounds (`QUIRE_CASES=9`) give every policy every step.
fn turns(most: u64) -> impl Iterator<Item = (u64, AdmissionPolicy)> {
    let rounds = std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_usize);
    let policy = |round: usize, step: u64| POLICIES[(round / 3 + step as usize / 3) % POLICIES.len()];
    (0..rounds).flat_map(move |round| (round as u64 % 3..most).step_by(3).map(move |step| (step, policy(round, step))))
}

/// Runs the history with the power of a device going at each step in turn.
fn sweep(one: bool, off: impl Fn(&Homes, u64), steps: impl Fn(&Homes) -> u64) {
    for (step, policy) in turns(240) {
        let homes = Homes::new(one);
        let settings = settings(policy, None);
        let before = steps(&homes);
        off(&homes, before + step);
        let Ok(cache) = WriteCache::create(homes.fast(), &[homes.file()], settings.clone()) else { continue };
        let outcome = history(&cache, &settings);
        drop(cache);
        if steps(&homes) <= before + step {
            assert_eq!(outcome.error, None);
            continue;
        }
        for cut in fates(step) {
            check_reopened(&homes.after(cut), policy, &outcome, &format!("{policy}, step {step}, {cut:?}"));
        }
    }
}

#[test]
fn the_power_of_both_devices_may_go_at_any_step() {
    sweep(true, |homes, step| homes.fast.power_off_at(step), |homes| homes.fast.steps());
}

#[test]
fn the_power_of_the_fast_device_may_go_at_any_step() {
    sweep(false, |homes, step| homes.fast.power_off_at(step), |homes| homes.fast.steps());
}

#[test]
fn the_power_of_the_slow_device_may_go_at_any_step() {
    sweep(false, |homes, step| homes.slow.power_off_at(step), |homes| homes.slow.steps());
}

#[test]
fn with_a_witness_the_history_goes_on_without_the_fast_device() {
    for (step, policy) in turns(120) {
        let homes = Homes::new(false);
        let settings = settings(policy, Some(homes.slow.open("witness").unwrap()));
        homes.fast.power_off_at(homes.fast.steps() + step);
        let Ok(cache) = WriteCache::create(homes.fast(), &[homes.file()], settings.clone()) else { continue };
        let outcome = history(&cache, &settings);
        assert_eq!(outcome.error, None, "{policy}, step {step}");
        assert!(read_all(&cache, FILE) == outcome.model.newest(), "{policy}, step {step}");
        cache.drain().unwrap();
        assert!(homes.slow.bytes("file").unwrap() == outcome.model.newest(), "{policy}, step {step}");
    }
}

#[test]
fn a_fast_device_may_fail_to_read_once_and_nothing_is_lost() {
    for (number, policy) in turns(30) {
        let homes = Homes::new(false);
        let settings = settings(policy, Some(homes.slow.open("witness").unwrap()));
        let rules = vec![(FaultTrigger::Nth(DeviceOperation::Read, number), InjectedFault::Error(errno::EIO))];
        let fast = FaultInjector::new(Arc::new(homes.fast.clone()), rules).open("fast").unwrap();
        let cache = WriteCache::create(fast, &[homes.file()], settings.clone()).unwrap();
        let outcome = history(&cache, &settings);
        let told = matches!(outcome.error, None | Some(CacheError::Read { .. }));
        assert!(told, "{policy}, read {number}: {:?}", outcome.error);
        assert_eq!(cache.lost(), [], "{policy}, read {number}");
        outcome.model.check(&read_all(&cache, FILE));
    }
}

#[test]
fn a_slow_device_may_refuse_any_write_or_flush_and_be_replaced() {
    let faults = [
        (DeviceOperation::Write, errno::EIO),
        (DeviceOperation::Write, errno::ENOSPC),
        (DeviceOperation::Flush, errno::EIO),
        (DeviceOperation::Length, errno::EIO),
    ];
    for (number, policy) in turns(30) {
        for (action, errno) in faults {
            let homes = Homes::new(false);
            let settings = settings(policy, None);
            let rules = vec![(FaultTrigger::Nth(action, number), InjectedFault::Error(errno))];
            let spec = Homes::spec(FaultInjector::new(Arc::new(homes.slow.clone()), rules).open("file").unwrap());
            let cache = WriteCache::create(homes.fast(), &[spec], settings.clone()).unwrap();
            let outcome = history(&cache, &settings);
            // The same bytes on a device that works; one that was full works again by itself.
            match cache.attach(&homes.file()) {
                Ok(()) | Err(CacheError::Attached(FILE)) => {}
                Err(error) => panic!("{action:?} {number}, {policy}: {error}"),
            }
            cache.flush(FILE, &WriteContext::current().sync()).unwrap();
            outcome.model.check(&read_all(&cache, FILE));
            cache.drain().unwrap();
            assert!(homes.slow.bytes("file").unwrap() == read_all(&cache, FILE), "{action:?} {number}, {policy}");
        }
    }
}

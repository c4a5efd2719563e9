//! The write cache over devices in memory: what is written is read, and found again after any end.
//!
//! Relies on `MemoryDirectory` for power cuts.

use std::time::Duration;

use proptest::prelude::*;
use quire_device::{Directory, MemoryDirectory, PowerCut};
use quire_writecache::{
    AdmissionPolicy, AdmissionReason, BLOCK_BYTES, CacheConfig, CacheError, ContentKind, VolumeId, VolumeLength,
    VolumeSpec, WaitCause, WriteCache, WriteContext,
};

use crate::wcache::{BLOCK, DATA, Homes, LOG, block, config};

fn sync() -> WriteContext {
    WriteContext::current().sync()
}

fn read(cache: &WriteCache, volume: VolumeId, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let got = cache.read(volume, offset, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

#[test]
fn what_is_written_is_read_under_every_policy_and_closed_caches_keep_it() {
    for policy in AdmissionPolicy::EVERY {
        let homes = Homes::new();
        let cache = homes.create(config(policy));
        let ticket = cache.write(DATA, 0, &block(1), &sync()).unwrap();
        cache.write(DATA, BLOCK as u64, &block(2), &WriteContext::current()).unwrap();
        cache.write(LOG, 5 * BLOCK as u64, &block(3), &sync().content(ContentKind::Log)).unwrap();
        cache.wait(&ticket, &sync()).unwrap();
        assert_eq!(read(&cache, DATA, 0, 2 * BLOCK), [block(1), block(2)].concat(), "{policy}");
        cache.close().unwrap();
        let cache = homes.open(config(policy));
        assert!(cache.report().clean, "{policy}");
        assert_eq!(read(&cache, DATA, 0, 2 * BLOCK), [block(1), block(2)].concat(), "{policy}");
        assert_eq!(read(&cache, LOG, 5 * BLOCK as u64, BLOCK), block(3));
        cache.drain().unwrap();
        assert_eq!(cache.progress().cached_blocks, 0);
        assert_eq!(homes.slow.bytes("data").unwrap()[..BLOCK], block(1));
        assert_eq!(homes.slow.bytes("log").unwrap()[5 * BLOCK..6 * BLOCK], block(3));
    }
}

#[test]
fn an_acknowledged_write_survives_a_crash_and_an_unacknowledged_one_may() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Sync));
    cache.write(DATA, 0, &block(1), &sync()).unwrap();
    cache.write(DATA, 0, &block(2), &sync()).unwrap();
    let lost = Homes {
        fast: homes.fast.after_power_cut(PowerCut::LoseAll),
        slow: homes.slow.after_power_cut(PowerCut::LoseAll),
    };
    drop(cache);
    let cache = lost.open(config(AdmissionPolicy::Sync));
    assert!(!cache.report().clean);
    assert_eq!(cache.report().cached_blocks, 1);
    assert_eq!(read(&cache, DATA, 0, BLOCK), block(2));
}

#[test]
fn odd_offsets_and_lengths_change_only_their_bytes() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Sync));
    cache.write(DATA, 0, &[7; 3 * BLOCK], &sync()).unwrap();
    cache.write(DATA, 4000, &[9; 200], &sync()).unwrap();
    cache.write(DATA, 8192, &[5], &WriteContext::current()).unwrap();
    cache.write(DATA, 100, &[1; 10], &sync()).unwrap();
    let mut expected = vec![7; 3 * BLOCK];
    expected[4000..4200].fill(9);
    expected[8192] = 5;
    expected[100..110].fill(1);
    assert_eq!(read(&cache, DATA, 0, 3 * BLOCK), expected);
    cache.drain().unwrap();
    assert_eq!(homes.slow.bytes("data").unwrap()[..3 * BLOCK], expected);
}

fn growing(homes: &Homes, name: &str) -> VolumeSpec {
    if homes.slow.bytes(name).is_none() {
        homes.slow.put(name, &[]);
    }
    VolumeSpec { id: VolumeId(50), device: homes.slow.open(name).unwrap(), growth: VolumeLength::Growable }
}

#[test]
fn a_file_that_grows_ends_where_its_last_write_ended_through_crashes_and_write_back() {
    for policy in [AdmissionPolicy::Sync, AdmissionPolicy::Wal] {
        let homes = Homes::new();
        let id = VolumeId(50);
        let cache = WriteCache::create(homes.fast(), &[growing(&homes, "file")], config(policy)).unwrap();
        let mut expected = Vec::new();
        for number in 0..40_u8 {
            let bytes = vec![number; 300];
            let ticket = cache.write(id, expected.len() as u64, &bytes, &sync()).unwrap();
            cache.wait(&ticket, &sync()).unwrap();
            expected.extend(bytes);
        }
        let homes = Homes {
            fast: homes.fast.after_power_cut(PowerCut::LoseAll),
            slow: homes.slow.after_power_cut(PowerCut::LoseAll),
        };
        drop(cache);
        let cache = WriteCache::open(homes.fast(), &[growing(&homes, "file")], config(policy)).unwrap();
        assert_eq!(cache.len(id).unwrap(), expected.len() as u64);
        assert_eq!(read(&cache, id, 0, 1 << 20), expected);
        cache.drain().unwrap();
        assert_eq!(homes.slow.bytes("file").unwrap(), expected);
    }
}

#[test]
fn a_truncated_file_stays_truncated_after_a_crash_and_grows_again_with_zeros() {
    let homes = Homes::new();
    let id = VolumeId(50);
    let cache = WriteCache::create(homes.fast(), &[growing(&homes, "file")], config(AdmissionPolicy::Sync)).unwrap();
    cache.write(id, 0, &[1; 10_000], &sync()).unwrap();
    cache.set_len(id, 5000, &sync()).unwrap();
    assert_eq!(read(&cache, id, 0, 1 << 20), [1; 5000]);
    let homes = Homes {
        fast: homes.fast.after_power_cut(PowerCut::LoseAll),
        slow: homes.slow.after_power_cut(PowerCut::LoseAll),
    };
    drop(cache);
    let cache = WriteCache::open(homes.fast(), &[growing(&homes, "file")], config(AdmissionPolicy::Sync)).unwrap();
    assert_eq!(cache.len(id).unwrap(), 5000);
    cache.set_len(id, 9000, &sync()).unwrap();
    let expected = [vec![1; 5000], vec![0; 4000]].concat();
    assert_eq!(read(&cache, id, 0, 1 << 20), expected);
    cache.drain().unwrap();
    assert_eq!(homes.slow.bytes("file").unwrap(), expected);
    cache.forget(id).unwrap();
    assert_eq!(cache.len(id), Err(CacheError::Unattached(id)));
}

#[test]
fn a_forgotten_volume_is_not_replayed_on_a_new_one_of_its_number() {
    let homes = Homes::new();
    let id = VolumeId(50);
    let cache = WriteCache::create(homes.fast(), &[growing(&homes, "file")], config(AdmissionPolicy::Sync)).unwrap();
    cache.write(id, 0, &block(1), &sync()).unwrap();
    cache.forget(id).unwrap();
    drop(cache);
    let cache = WriteCache::open(homes.fast(), &[growing(&homes, "other")], config(AdmissionPolicy::Sync)).unwrap();
    assert_eq!((cache.report().cached_blocks, cache.len(id).unwrap()), (0, 0));
}

#[test]
fn a_log_much_smaller_than_what_is_written_goes_round_and_round() {
    let homes = Homes::new();
    let settings = CacheConfig { capacity_bytes: 300 << 10, low_percent: 25, ..config(AdmissionPolicy::All) };
    let cache = homes.create(settings.clone());
    for round in 0..60_u64 {
        for number in 0..16 {
            let ticket = cache.write(DATA, number * BLOCK as u64, &block((round + number) as u8), &sync()).unwrap();
            if number % 5 == 0 {
                cache.wait(&ticket, &sync()).unwrap();
            }
        }
    }
    cache.flush(DATA, &sync()).unwrap();
    assert!(cache.stats().logged_bytes > 3 * (300 << 10));
    drop(cache);
    let cache = homes.open(settings);
    for number in 0..16 {
        assert_eq!(read(&cache, DATA, number * BLOCK as u64, BLOCK), block((59 + number) as u8));
    }
}

#[test]
fn write_back_comes_by_its_deadline_without_pressure() {
    let homes = Homes::new();
    let settings = CacheConfig { deadline: Duration::from_millis(10), ..config(AdmissionPolicy::Sync) };
    let cache = homes.create(settings);
    cache.write(DATA, 0, &block(1), &sync()).unwrap();
    while cache.progress().cached_blocks > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(homes.slow.bytes("data").unwrap()[..BLOCK], block(1));
    assert_eq!(cache.progress().eta_ms, Some(0));
}

#[test]
fn decisions_and_waits_are_counted_and_traced() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Wal));
    cache.write(LOG, 0, &block(1), &sync().content(ContentKind::Log)).unwrap();
    let ticket = cache.write(DATA, 0, &block(1), &sync()).unwrap();
    cache.wait(&ticket, &sync()).unwrap();
    let stats = cache.stats();
    assert_eq!(stats.reasons[AdmissionReason::Log.index()].blocks, 1);
    assert_eq!(stats.reasons[AdmissionReason::NotCritical.index()].blocks, 1);
    assert_eq!((stats.logged_bytes, stats.direct_bytes), (BLOCK as u64, BLOCK as u64));
    assert!((stats.cached_share() - 0.5).abs() < 1e-9);
    assert_eq!(stats.other_waits[WaitCause::LogWrite as usize].count, 1);
    // Whether the write was there already when it began to wait is chance.
    let waited = |cause: WaitCause| stats.other_waits[cause as usize].count;
    assert!(waited(WaitCause::PendingWrite) + waited(WaitCause::SlowFlush) > 0);
    let reasons: Vec<AdmissionReason> = cache.trace().iter().map(|decision| decision.reason).collect();
    assert_eq!(reasons, [AdmissionReason::Log, AdmissionReason::NotCritical]);
}

#[test]
fn volumes_are_checked() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Sync));
    let unattached = VolumeId(77);
    assert_eq!(cache.write(unattached, 0, &block(1), &sync()), Err(CacheError::Unattached(unattached)));
    let beyond = cache.write(DATA, 63 * BLOCK as u64, &[0; 2 * BLOCK], &sync());
    assert!(matches!(beyond, Err(CacheError::Beyond { .. })));
    assert_eq!(cache.attach(&homes.volumes()[0]), Err(CacheError::Attached(DATA)));
    assert_eq!(read(&cache, DATA, 64 * BLOCK as u64, 10), Vec::<u8>::new());
    cache.close().unwrap();
    let again = WriteCache::create(homes.fast(), &homes.volumes(), config(AdmissionPolicy::Sync));
    assert!(matches!(again, Err(CacheError::Exists { .. })));
    let none = WriteCache::open(
        MemoryDirectory::with_file("x", &[0; 9000]).open("x").unwrap(),
        &[],
        config(AdmissionPolicy::Sync),
    );
    assert!(none.is_err_and(|error| error.to_string().contains("no write cache")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn the_cache_behaves_like_one_array_of_bytes(
        steps in prop::collection::vec((0u64..60_000, 1usize..9000, any::<u8>(), 0u8..8), 1..60),
        policy in 0usize..6,
    ) {
        let homes = Homes::new();
        let settings = CacheConfig { linger: Duration::ZERO, low_percent: 5, ..config(AdmissionPolicy::EVERY[policy]) };
        let mut cache = homes.create(settings.clone());
        let mut model = vec![0; 64 * BLOCK_BYTES];
        for (offset, len, value, how) in steps {
            let context = if how % 2 == 0 { sync() } else { WriteContext::current() };
            cache.write(DATA, offset, &vec![value; len], &context).unwrap();
            model[offset as usize..offset as usize + len].fill(value);
            match how {
                4 => cache.flush(DATA, &sync()).unwrap(),
                5 => cache.drain().unwrap(),
                6 => {
                    cache.close().unwrap();
                    cache = homes.open(settings.clone());
                }
                7 => {
                    cache.flush(DATA, &sync()).unwrap();
                    drop(cache);
                    cache = homes.open(settings.clone());
                }
                _ => {}
            }
            let start = offset as usize / 2;
            prop_assert_eq!(&read(&cache, DATA, start as u64, 20_000)[..], &model[start..start + 20_000]);
        }
        cache.drain().unwrap();
        prop_assert_eq!(homes.slow.bytes("data").unwrap(), model);
    }
}

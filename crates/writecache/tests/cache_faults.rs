//! Devices that fail: nothing is lost in silence, and every writer hears what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{
    Device, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno,
};
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheError, VolumeId, VolumeLength, VolumeSpec, WriteCache, WriteContext,
};

use crate::wcache::{self, BLOCK, DATA, Homes, LOG, block, config};

fn sync() -> WriteContext {
    WriteContext::current().sync()
}

fn read(cache: &WriteCache, offset: u64) -> Vec<u8> {
    let mut bytes = block(0);
    cache.read(DATA, offset, &mut bytes).unwrap();
    bytes
}

/// Waits for what the cache's threads do next.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn faulty(home: &MemoryDirectory, name: &str, rules: Vec<(FaultTrigger, InjectedFault)>) -> Arc<dyn Device> {
    FaultInjector::new(Arc::new(home.clone()), rules).open(name).unwrap()
}

fn witness(homes: &Homes) -> Arc<dyn Device> {
    if homes.slow.bytes("witness").is_none() {
        homes.slow.put("witness", &[0; 4096]);
    }
    homes.slow.open("witness").unwrap()
}

#[test]
fn when_the_slow_device_dies_writes_go_to_the_log_until_it_is_full() {
    for (action, full) in [
        (DeviceOperation::Write, errno::EIO),
        (DeviceOperation::Flush, errno::EIO),
        (DeviceOperation::Write, errno::ENOSPC),
    ] {
        let homes = Homes::new();
        let device = faulty(&homes.slow, "data", vec![(FaultTrigger::From(action, 0), InjectedFault::Error(full))]);
        let volume = VolumeSpec { id: DATA, device, growth: VolumeLength::Fixed };
        let settings = CacheConfig { capacity_bytes: 272 << 10, ..config(AdmissionPolicy::Critical) };
        let cache = WriteCache::create(homes.fast(), &[volume], settings.clone()).unwrap();
        let mut written = 0;
        let error = loop {
            assert!(written < 200, "{action:?}: the log never fills");
            let value = block(written as u8 + 1);
            let ticket = cache.write(DATA, written % 64 * BLOCK as u64, &value, &sync());
            match ticket.and_then(|ticket| cache.wait(&ticket, &sync())) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CacheError::SlowFull { volume: DATA, .. }), "{error}");
        assert!(written > 20, "{written} writes fit");
        assert_eq!(cache.progress().stuck_on, Some(DATA));
        // A new device in its place: everything acknowledged reaches it.
        cache.attach(&homes.volumes()[0]).unwrap();
        cache.drain().unwrap();
        for number in 0..written {
            let at = number as usize % 64 * BLOCK;
            let found = homes.slow.bytes("data").unwrap()[at];
            assert!(found == number as u8 + 1 || found == written as u8 + 1, "write {number} of {written}: {found}");
        }
    }
}

#[test]
fn when_the_fast_device_dies_the_cache_goes_on_without_it() {
    let homes = Homes::new();
    let rules = vec![(FaultTrigger::From(DeviceOperation::DurableWrite, 6), InjectedFault::Error(errno::EIO))];
    let settings = CacheConfig { witness: Some(witness(&homes)), ..config(AdmissionPolicy::Sync) };
    let fast = faulty(&homes.fast, "fast", rules);
    let cache = WriteCache::create(fast, &homes.volumes(), settings.clone()).unwrap();
    for number in 0..12 {
        let ticket = cache.write(DATA, number * BLOCK as u64, &block(number as u8 + 1), &sync()).unwrap();
        cache.wait(&ticket, &sync()).unwrap();
    }
    for number in 0..12 {
        let ticket = cache.write(DATA, number * BLOCK as u64, &block(number as u8 + 100), &sync()).unwrap();
        cache.wait(&ticket, &sync()).unwrap();
        assert_eq!(read(&cache, number * BLOCK as u64), block(number as u8 + 100));
    }
    assert_eq!(cache.lost(), []);
    cache.close().unwrap();
    for number in 0..12 {
        assert_eq!(homes.slow.bytes("data").unwrap()[number * BLOCK], number as u8 + 100);
    }
    // The device comes back with an outdated log.
    let again = WriteCache::open(homes.fast(), &homes.volumes(), settings);
    assert_eq!(again.err(), Some(CacheError::Abandoned));
}

#[test]
fn without_a_witness_what_the_dead_log_held_is_not_overwritten() {
    let homes = Homes::new();
    let rules = vec![(FaultTrigger::From(DeviceOperation::DurableWrite, 3), InjectedFault::Error(errno::EIO))];
    let cache = WriteCache::create(faulty(&homes.fast, "fast", rules), &homes.volumes(), config(AdmissionPolicy::Sync))
        .unwrap();
    let mut refused = None;
    for number in 0..20 {
        let result = cache.write(DATA, number % 2 * BLOCK as u64, &block(number as u8 + 1), &sync());
        match result.and_then(|ticket| cache.wait(&ticket, &sync())) {
            Ok(()) => assert!(refused.is_none()),
            Err(error) => refused = Some((number, error)),
        }
    }
    let (_, error) = refused.expect("the log held these blocks");
    assert!(matches!(error, CacheError::Fast(_)), "{error}");
    // Other blocks may still be written.
    let ticket = cache.write(DATA, 30 * BLOCK as u64, &block(77), &sync()).unwrap();
    cache.wait(&ticket, &sync()).unwrap();
    let acknowledged = homes.slow.bytes("data").unwrap()[0];
    drop(cache);
    let cache = homes.open(config(AdmissionPolicy::Sync));
    assert_eq!(read(&cache, 0)[0], acknowledged, "the log that came back says the same");
    assert_eq!(read(&cache, 30 * BLOCK as u64), block(77));
}

#[test]
fn blocks_that_were_in_a_dead_fast_device_only_are_named_and_refused() {
    let homes = Homes::new();
    let rules = vec![
        (FaultTrigger::From(DeviceOperation::Read, 0), InjectedFault::Error(errno::EIO)),
        (FaultTrigger::From(DeviceOperation::DurableWrite, 4), InjectedFault::Error(errno::EIO)),
    ];
    let settings = CacheConfig { witness: Some(witness(&homes)), ..config(AdmissionPolicy::Sync) };
    let cache = WriteCache::create(faulty(&homes.fast, "fast", rules), &homes.volumes(), settings).unwrap();
    let mut acknowledged = Vec::new();
    for number in 0..8 {
        let result = cache.write(DATA, number * BLOCK as u64, &block(1), &sync());
        if result.and_then(|ticket| cache.wait(&ticket, &sync())).is_ok() {
            acknowledged.push(number);
        }
    }
    until("the end of the salvage", || !cache.lost().is_empty());
    let lost = cache.lost();
    assert!(lost.iter().all(|range| range.volume == DATA));
    let error = cache.write(DATA, 40 * BLOCK as u64, &block(9), &sync()).unwrap_err();
    assert!(matches!(error, CacheError::Lost { volume: DATA, .. }), "{error}");
    let mut bytes = block(0);
    let first = lost[0].offset;
    assert!(matches!(cache.read(DATA, first, &mut bytes), Err(CacheError::Lost { .. })));
    for number in acknowledged {
        let offset = number * BLOCK as u64;
        let named = lost.iter().any(|range| (range.offset..range.offset + range.len).contains(&offset));
        assert!(named || homes.slow.bytes("data").unwrap()[offset as usize] == 1, "block {number} vanished in silence");
    }
    assert_eq!(cache.accept_loss(DATA), lost);
    let ticket = cache.write(DATA, first, &block(5), &sync()).unwrap();
    cache.wait(&ticket, &sync()).unwrap();
    assert_eq!(read(&cache, first), block(5));
}

#[test]
fn a_volume_that_is_not_attached_keeps_its_blocks_in_the_log() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Sync));
    cache.write(DATA, 0, &block(1), &sync()).unwrap();
    drop(cache);
    let cache = WriteCache::open(homes.fast(), &homes.volumes()[1..], config(AdmissionPolicy::Sync)).unwrap();
    assert_eq!(cache.report().unattached, [DATA]);
    assert_eq!(cache.drain(), Err(CacheError::Unattached(DATA)));
    cache.attach(&homes.volumes()[0]).unwrap();
    cache.drain().unwrap();
    assert_eq!(homes.slow.bytes("data").unwrap()[..BLOCK], block(1));
}

#[test]
fn the_wrong_log_is_not_replayed() {
    let (homes, other) = (Homes::new(), Homes::new());
    let settings = CacheConfig { witness: Some(witness(&homes)), ..config(AdmissionPolicy::Sync) };
    let cache = homes.create(settings.clone());
    cache.write(DATA, 0, &block(1), &sync()).unwrap();
    cache.close().unwrap();
    other.create(config(AdmissionPolicy::Sync)).close().unwrap();
    let wrong = WriteCache::open(other.fast(), &homes.volumes(), settings.clone());
    assert!(matches!(wrong.err(), Some(CacheError::WrongLog { .. })));
    let fresh = Homes::new();
    let instead = WriteCache::create(fresh.fast(), &homes.volumes(), settings.clone());
    assert!(matches!(instead.err(), Some(CacheError::LogMissing { .. })), "the other log still holds a block");
    let cache = homes.open(settings.clone());
    cache.drain().unwrap();
    cache.close().unwrap();
    WriteCache::create(fresh.fast(), &homes.volumes(), settings).unwrap();
}

#[test]
fn a_damaged_closed_log_is_refused() {
    let homes = Homes::new();
    let cache = homes.create(config(AdmissionPolicy::Sync));
    cache.write(DATA, 0, &block(1), &sync()).unwrap();
    cache.write(DATA, BLOCK as u64, &block(2), &sync()).unwrap();
    cache.close().unwrap();
    let mut bytes = homes.fast.bytes("fast").unwrap();
    let last = (0..bytes.len()).rev().find(|&at| bytes[at] == 2 && bytes[at - 100] == 2).unwrap();
    bytes[last - 50] ^= 1;
    homes.fast.put("fast", &bytes);
    let error = WriteCache::open(homes.fast(), &homes.volumes(), config(AdmissionPolicy::Sync)).err().unwrap();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(VolumeId(1), DATA);
}

#[test]
fn a_truncation_that_the_dying_log_may_hold_cuts_nothing_off_that_was_written_later() {
    let mut refused = 0;
    for number in 0..40 {
        let homes = Homes::new();
        homes.slow.put("file", &[1; 4 * BLOCK]);
        let file = || VolumeSpec { id: DATA, device: homes.slow.open("file").unwrap(), growth: VolumeLength::Growable };
        // A short record arrives although the device says that it failed, and what is there can be read.
        let rules = vec![(FaultTrigger::Nth(DeviceOperation::DurableWrite, number), InjectedFault::Torn(errno::EIO))];
        let fast = faulty(&homes.fast, "fast", rules);
        let settings = config(AdmissionPolicy::All);
        let Ok(cache) = WriteCache::create(fast, &[file()], settings.clone()) else { continue };
        let Ok(_) = cache.write(DATA, 0, &[2; 3 * BLOCK], &sync()) else { continue };
        if cache.set_len(DATA, BLOCK as u64, &sync()).is_err() {
            refused += 1;
        }
        let later = [3; 2 * BLOCK];
        let written =
            cache.write(DATA, 6 * BLOCK as u64, &later, &sync()).and_then(|ticket| cache.wait(&ticket, &sync()));
        let flushed = written.and_then(|()| cache.flush(DATA, &sync()));
        drop(cache);
        if flushed.is_ok() {
            let cache = WriteCache::open(homes.fast(), &[file()], settings).unwrap();
            let mut found = vec![0; 2 * BLOCK];
            let got = cache.read(DATA, 6 * BLOCK as u64, &mut found).unwrap();
            assert!(got == found.len() && found == later, "write {number} to the log failed: {got} bytes are left");
        }
    }
    assert!(refused > 0, "no write of a truncation's record was the one that failed");
}

#[test]
fn a_truncation_that_finds_no_room_in_the_log_takes_nothing_away() {
    let homes = Homes::new();
    homes.slow.put("file", &[1; 3 * BLOCK]);
    let file = VolumeSpec { id: DATA, device: homes.slow.open("file").unwrap(), growth: VolumeLength::Growable };
    let device = faulty(
        &homes.slow,
        "log",
        vec![(FaultTrigger::From(DeviceOperation::Write, 0), InjectedFault::Error(errno::EIO))],
    );
    let dead = VolumeSpec { id: LOG, device, growth: VolumeLength::Fixed };
    let settings = CacheConfig { capacity_bytes: 264 << 10, granule_bytes: Some(4096), ..config(AdmissionPolicy::All) };
    let cache = WriteCache::create(homes.fast(), &[file, dead], settings).unwrap();
    // So much of the log that it is not worth while to move it along, before its device is known to refuse it.
    for block in 0..22 {
        cache.write(LOG, block * BLOCK as u64, &wcache::block(7), &sync()).unwrap();
    }
    // Write-back stops at the first of these, and the log takes no more.
    let fill = || cache.write(DATA, 0, &[2; BLOCK], &sync()).and_then(|ticket| cache.wait(&ticket, &sync())).err();
    let full = (0..64).find_map(|_| fill());
    assert!(matches!(full, Some(CacheError::SlowFull { volume: LOG, .. })), "{full:?}");
    assert_eq!(cache.progress().stuck_on, Some(LOG));
    cache.write(DATA, 4 * BLOCK as u64, &block(3), &WriteContext::current()).unwrap();
    let refused = cache.set_len(DATA, BLOCK as u64, &sync());
    assert!(matches!(refused, Err(CacheError::SlowFull { volume: LOG, .. })), "{refused:?}");
    // Not flushed yet, but no one has taken it back either.
    assert_eq!(cache.len(DATA).unwrap(), 5 * BLOCK as u64);
    assert!(read(&cache, 4 * BLOCK as u64) == block(3));
    cache.flush(DATA, &sync()).unwrap();
    assert!(homes.slow.bytes("file").unwrap()[4 * BLOCK..] == block(3));
}

#[test]
fn what_a_slow_device_refused_to_cut_off_does_not_come_back_when_the_file_grows() {
    let homes = Homes::new();
    homes.slow.put("file", &[1; 4 * BLOCK]);
    let device = faulty(
        &homes.slow,
        "file",
        vec![(FaultTrigger::Nth(DeviceOperation::Length, 0), InjectedFault::Error(errno::EIO))],
    );
    let file = |device| VolumeSpec { id: DATA, device, growth: VolumeLength::Growable };
    let cache = WriteCache::create(homes.fast(), &[file(device)], config(AdmissionPolicy::All)).unwrap();
    cache.write(DATA, 0, &block(2), &sync()).unwrap();
    // Durable in the log; the device is truncated in the background.
    cache.set_len(DATA, 5000, &sync()).unwrap();
    until("the device's refusal", || cache.volume_state(DATA).unwrap().dead.is_some());
    cache.set_len(DATA, 4 * BLOCK as u64, &sync()).unwrap();
    cache.write(DATA, 4 * BLOCK as u64, &block(3), &sync()).unwrap();
    // A part of a block, of which the rest was cut off.
    cache.write(DATA, 2 * BLOCK as u64 + 100, &[4; 100], &sync()).unwrap();
    let mut wanted = [block(2), vec![1; 5000 - BLOCK], vec![0; 4 * BLOCK - 5000], block(3)].concat();
    wanted[2 * BLOCK + 100..2 * BLOCK + 200].fill(4);
    assert!(wcache::read_all(&cache, DATA) == wanted);
    drop(cache);
    // The log knows of all that the device lacks.
    let cache = WriteCache::open(homes.fast(), &[file(homes.slow.open("file").unwrap())], config(AdmissionPolicy::All))
        .unwrap();
    assert!(wcache::read_all(&cache, DATA) == wanted);
    cache.drain().unwrap();
    assert!(homes.slow.bytes("file").unwrap() == wanted);
}

//! Truncations that a slow device gets later, where something else comes between: devices that are attached anew, logs that
//! die, many truncations at once.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use quire_device::{
    Device, DeviceError, DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, IoGate, Layer,
    LayeredDevice, Transfer, errno,
};
use quire_writecache::{
    AdmissionPolicy, CacheConfig, CacheError, CriticalReason, TaskId, VolumeId, VolumeLength, VolumeSpec, WriteCache,
    WriteContext, critical,
};

use crate::wcache::{self, BLOCK, DATA, Homes, LOG, block, config};

fn sync() -> WriteContext {
    WriteContext::current().sync()
}

/// Waits for what the cache's threads do next.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A device that is full for its second block and stuck for what lies behind it.
struct FullAndStuck {
    stuck: Arc<dyn Device>,
}

impl Layer for FullAndStuck {
    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        match transfer.extents[0].offset / BLOCK as u64 {
            0 => inner.run(transfer),
            1 => Err(DeviceError::from_errno(DeviceOperation::Write, "file", errno::ENOSPC)),
            _ => self.stuck.run(transfer),
        }
    }
}

#[test]
fn a_write_that_was_cut_off_does_not_land_on_a_device_that_was_attached_anew() {
    let homes = Homes::new();
    homes.slow.put("file", &[1; 4 * BLOCK]);
    let file = |device| VolumeSpec { id: DATA, device, growth: VolumeLength::Growable };
    let open = || homes.slow.open("file").unwrap();
    let gate = IoGate::default();
    gate.close();
    let device = LayeredDevice::new(open(), FullAndStuck { stuck: gate.before(open()) });
    let settings = CacheConfig { issuers: 4, linger: Duration::ZERO, ..config(AdmissionPolicy::CriticalProcessIo) };
    let tasks = Arc::clone(&settings.tasks);
    let cache = WriteCache::create(homes.fast(), &[file(device)], settings).unwrap();
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    cache.write(DATA, 2 * BLOCK as u64, &[block(7), block(7)].concat(), &other).unwrap();
    gate.await_arrivals(1);
    let scope = tasks.enter(critical::current(), CriticalReason::Request);
    cache.write(DATA, 0, &block(2), &sync()).unwrap();
    cache.set_len(DATA, 2 * BLOCK as u64, &sync()).unwrap();
    drop(scope);
    cache.write(DATA, BLOCK as u64, &block(3), &other).unwrap();
    until("the full device", || cache.volume_state(DATA).is_some_and(|state| state.dead.is_some()));
    // The same file, opened anew, as a mount does when there is room again.
    std::thread::scope(|threads| {
        let (told, hears) = mpsc::channel();
        let (cache, again) = (&cache, file(open()));
        threads.spawn(move || told.send(cache.attach(&again)).unwrap());
        let early = hears.recv_timeout(Duration::from_millis(200));
        gate.open();
        early.unwrap_or_else(|_| hears.recv().unwrap()).unwrap();
    });
    cache.drain().unwrap();
    until("the end of the write", || cache.volume_state(DATA).is_some_and(|state| state.is_idle));
    cache.set_len(DATA, 6 * BLOCK as u64, &sync()).unwrap();
    cache.drain().unwrap();
    let wanted = [block(2), block(3), vec![0; 4 * BLOCK]].concat();
    assert!(wcache::read_all(&cache, DATA) == wanted, "what was cut off came back");
    assert!(homes.slow.bytes("file").unwrap() == wanted);
}

#[test]
fn a_truncation_that_a_dead_log_may_hold_cuts_nothing_off_that_was_written_once_a_loss_was_accepted() {
    let mut refused = 0;
    for number in 0..40 {
        let homes = Homes::new();
        homes.slow.put("file", &[1; 4 * BLOCK]);
        let file = || VolumeSpec { id: DATA, device: homes.slow.open("file").unwrap(), growth: VolumeLength::Growable };
        // A short record arrives although the device says that it failed, and nothing can be read there until the next mount.
        let rules = vec![
            (FaultTrigger::Nth(DeviceOperation::DurableWrite, number), InjectedFault::Torn(errno::EIO)),
            (FaultTrigger::From(DeviceOperation::Read, 0), InjectedFault::Error(errno::EIO)),
        ];
        let fast = FaultInjector::new(Arc::new(homes.fast.clone()), rules).open("fast").unwrap();
        let settings = config(AdmissionPolicy::All);
        let Ok(cache) = WriteCache::create(fast, &[file()], settings.clone()) else { continue };
        let Ok(_) = cache.write(DATA, 0, &[2; 3 * BLOCK], &sync()) else { continue };
        refused += usize::from(cache.set_len(DATA, BLOCK as u64, &sync()).is_err());
        cache.accept_loss(DATA);
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

/// Notes what a device is asked for.
struct Noted {
    what: &'static str,
    notes: Arc<Mutex<Vec<&'static str>>>,
}

impl Noted {
    fn note(&self) {
        self.notes.lock().unwrap().push(self.what);
    }
}

impl Layer for Noted {
    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        self.note();
        inner.set_len(len)
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.note();
        inner.run(transfer)
    }
}

#[test]
fn a_write_that_a_task_waits_for_does_not_wait_for_the_truncations_of_all_files() {
    const FILES: u64 = 20;
    let homes = Homes::new();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let gate = IoGate::default();
    let file = |number: u64, what| {
        let name = format!("file {number}");
        homes.slow.put(&name, &[1; 2 * BLOCK]);
        let noted = Noted { what, notes: Arc::clone(&notes) };
        let device = LayeredDevice::new(gate.before(homes.slow.open(&name).unwrap()), noted);
        VolumeSpec { id: VolumeId(10 + number), device, growth: VolumeLength::Growable }
    };
    let mut files: Vec<VolumeSpec> = (0..FILES).map(|number| file(number, "cut")).collect();
    files.push(file(FILES, "write"));
    let settings = CacheConfig { issuers: 1, ..config(AdmissionPolicy::CriticalProcessIo) };
    let tasks = Arc::clone(&settings.tasks);
    let cache = WriteCache::create(homes.fast(), &files, settings).unwrap();
    gate.close();
    let scope = tasks.enter(critical::current(), CriticalReason::Request);
    for file in &files[..FILES as usize] {
        cache.write(file.id, 0, &block(2), &sync()).unwrap();
        cache.set_len(file.id, BLOCK as u64, &sync()).unwrap();
    }
    drop(scope);
    gate.await_waiting();
    assert_eq!(cache.stats().open_truncations, FILES);
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    let ticket = cache.write(files[FILES as usize].id, 0, &block(3), &other).unwrap();
    gate.open();
    cache.wait(&ticket, &other).unwrap();
    cache.drain().unwrap();
    let notes = notes.lock().unwrap();
    let before = notes.iter().position(|what| *what == "write").unwrap();
    assert!(before <= 2, "{before} files were truncated before");
    assert_eq!(cache.stats().open_truncations, 0);
}

#[test]
fn a_write_behind_a_truncation_of_which_a_full_log_can_never_be_told_fails_and_does_not_hang() {
    let homes = Homes::new();
    homes.slow.put("file", &[1; 8 * BLOCK]);
    let gate = IoGate::default();
    let device = gate.before(homes.slow.open("file").unwrap());
    let file = VolumeSpec { id: DATA, device, growth: VolumeLength::Growable };
    let rules = vec![(FaultTrigger::From(DeviceOperation::Write, 0), InjectedFault::Error(errno::EIO))];
    let device = FaultInjector::new(Arc::new(homes.slow.clone()), rules).open("log").unwrap();
    let dead = VolumeSpec { id: LOG, device, growth: VolumeLength::Fixed };
    let settings = CacheConfig {
        capacity_bytes: 264 << 10,
        granule_bytes: Some(4096),
        ..config(AdmissionPolicy::CriticalProcessIo)
    };
    let tasks = Arc::clone(&settings.tasks);
    let cache = WriteCache::create(homes.fast(), &[file, dead], settings).unwrap();
    gate.close();
    let other = WriteContext { task: TaskId::external(9), ..sync() };
    let scope = tasks.enter(critical::current(), CriticalReason::Request);
    // So much of the log that it is not worth while to move it along, before its device is found to refuse everything.
    for number in 0..22 {
        cache.write(LOG, number * BLOCK as u64, &block(7), &sync()).unwrap();
    }
    cache.write(LOG, 63 * BLOCK as u64, &block(6), &other).unwrap();
    until("the dead device", || cache.volume_state(LOG).is_some_and(|state| state.dead.is_some()));
    let fill = || cache.write(DATA, 0, &block(2), &sync()).and_then(|ticket| cache.wait(&ticket, &sync())).err();
    assert!(fill().is_none());
    // A record of two granules, as all of them here.
    cache.set_len(DATA, 100, &sync()).unwrap();
    // Write-back stops at the first of these, and the log takes no more.
    let full = (0..64).find_map(|_| fill());
    assert!(matches!(full, Some(CacheError::SlowFull { volume: LOG, .. })), "{full:?}");
    drop(scope);
    gate.open();
    until("the truncation of the device", || cache.stats().open_truncations == 0);
    let (told, hears) = mpsc::channel();
    std::thread::scope(|threads| {
        let (cache, other) = (&cache, &other);
        threads.spawn(move || {
            let written = cache.write(DATA, 4 * BLOCK as u64, &block(3), other);
            told.send(written.and_then(|ticket| cache.wait(&ticket, other))).unwrap();
        });
        // As long as for everything else here: ten seconds were too few on a busy machine, where the answer comes, only late.
        let result = hears.recv_timeout(Duration::from_secs(60));
        // The task that waits for ever goes on when that volume lives.
        let _ = result.is_err().then(|| cache.attach(&homes.volumes()[1]));
        assert!(matches!(result, Ok(Err(CacheError::SlowFull { volume: LOG, .. }))), "{result:?}");
    });
    // Not durable yet, but not taken back either.
    cache.attach(&homes.volumes()[1]).unwrap();
    cache.drain().unwrap();
    assert!(homes.slow.bytes("file").unwrap()[4 * BLOCK..] == block(3));
}

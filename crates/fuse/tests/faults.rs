//! Devices that fail under a mount: programs are told, nothing acknowledged is lost, and a lost fast device is survived.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_device::{Device, DeviceError, DeviceOperation, Layer, LayeredDevice, Transfer, errno};
use quire_writecache::AdmissionPolicy;

use crate::common::{Place, possible, skipped};

/// Makes a device fail while it is told to.
struct Switch {
    fails: Arc<AtomicBool>,
    errno: i32,
}

impl Switch {
    fn check(&self, inner: &dyn Device, action: DeviceOperation) -> Result<(), DeviceError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(DeviceError::from_errno(action, inner.name(), self.errno));
        }
        Ok(())
    }
}

impl Layer for Switch {
    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::Length)?;
        inner.set_len(len)
    }

    fn allocate(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::Allocate)?;
        inner.allocate(len)
    }

    fn read_at(&self, inner: &dyn Device, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        if self.errno == errno::EIO {
            self.check(inner, DeviceOperation::Read)?;
        }
        inner.read_at(offset, into)
    }

    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::Write)?;
        inner.run(transfer)
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::DurableWrite)?;
        inner.write_durable(transfer)
    }

    fn flush(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::Flush)?;
        inner.flush()
    }

    fn flush_data(&self, inner: &dyn Device) -> Result<(), DeviceError> {
        self.check(inner, DeviceOperation::Flush)?;
        inner.flush_data()
    }
}

fn switch(errno: i32) -> (Arc<AtomicBool>, quire_fuse::DeviceWrapper) {
    let fails = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&fails);
    (fails, Arc::new(move |inner| LayeredDevice::new(inner, Switch { fails: Arc::clone(&shared), errno })))
}

fn critical(place: &mut Place) {
    // The name of the process, as the kernel cuts it.
    let name = quire_sys::task::identity(std::process::id()).unwrap().name;
    place.config.critical = vec![name];
}

#[test]
fn with_a_broken_slow_device_critical_writes_go_on_in_the_log_and_reach_it_later() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    critical(&mut place);
    let (fails, wrap) = switch(errno::EIO);
    place.config.wrap_slow = Some(wrap);
    let run = place.mount();
    let mut file = File::create(run.at("f")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.sync_all().unwrap();
    fails.store(true, Ordering::Relaxed);
    file.write_all(&[2; 4096]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    drop(run);
    fails.store(false, Ordering::Relaxed);
    let run = place.mount();
    let mut wanted = vec![1; 4096];
    wanted.extend([2; 4096]);
    assert_eq!(fs::read(run.at("f")).unwrap(), wanted);
    run.end(true);
    assert_eq!(fs::read(place.slow("f")).unwrap(), wanted);
}

#[test]
fn a_file_that_refuses_what_the_log_holds_stops_no_mount_and_loses_nothing() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let (fails, wrap) = switch(errno::EIO);
    place.config.wrap_slow =
        Some(Arc::new(move |inner| if inner.name().ends_with("/refuses") { wrap(inner) } else { inner }));
    let run = place.mount();
    let put = |path: &std::path::Path, byte: u8| {
        let file = File::options().create(true).write(true).truncate(false).open(path).unwrap();
        // A new file's bytes go to the directory with its name, later ones to the log.
        for _ in 0..2 {
            file.write_all_at(&[byte; 8192], 0).unwrap();
            file.sync_all().unwrap();
        }
        file
    };
    drop(put(&run.at("other"), 2));
    let refuses = put(&run.at("refuses"), 1);
    fails.store(true, Ordering::Relaxed);
    // Durable in the log; the directory's file refuses it later.
    refuses.set_len(5000).unwrap();
    refuses.sync_all().unwrap();
    drop((refuses, run));
    for byte in [3, 4] {
        let run = place.mount();
        let refused = &run.mounted().stats()["refused"];
        assert!(refused[0].as_str().unwrap().ends_with("/refuses") && refused[1].is_null(), "{refused}");
        assert_eq!(fs::read(run.at("refuses")).unwrap_err().raw_os_error(), Some(errno::EIO));
        let file = File::options().write(true).open(run.at("refuses")).unwrap();
        assert_eq!(file.write_all_at(&[9], 0).unwrap_err().raw_os_error(), Some(errno::EIO));
        drop(file);
        assert_eq!(fs::read(run.at("other")).unwrap(), [byte - 1; 8192]);
        drop(put(&run.at("other"), byte));
        // Long enough for the mount to let go of files that no program uses.
        std::thread::sleep(std::time::Duration::from_secs(3));
    }
    fails.store(false, Ordering::Relaxed);
    let run = place.mount();
    assert!(run.mounted().stats()["refused"][0].is_null());
    assert_eq!(fs::read(run.at("refuses")).unwrap(), [1; 5000]);
    run.end(true);
    assert_eq!(fs::read(place.slow("refuses")).unwrap(), [1; 5000]);
    assert_eq!(fs::read(place.slow("other")).unwrap(), [4; 8192]);
}

#[test]
fn without_its_fast_device_the_mount_goes_on_with_the_slow_one() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let (fails, wrap) = switch(errno::ENOSPC);
    place.config.wrap_fast = Some(wrap);
    let run = place.mount();
    let mut file = File::create(run.at("f")).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    file.sync_all().unwrap();
    // It still reads, so nothing is lost.
    fails.store(true, Ordering::Relaxed);
    file.write_all(&[2; 8192]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut wanted = vec![1; 8192];
    wanted.extend([2; 8192]);
    assert_eq!(fs::read(run.at("f")).unwrap(), wanted);
    drop(run);
    assert_eq!(fs::read(place.slow("f")).unwrap(), wanted);
}

#[test]
fn when_both_are_lost_the_program_is_told() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let (fast_fails, fast) = switch(errno::EIO);
    let (slow_fails, slow) = switch(errno::EIO);
    (place.config.wrap_fast, place.config.wrap_slow) = (Some(fast), Some(slow));
    let run = place.mount();
    let file = File::create(run.at("f")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    fast_fails.store(true, Ordering::Relaxed);
    slow_fails.store(true, Ordering::Relaxed);
    let written = file.write_all_at(&[2; 4096], 4096);
    let flushed = file.sync_all();
    assert!(written.is_err() || flushed.is_err(), "it was told that its bytes are durable");
    drop(file);
    // Other requests are served all the same.
    assert_eq!(fs::read_dir(run.root()).unwrap().count(), 1);
    drop(run);
}

/// Writes numbered blocks, each flushed, until that fails or there are `most`; how many were acknowledged, and the error.
fn fill(file: &File, most: u64) -> (u64, Option<std::io::Error>) {
    for number in 0..most {
        let block = [number as u8 + 1; BLOCK as usize];
        if let Err(error) = file.write_all_at(&block, number * BLOCK).and_then(|()| file.sync_data()) {
            return (number, Some(error));
        }
    }
    (most, None)
}

const BLOCK: u64 = 256 << 10;

fn holds(path: &std::path::Path, blocks: u64) -> bool {
    let bytes = fs::read(path).unwrap();
    let block = |number: u64| bytes.get((number * BLOCK) as usize..((number + 1) * BLOCK) as usize);
    (0..blocks).all(|number| block(number).is_some_and(|bytes| bytes.iter().all(|&byte| byte == number as u8 + 1)))
}

#[test]
fn when_the_log_is_full_and_the_slow_device_broken_writes_fail_and_none_that_was_acknowledged_is_lost() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let (fails, wrap) = switch(errno::EIO);
    place.config.wrap_slow = Some(wrap);
    let run = place.mount();
    let file = File::create(run.at("f")).unwrap();
    file.sync_all().unwrap();
    fails.store(true, Ordering::Relaxed);
    // The log holds 16 MiB.
    let (acknowledged, error) = fill(&file, 200);
    assert!(acknowledged > 10 && acknowledged < 70, "{acknowledged} of {BLOCK} bytes");
    assert_eq!(error.unwrap().raw_os_error(), Some(errno::EIO));
    drop(file);
    drop(run);
    fails.store(false, Ordering::Relaxed);
    let run = place.mount();
    assert!(holds(&run.at("f"), acknowledged));
    run.end(true);
    assert!(holds(&place.slow("f"), acknowledged));
}

#[test]
fn a_full_slow_device_is_told_before_the_log_takes_what_has_no_room() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let Some(_small) = Small::mount(&place.config.backing) else { return };
    place.config.critical = vec!["*".into()];
    let run = place.mount();
    let file = File::create(run.at("f")).unwrap();
    let (acknowledged, error) = fill(&file, 200);
    assert_eq!(error.unwrap().kind(), std::io::ErrorKind::StorageFull);
    assert!(acknowledged > 10 && acknowledged < 60, "{acknowledged} of {BLOCK} bytes in 16 MiB");
    // What was there can still be written over, and with less of it there is room again.
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    assert!(holds(&run.at("f"), acknowledged));
    file.set_len(4 * BLOCK).unwrap();
    file.sync_all().unwrap();
    let other = File::create(run.at("other")).unwrap();
    assert!(fill(&other, 4).1.is_none());
    drop((file, other));
    run.end(true);
    assert!(holds(&place.slow("f"), 4) && holds(&place.slow("other"), 4));
}

#[test]
fn new_files_that_find_no_room_are_refused_and_the_others_are_whole() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    let Some(_small) = Small::mount(&place.config.backing) else { return };
    let run = place.mount();
    let write = |number: usize| {
        let file = File::create(run.at(&format!("{number}")))?;
        file.write_all_at(&[number as u8; 60_000], 0)?;
        file.sync_all()
    };
    let refused = (0..1000).find_map(|number| write(number).err().map(|error| (number, error)));
    let (number, error) = refused.expect("1000 files of 60 kB don't fit into 16 MiB");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(number > 100, "{number} files of 60 kB in 16 MiB");
    let whole = |path: std::path::PathBuf, number: usize| std::fs::read(path).unwrap() == [number as u8; 60_000];
    assert!((0..number).all(|number| whole(run.at(&format!("{number}")), number)));
    // Where some go another has room.
    (0..20).for_each(|number| std::fs::remove_file(run.at(&format!("{number}"))).unwrap());
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = write(number) {
        assert!(std::time::Instant::now() < limit, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run.end(true);
    assert!((20..=number).all(|number| whole(place.slow(&format!("{number}")), number)));
}

/// A file system of 16 MiB, where one may mount.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(path: &std::path::Path) -> Option<Self> {
        let words = ["-t", "tmpfs", "-o", "size=16m", "tmpfs"];
        let done = std::process::Command::new("mount").args(words).arg(path).status();
        if done.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        skipped("a small file system can't be mounted here");
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = quire_sys::mounts::unmount(&self.0, true);
    }
}

#[test]
fn what_a_full_slow_device_refuses_stays_in_the_log_until_there_is_room() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::Critical] {
        let mut place = Place::new(policy);
        let (fails, wrap) = switch(errno::ENOSPC);
        place.config.wrap_slow = Some(wrap);
        let run = place.mount();
        let file = File::create(run.at("f")).unwrap();
        fails.store(true, Ordering::Relaxed);
        let (acknowledged, error) = fill(&file, 8);
        // Whichever task writes, the log takes what the device doesn't.
        assert_eq!((acknowledged, error.is_none()), (8, true), "{policy}");
        fails.store(false, Ordering::Relaxed);
        drop(file);
        drop(run);
        let run = place.mount();
        assert!(holds(&run.at("f"), acknowledged));
        let again = File::create(run.at("g")).unwrap();
        assert!(fill(&again, 8).1.is_none());
        drop(again);
        run.end(true);
        assert!(holds(&place.slow("f"), acknowledged) && holds(&place.slow("g"), 8));
    }
}

#[test]
fn what_only_a_dead_fast_device_held_is_named_and_never_read_as_something_else() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::All);
    let (fast_fails, fast) = switch(errno::EIO);
    let (slow_fails, slow) = switch(errno::EIO);
    (place.config.wrap_fast, place.config.wrap_slow) = (Some(fast), Some(slow));
    let run = place.mount();
    let file = File::options().read(true).write(true).create_new(true).open(run.at("f")).unwrap();
    file.sync_all().unwrap();
    // What is written next stays in the log for want of anything else.
    slow_fails.store(true, Ordering::Relaxed);
    assert!(fill(&file, 4).1.is_none());
    fast_fails.store(true, Ordering::Relaxed);
    let other = File::create(run.at("g")).unwrap();
    let _ = fill(&other, 1);
    // The kernel has pages of what was written; without them the devices are asked.
    let mut bytes = vec![0; BLOCK as usize];
    quire_sys::file::drop_cache(&file);
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => assert!(bytes.iter().all(|&byte| byte == 1)),
        Err(error) => assert_eq!(error.raw_os_error(), Some(errno::EIO)),
    }
    drop((file, other));
    drop(run);
}

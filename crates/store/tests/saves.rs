//! Saving and bringing back, end to end: real files, writes during saves, failing directories, damaged images.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use quire_device::{
    Device, DeviceError, DeviceOperation, Directory, DiskDirectory, DiskModel, FaultInjector, FaultTrigger,
    InjectedFault, IoGate, ThrottledDirectory, errno,
};
use quire_store::{
    DbId, ExpiryChange, ImageLocation, OpenError, RestoreMode, RestoreStep, SaveError, Store, StoreConfig, hash, string,
};

use crate::common::saves::{DB, FILE, MODES, wait, write};

/// Hashes and draws go alike each time.
const SEED: u64 = 2026;

fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(SEED), ..StoreConfig::default() }
}

/// Some MiB of strings of many sizes, a large hash, and pages that were used and freed again.
fn filled(keys: u32) -> Store {
    let mut store = Store::create(config()).unwrap();
    for number in 0..keys {
        write(&mut store, number, 1);
        hash::set(&mut store, DB, b"hash", format!("field:{number}").as_bytes(), b"value").unwrap();
    }
    for number in (0..keys).step_by(7) {
        store.remove(DB, format!("key:{number}").as_bytes()).unwrap();
    }
    store
}

fn reopened(place: &ImageLocation, mode: RestoreMode) -> Store {
    let (mut store, report) = Store::open(config(), place, mode, false).unwrap();
    assert_eq!(report.mode, Some(mode));
    store.finish_restore().unwrap();
    store
}

#[test]
fn an_image_is_the_data_as_it_was_at_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled(8000);
    for round in 1..4 {
        let digest = store.digest().unwrap();
        store.begin_save(&place).unwrap();
        assert!(matches!(store.begin_save(&place), Err(SaveError::Busy)));
        assert!(matches!(store.save_blocking(&place), Err(SaveError::Busy)));
        for number in 0..8000 {
            write(&mut store, number, round);
        }
        store.flush(DbId(1)).unwrap();
        let summary = wait(&mut store).unwrap();
        assert!(summary.image.pages > 1000 && summary.cut_ns > 0, "{summary:?}");
        assert!(store.poll_save().is_none() && store.save_progress().is_none());
        for mode in MODES {
            assert_eq!(reopened(&place, mode).digest().unwrap(), digest, "round {round} {mode:?}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the image is left");
}

#[test]
fn writes_before_during_and_after_a_mapped_restore_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut model = filled(8000);
    model.save_blocking(&place).unwrap();
    let (mut store, _) = Store::open(config(), &place, RestoreMode::Map, false).unwrap();
    let mut number = 0;
    loop {
        for _ in 0..100 {
            write(&mut store, number % 8000, 9);
            write(&mut model, number % 8000, 9);
            number += 13;
        }
        match store.restore_step(1).unwrap() {
            RestoreStep::Finished => break,
            RestoreStep::Waiting => std::thread::sleep(Duration::from_millis(1)),
            RestoreStep::More => {}
            RestoreStep::Idle => panic!("it was never finished"),
        }
    }
    assert_eq!(store.restore_step(1).unwrap(), RestoreStep::Idle);
    write(&mut store, 1, 77);
    write(&mut model, 1, 77);
    assert_eq!(store.digest().unwrap(), model.digest().unwrap());
}

#[test]
fn a_save_waits_until_what_is_mapped_was_verified() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    filled(8000).save_blocking(&place).unwrap();
    let gate = IoGate::default();
    gate.close_for_reads();
    let gated = ImageLocation::within(gate.before_all(Arc::new(DiskDirectory::new(dir.path()))), FILE);
    let (mut store, _) = Store::open(config(), &gated, RestoreMode::Map, false).unwrap();
    for number in 0..500 {
        write(&mut store, number * 16, 5);
    }
    assert!(matches!(store.begin_save(&place), Err(SaveError::Unverified)));
    gate.open();
    let digest = store.digest().unwrap();
    store.save_blocking(&place).unwrap();
    assert!(store.restore_progress().is_none(), "it waited for the restore");
    assert_eq!(store.digest().unwrap(), digest);
    for mode in MODES {
        assert_eq!(reopened(&place, mode).digest().unwrap(), digest);
    }
    store.begin_save(&place).unwrap();
    wait(&mut store).unwrap();
}

/// A directory that is given up only when the test allows it, or after a minute.
struct KeptDirectory {
    directory: DiskDirectory,
    may_end: Mutex<mpsc::Receiver<()>>,
    was_allowed: mpsc::Sender<bool>,
}

impl Drop for KeptDirectory {
    fn drop(&mut self) {
        let allowed = self.may_end.get_mut().unwrap().recv_timeout(Duration::from_secs(60));
        self.was_allowed.send(allowed.is_ok()).unwrap();
    }
}

impl Directory for KeptDirectory {
    fn path_of(&self, name: &str) -> String {
        self.directory.path_of(name)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.directory.create(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.directory.open(name)
    }

    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.directory.open_to_write(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.directory.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.directory.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.directory.remove(name)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.directory.sync()
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.directory.list()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.directory.free_bytes()
    }
}

#[test]
fn commands_do_not_wait_for_the_end_of_the_thread_that_has_saved() {
    let dir = tempfile::tempdir().unwrap();
    let (allow, may_end) = mpsc::channel();
    let (was_allowed, ended) = mpsc::channel();
    let directory = DiskDirectory::new(dir.path());
    let kept = KeptDirectory { directory, may_end: Mutex::new(may_end), was_allowed };
    let place = ImageLocation::within(Arc::new(kept), FILE);
    let mut store = filled(100);
    store.begin_save(&place).unwrap();
    // From here on the thread alone has the directory, and ends when it has given that up.
    drop(place);
    wait(&mut store).unwrap();
    // It has given up already if it was waited for.
    let _ = allow.send(());
    assert!(ended.recv().unwrap(), "the thread's end was waited for");
    for mode in MODES {
        let saved = reopened(&ImageLocation::new(dir.path(), FILE), mode).digest().unwrap();
        assert_eq!(saved, store.digest().unwrap(), "{mode:?}");
    }
}

#[test]
fn updates_of_large_values_within_the_budget_wait_for_no_save() {
    let dir = tempfile::tempdir().unwrap();
    let gate = IoGate::default();
    let place = ImageLocation::within(gate.before_all(Arc::new(DiskDirectory::new(dir.path()))), FILE);
    let mut store = Store::create(config()).unwrap();
    for number in 0..20_000 {
        hash::set(&mut store, DB, b"hash", format!("field:{number}").as_bytes(), b"value").unwrap();
    }
    string::set(&mut store, DB, b"string", &vec![b'x'; 16 << 20], ExpiryChange::Clear).unwrap();
    let digest = store.digest().unwrap();
    gate.close();
    store.begin_save(&place).unwrap();
    // No write of the save ends until the gate is opened: an update that waited for one would wait until the watch gives up.
    let (done, is_done) = std::sync::mpsc::channel();
    let watched = gate.clone();
    let watch = std::thread::spawn(move || {
        let in_time = is_done.recv_timeout(Duration::from_secs(60)).is_ok();
        watched.open();
        in_time
    });
    for number in 0..40u64 {
        hash::set(&mut store, DB, b"hash", format!("field:{}", number * 499).as_bytes(), b"other").unwrap();
        string::set_range(&mut store, DB, b"string", number * 400_000, b"other").unwrap();
    }
    let stats = store.save_stats();
    done.send(()).unwrap();
    assert!(watch.join().unwrap(), "an update waited for a write of the save: {stats:?}");
    assert!(stats.preimage_bytes_peak > 0, "pages were kept as they were at the cut: {stats:?}");
    wait(&mut store).unwrap();
    assert_ne!(store.digest().unwrap(), digest);
    for mode in MODES {
        assert_eq!(reopened(&ImageLocation::new(dir.path(), FILE), mode).digest().unwrap(), digest, "{mode:?}");
    }
}

#[test]
fn a_damaged_image_is_not_replaced_by_a_save_during_its_restore() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    filled(8000).save_blocking(&place).unwrap();
    damage(&dir.path().join(FILE));
    let before = fs::read(dir.path().join(FILE)).unwrap();
    let gate = IoGate::default();
    gate.close_for_reads();
    let gated = ImageLocation::within(gate.before_all(Arc::new(DiskDirectory::new(dir.path()))), FILE);
    let (mut store, _) = Store::open(config(), &gated, RestoreMode::Map, false).unwrap();
    write(&mut store, 1, 5);
    assert!(matches!(store.begin_save(&place), Err(SaveError::Unverified)));
    gate.open();
    for _ in 0..2 {
        let error = store.save_blocking(&place).unwrap_err();
        assert!(matches!(error, SaveError::NotVerifiable(_)) && error.to_string().contains("region"), "{error}");
        assert!(matches!(store.begin_save(&place), Err(SaveError::Unverified)));
    }
    drop(store);
    assert!(fs::read(dir.path().join(FILE)).unwrap() == before, "the damaged image stays as it was");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_failed_save_leaves_the_old_image_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let good = ImageLocation::new(dir.path(), FILE);
    let mut store = filled(4000);
    store.save_blocking(&good).unwrap();
    let digest = store.digest().unwrap();
    let full = InjectedFault::Error(errno::ENOSPC);
    for trigger in [
        FaultTrigger::Nth(DeviceOperation::Create, 0),
        FaultTrigger::Beyond(1 << 20),
        FaultTrigger::Nth(DeviceOperation::Flush, 0),
    ] {
        let bad = ImageLocation::within(
            Arc::new(FaultInjector::new(Arc::new(DiskDirectory::new(dir.path())), vec![(trigger, full)])),
            FILE,
        );
        store.begin_save(&bad).unwrap();
        write(&mut store, 3, 40);
        let error = wait(&mut store).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{trigger:?}");
        assert_eq!(reopened(&good, RestoreMode::Load).digest().unwrap(), digest);
    }
    store.begin_save(&good).unwrap();
    wait(&mut store).unwrap();
    assert_eq!(reopened(&good, RestoreMode::Map).digest().unwrap(), store.digest().unwrap());
}

#[test]
fn a_cancelled_save_ends_soon_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pace = DiskModel { bytes_per_s: 1 << 20, ..DiskModel::default() };
    let slow =
        ImageLocation::within(Arc::new(ThrottledDirectory::new(Arc::new(DiskDirectory::new(dir.path())), pace)), FILE);
    let mut store = filled(8000);
    store.begin_save(&slow).unwrap();
    assert!(store.save_progress().is_some());
    store.cancel_save();
    assert!(wait(&mut store).unwrap_err().is_cancelled());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    store.begin_save(&slow).unwrap();
    drop(store);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "dropping the store cancels too");
}

#[test]
fn a_store_without_an_image_is_empty_and_leftovers_go() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(format!("{FILE}.tmp-123")), b"half an image").unwrap();
    let (store, report) =
        Store::open(config(), &ImageLocation::new(dir.path(), FILE), RestoreMode::Map, false).unwrap();
    assert_eq!((report.mode, report.keys, store.len(DB)), (None, 0, 0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Changes a byte in the middle of the page that lies furthest back in the data.
fn damage(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut at = file.metadata().unwrap().len() - (64 << 10);
    let mut byte = [0];
    while byte[0] == 0 {
        at -= 512;
        file.read_exact_at(&mut byte, at).unwrap();
    }
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_damaged_region_is_named_and_used_only_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    filled(8000).save_blocking(&place).unwrap();
    damage(&dir.path().join(FILE));
    let error = Store::open(config(), &place, RestoreMode::Load, false).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("region"), "{error}");
    let (mut mapped, _) = Store::open(config(), &place, RestoreMode::Map, false).unwrap();
    let error: OpenError = mapped.finish_restore().unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("region"), "{error}");
    for mode in MODES {
        let (mut store, _) = Store::open(config(), &place, mode, true).unwrap();
        store.finish_restore().unwrap();
        // What is damaged may give errors, but nothing worse.
        for number in 0..8000 {
            let _ = string::get(&mut store, DB, format!("key:{number}").as_bytes());
        }
        let _ = store.digest();
    }
}

fn value_of(store: &mut Store, key: &[u8]) -> Option<Vec<u8>> {
    string::get(store, DB, key).ok().flatten().map(<[u8]>::to_vec)
}

/// Names of the files in `dir` that kept a damaged image.
fn kept(dir: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().contains(".damaged-")).collect()
}

#[test]
fn a_damaged_image_is_kept_when_a_save_replaces_it() {
    for mode in MODES {
        for in_background in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (place, path) = (ImageLocation::new(dir.path(), FILE), dir.path().join(FILE));
            filled(8000).save_blocking(&place).unwrap();
            damage(&path);
            let before = fs::read(&path).unwrap();
            let (mut store, report) = Store::open(config(), &place, mode, true).unwrap();
            store.finish_restore().unwrap();
            assert_eq!(report.damage.len() + store.damaged_regions() as usize, 1, "{mode:?}");
            assert!(kept(dir.path()).is_empty(), "nothing has replaced it yet");
            let full = FaultInjector::new(
                Arc::new(DiskDirectory::new(dir.path())),
                vec![(FaultTrigger::Nth(DeviceOperation::Link, 0), InjectedFault::Error(errno::ENOSPC))],
            );
            let error = store.save_blocking(&ImageLocation::within(Arc::new(full), FILE)).unwrap_err();
            assert!(error.to_string().contains("No space left"), "{error}");
            assert!(fs::read(&path).unwrap() == before, "what can't be kept is not replaced");
            for _ in 0..2 {
                if in_background {
                    store.begin_save(&place).unwrap();
                    wait(&mut store).unwrap();
                } else {
                    store.save_blocking(&place).unwrap();
                }
                let kept = kept(dir.path());
                assert!(kept.len() == 1 && fs::read(&kept[0]).unwrap() == before, "{mode:?}: kept once");
            }
            reopened(&place, mode);
        }
    }
}

#[test]
fn what_is_left_of_a_truncated_image_is_used_only_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let (place, path) = (ImageLocation::new(dir.path(), FILE), dir.path().join(FILE));
    let mut whole = filled(8000);
    let mut saved = filled(8000);
    saved.save_blocking(&place).unwrap();
    let bytes = fs::read(&path).unwrap();
    for mode in MODES {
        // Table and footer are lost, then a part of the data, too.
        for (end, least) in [(bytes.len() - 4096, 6857), (bytes.len() - (2 << 20), 100)] {
            fs::write(&path, &bytes[..end]).unwrap();
            assert!(Store::open(config(), &place, mode, false).unwrap_err().is_damage());
            let (mut store, report) = Store::open(config(), &place, mode, true).unwrap();
            assert_eq!((report.mode, report.damage.len()), (Some(RestoreMode::Load), 1));
            let key = |number: u32| format!("key:{number}").into_bytes();
            let same = (0..8000).filter(|&number| {
                let left = value_of(&mut store, &key(number));
                left.is_some() && left == value_of(&mut whole, &key(number))
            });
            let same = same.count();
            assert!(same >= least, "{same} keys of 6857 are left of {end} bytes of {}", bytes.len());
            store.save_blocking(&place).unwrap();
            let kept = kept(dir.path());
            assert_eq!(fs::read(&kept[0]).unwrap().len(), end);
            fs::remove_file(&kept[0]).unwrap();
        }
    }
}

#[test]
fn a_full_arena_comes_back_and_takes_writes_again() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let small = StoreConfig { max_memory_bytes: 24 << 20, ..config() };
    let mut store = Store::create(small.clone()).unwrap();
    let key = |number: u32| format!("key:{number}").into_bytes();
    let count = (0..)
        .find(|&number| string::set(&mut store, DB, &key(number), &[7; 3000], ExpiryChange::Clear).is_err())
        .unwrap();
    assert!(count > 3000, "{count}");
    let digest = store.digest().unwrap();
    store.save_blocking(&place).unwrap();
    for mode in MODES {
        let (mut store, _) = Store::open(small.clone(), &place, mode, false).unwrap();
        assert!(
            string::set(&mut store, DB, b"one more", &[7; 3000], ExpiryChange::Clear).is_err(),
            "it is as full as it was"
        );
        store.finish_restore().unwrap();
        assert_eq!(store.digest().unwrap(), digest);
        for number in 0..100 {
            assert!(store.remove(DB, &key(number)).unwrap());
        }
        string::set(&mut store, DB, b"one more", &[7; 3000], ExpiryChange::Clear).unwrap();
        store.save_blocking(&place).unwrap();
        store.begin_save(&place).unwrap();
        wait(&mut store).unwrap();
        let digest = store.digest().unwrap();
        let (mut again, _) = Store::open(small.clone(), &place, mode, false).unwrap();
        again.finish_restore().unwrap();
        assert_eq!(again.digest().unwrap(), digest);
        // For the other mode.
        again.remove(DB, b"one more").unwrap();
        for number in 0..100 {
            string::set(&mut again, DB, &key(number), &[7; 3000], ExpiryChange::Clear).unwrap();
        }
        again.save_blocking(&place).unwrap();
    }
}

#[test]
fn an_image_that_needs_more_memory_than_allowed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    filled(8000).save_blocking(&place).unwrap();
    for mode in MODES {
        let small = StoreConfig { max_memory_bytes: 8 << 20, ..config() };
        let error = Store::open(small, &place, mode, false).unwrap_err();
        assert!(!error.is_damage() && error.to_string().contains("memory"), "{error}");
    }
}

#[test]
fn an_image_holds_its_place_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled(100);
    assert_eq!((store.log_position(), store.image_epoch()), (0, 0));
    store.set_log_position(41);
    store.begin_save(&place).unwrap();
    // What is logged after the cut isn't in the image.
    store.set_log_position(50);
    wait(&mut store).unwrap();
    for mode in MODES {
        let found = reopened(&place, mode);
        assert_eq!((found.log_position(), found.image_epoch()), (41, 1));
        assert_eq!(found.dataset(), store.dataset());
    }
}

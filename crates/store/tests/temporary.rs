//! Temporary images: what a reader in this process sees in them, what is left of them, and that saves go on as if there were none.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quire_checkpoint::{Codec, DumpError};
use quire_device::{
    CacheMode, DeviceOperation, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, IoEngine, MemoryDirectory,
    errno,
};
use quire_store::{DbId, ImageLocation, OpenError, RestoreMode, SaveError, Store, StoreConfig, TemporaryImage};

use crate::common::saves::{FILE, MODES, wait, write};

const KEYS: u32 = 6000;

fn config() -> StoreConfig {
    StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        max_deltas: 3,
        seed: Some(2026),
        ..StoreConfig::default()
    }
}

/// About 6 MiB of strings.
fn filled() -> Store {
    let mut store = Store::create(config()).unwrap();
    (0..KEYS).for_each(|number| write(&mut store, number, 1));
    store
}

/// Where images are written in `dir`, and how they are read there.
fn places(dir: &Path) -> (ImageLocation, ImageLocation) {
    let cached = DiskDirectory::new(dir).with(CacheMode::Buffered, IoEngine::Threads);
    (ImageLocation::new(dir, FILE), ImageLocation::within(Arc::new(cached), FILE))
}

fn made(store: &mut Store) -> Result<TemporaryImage, SaveError> {
    loop {
        match store.poll_temporary_image() {
            Some(made) => return made,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn digest(image: TemporaryImage) -> [u8; 20] {
    let (mut store, report) = Store::open_temporary(config(), image).unwrap();
    assert_eq!(report.regions_loaded, 0, "all of it is mapped");
    store.finish_restore().unwrap();
    store.digest().unwrap()
}

#[test]
fn a_temporary_image_is_the_data_at_its_cut_and_has_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let (place, reader) = places(dir.path());
    let mut store = filled();
    // It is not compressed for that: its regions would have to be read before the first command.
    store.set_compression(Some(Codec::Lz4));
    let wanted = store.digest().unwrap();
    store.begin_temporary_image(&place, &reader).unwrap();
    assert!(store.makes_temporary_image() && store.save_progress().is_none());
    (0..KEYS).for_each(|number| write(&mut store, number, 2));
    store.flush(DbId(1)).unwrap();
    let image = made(&mut store).unwrap();
    assert!(!store.makes_temporary_image() && store.poll_temporary_image().is_none());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
    assert_eq!(store.last_image(), None, "it is no save");
    // As often as it is wanted, at the same time, and after the store has gone on.
    let (first, second) = (image.clone(), image);
    assert_eq!((digest(first.clone()), digest(second)), (wanted, wanted));
    drop(store);
    assert_eq!(digest(first), wanted);
}

#[test]
fn what_changed_before_a_temporary_image_is_in_the_next_delta() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let (place, reader) = places(dir.path());
        let mut store = filled();
        store.save_blocking(&place).unwrap();
        let saved = store.last_image();
        (0..20).for_each(|number| write(&mut store, number, 2));
        store.begin_temporary_image(&place, &reader).unwrap();
        (20..40).for_each(|number| write(&mut store, number, 3));
        drop(made(&mut store).unwrap());
        assert_eq!(store.last_image(), saved);
        (40..60).for_each(|number| write(&mut store, number, 4));
        assert!(store.save_blocking(&place).unwrap().image.is_delta);
        let (mut opened, _) = Store::open(config(), &place, mode, false).unwrap();
        opened.finish_restore().unwrap();
        assert_eq!(opened.digest().unwrap(), store.digest().unwrap(), "{mode:?}");
    }
}

#[test]
fn a_temporary_image_and_a_save_wait_for_one_another_and_one_that_blocks_gives_it_up() {
    let dir = tempfile::tempdir().unwrap();
    let (place, reader) = places(dir.path());
    let mut store = filled();
    store.limit_save_rate(1);
    store.begin_temporary_image(&place, &reader).unwrap();
    assert!(matches!(store.begin_save(&place), Err(SaveError::Busy)));
    assert!(matches!(store.begin_temporary_image(&place, &reader), Err(SaveError::Busy)));
    store.cancel_temporary_image();
    assert!(made(&mut store).unwrap_err().is_cancelled());
    store.begin_temporary_image(&place, &reader).unwrap();
    store.save_blocking(&place).unwrap();
    assert!(!store.makes_temporary_image());
    store.begin_save(&place).unwrap();
    assert!(matches!(store.begin_temporary_image(&place, &reader), Err(SaveError::Busy)));
    store.cancel_save();
    assert!(wait(&mut store).unwrap_err().is_cancelled());
    store.begin_temporary_image(&place, &reader).unwrap();
    drop(store);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the image is left");
}

#[test]
fn a_disk_that_is_full_or_can_not_be_mapped_is_told_and_saves_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (place, reader) = places(dir.path());
    let mut store = filled();
    store.save_blocking(&place).unwrap();
    let rules = vec![(FaultTrigger::From(DeviceOperation::Write, 3), InjectedFault::Error(errno::ENOSPC))];
    let disk = Arc::new(DiskDirectory::new(dir.path()));
    let faulty = ImageLocation::within(Arc::new(FaultInjector::new(disk, rules)), FILE);
    store.begin_temporary_image(&faulty, &reader).unwrap();
    let error = made(&mut store).unwrap_err();
    assert!(matches!(&error, SaveError::Dump(DumpError::Device { source, .. }) if source.is_full()), "{error}");
    write(&mut store, 1, 2);
    assert!(store.save_blocking(&place).unwrap().image.is_delta, "the chain goes on");
    let memory = ImageLocation::within(Arc::new(MemoryDirectory::new()), FILE);
    store.begin_temporary_image(&memory, &memory).unwrap();
    let image = made(&mut store).unwrap();
    let error = Store::open_temporary(config(), image).unwrap_err();
    assert!(matches!(error, OpenError::Image(_)), "{error}");
}

#[test]
fn what_a_killed_process_leaves_of_a_temporary_image_is_removed_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (place, reader) = places(dir.path());
    let mut store = filled();
    store.save_blocking(&place).unwrap();
    store.limit_save_rate(1);
    store.begin_temporary_image(&place, &reader).unwrap();
    let names = || fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
    let written = loop {
        match names().into_iter().find(|name| name != FILE) {
            Some(name) => break name,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    drop(store);
    assert_eq!(names(), [FILE]);
    fs::write(dir.path().join(written), b"half an image").unwrap();
    drop(Store::open(config(), &place, RestoreMode::Load, false).unwrap());
    assert_eq!(names(), [FILE]);
}

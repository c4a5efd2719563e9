//! Incremental saves, end to end: deltas over an image on real files, restarts from them, compaction, failures.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use quire_checkpoint::Codec;
use quire_checkpoint::DumpError;
use quire_device::{
    Buffer, DeviceOperation, Direction, Directory, DiskDirectory, Extent, FaultInjector, FaultTrigger, InjectedFault,
    MemoryDirectory, PowerCut, Transfer, errno,
};
use quire_store::{ExpiryChange, ImageLocation, RestoreMode, SaveError, Store, StoreConfig, string};

use crate::common::saves::{DB, FILE, MODES, wait, write};

const KEYS: u32 = 6000;

/// Hashes and draws go alike each time.
const SEED: u64 = 2026;

fn config() -> StoreConfig {
    StoreConfig {
        max_memory_bytes: 64 << 20,
        budget_bytes: 1 << 20,
        max_deltas: 3,
        seed: Some(SEED),
        ..StoreConfig::default()
    }
}

/// About 6 MiB of strings.
fn filled() -> Store {
    let mut store = Store::create(config()).unwrap();
    (0..KEYS).for_each(|number| write(&mut store, number, 1));
    store
}

fn opened(place: &ImageLocation, mode: RestoreMode) -> Store {
    let (mut store, report) = Store::open(config(), place, mode, false).unwrap();
    assert_eq!((report.mode, report.damage.len()), (Some(mode), 0));
    store.finish_restore().unwrap();
    store
}

/// Saves, and says whether it was a delta.
fn saves_delta(store: &mut Store, place: &ImageLocation) -> bool {
    store.save_blocking(place).unwrap().image.is_delta
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn saves_are_deltas_until_they_are_too_many_and_every_restart_finds_the_last_one() {
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), FILE);
        let mut store = filled();
        let mut kinds = Vec::new();
        for round in 0..9 {
            (0..20).for_each(|number| write(&mut store, round * 31 + number, 7 + round));
            store.remove(DB, format!("key:{}", round * 100).as_bytes()).unwrap();
            if round % 2 == 0 {
                kinds.push(saves_delta(&mut store, &place));
            } else {
                store.begin_save(&place).unwrap();
                // Not in this save, but in the next.
                write(&mut store, 5000 + round, 90);
                kinds.push(wait(&mut store).unwrap().image.is_delta);
                store.save_blocking(&place).map(|summary| kinds.push(summary.image.is_delta)).unwrap();
            }
            assert_eq!(opened(&place, mode).digest().unwrap(), store.digest().unwrap(), "round {round}");
            if round == 4 {
                // Goes on over the links that it finds.
                store = opened(&place, mode);
            }
        }
        let full = [true, false, false, false].iter().cycle().map(|full| !full);
        assert_eq!(kinds, full.take(kinds.len()).collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn a_delta_is_as_large_as_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled();
    let image = store.save_blocking(&place).unwrap().image;
    write(&mut store, 1, 2);
    let delta = store.save_blocking(&place).unwrap().image;
    assert!(delta.is_delta && delta.file_bytes * 20 < image.bytes_written, "{delta:?} over {image:?}");
    let stats = store.save_stats();
    assert_eq!((stats.chain_deltas, stats.chain_delta_bytes), (1, delta.file_bytes));
    (0..KEYS).for_each(|number| write(&mut store, number, 3));
    assert!(!saves_delta(&mut store, &place), "more than half has changed");
    assert_eq!(files(dir.path()), [FILE]);
    assert_eq!(store.save_stats().chain_deltas, 0);
}

#[test]
fn without_deltas_images_are_as_before_and_the_change_of_the_setting_holds_from_the_next_save_on() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled();
    store.set_max_deltas(0);
    assert!(!saves_delta(&mut store, &place) && !saves_delta(&mut store, &place));
    assert_eq!(store.save_stats().changed_bytes, None);
    let version = || fs::read(dir.path().join(FILE)).unwrap()[8];
    assert_eq!(version(), 1);
    store.set_max_deltas(3);
    assert!(!saves_delta(&mut store, &place), "what has changed since the last image isn't known");
    assert_eq!(version(), 2);
    write(&mut store, 1, 2);
    assert!(saves_delta(&mut store, &place));
    store.set_max_deltas(0);
    write(&mut store, 2, 2);
    assert!(!saves_delta(&mut store, &place));
    assert_eq!((version(), files(dir.path())), (1, vec![FILE.to_owned()]));
    assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap());
}

#[test]
fn an_image_that_was_removed_or_exchanged_is_followed_by_no_delta() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled();
    assert!(!saves_delta(&mut store, &place) && saves_delta(&mut store, &place));
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert!(
        Store::open(config(), &place, RestoreMode::Load, false).is_err(),
        "deltas without their image are no empty store"
    );
    store.begin_save(&place).unwrap();
    let error = wait(&mut store).unwrap_err();
    assert!(error.to_string().contains("the next save is a full image"), "{error}");
    store.begin_save(&place).unwrap();
    assert!(!wait(&mut store).unwrap().image.is_delta);
    assert_eq!(files(dir.path()), [FILE]);
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert!(!saves_delta(&mut store, &place), "a client that waits gets its save");
    let elsewhere = ImageLocation::new(dir.path(), "other.quire");
    assert!(!saves_delta(&mut store, &elsewhere), "the chain is another file's");
    assert!(saves_delta(&mut store, &elsewhere));
    assert_eq!(opened(&elsewhere, RestoreMode::Map).digest().unwrap(), store.digest().unwrap());
}

#[test]
fn what_a_failed_or_cancelled_save_should_have_held_is_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(DiskDirectory::new(dir.path()));
    let place = ImageLocation::within(disk.clone(), FILE);
    let mut store = filled();
    store.save_blocking(&place).unwrap();
    for fault in [DeviceOperation::Write, DeviceOperation::Flush, DeviceOperation::Rename] {
        write(&mut store, 10, 5);
        // A full disk stays so: the write is tried again where another test has freed files meanwhile.
        let rules = vec![(FaultTrigger::From(fault, 0), InjectedFault::Error(errno::ENOSPC))];
        // Another directory of the same path.
        let faulty = ImageLocation::within(Arc::new(FaultInjector::new(disk.clone(), rules)), FILE);
        store.save_blocking(&faulty).unwrap_err();
        write(&mut store, 4000, 6);
        store.begin_save(&place).unwrap();
        store.cancel_save();
        let cancelled = wait(&mut store);
        assert!(cancelled.is_ok() || cancelled.is_err_and(|error| error.is_cancelled()));
        store.save_blocking(&place).unwrap();
        assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap(), "{fault}");
    }
    write(&mut store, 11, 5);
    let rules = vec![(FaultTrigger::Nth(DeviceOperation::SyncDirectory, 0), InjectedFault::Error(errno::EIO))];
    let faulty = ImageLocation::within(Arc::new(FaultInjector::new(disk.clone(), rules)), FILE);
    store.save_blocking(&faulty).unwrap_err();
    assert!(!saves_delta(&mut store, &place), "which links are on the disk is not known");
}

#[test]
fn whenever_the_power_goes_during_saves_of_every_kind_a_restart_finds_the_last_one_or_the_one_before() {
    // Steps of a row of saves: an image, three deltas, an image in their place.
    let run = |memory: &MemoryDirectory| {
        let place = ImageLocation::within(Arc::new(memory.clone()), FILE);
        let mut store = Store::create(config()).unwrap();
        (0..600).for_each(|number| write(&mut store, number, 1));
        let mut digests = vec![None];
        let mut saved = 0;
        for round in 0..5 {
            write(&mut store, round * 3, 9);
            digests.push(Some(store.digest().unwrap()));
            match store.save_blocking(&place) {
                Ok(_) => saved = round as usize + 1,
                Err(_) => return (digests, saved),
            }
        }
        (digests, saved)
    };
    let memory = MemoryDirectory::new();
    assert_eq!(run(&memory).1, 5);
    for step in (0..=memory.steps()).step_by(3) {
        let memory = MemoryDirectory::new();
        memory.power_off_at(step);
        let (digests, saved) = run(&memory);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(step + 1)] {
            let place = ImageLocation::within(Arc::new(memory.after_power_cut(cut)), FILE);
            let (store, report) = Store::open(config(), &place, RestoreMode::Load, false).unwrap();
            let found = report.mode.map(|_| store.digest().unwrap());
            let expected = &digests[saved..digests.len().min(saved + 2)];
            assert!(expected.contains(&found), "step {step}, {cut:?}: after {saved} saves");
        }
    }
}

/// A copy of `bytes` that was written but not flushed, as `cp` leaves it.
fn copied(name: &str, bytes: &[u8]) -> MemoryDirectory {
    let memory = MemoryDirectory::new();
    let file = memory.create(name).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    let mut queue = file.queue(1).unwrap();
    for (number, piece) in bytes.chunks(1 << 20).enumerate() {
        let mut buffer = Buffer::several(1, 1 << 20).ok().and_then(|mut all| all.pop()).unwrap();
        buffer[..piece.len()].copy_from_slice(piece);
        let extents = vec![Extent { offset: (number << 20) as u64, start: 0, len: piece.len() }];
        queue.submit(Transfer { direction: Direction::Write, buffer, extents, tag: 0 });
        queue.complete().unwrap().result.unwrap();
    }
    drop(queue);
    memory
}

#[test]
fn a_delta_over_an_image_that_was_copied_here_makes_the_copy_durable() {
    let source = MemoryDirectory::new();
    filled().save_blocking(&ImageLocation::within(Arc::new(source.clone()), FILE)).unwrap();
    let memory = copied(FILE, &source.bytes(FILE).unwrap());
    let place = ImageLocation::within(Arc::new(memory.clone()), FILE);
    let (mut store, _) = Store::open(config(), &place, RestoreMode::Load, false).unwrap();
    for round in 0..2 {
        write(&mut store, 1, 9 + round);
        assert!(saves_delta(&mut store, &place));
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((0..20).map(PowerCut::KeepSome)) {
            let place = ImageLocation::within(Arc::new(memory.after_power_cut(cut)), FILE);
            assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap(), "{cut:?}");
        }
    }
}

#[test]
fn a_base_that_can_not_be_flushed_is_followed_by_a_full_image() {
    let memory = MemoryDirectory::new();
    let place = ImageLocation::within(Arc::new(memory.clone()), FILE);
    filled().save_blocking(&place).unwrap();
    // Flush 0 is the delta's own; the image's comes next.
    let rules = vec![(FaultTrigger::Nth(DeviceOperation::Flush, 1), InjectedFault::Error(errno::EIO))];
    let faulty = ImageLocation::within(Arc::new(FaultInjector::new(Arc::new(memory.clone()), rules)), FILE);
    let (mut store, _) = Store::open(config(), &faulty, RestoreMode::Load, false).unwrap();
    write(&mut store, 1, 9);
    store.begin_save(&faulty).unwrap();
    let error = wait(&mut store).unwrap_err();
    assert!(matches!(error, SaveError::Dump(DumpError::BaseChanged { .. })), "{error}");
    assert!(!saves_delta(&mut store, &faulty));
    assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap());
}

fn delta_path(dir: &Path, number: usize) -> std::path::PathBuf {
    dir.join(format!("{FILE}.delta-{number}"))
}

/// Puts deltas back that a full image has replaced, as a crash before their removal leaves them, in every choice of them. A start must
/// find what `store` holds, and remove them.
fn survives_leftovers(dir: &Path, place: &ImageLocation, deltas: &[Vec<u8>], store: &mut Store) {
    for left in 0..1u32 << deltas.len() {
        let chosen = deltas.iter().enumerate().filter(|(number, _)| left >> number & 1 == 1);
        chosen.for_each(|(number, bytes)| fs::write(delta_path(dir, number + 1), bytes).unwrap());
        assert_eq!(opened(place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap(), "left {left:b}");
        assert_eq!(files(dir), [FILE], "left {left:b}");
    }
}

/// A store that has saved an image to `place` and three deltas over it, whose bytes these are.
fn chain_of_three(dir: &Path, place: &ImageLocation) -> (Store, Vec<Vec<u8>>) {
    let mut store = filled();
    store.save_blocking(place).unwrap();
    for version in 2..5 {
        write(&mut store, 1, version);
        assert!(saves_delta(&mut store, place));
    }
    let deltas = (1..4).map(|number| fs::read(delta_path(dir, number)).unwrap()).collect();
    (store, deltas)
}

#[test]
fn deltas_of_other_data_that_an_image_has_replaced_do_not_keep_it_from_being_read() {
    for max_deltas in [3, 0] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), FILE);
        let (_, deltas) = chain_of_three(dir.path(), &place);
        let mut other = Store::create(StoreConfig { seed: Some(SEED + 1), ..config() }).unwrap();
        other.set_max_deltas(max_deltas);
        (0..600).for_each(|number| write(&mut other, number, 3));
        assert!(!saves_delta(&mut other, &place));
        survives_leftovers(dir.path(), &place, &deltas, &mut other);
    }
}

#[test]
fn deltas_of_higher_epochs_that_an_image_of_the_same_data_has_replaced_do_not_keep_it_from_being_read() {
    let (dir, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = ImageLocation::new(dir.path(), FILE);
    let mut store = filled();
    store.save_blocking(&place).unwrap();
    fs::copy(dir.path().join(FILE), backup.path().join(FILE)).unwrap();
    for version in 2..5 {
        write(&mut store, 1, version);
        assert!(saves_delta(&mut store, &place));
    }
    let deltas: Vec<_> = (1..4).map(|number| fs::read(delta_path(dir.path(), number)).unwrap()).collect();
    // Started from the backup, then told to save where the newer chain is.
    let mut rolled_back = opened(&ImageLocation::new(backup.path(), FILE), RestoreMode::Load);
    write(&mut rolled_back, 2, 7);
    assert!(!saves_delta(&mut rolled_back, &place));
    survives_leftovers(dir.path(), &place, &deltas, &mut rolled_back);
    // What a leftover can't be told from is still refused: a delta that is newer than the image.
    write(&mut rolled_back, 3, 7);
    assert!(saves_delta(&mut rolled_back, &place));
    fs::copy(backup.path().join(FILE), dir.path().join(FILE)).unwrap();
    let error = Store::open(config(), &place, RestoreMode::Load, false).err().unwrap();
    assert!(error.to_string().contains("it was made for another file"), "{error}");
}

#[test]
fn damaged_deltas_that_an_image_has_replaced_do_not_keep_it_from_being_read() {
    for at in [0, 100, 4090] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), FILE);
        let (_, mut deltas) = chain_of_three(dir.path(), &place);
        deltas[0][at] ^= 1;
        fs::write(delta_path(dir.path(), 1), &deltas[0]).unwrap();
        let (mut store, report) = Store::open(config(), &place, RestoreMode::Load, true).unwrap();
        assert!(report.damage.len() == 1 && report.deltas == 0, "{:?}", report.damage);
        assert!(!saves_delta(&mut store, &place));
        files(dir.path()).iter().filter(|name| name.contains(".damaged-")).for_each(|name| {
            fs::remove_file(dir.path().join(name)).unwrap();
        });
        survives_leftovers(dir.path(), &place, &deltas, &mut store);
        write(&mut store, 9, 9);
        assert!(saves_delta(&mut store, &place), "a chain begins anew");
        assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap());
    }
}

#[test]
fn after_damage_the_epoch_goes_on_from_the_newest_link_that_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), FILE);
    let (store, deltas) = chain_of_three(dir.path(), &place);
    let newest = store.image_epoch();
    let footer = deltas[2].len() - 4096;
    // Where the damage is, and what is left of the last delta to tell its epoch.
    for (number, at) in [(1, 100), (1, deltas[0].len() - 1), (2, 100), (3, 100), (3, footer + 5)] {
        let mut bytes = deltas[number - 1].clone();
        bytes[at] ^= 1;
        fs::write(delta_path(dir.path(), number), bytes).unwrap();
        let (found, report) = Store::open(config(), &place, RestoreMode::Load, true).unwrap();
        assert_eq!((found.image_epoch(), report.deltas), (newest, number - 1), "delta {number}, byte {at}");
        fs::write(delta_path(dir.path(), number), &deltas[number - 1]).unwrap();
    }
}

#[test]
fn another_image_that_has_the_name_of_a_delta_is_not_removed_and_keeps_no_start_from_its_image() {
    let dir = tempfile::tempdir().unwrap();
    let (place, other) =
        (ImageLocation::new(dir.path(), FILE), ImageLocation::new(dir.path(), format!("{FILE}.delta-1")));
    let mut store = filled();
    store.save_blocking(&other).unwrap();
    let bytes = fs::read(delta_path(dir.path(), 1)).unwrap();
    fs::write(delta_path(dir.path(), 2), b"a note").unwrap();
    assert!(!saves_delta(&mut store, &place));
    assert_eq!(opened(&place, RestoreMode::Load).digest().unwrap(), store.digest().unwrap());
    assert_eq!(fs::read(delta_path(dir.path(), 1)).unwrap(), bytes);
    assert_eq!(fs::read(delta_path(dir.path(), 2)).unwrap(), b"a note");
}

#[test]
fn a_save_elsewhere_does_not_keep_the_damaged_image_from_being_kept() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = ImageLocation::new(dir.path(), FILE);
    let (_, mut deltas) = chain_of_three(dir.path(), &place);
    deltas[0][100] ^= 1;
    fs::write(delta_path(dir.path(), 1), &deltas[0]).unwrap();
    let (mut store, _) = Store::open(config(), &place, RestoreMode::Load, true).unwrap();
    let other = ImageLocation::new(elsewhere.path(), FILE);
    assert!(!saves_delta(&mut store, &other) && saves_delta(&mut store, &other));
    assert!(!saves_delta(&mut store, &place));
    let kept = files(dir.path());
    assert_eq!(kept.len(), 5, "the image, and the damaged one with its deltas: {kept:?}");
    // Once only.
    write(&mut store, 1, 9);
    assert!(saves_delta(&mut store, &place));
    assert_eq!(files(dir.path()).len(), 6);
}

/// Keys whose values compress well, and others whose values don't.
fn write_values(store: &mut Store, range: std::ops::Range<usize>, is_random: bool, seed: u64) {
    let mut rng = quire_rng::SplitMix64::new(seed);
    for number in range {
        let value: Vec<u8> = match is_random {
            true => (0..3000).map(|_| rng.next_u64() as u8).collect(),
            false => vec![number as u8; 3000],
        };
        string::set(store, DB, format!("value:{number}").as_bytes(), &value, ExpiryChange::Clear).unwrap();
    }
}

#[test]
fn a_chain_takes_no_more_on_the_disk_than_was_promised_however_it_is_compressed() {
    for (codec, restarts) in [(Codec::Lz4, false), (Codec::Zstd, true)] {
        let dir = tempfile::tempdir().unwrap();
        let place = ImageLocation::new(dir.path(), FILE);
        let mut store = Store::create(StoreConfig { compression: Some(codec), ..config() }).unwrap();
        write_values(&mut store, 0..3500, false, 1);
        write_values(&mut store, 3500..4000, true, 1);
        let image = store.save_blocking(&place).unwrap().image;
        assert!(!image.is_delta && image.stored_bytes() * 5 < image.pages * 4096, "{image:?}");
        // Little changed: a delta follows, also after a restart, which weighs what it finds alike.
        write_values(&mut store, 0..4, true, 2);
        assert!(saves_delta(&mut store, &place));
        let told = store.save_stats();
        let again = opened(&place, RestoreMode::Load);
        let found = again.save_stats();
        assert_eq!((told.chain_delta_bytes, told.last_delta_bytes), (found.chain_delta_bytes, found.last_delta_bytes));
        let mut store = if restarts { again } else { store };
        // A quarter of the data as it is in memory, and more than the whole image takes on the disk.
        write_values(&mut store, 0..1000, true, 3);
        store.set_compression(Some(codec));
        let next = store.save_blocking(&place).unwrap().image;
        assert!(!next.is_delta, "{next:?} over {image:?}");
    }
}

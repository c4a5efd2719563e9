//! Logs that released versions have written can be read for ever, and go on.

use std::sync::Arc;

use quire_device::{Device, Directory};
use quire_writecache::{AdmissionPolicy, CacheConfig, VolumeId, VolumeLength, VolumeSpec, WriteCache, WriteContext};

use crate::wcache::{BLOCK, DATA, Homes, config, read_all, unfold};

/// A volume that may grow, in the fixture.
const FILE: VolumeId = VolumeId(3);

/// Devices of a fixture: the log, its witness, and beside the two volumes of [`Homes`] a file.
fn unfolded([fast, witness, data, file]: [&[u8]; 4]) -> Homes {
    let homes = Homes::new();
    homes.fast.put("fast", &unfold(fast));
    homes.slow.put("witness", &unfold(witness));
    homes.slow.put("data", &unfold(data));
    homes.slow.put("file", &unfold(file));
    homes
}

/// What the last Quire that wrote version 1 had on its devices when the power failed, and what its volumes are.
fn version_1() -> (Homes, Vec<u8>, Vec<u8>) {
    let homes = unfolded([
        include_bytes!("fixtures/log-v1/fast.sparse"),
        include_bytes!("fixtures/log-v1/witness.sparse"),
        include_bytes!("fixtures/log-v1/data.sparse"),
        include_bytes!("fixtures/log-v1/file.sparse"),
    ]);
    // In each block one byte says which one it is.
    let mut data = vec![0; 64 * BLOCK];
    for (at, value) in [(0, 2), (1, 3), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (9, 3)] {
        data[at * BLOCK + value] = value as u8;
    }
    // Of the file's third block a truncation has left one byte, and its fifth block is gone.
    let mut file = vec![0; 4 * BLOCK];
    for (at, value) in [(0, 1), (1, 1), (3, 5)] {
        file[at * BLOCK + value] = value as u8;
    }
    (homes, data, file)
}

/// What commit a5bec3dd^, the last that wrote version 2, left when the power failed, after it had opened the log of version 1 and made
/// the same changes as in [`version_3`]. The first truncation has a record that names it as done; the directory's file lacks the second.
fn version_2() -> (Homes, Vec<u8>, Vec<u8>) {
    let homes = unfolded([
        include_bytes!("fixtures/log-v2/fast.sparse"),
        include_bytes!("fixtures/log-v2/witness.sparse"),
        include_bytes!("fixtures/log-v2/data.sparse"),
        include_bytes!("fixtures/log-v2/file.sparse"),
    ]);
    let (_, data, mut file) = version_1();
    FIRST_CHANGES.iter().for_each(|change| change.apply(&mut file));
    (homes, data, file)
}

/// As the Quire of 28 November 2026 left it when the power failed, after it had opened that of version 1 and written to it.
fn version_3() -> (Homes, Vec<u8>, Vec<u8>) {
    let homes = unfolded([
        include_bytes!("fixtures/log-v3/fast.sparse"),
        include_bytes!("fixtures/log-v3/witness.sparse"),
        include_bytes!("fixtures/log-v3/data.sparse"),
        include_bytes!("fixtures/log-v3/file.sparse"),
    ]);
    let (_, data, mut file) = version_1();
    FIRST_CHANGES.iter().for_each(|change| change.apply(&mut file));
    (homes, data, file)
}

/// A byte that is written to a block of the file, which then loses its last bytes.
struct Change {
    block: usize,
    value: u8,
}

const FIRST_CHANGES: [Change; 2] = [Change { block: 1, value: 77 }, Change { block: 2, value: 78 }];
const LATER_CHANGES: [Change; 2] = [Change { block: 1, value: 79 }, Change { block: 0, value: 80 }];

impl Change {
    fn place(&self) -> usize {
        self.block * BLOCK + usize::from(self.value)
    }

    fn apply(&self, file: &mut Vec<u8>) {
        file[self.place()] = self.value;
        file.truncate(file.len() - 9);
    }

    fn write(&self, cache: &WriteCache, len: usize) {
        let sync = WriteContext::current().sync();
        let ticket = cache.write(FILE, self.place() as u64, &[self.value], &sync).unwrap();
        cache.wait(&ticket, &sync).unwrap();
        cache.set_len(FILE, len as u64 - 9, &sync).unwrap();
    }
}

fn versions(homes: &Homes) -> [u8; 2] {
    [0, 4096].map(|place| homes.fast.bytes("fast").unwrap()[place + 8])
}

fn open_with_file(homes: &Homes) -> WriteCache {
    let witness: Arc<dyn Device> = homes.slow.open("witness").unwrap();
    let settings = CacheConfig { witness: Some(witness), granule_bytes: Some(512), ..config(AdmissionPolicy::All) };
    let device = homes.slow.open("file").unwrap();
    let file = VolumeSpec { id: FILE, device, growth: VolumeLength::Growable };
    WriteCache::open(homes.fast(), &[homes.volumes(), vec![file]].concat(), settings).unwrap()
}

/// Opens the log before each change, and in the end has all of it written back.
fn is_read_goes_on_and_is_written_back((homes, data, mut file): (Homes, Vec<u8>, Vec<u8>), changes: &[Change]) {
    for change in changes {
        let cache = open_with_file(&homes);
        let is_whole = read_all(&cache, DATA) == data[..200_000] && read_all(&cache, FILE) == file;
        assert!(is_whole, "before {}", change.value);
        change.write(&cache, file.len());
        change.apply(&mut file);
    }
    let cache = open_with_file(&homes);
    cache.drain().unwrap();
    assert!(homes.slow.bytes("data").unwrap() == data && homes.slow.bytes("file").unwrap() == file);
    drop(cache);
    assert_eq!(versions(&homes), [3, 3]);
}

#[test]
fn a_log_that_version_1_wrote_is_read_goes_on_and_is_written_back() {
    let written = version_1();
    assert_eq!(versions(&written.0), [1, 1]);
    is_read_goes_on_and_is_written_back(written, &FIRST_CHANGES);
}

/// The truncation that ended each record "done" of the log, of all records in its order; version 1 names none.
fn truncations_done(homes: &Homes) -> Vec<u64> {
    let log = homes.fast.bytes("fast").unwrap();
    let number = |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    let is_done = |record: &&[u8]| record.starts_with(b"QWCREC01") && record[44..48] == 3_u32.to_le_bytes();
    log.chunks_exact(512).filter(is_done).map(|record| number(record, 80)).collect()
}

#[test]
fn a_log_that_version_2_wrote_is_read_goes_on_and_is_written_back() {
    let written = version_2();
    assert_eq!((versions(&written.0), truncations_done(&written.0)), ([2, 2], vec![0, 83_968]));
    is_read_goes_on_and_is_written_back(written, &LATER_CHANGES);
}

#[test]
fn a_log_that_version_3_wrote_is_read_goes_on_and_is_written_back() {
    let written = version_3();
    assert_eq!(versions(&written.0), [3, 3]);
    is_read_goes_on_and_is_written_back(written, &LATER_CHANGES);
}

//! Damaged logs: either every record is there or the log is refused, with file and offset, and nothing was touched. What
//! can be read of one is read if damage is accepted. And logs of version 1 of the format.

use std::path::Path;
use std::sync::Arc;

use quire_device::{Directory, MemoryDirectory, PowerCut};
use quire_wal::{
    DirectoryScan, Log, LogError, LogOptions, Recovery, RecoverySummary, SyncPolicy, remove_covered, set_aside,
};

use crate::common::{self, DATASET, append, base, durable, options, read, start};

const LEN: usize = 300;
const SEGMENT_BYTES: u64 = 8192;
const HEADER_BYTES: usize = 512;
/// Records of the fixture: those from 23 on, 11 to a segment. An image holds 22 of them.
const FIXTURE: (u64, u64, u64) = (23, 46, 22);

fn shared(memory: &MemoryDirectory) -> Arc<dyn Directory> {
    Arc::new(memory.clone())
}

/// A log of three segments and a spare, which was ended, and of which an image holds the first `position` records.
fn log_with_a_spare() -> (MemoryDirectory, u64, u64) {
    let memory = MemoryDirectory::new();
    let options = LogOptions { segment_bytes: SEGMENT_BYTES, ..options(SyncPolicy::Always) };
    let mut log = Log::start(&shared(&memory), options, common::identity(), 1, Box::new(|| ())).unwrap();
    let (last, position) = (40, 15);
    for sequence in 1..=last {
        append(&mut log, LEN).unwrap();
        log.commit();
        assert!(durable(&log, sequence));
        if sequence == last {
            log.cover(position);
            while log.is_covering() {
                std::thread::yield_now();
            }
        }
    }
    log.finish().unwrap();
    (memory, position, last)
}

fn copy(memory: &MemoryDirectory) -> MemoryDirectory {
    let copy = MemoryDirectory::new();
    for name in memory.list().unwrap() {
        copy.put(&name, &memory.bytes(&name).unwrap());
    }
    copy
}

fn content(memory: &MemoryDirectory) -> Vec<(String, Vec<u8>)> {
    let mut names = memory.list().unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), memory.bytes(&name).unwrap())).collect()
}

/// Reads what can be read.
fn accept(memory: &MemoryDirectory, position: u64) -> (Vec<u64>, RecoverySummary) {
    let mut recovery = Recovery::of_damaged(memory, base(position)).unwrap();
    let mut found = Vec::new();
    while let Some(record) = recovery.next_record().unwrap() {
        found.push(record.sequence);
    }
    (found, recovery.finish(memory).unwrap())
}

/// Changes a file and opens the log: all records are there, or it is refused by name and nothing has changed. Returns
/// the refusal.
fn opened(
    memory: &MemoryDirectory,
    name: &str,
    change: impl Fn(&mut Vec<u8>),
    position: u64,
    last: u64,
) -> Option<LogError> {
    let damaged = copy(memory);
    let mut bytes = memory.bytes(name).unwrap();
    change(&mut bytes);
    damaged.put(name, &bytes);
    let before = content(&damaged);
    let error = match read(&damaged, base(position), |_| LEN) {
        Ok((found, _)) => {
            assert_eq!(found, (position + 1..=last).collect::<Vec<_>>());
            return None;
        }
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(error.is_damage() && text.contains("at byte") || matches!(error, LogError::Gap { .. }), "{text}");
    assert!(text.contains("quire-log-") && text.contains("--accept-damaged-log"), "{text}");
    // Neither a log that begins there nor an image that covers it takes anything away.
    assert!(read(&damaged, base(position), |_| LEN).is_err());
    if matches!(error, LogError::Header { .. } | LogError::NoHeader { .. } | LogError::Short { .. }) {
        assert!(start(&shared(&damaged), SyncPolicy::Always, last).is_err());
        assert!(remove_covered(&damaged, DATASET, last).is_err());
    }
    assert!(content(&damaged) == before, "{text}");
    Some(error)
}

#[test]
fn every_byte_of_every_header_is_either_without_meaning_or_refused() {
    let (memory, position, last) = log_with_a_spare();
    assert_eq!(opened(&memory, &memory.list().unwrap()[0], |_| (), position, last), None);
    let survey = DirectoryScan::of(&memory, position).unwrap();
    assert!(survey.segments.len() >= 3 && !survey.spares.is_empty(), "{:?}", survey.segments);
    for name in memory.list().unwrap() {
        for at in 0..HEADER_BYTES {
            let error = opened(&memory, &name, |bytes| bytes[at] ^= 1 << (at % 8), position, last);
            assert!(error.is_some_and(|error| error.to_string().contains(&name)), "{name} byte {at}");
        }
        for at in (HEADER_BYTES..4096).step_by(61) {
            assert_eq!(opened(&memory, &name, |bytes| bytes[at] ^= 4, position, last), None);
        }
    }
}

#[test]
fn every_byte_of_the_records_is_either_without_meaning_or_refused() {
    let (memory, position, last) = log_with_a_spare();
    let mut refused = 0;
    for name in memory.list().unwrap() {
        for at in (4096..SEGMENT_BYTES as usize).step_by(3) {
            refused += u32::from(opened(&memory, &name, |bytes| bytes[at] ^= 1 << (at % 8), position, last).is_some());
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_header_that_is_gone_is_refused_and_so_is_a_file_that_lost_its_end() {
    let (memory, position, last) = log_with_a_spare();
    for name in memory.list().unwrap() {
        let header = |bytes: &mut Vec<u8>| bytes[..4096].fill(0);
        let refused = opened(&memory, &name, header, position, last);
        assert!(matches!(refused, Some(LogError::NoHeader { .. })), "{refused:?}");
        let begin = |bytes: &mut Vec<u8>| bytes[..5000].fill(0);
        assert!(matches!(opened(&memory, &name, begin, position, last), Some(LogError::NoHeader { .. })));
        for bytes in [0, 100, HEADER_BYTES, 4096, 6000] {
            opened(&memory, &name, |file| file.truncate(bytes), position, last);
        }
    }
    let newest = DirectoryScan::of(&memory, position).unwrap().segments.last().unwrap().name.clone();
    for bytes in [0, 100, HEADER_BYTES, 4096, 6000] {
        assert!(opened(&memory, &newest, |file| file.truncate(bytes), position, last).is_some(), "{bytes}");
    }
    // The only file there is: nothing else can tell what it held.
    let only = MemoryDirectory::with_file(&newest, &[0; SEGMENT_BYTES as usize]);
    assert!(matches!(read(&only, base(position), |_| LEN), Err(LogError::NoHeader { .. })));
    // The same segment twice.
    memory.put("quire-log-00000099", &memory.bytes(&newest).unwrap());
    assert!(matches!(read(&memory, base(position), |_| LEN), Err(LogError::Copy { .. })));
}

#[test]
fn with_damage_accepted_a_segment_is_read_though_its_header_is_damaged_and_set_aside() {
    let (memory, position, last) = log_with_a_spare();
    let newest = DirectoryScan::of(&memory, position).unwrap().segments.last().unwrap().name.clone();
    for at in [0, 8, 16, 24, 33, 40, 57, 64, 72, 100, 504] {
        let damaged = copy(&memory);
        let mut bytes = memory.bytes(&newest).unwrap();
        bytes[at] ^= 0x10;
        damaged.put(&newest, &bytes);
        let (found, recovered) = accept(&damaged, position);
        assert_eq!(found, (position + 1..=last).collect::<Vec<_>>(), "byte {at}");
        assert_eq!(recovered.damaged_files, std::slice::from_ref(&newest));
        assert!(damaged.bytes(&newest).unwrap() == bytes, "it is there until an image holds its records");
        let kept = set_aside(&damaged, &recovered.damaged_files, 7).unwrap();
        assert!(damaged.bytes(&kept[0]).unwrap() == bytes && damaged.bytes(&newest).is_none());
        start(&shared(&damaged), SyncPolicy::Always, last).unwrap().finish().unwrap();
        assert!(damaged.bytes(&kept[0]).unwrap() == bytes);
    }
}

#[test]
fn with_damage_accepted_what_lies_before_it_is_read_and_all_behind_it_is_kept() {
    let (memory, position, _) = log_with_a_spare();
    let segments = DirectoryScan::of(&memory, position).unwrap().segments;
    let middle = &segments[segments.len() - 2];
    let mut bytes = memory.bytes(&middle.name).unwrap();
    bytes[4096 + 40] ^= 1;
    memory.put(&middle.name, &bytes);
    let (found, recovered) = accept(&memory, position);
    let first_lost = middle.meta.first_sequence;
    assert_eq!(found, (position + 1..first_lost).collect::<Vec<_>>());
    assert_eq!((recovered.damaged_files.len(), recovered.next_sequence), (2, first_lost));
    let mut kept = set_aside(&memory, &recovered.damaged_files, 7).unwrap();
    let log = start(&shared(&memory), SyncPolicy::Always, first_lost - 1).unwrap();
    log.finish().unwrap();
    kept.retain(|name| memory.bytes(name).is_none());
    assert!(kept.is_empty(), "{kept:?}");
}

/// The log in `fixtures/log-v1`, as a server of version 1 left it when it was killed.
fn fixture() -> MemoryDirectory {
    fixture_in("log-v1")
}

fn fixture_in(folder: &str) -> MemoryDirectory {
    let memory = MemoryDirectory::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        memory.put(entry.file_name().to_str().unwrap(), &std::fs::read(entry.path()).unwrap());
    }
    memory
}

/// It is read to its end and goes on, twice.
fn goes_on(memory: &MemoryDirectory, position: u64, what: &str) {
    let mut last = FIXTURE.1;
    for _ in 0..2 {
        let (found, recovered) =
            read(memory, base(position), |_| LEN).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(found, (position + 1..=last).collect::<Vec<_>>(), "{what}");
        assert_eq!(recovered.next_sequence, last + 1, "{what}");
        let mut log = start(&shared(memory), SyncPolicy::Always, last).unwrap();
        last = append(&mut log, LEN).unwrap();
        log.finish().unwrap();
    }
}

#[test]
fn a_log_of_version_1_is_read_and_goes_on() {
    let (first, last, position) = FIXTURE;
    assert_eq!(first, position + 1);
    goes_on(&fixture(), position, "as it is");
    goes_on(&fixture(), position + 14, "with an image that covers some of it");
    let versions: Vec<u8> = content(&fixture()).iter().map(|(_, bytes)| bytes[8]).collect();
    assert_eq!((versions, last), (vec![1; 3], 46));
}

#[test]
fn a_log_of_version_2_is_read_and_goes_on() {
    // The same records, and two spares.
    let position = FIXTURE.2;
    let log = || fixture_in("log-v2");
    let versions: Vec<u8> = content(&log()).iter().map(|(_, bytes)| bytes[8]).collect();
    assert_eq!(versions, vec![2; 5]);
    goes_on(&log(), position, "as it is");
    goes_on(&log(), position + 14, "with an image that covers some of it");
}

#[test]
fn the_spares_of_version_1_are_believed_only_if_nothing_is_lost_by_it() {
    let position = FIXTURE.2 + 11;
    let first = "quire-log-00000003";
    let spare = |bytes: &mut Vec<u8>| bytes[..4096].fill(0);
    let with = |name: &str, from: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let memory = fixture();
        let mut bytes = memory.bytes(from).unwrap();
        change(&mut bytes);
        if name != from {
            memory.remove(from).unwrap();
        }
        memory.put(name, &bytes);
        memory
    };
    // What a crash of version 1 could leave.
    goes_on(&with(first, first, &spare), position, "a spare");
    goes_on(&with("quire-log-00000006", first, &spare), position, "a spare with its next number");
    goes_on(&with("quire-log-00000006", first, &|_| ()), position, "a spare whose header came back");
    for bytes in [0, 100, 8192] {
        let memory = fixture();
        memory.put("quire-log-00000006", &vec![0; bytes]);
        goes_on(&memory, FIXTURE.2, "a file that was being made");
    }
    // What it could not.
    let newest = "quire-log-00000005";
    for (name, position) in [(first, FIXTURE.2), (first, position - 1), (newest, position)] {
        let memory = with(name, name, &spare);
        let error = read(&memory, base(position), |_| LEN).unwrap_err();
        assert!(matches!(error, LogError::NoHeader { .. }), "{name}: {error}");
    }
}

/// Reads a log of version 1, goes on with one record and has an image cover all of it; as far as the device goes along. Returns
/// the last record that is durable, and the last one that the image may hold.
fn convert(memory: &MemoryDirectory, position: u64) -> Result<(u64, u64), LogError> {
    read(memory, base(position), |_| LEN)?;
    let mut log = start(&shared(memory), SyncPolicy::Always, FIXTURE.1)?;
    let last = append(&mut log, LEN).unwrap();
    log.commit();
    let acknowledged = if durable(&log, last) { last } else { FIXTURE.1 };
    let mut covered = position;
    if acknowledged == last {
        log.cover(FIXTURE.1);
        covered = FIXTURE.1;
    }
    // If the power has gone meanwhile, what is durable stays so.
    let _ = log.finish();
    Ok((acknowledged, covered))
}

#[test]
fn a_power_cut_while_a_log_of_version_1_is_taken_over_costs_nothing() {
    let position = FIXTURE.2 + 11;
    let prepared = || {
        let memory = fixture();
        // A spare, and a file that was being made.
        let mut spare = memory.bytes("quire-log-00000003").unwrap();
        spare[..4096].fill(0);
        memory.put("quire-log-00000003", &spare);
        memory.put("quire-log-00000006", &[0; 100]);
        memory
    };
    let rehearsal = prepared();
    convert(&rehearsal, position).unwrap();
    assert!(rehearsal.steps() > 10, "{}", rehearsal.steps());
    for step in 0..=rehearsal.steps() {
        let memory = prepared();
        memory.power_off_at(step);
        let (acknowledged, covered) = convert(&memory, position).unwrap_or((FIXTURE.1, position));
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(step), PowerCut::KeepSome(step + 1000)] {
            let found = memory.after_power_cut(cut);
            let (sequences, recovered) = read(&found, base(covered), |_| LEN)
                .unwrap_or_else(|error| panic!("power off at step {step}, {cut:?}: {error}"));
            let last = recovered.next_sequence - 1;
            assert_eq!(sequences, (covered + 1..=last).collect::<Vec<_>>(), "step {step}, {cut:?}");
            assert!(last >= acknowledged, "step {step}, {cut:?}: {last} of {acknowledged}");
            let mut log = start(&shared(&found), SyncPolicy::Always, last).unwrap();
            append(&mut log, LEN).unwrap();
            log.finish().unwrap();
        }
    }
}

//! The log on devices that fail, and logs that aren't what was written.

use std::sync::Arc;

use quire_device::{DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno};
use quire_wal::{BaseImage, Log, LogError, LogIdentity, Recovery, SyncPolicy, remove_covered};

use crate::common::{DATASET, EPOCH, append, base, durable, identity, options, read, start, words};

const LEN: usize = 500;

fn faulty(memory: &MemoryDirectory, rules: Vec<(FaultTrigger, InjectedFault)>) -> Arc<dyn Directory> {
    Arc::new(FaultInjector::new(Arc::new(memory.clone()), rules))
}

fn shared(memory: &MemoryDirectory) -> Arc<dyn Directory> {
    Arc::new(memory.clone())
}

/// Appends and commits until the log fails or `most` records are durable; returns how many are.
fn fill(log: &mut Log, most: u64) -> u64 {
    let mut acknowledged = log.durable();
    while acknowledged < most && append(log, LEN).is_some() {
        log.commit();
        if !durable(log, log.appended()) {
            break;
        }
        acknowledged = log.appended();
    }
    acknowledged
}

#[test]
fn after_a_failed_write_nothing_more_is_taken() {
    for fault in [
        InjectedFault::Error(errno::EIO),
        InjectedFault::Torn(errno::EIO),
        InjectedFault::Sectors { errno: errno::EIO, seed: 5 },
    ] {
        for nth in 1..12 {
            let memory = MemoryDirectory::new();
            let directory = faulty(&memory, vec![(FaultTrigger::Nth(DeviceOperation::DurableWrite, nth), fault)]);
            let mut log = start(&directory, SyncPolicy::Always, 0).unwrap();
            let acknowledged = fill(&mut log, 100);
            assert_eq!(acknowledged, nth - 1, "{fault:?}");
            let failure = log.failure().cloned().unwrap();
            assert!(matches!(&failure, LogError::Device(error) if error.errno == Some(errno::EIO)), "{failure}");
            assert_eq!(append(&mut log, LEN), None);
            assert_eq!(log.finish(), Err(failure));
            let (found, _) = read(&memory, base(0), |_| LEN).unwrap();
            assert!(found.len() as u64 >= acknowledged, "{fault:?} {nth}");
        }
    }
}

#[test]
fn after_a_failed_flush_nothing_more_is_taken() {
    let memory = MemoryDirectory::new();
    // The first flush is that of the new segment.
    let directory =
        faulty(&memory, vec![(FaultTrigger::From(DeviceOperation::Flush, 1), InjectedFault::Error(errno::EIO))]);
    let mut log = start(&directory, SyncPolicy::EverySecond, 0).unwrap();
    append(&mut log, LEN).unwrap();
    log.commit();
    while log.written() < 1 {
        std::thread::yield_now();
    }
    log.hurry();
    assert!(!durable(&log, 1));
    assert_eq!(append(&mut log, LEN), None);
    assert!(log.finish().is_err());
}

#[test]
fn what_is_still_open_is_not_handed_over() {
    let memory = MemoryDirectory::new();
    let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
    append(&mut log, LEN).unwrap();
    let [name, key, value] = words(2, LEN);
    log.command(1000, 2, 3);
    log.word(&name);
    log.commit();
    log.word(&key);
    log.hurry();
    log.set_sync(SyncPolicy::EverySecond);
    log.word(&value);
    assert_eq!(log.seal(), Some(2));
    // This one is given up at the end.
    log.command(1000, 2, 1);
    log.finish().unwrap();
    assert_eq!(read(&memory, base(0), |_| LEN).unwrap().0, [1, 2]);
}

#[test]
fn a_log_begins_only_behind_the_one_that_is_there() {
    let memory = MemoryDirectory::new();
    let (_, last) = three_segments(&memory);
    let begin =
        |identity, next| Log::start(&shared(&memory), options(SyncPolicy::Always), identity, next, Box::new(|| ()));
    let other = LogIdentity { dataset: DATASET + 1, ..identity() };
    assert!(matches!(begin(other, last + 1), Err(LogError::OtherDataset { .. })));
    assert!(matches!(begin(identity(), 1), Err(LogError::OtherHistory { next: 1, .. })));
    begin(identity(), last + 1).unwrap().finish().unwrap();
}

#[test]
fn segments_serve_again_and_their_number_stays_bounded() {
    let memory = MemoryDirectory::new();
    let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
    let mut last = 0;
    for round in 1..=20 {
        last = fill(&mut log, round * 150);
        log.cover(last - 10);
    }
    log.finish().unwrap();
    let files = memory.list().unwrap();
    // In use, made ahead, kept, and what the last rounds have not given back yet.
    assert!(files.len() <= 12, "{files:?}");
    let (found, _) = read(&memory, base(last - 10), |_| LEN).unwrap();
    assert_eq!(found, (last - 9..=last).collect::<Vec<_>>());
    assert!(matches!(remove_covered(&memory, DATASET, last - 10).unwrap(), 1..=2));
    assert!(matches!(remove_covered(&memory, DATASET + 1, last), Err(LogError::OtherDataset { .. })));
    assert_eq!(remove_covered(&memory, DATASET, last).unwrap(), 0);
    assert!(memory.list().unwrap().is_empty());
}

/// A log of three segments, all durable; returns their names.
fn three_segments(memory: &MemoryDirectory) -> (Vec<String>, u64) {
    let mut log = start(&shared(memory), SyncPolicy::Always, 0).unwrap();
    let mut last = 0;
    while memory.list().unwrap().len() < 3 || last < 140 {
        last = fill(&mut log, last + 1);
    }
    log.finish().unwrap();
    let survey = quire_wal::DirectoryScan::of(memory, 0).unwrap();
    (survey.segments.iter().map(|segment| segment.name.clone()).collect(), last)
}

fn flip(memory: &MemoryDirectory, name: &str, at: usize) {
    let mut bytes = memory.bytes(name).unwrap();
    bytes[at] ^= 1;
    memory.put(name, &bytes);
}

#[test]
fn damage_before_later_records_is_no_torn_end() {
    let memory = MemoryDirectory::new();
    let (names, last) = three_segments(&memory);
    flip(&memory, names.last().unwrap(), 4096 + 40);
    let error = read(&memory, base(0), |_| LEN).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogError::Damaged { offset: 4096, .. }), "{text}");
    assert!(text.contains(names.last().unwrap().as_str()) && text.contains("--accept-damaged-log"), "{text}");
    // Where the image has it all, the log is not needed.
    let (found, recovered) = read(&memory, base(last), |_| LEN).unwrap();
    assert_eq!((found.len(), recovered.next_sequence), (0, last + 1));
}

/// A log of `records` records in one segment whose last record is torn, as the power leaves it: nothing says that it was
/// durable.
fn torn_log(memory: &MemoryDirectory, records: u64) -> (String, u64) {
    let mut log = start(&shared(memory), SyncPolicy::Always, 0).unwrap();
    let last = fill(&mut log, records);
    log.finish().unwrap();
    let (names, begin) = (memory.list().unwrap(), 4096 + (last - 1) * record_bytes() as u64);
    let mut bytes = memory.bytes(&names[0]).unwrap();
    bytes[begin as usize + 100..].fill(0);
    memory.put(&names[0], &bytes);
    (names[0].clone(), begin)
}

#[test]
fn a_torn_end_is_cut_off_and_reported() {
    let memory = MemoryDirectory::new();
    let (_, begin) = torn_log(&memory, 7);
    let (found, recovered) = read(&memory, base(0), |_| LEN).unwrap();
    assert_eq!(found.len(), 6);
    let torn = recovered.torn.unwrap();
    assert_eq!((torn.sequence, torn.offset, torn.bytes), (7, begin, record_bytes() as u64));
    // The log goes on in the next segment, with the number that is free now.
    let mut log = start(&shared(&memory), SyncPolicy::Always, 6).unwrap();
    fill(&mut log, 10);
    log.finish().unwrap();
    let (found, recovered) = read(&memory, base(0), |_| LEN).unwrap();
    assert_eq!((found.len(), recovered.torn), (10, None));
}

#[test]
fn the_last_record_of_a_log_that_was_ended_is_not_taken_for_a_torn_one() {
    let memory = MemoryDirectory::new();
    let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
    let last = fill(&mut log, 7);
    log.finish().unwrap();
    let name = memory.list().unwrap().remove(0);
    let begin = 4096 + (last as usize - 1) * record_bytes();
    flip(&memory, &name, begin + 100);
    let error = read(&memory, base(0), |_| LEN).unwrap_err();
    assert!(matches!(&error, LogError::Damaged { offset, .. } if *offset == begin as u64), "{error}");
}

#[test]
fn the_end_is_marked_while_nothing_is_written_and_the_log_goes_on_over_the_mark() {
    let memory = MemoryDirectory::new();
    let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
    let mut last = 0;
    for _ in 0..2 {
        last = fill(&mut log, last + 3);
        let name = memory.list().unwrap().remove(0);
        let end = 4096 + last as usize * record_bytes();
        while memory.bytes(&name).unwrap()[end + 8] == 0 {
            std::thread::yield_now();
        }
        // As a reader finds it that comes after a kill.
        let found = MemoryDirectory::with_file(&name, &memory.bytes(&name).unwrap());
        assert_eq!(read(&found, base(0), |_| LEN).unwrap().0.len() as u64, last);
        flip(&found, &name, end - 20);
        assert!(matches!(read(&found, base(0), |_| LEN), Err(LogError::Damaged { .. })));
    }
    log.finish().unwrap();
}

#[test]
fn a_file_that_was_cut_short_is_refused_and_read_as_far_as_it_goes_if_damage_is_accepted() {
    for bytes in [512, 600, 4096, 4100, 4096 + record_bytes() + 20] {
        let memory = MemoryDirectory::new();
        let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
        fill(&mut log, 7);
        log.finish().unwrap();
        let name = memory.list().unwrap().remove(0);
        let whole = memory.bytes(&name).unwrap();
        memory.put(&name, &whole[..bytes]);
        let error = read(&memory, base(0), |_| LEN).unwrap_err();
        assert!(matches!(&error, LogError::Short { bytes: found, .. } if *found == bytes as u64), "{error}");
        let mut recovery = Recovery::of_damaged(&memory, base(0)).unwrap();
        let mut records = 0;
        while recovery.next_record().unwrap().is_some() {
            let (done, total) = recovery.progress();
            assert!(done <= total);
            records += 1;
        }
        assert_eq!(records, bytes.saturating_sub(4096) / record_bytes());
        let (done, total) = recovery.progress();
        assert!(done <= total);
        assert_eq!(recovery.end().damaged_files, [name]);
    }
}

/// Bytes of a record of [`LEN`] with a key of one digit.
fn record_bytes() -> usize {
    (32 + 8 + 2 + (1 + 3) + (1 + 5) + (2 + LEN)).next_multiple_of(8)
}

#[test]
fn a_missing_segment_is_a_gap_unless_the_image_covers_it() {
    let memory = MemoryDirectory::new();
    let (names, last) = three_segments(&memory);
    let firsts: Vec<u64> =
        quire_wal::DirectoryScan::of(&memory, 0).unwrap().segments.iter().map(|s| s.meta.first_sequence).collect();
    memory.remove(&names[1]).unwrap();
    let error = read(&memory, base(0), |_| LEN).unwrap_err();
    assert!(matches!(&error, LogError::Gap { found, expected, .. } if (*found, *expected) == (firsts[2], firsts[1])));
    assert!(error.to_string().contains(&names[2]) && error.to_string().contains(&names[0]), "{error}");
    let (found, _) = read(&memory, base(firsts[2] - 1), |_| LEN).unwrap();
    assert_eq!(found, (firsts[2]..=last).collect::<Vec<_>>());
}

#[test]
fn a_log_of_other_data_is_refused() {
    let memory = MemoryDirectory::new();
    three_segments(&memory);
    let other = BaseImage { dataset: DATASET + 1, ..base(0) };
    assert!(matches!(read(&memory, other, |_| LEN), Err(LogError::OtherDataset { .. })));
    let older = BaseImage { epoch: EPOCH - 1, ..base(0) };
    assert!(matches!(read(&memory, older, |_| LEN), Err(LogError::OldImage { .. })));
    let bytes = memory.bytes("quire-log-00000001").unwrap();
    let mut newer = bytes.clone();
    // Its checksum lies elsewhere, perhaps.
    (newer[8], newer[504]) = (9, !newer[504]);
    memory.put("quire-log-00000001", &newer);
    assert!(matches!(read(&memory, base(0), |_| LEN), Err(LogError::Version { found: 9, .. })));
}

#[test]
fn a_log_counts_only_from_its_image_on() {
    let memory = MemoryDirectory::new();
    let mut log = start(&shared(&memory), SyncPolicy::Always, 0).unwrap();
    let before = fill(&mut log, 20);
    log.finish().unwrap();
    let pending = LogIdentity { base_epoch: EPOCH + 1, in_force: false, ..identity() };
    let begin =
        || Log::start(&shared(&memory), options(SyncPolicy::Always), pending, before + 1, Box::new(|| ())).unwrap();
    // The server ends before the image is durable: what was logged meanwhile is no continuation of the old one.
    let mut log = begin();
    fill(&mut log, before + 5);
    log.finish().unwrap();
    let (found, recovered) = read(&memory, base(0), |_| LEN).unwrap();
    assert_eq!((found.len() as u64, recovered.ignored.len()), (before, 1));
    // Once more, and this time the image comes.
    let mut log = begin();
    let last = fill(&mut log, before + 5);
    log.cover(before + 2);
    let last = fill(&mut log, last + 5);
    log.finish().unwrap();
    let new = BaseImage { epoch: EPOCH + 1, ..base(before + 2) };
    let (found, _) = read(&memory, new, |_| LEN).unwrap();
    assert_eq!(found, (before + 3..=last).collect::<Vec<_>>());
    assert!(matches!(read(&memory, base(before + 2), |_| LEN), Err(LogError::OldImage { .. })));
}

#[test]
fn every_segment_of_a_log_that_came_in_force_says_so() {
    let memory = MemoryDirectory::new();
    let pending = LogIdentity { base_epoch: EPOCH + 1, in_force: false, ..identity() };
    let mut log = Log::start(&shared(&memory), options(SyncPolicy::Always), pending, 1, Box::new(|| ())).unwrap();
    // Three segments are begun before the image is there, and one after.
    let last = fill(&mut log, 150);
    log.cover(last - 1);
    while log.is_covering() {
        std::thread::yield_now();
    }
    fill(&mut log, last + 60);
    log.finish().unwrap();
    // Only the last ones are left; they must not be taken for a log that never counted.
    let survey = quire_wal::DirectoryScan::of(&memory, 0).unwrap();
    assert!(survey.segments[0].meta.first_sequence > 1);
    assert!(survey.segments.iter().all(|segment| segment.meta.in_force));
    assert!(matches!(read(&memory, base(0), |_| LEN), Err(LogError::OldImage { .. })));
}

//! What the log's tests share: a log in memory, records that tell who they are, and reading them back.

use std::sync::Arc;

use quire_device::Directory;
use quire_wal::{BaseImage, Log, LogError, LogIdentity, LogOptions, Recovery, RecoverySummary, SyncPolicy};

pub const DATASET: u64 = 0xda7a;
pub const EPOCH: u64 = 3;
pub const SEGMENT_BYTES: u64 = 32 << 10;

pub fn options(sync: SyncPolicy) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, sync, ..LogOptions::default() }
}

pub fn identity() -> LogIdentity {
    LogIdentity { dataset: DATASET, base_epoch: EPOCH, in_force: true }
}

pub fn base(position: u64) -> BaseImage {
    BaseImage { dataset: DATASET, epoch: EPOCH, position }
}

/// A log that goes on behind `position`.
pub fn start(directory: &Arc<dyn Directory>, sync: SyncPolicy, position: u64) -> Result<Log, LogError> {
    Log::start(directory, options(sync), identity(), position + 1, Box::new(|| ()))
}

/// The words of record `sequence`: every byte of them depends on the number.
pub fn words(sequence: u64, len: usize) -> [Vec<u8>; 3] {
    let byte = |index: usize| (sequence as usize * 31 + index) as u8;
    [b"SET".to_vec(), format!("key:{sequence}").into_bytes(), (0..len).map(byte).collect()]
}

/// Adds a record of one command; `None` if the log has failed.
pub fn append(log: &mut Log, len: usize) -> Option<u64> {
    let words = words(log.appended() + 1, len);
    log.command(1000, 2, words.len());
    words.iter().for_each(|word| log.word(word));
    log.seal()
}

/// Waits until record `sequence` is durable; false if the log fails before.
pub fn durable(log: &Log, sequence: u64) -> bool {
    loop {
        if log.durable() >= sequence {
            return true;
        }
        if log.failure().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Reads a log and checks that every record is what [`append`] made of its number; the lengths are as `len` says.
pub fn read(
    directory: &dyn Directory,
    base: BaseImage,
    len: impl Fn(u64) -> usize,
) -> Result<(Vec<u64>, RecoverySummary), LogError> {
    let mut recovery = Recovery::open(directory, base)?;
    let (mut sequences, mut ranges) = (Vec::new(), Vec::new());
    while let Some(record) = recovery.next_record()? {
        let mut commands = record.commands();
        assert_eq!((record.now_ms().unwrap(), record.commands), (1000, 1));
        assert_eq!(commands.next_into(&mut ranges).unwrap(), Some(2));
        let found: Vec<Vec<u8>> = ranges.iter().map(|range| record.body()[range.clone()].to_vec()).collect();
        assert_eq!(found, words(record.sequence, len(record.sequence)), "record {}", record.sequence);
        assert_eq!(commands.next_into(&mut ranges).unwrap(), None);
        sequences.push(record.sequence);
    }
    Ok((sequences, recovery.finish(directory)?))
}

//! Target `log_reader`: a directory whose log holds any bytes is read or refused, never with a panic, and what is read is a row
//! of numbers without gaps.
//!
//! Relies on a log in memory; the first bytes of the input say what image it goes with, and whether the checksums of segments
//! and records are set right again, so that what is changed gets past them.

use std::ops::Range;
use std::sync::Arc;

use quire_device::{Directory, MemoryDirectory};
use quire_wal::format::{DATA_OFFSET, RECORD_HEADER_BYTES, RecordHeader, SegmentHeader, record_checksum};
use quire_wal::{BaseImage, Log, LogError, LogIdentity, LogOptions, Recovery, SyncPolicy};
use zerocopy::{FromBytes, IntoBytes};

use quire_rng::SplitMix64;

use crate::mutate::put_edge;

const DATASET: u64 = 7;
const EPOCH: u64 = 2;
const SEGMENT_BYTES: u64 = 16 << 10;
/// How many bytes at the front say what the image holds.
const CHOICES: usize = 2;
/// Choice: an image of the epoch after the log's.
const NEXT_EPOCH: u8 = 1;
/// Choice: checksums are set right.
const RESEAL: u8 = 2;

/// The input holds a directory's segments one after the other, as `pack` has it.
pub fn run(data: &[u8]) {
    let Some((choices, files)) = data.split_at_checked(CHOICES) else { return };
    let memory = MemoryDirectory::new();
    for (index, bytes) in files.chunks(SEGMENT_BYTES as usize).enumerate() {
        let mut bytes = bytes.to_vec();
        if choices[0] & RESEAL != 0 {
            reseal(&mut bytes);
        }
        memory.put(&name_of(index + 1), &bytes);
    }
    let epoch = EPOCH + u64::from(choices[0] & NEXT_EPOCH);
    let base = BaseImage { dataset: DATASET, epoch, position: u64::from(choices[1]) };
    read(Recovery::open(&memory, base), base.position);
    read(Recovery::of_damaged(&memory, base), base.position);
}

fn read(opened: Result<Recovery, LogError>, position: u64) {
    let Ok(mut recovery) = opened else { return };
    let mut expected = position + 1;
    while let Ok(Some(record)) = recovery.next_record() {
        assert_eq!(record.sequence, expected, "a gap, or a record twice");
        expected += 1;
        let _ = record.now_ms();
        let (mut commands, mut words): (_, Vec<Range<usize>>) = (record.commands(), Vec::new());
        while let Ok(Some(_)) = commands.next_into(&mut words) {
            assert!(words.iter().all(|word| word.end <= record.body().len()));
        }
    }
    let (done, total) = recovery.progress();
    assert!(done <= total);
}

/// Gives a segment and its records, as far as they follow one another, the checksums that fit their bytes.
fn reseal(segment: &mut [u8]) {
    let Ok((mut header, _)) = SegmentHeader::read_from_prefix(segment) else { return };
    header.checksum = header.own_checksum().into();
    segment[..size_of::<SegmentHeader>()].copy_from_slice(header.as_bytes());
    let mut at = DATA_OFFSET as usize;
    while let Some(Ok((mut record, _))) = segment.get(at..).map(RecordHeader::read_from_prefix)
        && let Some(bytes) = record.record_bytes()
    {
        let end = at + RECORD_HEADER_BYTES + record.body_bytes.get() as usize;
        let Some(whole) = segment.get_mut(at..end) else { return };
        record.checksum = record_checksum(header.salt.get(), whole).into();
        whole[..RECORD_HEADER_BYTES].copy_from_slice(record.as_bytes());
        at += bytes as usize;
    }
}

/// Logs of several segments, some of them used before, and the same with a change of one to eight bytes in a header, a record's
/// header or a record, under checksums that fit.
pub fn seeds() -> Vec<Vec<u8>> {
    let whole: Vec<_> =
        [(30, false), (120, false), (300, true)].into_iter().map(|(records, cover)| pack(records, cover)).collect();
    let mut rng = SplitMix64::new(33);
    let mut seeds = whole.clone();
    for number in 0..60 {
        let mut seed = whole[number % whole.len()].clone();
        seed[0] |= RESEAL;
        let from = [0, DATA_OFFSET as usize][number / 3 % 2] + CHOICES;
        let at = from + rng.index([80, 400][number / 3 % 2]);
        put_edge(&mut seed, at, &mut rng);
        seeds.push(seed);
    }
    seeds
}

fn pack(records: u64, cover: bool) -> Vec<u8> {
    let memory = MemoryDirectory::new();
    let directory: Arc<dyn Directory> = Arc::new(memory.clone());
    let options = LogOptions { segment_bytes: SEGMENT_BYTES, sync: SyncPolicy::Always, ..LogOptions::default() };
    let identity = LogIdentity { dataset: DATASET, base_epoch: EPOCH, in_force: true };
    let Ok(mut log) = Log::start(&directory, options, identity, 1, Box::new(|| ())) else { return vec![0, 0] };
    for number in 0..records {
        for word in 0..1 + number % 3 {
            log.command(number as i64, word as u8, 2);
            log.word(b"INCR");
            log.word(format!("key:{number}").repeat(word as usize + 1).as_bytes());
        }
        log.seal();
        log.commit();
        if cover && number == records / 2 {
            log.cover(number / 2);
        }
    }
    let _ = log.finish();
    let mut bytes = vec![0, if cover { (records / 2) as u8 } else { 0 }];
    let names = memory.list().unwrap_or_default();
    let last = names.iter().filter_map(|name| name.strip_prefix("quire-log-")?.parse().ok()).max().unwrap_or(0);
    for index in 1..=last {
        let mut file = memory.bytes(&name_of(index)).unwrap_or_default();
        file.resize(SEGMENT_BYTES as usize, 0);
        bytes.extend(file);
    }
    bytes
}

fn name_of(index: usize) -> String {
    format!("quire-log-{index:08}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_records_get_past_their_checksums() {
        let mut seed = pack(30, false);
        // The number of commands in the first record.
        seed[CHOICES + DATA_OFFSET as usize + 24] = 200;
        let read = |bytes: &[u8]| {
            let memory = MemoryDirectory::new();
            memory.put(&name_of(1), bytes);
            let base = BaseImage { dataset: DATASET, epoch: EPOCH, position: 0 };
            let mut recovery = Recovery::open(&memory, base).ok()?;
            recovery.next_record().ok().flatten().map(|record| record.sequence)
        };
        let mut segment = seed[CHOICES..][..SEGMENT_BYTES as usize].to_vec();
        assert_eq!(read(&segment), None, "its checksum is wrong");
        reseal(&mut segment);
        assert_eq!(read(&segment), Some(1));
    }
}

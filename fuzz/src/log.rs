//! Target `log_reader`: a directory whose log holds any bytes is read or refused, never with a panic, and what is read is a row
//! of numbers without gaps.
//!
//! Relies on a log in memory; the first bytes of the input say what image it goes with.

use std::ops::Range;
use std::sync::Arc;

use quire_device::{Directory, Memory};
use quire_durable::log::{Base, Identity, Log, LogError, LogOptions, Recovery, Sync};

const DATASET: u64 = 7;
const EPOCH: u64 = 2;
const SEGMENT_BYTES: u64 = 16 << 10;
/// How many bytes at the front say what the image holds.
const CHOICES: usize = 2;

/// The input holds a directory's segments one after the other, as [`pack`] has it.
pub fn run(data: &[u8]) {
    let Some((choices, files)) = data.split_at_checked(CHOICES) else { return };
    let memory = Memory::new();
    for (index, bytes) in files.chunks(SEGMENT_BYTES as usize).enumerate() {
        memory.put(&name_of(index + 1), bytes);
    }
    let base = Base { dataset: DATASET, epoch: EPOCH + u64::from(choices[0] & 1), position: u64::from(choices[1]) };
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

/// Logs of several segments, some of them used before.
pub fn seeds() -> Vec<Vec<u8>> {
    [(30, false), (120, false), (300, true)].into_iter().map(|(records, cover)| pack(records, cover)).collect()
}

fn pack(records: u64, cover: bool) -> Vec<u8> {
    let memory = Memory::new();
    let directory: Arc<dyn Directory> = Arc::new(memory.clone());
    let options = LogOptions { segment_bytes: SEGMENT_BYTES, sync: Sync::Always, ..LogOptions::default() };
    let identity = Identity { dataset: DATASET, base_epoch: EPOCH, in_force: true };
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

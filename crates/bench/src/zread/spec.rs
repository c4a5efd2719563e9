//! What a trial of a reading program is told and what it counts.
//!
//! Relies on nothing but files that are named by numbers; [`super::trial`] carries it out.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What follows a read of a block, now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Nothing: all operations are reads.
    None,
    /// Random bytes are put into the buffer and written to the file, through a descriptor for both, as fio does.
    WriteFile,
    /// The buffer is stored to, a byte a page, after the read.
    StoreBuffer,
}

/// What bounds any way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundKind {
    /// A copy from memory to memory.
    Memcpy,
    /// A `pread` of no bytes: a loop that is empty but for a system call.
    EmptyCall,
    /// Loads of every byte where it lies, in memory of the program's own.
    Sum,
    /// The block of the file mapped, a byte of each page loaded, and unmapped.
    MapTouch,
}

/// What the threads of a trial do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoadKind {
    /// Reads blocks of the files, each thread one file.
    Blocks {
        /// In random order, or one after the other.
        is_random: bool,
        /// Of what was read so much is loaded afterwards.
        touched_percent: u32,
        /// What else is done.
        change: Change,
        /// The share of operations that do it, or of blocks to which it is done.
        change_percent: u32,
    },
    /// Reads whole files, chosen at random; another thread replaces files of which none is read (filebench's `videoserver`).
    Videos,
    /// Opens, reads and closes whole files, chosen at random, and appends to a log after ten (filebench's `webserver`).
    Web,
    /// Reaches for the next place, which only the last one tells.
    Chase,
    /// `a[i] = b[i] + s * c[i]`.
    Stream,
    /// What bounds the others.
    Bound(BoundKind),
}

/// What a trial is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// Where the files are, `0`, `1` and so on.
    pub dir: PathBuf,
    /// How many files there are.
    pub files: usize,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Threads that do the same.
    pub threads: usize,
    /// Bytes of one read.
    pub block_bytes: usize,
    /// What they do.
    pub kind: LoadKind,
    /// The processor for all of them; any for `None`.
    pub processor: Option<usize>,
    /// Time before anything counts.
    pub warm_ms: u64,
    /// Time that counts.
    pub run_ms: u64,
    /// Seed of what is drawn.
    pub seed: u64,
}

/// What a trial has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialCounts {
    /// Reads, or whatever the load does.
    pub operations: u64,
    /// Bytes read.
    pub bytes: u64,
    /// In so many seconds.
    pub seconds: f64,
}

impl TrialCounts {
    /// Operations a second.
    pub fn per_s(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// What the threads of a trial share.
#[derive(Debug, Default)]
pub struct Counters {
    operations: AtomicU64,
    bytes: AtomicU64,
    ready: AtomicUsize,
    is_done: AtomicBool,
}

impl Counters {
    /// One operation more, by which so many bytes were read.
    pub fn add(&self, operations: u64, bytes: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The calling thread has what it needs and begins.
    pub fn begin(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the trial is over.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// How many threads have begun.
    pub fn begun(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    /// The trial is over.
    pub fn end(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }

    /// Operations and bytes until now.
    pub fn now(&self) -> (u64, u64, Instant) {
        (self.operations.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed), Instant::now())
    }
}

impl TrialSpec {
    /// The file of number `number`.
    pub fn file(&self, number: usize) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Opens the file of number `number` for reading.
    ///
    /// # Errors
    /// As `open`.
    pub fn open(&self, number: usize) -> anyhow::Result<File> {
        let path = self.file(number);
        File::open(&path).with_context(|| format!("opening {}", path.display()))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A trial on two files of 1 MiB in `dir`, which it makes.
    pub fn small_trial(dir: &std::path::Path, kind: LoadKind, block_bytes: usize) -> TrialSpec {
        for number in 0..2 {
            std::fs::write(dir.join(number.to_string()), vec![number as u8 + 1; 1 << 20]).unwrap();
        }
        let dir = dir.to_path_buf();
        let (files, file_bytes, threads, processor) = (2, 1 << 20, 2, None);
        TrialSpec { dir, files, file_bytes, threads, block_bytes, kind, processor, warm_ms: 1, run_ms: 10, seed: 5 }
    }

    #[test]
    fn rates_are_of_the_time_that_counts() {
        let counts = TrialCounts { operations: 10, bytes: 4096, seconds: 2.0 };
        assert_eq!((counts.per_s(), counts.bytes_per_s()), (5.0, 2048.0));
        let counters = Counters::default();
        counters.add(2, 100);
        counters.begin();
        let (operations, bytes, _) = counters.now();
        assert_eq!((operations, bytes, counters.begun(), counters.is_done()), (2, 100, 1, false));
        counters.end();
        assert!(counters.is_done());
    }
}

//! Reads of blocks, as fio's threads make them, and what bounds them.
//!
//! Relies on buffers from `malloc` that begin at a page, as fio's do: a library in front of it may serve reads into them in its own way. Small
//! blocks are read to the beginning of a larger buffer for the same reason.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use quire_rng::SplitMix64;
use quire_sys::file_view::FileView;
use quire_sys::mem::PAGE_SIZE;

use super::spec::{BoundKind, Change, Counters, LoadKind, TrialSpec};

/// Buffers are no smaller.
const LEAST_BUFFER_BYTES: usize = 1 << 20;

/// Memory from `malloc` that was written once, of which a part begins at a page.
#[derive(Debug)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl ReadBuffer {
    /// `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut bytes = Vec::with_capacity(len.max(LEAST_BUFFER_BYTES) + PAGE_SIZE);
        // Not `vec![0; …]`, which is `calloc`.
        bytes.resize(bytes.capacity(), 1);
        let start = bytes.as_ptr().align_offset(PAGE_SIZE);
        Self { bytes, start, len }
    }

    /// The part.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The sum of all bytes, taken by words.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// Where the next block lies.
struct Places {
    rng: SplitMix64,
    is_random: bool,
    next: u64,
    count: u64,
    block_bytes: u64,
}

impl Places {
    fn new(spec: &TrialSpec, number: usize, is_random: bool) -> Self {
        let count = (spec.file_bytes / spec.block_bytes as u64).max(1);
        let rng = SplitMix64::new(spec.seed ^ (number as u64) << 32);
        Self { rng, is_random, next: 0, count, block_bytes: spec.block_bytes as u64 }
    }

    fn next(&mut self) -> u64 {
        self.next = if self.is_random { self.rng.below(self.count) } else { (self.next + 1) % self.count };
        self.next * self.block_bytes
    }

    fn happens(&mut self, percent: u32) -> bool {
        percent > 0 && self.rng.below(100) < u64::from(percent)
    }
}

/// A large read by the thread that lives as long as the process: a library that needs a helper for such reads starts it now, and keeps it for as long as
/// this thread, where threads of trials come and go.
///
/// # Errors
/// The first file can't be read.
pub fn read_first(spec: &TrialSpec) -> anyhow::Result<()> {
    let file = spec.open(0)?;
    file.read_at(ReadBuffer::new(LEAST_BUFFER_BYTES).bytes(), 0).context("reading a file")?;
    Ok(())
}

/// A thread that reads blocks.
pub fn blocks(spec: &TrialSpec, number: usize, counters: &Counters) -> anyhow::Result<()> {
    let LoadKind::Blocks { is_random, touched_percent, change, change_percent } = spec.kind else { return Ok(()) };
    let path = spec.file(number % spec.files);
    let file = File::options().read(true).write(change == Change::WriteFile).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    let mut places = Places::new(spec, number, is_random);
    let mut buffer = ReadBuffer::new(spec.block_bytes);
    let touched =
        spec.block_bytes / 100 * touched_percent as usize + spec.block_bytes % 100 * touched_percent as usize / 100;
    counters.begin();
    while !counters.is_done() {
        let offset = places.next();
        let changes = places.happens(change_percent);
        if changes && change == Change::WriteFile {
            let word = places.rng.next_u64().to_ne_bytes();
            buffer.bytes().chunks_exact_mut(word.len()).for_each(|place| place.copy_from_slice(&word));
            file.write_all_at(buffer.bytes(), offset).context("writing a block")?;
            counters.add(1, spec.block_bytes as u64);
            continue;
        }
        file.read_exact_at(black_box(buffer.bytes()), offset).context("reading a block")?;
        black_box(sum(&buffer.bytes()[..touched]));
        if changes {
            buffer.bytes().iter_mut().step_by(PAGE_SIZE).for_each(|byte| *byte = byte.wrapping_add(1));
        }
        counters.add(1, spec.block_bytes as u64);
    }
    Ok(())
}

/// A thread that does what bounds the others.
pub fn bound(spec: &TrialSpec, kind: BoundKind, number: usize, counters: &Counters) -> anyhow::Result<()> {
    let file = spec.open(number % spec.files)?;
    let mut places = Places::new(spec, number, true);
    let mut buffer = ReadBuffer::new(spec.block_bytes);
    let has_plain = matches!(kind, BoundKind::Memcpy | BoundKind::Sum);
    let plain = vec![3_u8; if has_plain { spec.file_bytes as usize } else { 0 }];
    let block = |offset: u64| &plain[offset as usize..offset as usize + spec.block_bytes];
    counters.begin();
    while !counters.is_done() {
        let offset = places.next();
        let bytes = if kind == BoundKind::EmptyCall { 0 } else { spec.block_bytes as u64 };
        match kind {
            BoundKind::Memcpy => black_box(buffer.bytes()).copy_from_slice(block(offset)),
            BoundKind::Sum => {
                black_box(sum(block(offset)));
            }
            BoundKind::EmptyCall => {
                file.read_at(&mut buffer.bytes()[..0], offset).context("reading nothing")?;
            }
            BoundKind::MapTouch => {
                let view = FileView::new(&file, spec.block_bytes).context("mapping a block")?;
                let mut byte = [0];
                for at in (0..spec.block_bytes).step_by(PAGE_SIZE) {
                    view.copy(at, &mut byte);
                }
                black_box(byte);
            }
        }
        counters.add(1, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page_and_has_the_length_that_was_asked_for() {
        let mut buffer = ReadBuffer::new(5000);
        assert!(buffer.bytes().as_ptr().addr().is_multiple_of(PAGE_SIZE) && buffer.bytes().len() == 5000);
    }

    #[test]
    fn places_are_whole_blocks_of_the_file_in_the_order_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let spec = super::super::spec::tests::small_trial(dir.path(), LoadKind::Chase, 256 << 10);
        let mut places = Places::new(&spec, 0, false);
        let in_order: Vec<u64> = (0..5).map(|_| places.next() / (256 << 10)).collect();
        assert_eq!(in_order, [1, 2, 3, 0, 1]);
        let mut places = Places::new(&spec, 0, true);
        assert!((0..100).all(|_| places.next() <= spec.file_bytes - (256 << 10)));
        assert!((0..100).all(|_| !places.happens(0) && places.happens(100)));
    }
}

//! Writes many single pages at once, as vmcache does with libaio: one ring for each thread that evicts.
//!
//! Relies on io_uring; where it is forbidden pages are written one after the other. Pages are copied to a buffer that the
//! ring may own, which costs 0.4 µs each beside the write.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use quire_sys::buffer::Buffer;
use quire_sys::rw::RwFlags;
use quire_sys::transfer::{Direction, Extent, Transfer};
use quire_sys::uring::Ring;
use quire_sys::word_range::WordRange;

use crate::fastmap::testbed::{PAGE_BYTES, PAGE_WORDS};

/// Most pages of one submission.
const MOST: usize = 64;
/// Threads that can write batches at once; further ones write page by page.
const WRITERS: usize = 16;

struct BatchWriter {
    ring: Ring,
    buffer: Buffer,
}

/// Rings that no thread is using right now.
pub struct BatchWriters {
    file: Arc<File>,
    idle: Mutex<Vec<BatchWriter>>,
}

impl BatchWriters {
    /// Writers to `file`.
    pub fn new(file: Arc<File>) -> Self {
        let buffers = Buffer::several(WRITERS, MOST * PAGE_BYTES).unwrap_or_default();
        let writer = |buffer| Some(BatchWriter { ring: Ring::new().ok()?, buffer });
        Self { file, idle: Mutex::new(buffers.into_iter().map_while(writer).collect()) }
    }

    /// Writes `pages` of `memory` to their places, in order of offset.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, memory: &WordRange, pages: &mut [u64]) -> anyhow::Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        pages.sort_unstable();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut writer) = idle else { return self.write_singly(memory, pages) };
        for part in pages.chunks(MOST) {
            writer = writer.write(&self.file, memory, part)?;
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
        Ok(())
    }

    fn write_singly(&self, memory: &WordRange, pages: &[u64]) -> anyhow::Result<()> {
        for &page in pages {
            let start = page as usize * PAGE_BYTES;
            memory.write_to(&self.file, start as u64, start..start + PAGE_BYTES).context("writing a page")?;
        }
        Ok(())
    }
}

impl BatchWriter {
    /// A writer whose write failed is not used again.
    fn write(self, file: &Arc<File>, memory: &WordRange, pages: &[u64]) -> anyhow::Result<Self> {
        let Self { mut ring, mut buffer } = self;
        for (&page, bytes) in pages.iter().zip(buffer.chunks_exact_mut(PAGE_BYTES)) {
            let start = page as usize * PAGE_WORDS;
            for (word, target) in memory.words()[start..start + PAGE_WORDS].iter().zip(bytes.chunks_exact_mut(8)) {
                target.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
        }
        let extent = |(index, &page): (usize, &u64)| Extent {
            offset: page * PAGE_BYTES as u64,
            start: index * PAGE_BYTES,
            len: PAGE_BYTES,
        };
        let extents = pages.iter().enumerate().map(extent).collect();
        ring.submit(file, RwFlags::NONE, Transfer { direction: Direction::Write, buffer, extents, tag: 0 });
        let ended = ring.wait().context("a ring forgot a write")?;
        ended.result.context("writing pages")?;
        Ok(Self { ring, buffer: ended.transfer.buffer })
    }
}

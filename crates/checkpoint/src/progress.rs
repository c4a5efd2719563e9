//! How far a dump has come, and how fast it may go on, shared between the dumper thread and the threads that show and steer it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What a dump is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpPhase {
    /// Not started.
    Waiting,
    /// Writing pages.
    Data,
    /// Pages are written; making them durable.
    Sync,
    /// Giving the image its name.
    Publish,
    /// Ended well.
    Done,
    /// Ended badly or cancelled.
    Failed,
}

const PHASES: [DumpPhase; 6] =
    [DumpPhase::Waiting, DumpPhase::Data, DumpPhase::Sync, DumpPhase::Publish, DumpPhase::Done, DumpPhase::Failed];

/// Figures of a dump. All may be read at any time.
#[derive(Debug, Default)]
pub struct DumpProgress {
    pages_done: AtomicU64,
    pages_total: AtomicU64,
    bytes_written: AtomicU64,
    preimages_spilled: AtomicU64,
    regions_preferred: AtomicU64,
    regions_compressed: AtomicU64,
    saved_bytes: AtomicU64,
    phase: AtomicU8,
    cancelled: AtomicBool,
    max_bytes_per_s: AtomicU64,
}

impl DumpProgress {
    /// Of a dump that hasn't started.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages taken from the snapshot so far.
    pub fn pages_done(&self) -> u64 {
        self.pages_done.load(Ordering::Relaxed)
    }

    /// Pages that the snapshot held when the dump started.
    pub fn pages_total(&self) -> u64 {
        self.pages_total.load(Ordering::Relaxed)
    }

    /// Bytes that the device has taken.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Pre-images written one by one because the writer was short of buffers.
    pub fn preimages_spilled(&self) -> u64 {
        self.preimages_spilled.load(Ordering::Relaxed)
    }

    /// Regions written before their turn because the writer was short of buffers.
    pub fn regions_preferred(&self) -> u64 {
        self.regions_preferred.load(Ordering::Relaxed)
    }

    /// Regions that are stored compressed.
    pub fn regions_compressed(&self) -> u64 {
        self.regions_compressed.load(Ordering::Relaxed)
    }

    /// Bytes that compression has saved.
    pub fn saved_bytes(&self) -> u64 {
        self.saved_bytes.load(Ordering::Relaxed)
    }

    /// What the dump is doing.
    pub fn phase(&self) -> DumpPhase {
        PHASES[usize::from(self.phase.load(Ordering::Acquire)) % PHASES.len()]
    }

    /// Whether all pages are taken: from here on the writer is free of the snapshot.
    pub fn is_past_data(&self) -> bool {
        !matches!(self.phase(), DumpPhase::Waiting | DumpPhase::Data)
    }

    /// Asks the dump to stop. It is too late once the image is being published.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Lets the dump write so many bytes a second from now on; 0 is no limit, as at first.
    pub fn limit_rate(&self, max_bytes_per_s: u64) {
        self.max_bytes_per_s.store(max_bytes_per_s, Ordering::Relaxed);
    }

    pub(crate) fn max_bytes_per_s(&self) -> u64 {
        self.max_bytes_per_s.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self, pages_total: u64) {
        self.pages_total.store(pages_total, Ordering::Relaxed);
        self.enter(DumpPhase::Data);
    }

    pub(crate) fn enter(&self, phase: DumpPhase) {
        let number = PHASES.iter().position(|known| *known == phase).unwrap_or(0);
        self.phase.store(number as u8, Ordering::Release);
    }

    pub(crate) fn add_pages(&self, pages: u64) {
        self.pages_done.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_spilled(&self, pages: u64) {
        self.preimages_spilled.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn add_compressed(&self, saved_bytes: u64) {
        self.regions_compressed.fetch_add(1, Ordering::Relaxed);
        self.saved_bytes.fetch_add(saved_bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_preferred(&self) {
        self.regions_preferred.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_come_back_as_entered() {
        let progress = DumpProgress::new();
        assert_eq!(progress.phase(), DumpPhase::Waiting);
        for phase in PHASES {
            progress.enter(phase);
            assert_eq!(progress.phase(), phase);
        }
    }
}

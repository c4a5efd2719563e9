//! Content that describes itself: memory in cells of 256 bytes, each word of which says which cell it is and which version.
//!
//! Relies on each cell having one writer, and on writers holding still during a cut (a lock here). Neighbouring cells have
//! different writers, so every page is written by all of them at once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use quire_rng::SplitMix64;
use quire_snapshot::{Origin, View};

/// Bytes of a cell.
pub const CELL_BYTES: usize = 256;
const WORDS: usize = CELL_BYTES / 8;

/// Memory under an origin, full of cells.
pub struct Cells {
    origin: Box<dyn Origin>,
    /// The version of each cell, changed after its bytes were.
    versions: Vec<AtomicU32>,
    /// Held for reading while a cell is written, for writing while a view is cut.
    gate: RwLock<()>,
}

/// A view and what it must show.
pub struct Cut {
    pub view: Arc<dyn View>,
    pub versions: Vec<u32>,
}

fn word_of(cell: usize, version: u32) -> u64 {
    // A cell that was never written is zero, so written ones are numbered from 1. Scribbled twice it is as new.
    if version == 0 { 0 } else { (cell as u64 + 1) << 32 | u64::from(version) }
}

impl Cells {
    pub fn new(origin: Box<dyn Origin>) -> Self {
        let cells = origin.len() / CELL_BYTES;
        Self { origin, versions: (0..cells).map(|_| AtomicU32::new(0)).collect(), gate: RwLock::new(()) }
    }

    pub fn count(&self) -> usize {
        self.versions.len()
    }

    pub fn origin(&self) -> &dyn Origin {
        &*self.origin
    }

    /// Gives cell `cell` its next version. Only its owner calls this.
    pub fn bump(&self, cell: usize, announce: bool) {
        let _writing = self.gate.read().unwrap();
        let version = self.versions[cell].load(Ordering::Relaxed) + 1;
        let start = cell * CELL_BYTES;
        if announce || self.origin.mechanism().needs_announcement() {
            self.origin.prepare_write(start..start + CELL_BYTES);
        }
        for word in 0..WORDS {
            self.word(cell, word).store(word_of(cell, version), Ordering::Relaxed);
        }
        self.versions[cell].store(version, Ordering::Release);
    }

    fn word(&self, cell: usize, word: usize) -> &AtomicU64 {
        let at = self.origin.base().wrapping_add(cell * CELL_BYTES + word * 8);
        // SAFETY: inside the range, aligned, and used by the tests through atomics only.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Reads a cell of the live memory, which its owner may be writing: it is this cell at any rate, and no older than when
    /// the read began.
    pub fn glance(&self, cell: usize) {
        let before = self.versions[cell].load(Ordering::Acquire);
        for word in 0..WORDS {
            let found = self.word(cell, word).load(Ordering::Relaxed);
            let (whose, version) = (found >> 32, found as u32);
            let sound = whose == cell as u64 + 1 || found == 0;
            assert!(sound && version >= before, "live cell {cell}: {found:#x}, and version {before} was there before");
        }
    }

    /// Holds the writers for as long as the answer lives.
    pub fn still(&self) -> impl Drop + '_ {
        self.gate.write().unwrap()
    }

    /// Holds the writers and cuts.
    pub fn cut(&self) -> Cut {
        let _still = self.gate.write().unwrap();
        let view = self.origin.cut().unwrap();
        let versions = self.versions.iter().map(|version| version.load(Ordering::Acquire)).collect();
        Cut { view, versions }
    }

    /// Checks that the live memory holds what was written last; writers must have stopped.
    pub fn check(&self) {
        for cell in 0..self.count() {
            let version = self.versions[cell].load(Ordering::Acquire);
            for word in 0..WORDS {
                let found = self.word(cell, word).load(Ordering::Relaxed);
                let expected = word_of(cell, version);
                assert_eq!(found, expected, "live cell {cell} word {word}, version {version}");
            }
        }
    }

    /// Writes random cells, half of them in a hot stretch that moves, until `stop` says so. Writer `writer` of `writers`
    /// owns every cell whose number leaves `writer` over.
    pub fn write_until(&self, writer: usize, writers: usize, seed: u64, stop: &(dyn Fn() -> bool + Sync)) {
        let mut rng = SplitMix64::new(seed ^ (writer as u64) << 40);
        let own = self.count() / writers;
        let hot = (own / 5).max(1);
        let mut step = 0usize;
        while !stop() {
            step += 1;
            let number = match rng.next_u64() as usize {
                random if random & 1 == 0 => (step / (8 * hot) * hot + step % hot) % own,
                random => (random >> 1) % own,
            };
            self.bump(number * writers + writer, step.is_multiple_of(3));
        }
    }
}

impl Cut {
    /// A cut of this cut, which must show the same.
    pub fn again(&self) -> Self {
        Self { view: self.view.cut().unwrap(), versions: self.versions.clone() }
    }

    /// Changes a cell in the view alone, where views can be written. No other thread uses this view.
    pub fn scribble(&mut self, cell: usize) {
        let Some(base) = self.view.as_ptr() else { return };
        self.versions[cell] ^= 1 << 31;
        for word in 0..WORDS {
            let at = base.wrapping_add(cell * CELL_BYTES + word * 8).cast::<u64>();
            // SAFETY: inside the view, aligned; this thread alone uses it.
            unsafe { at.write_volatile(word_of(cell, self.versions[cell])) };
        }
    }

    /// Checks one cell by plain loads, where a view is ordinary memory.
    pub fn glance(&self, cell: usize) {
        let Some(base) = self.view.as_ptr() else { return };
        let bytes = super::memory::read(base, cell * CELL_BYTES, CELL_BYTES);
        self.check_cell(cell, &bytes);
    }

    /// Checks the cells from `first` on in steps of `step`.
    pub fn check(&self, first: usize, step: usize) {
        const MANY: usize = 64 << 10;
        let mut bytes = vec![0; if step == 1 { MANY } else { CELL_BYTES }];
        let cells = bytes.len() / CELL_BYTES;
        for start in (first..self.versions.len()).step_by(if step == 1 { cells } else { step }) {
            let here = cells.min(self.versions.len() - start);
            let bytes = &mut bytes[..here * CELL_BYTES];
            self.view.read(start * CELL_BYTES, bytes).unwrap();
            for (cell, bytes) in (start..).zip(bytes.chunks_exact(CELL_BYTES)) {
                self.check_cell(cell, bytes);
            }
        }
    }

    fn check_cell(&self, cell: usize, bytes: &[u8]) {
        let version = self.versions[cell];
        let expected = word_of(cell, version);
        for (number, word) in bytes.chunks_exact(8).enumerate() {
            let found = u64::from_ne_bytes(word.try_into().unwrap());
            assert_eq!(
                (found >> 32, found as u32),
                (expected >> 32, expected as u32),
                "view: cell {cell} (page {}) word {number}: (cell + 1, version)",
                cell * CELL_BYTES / 4096
            );
        }
    }
}

//! The page-state protocol: one atomic word a page, shared by the writer and the reader of a snapshot.
//!
//! Relies on there being one writer and one reader. A word carries the number of the snapshot that it speaks of; a word
//! of any other snapshot means *unsaved*, which is how a cut resets all pages at once.
//!
//! ```text
//! bits 31..24  snapshot number (1..=255; 0 in fresh memory)
//! bits 23..0   1 taken · 2 saved · 3+n held in buffer n
//! ```

use crate::sync::{AtomicU32, Ordering};

const TAKEN: u32 = 1;
const SAVED: u32 = 2;
const HELD: u32 = 3;
const VALUE_BITS: u32 = 24;
const VALUE_MASK: u32 = (1 << VALUE_BITS) - 1;
/// Highest number of buffers that a word can name.
pub const MAX_BUFFERS: u32 = VALUE_MASK - HELD;

/// Number of a snapshot, 1 to 255, used again after 255 cuts when all words have been zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotNumber(pub u8);

/// What a word says about its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Neither writer nor reader has copied the page as it was at the cut.
    Unsaved,
    /// The reader is copying it.
    Taken,
    /// Its content at the cut is safe, or there was none.
    Saved,
    /// Its content at the cut is in this buffer.
    Held(u32),
}

fn encode(number: SnapshotNumber, value: u32) -> u32 {
    u32::from(number.0) << VALUE_BITS | value
}

fn decode(number: SnapshotNumber, word: u32) -> PageState {
    if word >> VALUE_BITS != u32::from(number.0) {
        return PageState::Unsaved;
    }
    match word & VALUE_MASK {
        TAKEN => PageState::Taken,
        SAVED => PageState::Saved,
        held => PageState::Held(held.saturating_sub(HELD)),
    }
}

/// Reads the state of a page. A thread that sees *saved* or *held* also sees all that was done before.
pub fn load(word: &AtomicU32, number: SnapshotNumber) -> PageState {
    decode(number, word.load(Ordering::Acquire))
}

fn replace_unsaved(word: &AtomicU32, number: SnapshotNumber, value: u32) -> Result<(), PageState> {
    let mut seen = word.load(Ordering::Acquire);
    loop {
        match decode(number, seen) {
            PageState::Unsaved => {}
            other => return Err(other),
        }
        match word.compare_exchange_weak(seen, encode(number, value), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            Err(now) => seen = now,
        }
    }
}

/// Reader: claims an unsaved page, after which the writer keeps off it until [`finish_take`].
///
/// # Errors
/// The state that the page is in instead.
pub fn try_take(word: &AtomicU32, number: SnapshotNumber) -> Result<(), PageState> {
    replace_unsaved(word, number, TAKEN)
}

/// Reader: the claimed (or held) page is safe; the writer may change it from now on.
pub fn finish_take(word: &AtomicU32, number: SnapshotNumber) {
    word.store(encode(number, SAVED), Ordering::Release);
}

/// Writer: publishes the pre-image that it has copied into `buffer`, after which it may change the page.
///
/// # Errors
/// The state that the page is in instead: the reader was faster, the buffer isn't needed.
pub fn try_hold(word: &AtomicU32, number: SnapshotNumber, buffer: u32) -> Result<(), PageState> {
    debug_assert!(buffer < MAX_BUFFERS);
    replace_unsaved(word, number, HELD + buffer)
}

/// Writer: declares that the page had no content at the cut, after which it may change it.
///
/// # Errors
/// The state that the page is in instead.
pub fn try_skip(word: &AtomicU32, number: SnapshotNumber) -> Result<(), PageState> {
    replace_unsaved(word, number, SAVED)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_number_makes_every_page_unsaved() {
        let word = AtomicU32::new(0);
        assert_eq!(load(&word, SnapshotNumber(1)), PageState::Unsaved);
        try_take(&word, SnapshotNumber(1)).unwrap();
        assert_eq!(load(&word, SnapshotNumber(1)), PageState::Taken);
        finish_take(&word, SnapshotNumber(1));
        assert_eq!(load(&word, SnapshotNumber(1)), PageState::Saved);
        assert_eq!(load(&word, SnapshotNumber(2)), PageState::Unsaved);
    }

    #[test]
    fn only_the_first_claim_of_a_page_succeeds() {
        let word = AtomicU32::new(0);
        try_hold(&word, SnapshotNumber(9), 77).unwrap();
        assert_eq!(try_take(&word, SnapshotNumber(9)), Err(PageState::Held(77)));
        assert_eq!(try_skip(&word, SnapshotNumber(9)), Err(PageState::Held(77)));
        assert_eq!(try_hold(&word, SnapshotNumber(9), 1), Err(PageState::Held(77)));
    }
}

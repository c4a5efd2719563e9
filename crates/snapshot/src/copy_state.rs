//! What has become of one page in one epoch, and who may touch it.
//!
//! ```text
//!            claim                  publish
//!   unsaved ──────▶ copying (by one thread) ──────▶ held in a page of the store
//!                      │ mark_lost
//!                      └─────▶ lost: there was no memory for it
//! ```
//! A copy that a cut has overtaken is released: the page is unsaved again, and newer epochs tell what it held.
//!
//! A thread that wants to change the page claims it, copies it and publishes the copy; others that want to change it wait
//! for that. A reader of an unsaved page copies it from the range itself and asks afterwards whether it is
//! [still unsaved](still_unsaved): a change can only have begun after the page was published.
//!
//! Relies on nothing; modelled in `tests/loom_preimage.rs`.

use crate::sync::{AtomicU32, Ordering, fence};

/// State of a page in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// As it was at the cut, in the range itself.
    Unsaved,
    /// A thread is copying it.
    Copying,
    /// It was changed without a copy.
    Lost,
    /// Its copy is in this page of the store.
    Held(u32),
}

const COPYING: u32 = 1;
const LOST: u32 = 2;
const HELD: u32 = 3;

fn decode(value: u32) -> CopyState {
    match value {
        0 => CopyState::Unsaved,
        COPYING => CopyState::Copying,
        LOST => CopyState::Lost,
        held => CopyState::Held(held - HELD),
    }
}

/// The state of a page. A thread that sees *held* also sees what was done before.
pub fn load(word: &AtomicU32) -> CopyState {
    decode(word.load(Ordering::Acquire))
}

/// Claims an unsaved page for copying.
///
/// # Errors
/// The state that it is in instead.
pub fn claim(word: &AtomicU32) -> Result<(), CopyState> {
    word.compare_exchange(0, COPYING, Ordering::AcqRel, Ordering::Acquire).map(drop).map_err(decode)
}

/// The claimed page's copy is in page `slot` of the store; the page may be changed from now on.
pub fn publish(word: &AtomicU32, slot: u32) {
    word.store(HELD + slot, Ordering::Release);
}

/// There was no memory to copy the claimed page to; it may be changed from now on.
pub fn mark_lost(word: &AtomicU32) {
    word.store(LOST, Ordering::Release);
}

/// What was copied of the claimed page may be newer than its epoch: a newer one has the right copy.
pub fn release(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}

/// Sees to it that the page is safe: claims it, if no thread has yet, lets `copy` copy it to a page of the store (`None` if there is no
/// memory), and publishes that, if `is_newest` says that no cut has overtaken it. `false` if another thread is copying it now.
pub fn save(word: &AtomicU32, copy: impl FnOnce() -> Option<u32>, is_newest: impl FnOnce() -> bool) -> bool {
    match claim(word) {
        Ok(()) => {
            match copy() {
                Some(held) => publish_or_release(word, held, is_newest()),
                None => mark_lost(word),
            }
            true
        }
        Err(CopyState::Copying) => false,
        Err(CopyState::Unsaved | CopyState::Lost | CopyState::Held(_)) => true,
    }
}

/// Publishes the claimed page's copy, or releases the page if its epoch `is_newest` no more.
pub fn publish_or_release(word: &AtomicU32, held: u32, is_newest: bool) {
    if is_newest { publish(word, held) } else { release(word) }
}

/// The page was changed without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPage;

/// Reads a page as it was when an epoch began, of whose words for it and those of all newer epochs `words` is the row, oldest first:
/// by `held` from a page of the store, or by `live` from the range, then perhaps several times. No epoch is added meanwhile.
///
/// # Errors
/// The page is lost.
pub fn read<'a>(
    words: impl DoubleEndedIterator<Item = &'a AtomicU32> + Clone,
    mut held: impl FnMut(u32),
    mut live: impl FnMut(),
) -> Result<(), LostPage> {
    loop {
        for word in words.clone() {
            match load(word) {
                CopyState::Held(page) => {
                    held(page);
                    return Ok(());
                }
                CopyState::Lost => return Err(LostPage),
                CopyState::Unsaved | CopyState::Copying => {}
            }
        }
        live();
        // Writers copy for the newest epoch, so its word tells whether the page has changed.
        if words.clone().next_back().is_none_or(still_unsaved) {
            return Ok(());
        }
    }
}

/// A writer calls this after it has found a page safe, and before it changes the page. Readers look at the word last, and this
/// keeps the change behind the word for them.
pub fn before_change() {
    fence(Ordering::Release);
}

/// Whether what was read from the page before this call was what it held at the cut.
pub fn still_unsaved(word: &AtomicU32) -> bool {
    fence(Ordering::Acquire);
    matches!(decode(word.load(Ordering::Relaxed)), CopyState::Unsaved | CopyState::Copying)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_claims_a_page_and_all_find_its_copy() {
        let word = AtomicU32::new(0);
        assert!(still_unsaved(&word));
        claim(&word).unwrap();
        assert_eq!(claim(&word), Err(CopyState::Copying));
        assert!(still_unsaved(&word), "no writer changes a page that is being copied");
        publish(&word, 5);
        assert_eq!((load(&word), still_unsaved(&word)), (CopyState::Held(5), false));
    }

    #[test]
    fn a_page_without_memory_for_its_copy_is_lost() {
        let word = AtomicU32::new(0);
        claim(&word).unwrap();
        mark_lost(&word);
        assert_eq!((load(&word), still_unsaved(&word)), (CopyState::Lost, false));
    }
}

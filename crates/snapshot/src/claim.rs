//! What has become of one page in one epoch, and who may touch it.
//!
//! ```text
//!            claim                  publish
//!   unsaved ──────▶ copying (by one thread) ──────▶ held in a page of the store
//!                      │ lose
//!                      └─────▶ lost: there was no memory for it
//! ```
//! A copy that a cut has overtaken is given up: the page is unsaved again, and newer epochs tell what it held.
//!
//! A thread that wants to change the page claims it, copies it and publishes the copy; others that want to change it wait
//! for that. A reader of an unsaved page copies it from the range itself and asks afterwards whether it is
//! [still unsaved](still_unsaved): a change can only have begun after the page was published.
//!
//! Relies on nothing; modelled in `tests/loom_keep.rs`.

use crate::sync::{AtomicU32, Ordering, fence};

/// State of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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

fn decode(value: u32) -> State {
    match value {
        0 => State::Unsaved,
        COPYING => State::Copying,
        LOST => State::Lost,
        held => State::Held(held - HELD),
    }
}

/// The state of a page. What was done before it became *held* is visible to whoever sees that.
pub fn state(word: &AtomicU32) -> State {
    decode(word.load(Ordering::Acquire))
}

/// Claims an unsaved page for copying.
///
/// # Errors
/// The state that it is in instead.
pub fn claim(word: &AtomicU32) -> Result<(), State> {
    word.compare_exchange(0, COPYING, Ordering::AcqRel, Ordering::Acquire).map(drop).map_err(decode)
}

/// The claimed page's copy is in page `slot` of the store; the page may be changed from now on.
pub fn publish(word: &AtomicU32, slot: u32) {
    word.store(HELD + slot, Ordering::Release);
}

/// There was no memory to copy the claimed page to; it may be changed from now on.
pub fn lose(word: &AtomicU32) {
    word.store(LOST, Ordering::Release);
}

/// What was copied of the claimed page may be newer than its epoch: a newer one has the right copy.
pub fn give_up(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}

/// Sees to it that the page is safe: claims it, if no thread has yet, lets `copy` copy it to a page of the store (`None` if there is no
/// memory), and publishes that, if `is_newest` says that no cut has overtaken it. `false` if another thread is copying it now.
pub fn save(word: &AtomicU32, copy: impl FnOnce() -> Option<u32>, is_newest: impl FnOnce() -> bool) -> bool {
    match claim(word) {
        Ok(()) => {
            match copy() {
                Some(held) => settle(word, held, is_newest()),
                None => lose(word),
            }
            true
        }
        Err(State::Copying) => false,
        Err(State::Unsaved | State::Lost | State::Held(_)) => true,
    }
}

/// Publishes the claimed page's copy, or gives it up if it `is_newest` no more.
pub fn settle(word: &AtomicU32, held: u32, is_newest: bool) {
    if is_newest { publish(word, held) } else { give_up(word) }
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
            match state(word) {
                State::Held(page) => {
                    held(page);
                    return Ok(());
                }
                State::Lost => return Err(LostPage),
                State::Unsaved | State::Copying => {}
            }
        }
        live();
        // Writers serve the newest epoch.
        if words.clone().next_back().is_none_or(still_unsaved) {
            return Ok(());
        }
    }
}

/// Between having found a page safe, whoever made it so, and changing it: keeps the change behind the word for readers,
/// who look at the word last.
pub fn before_change() {
    fence(Ordering::Release);
}

/// Whether what was read from the page before this call was what it held at the cut.
pub fn still_unsaved(word: &AtomicU32) -> bool {
    fence(Ordering::Acquire);
    matches!(decode(word.load(Ordering::Relaxed)), State::Unsaved | State::Copying)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_claims_a_page_and_all_find_its_copy() {
        let word = AtomicU32::new(0);
        assert!(still_unsaved(&word));
        claim(&word).unwrap();
        assert_eq!(claim(&word), Err(State::Copying));
        assert!(still_unsaved(&word), "nobody changes a page that is being copied");
        publish(&word, 5);
        assert_eq!((state(&word), still_unsaved(&word)), (State::Held(5), false));
    }

    #[test]
    fn a_page_without_memory_for_its_copy_is_lost() {
        let word = AtomicU32::new(0);
        claim(&word).unwrap();
        lose(&word);
        assert_eq!((state(&word), still_unsaved(&word)), (State::Lost, false));
    }
}

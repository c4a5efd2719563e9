//! Sleeping at a page's word.
//!
//! Relies on `quire-sys` for futexes, which watch 32 bits: the low half of the word, where all that anybody waits for is.

use std::sync::atomic::{AtomicU32, AtomicU64};

use quire_sys::futex::{self, Scope};

use crate::word::{Parking, Word};

/// Threads of this process sleep in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Futex;

/// The half of the word where state, locks and readers are.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let halves = word.as_ptr().cast::<u32>();
    let low = if cfg!(target_endian = "big") { halves.wrapping_add(1) } else { halves };
    // SAFETY: aligned and inside the word, which lives as long as the result. It is only handed to the kernel as an address:
    // this process never loads or stores half a word.
    unsafe { AtomicU32::from_ptr(low) }
}

impl Parking for Futex {
    fn park(&self, word: &Word, low: u32) {
        futex::wait(low_half(word.atomic()), low, None, Scope::Process);
    }

    fn unpark_all(&self, word: &Word) {
        futex::wake_all(low_half(word.atomic()), Scope::Process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Hold, State};

    #[test]
    fn a_sleeper_wakes_when_the_page_is_there_and_when_its_last_reader_leaves() {
        let word = Word::new();
        word.begin_read(None).unwrap();
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| word.wait(&Futex, |seen| seen.state() == State::Clean).shared());
            let writer = threads.spawn(|| word.wait(&Futex, |seen| seen.can_exclude()).shared());
            let after = word.end_read(Hold::Shared);
            if after.wake {
                Futex.unpark_all(&word);
            }
            reader.join().unwrap();
            if word.unshare() {
                Futex.unpark_all(&word);
            }
            assert_eq!(writer.join().unwrap(), 0);
        });
    }
}

//! Sleeping at a page's state.
//!
//! Relies on `quire-sys` for futexes, which watch 32 bits: the low half of the state, where everything is that a thread waits for.

use std::sync::atomic::{AtomicU32, AtomicU64};

use quire_sys::futex::{self, FutexScope};

use crate::page_state::{PageState, WaitQueue};

/// Threads of this process sleep in the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Futex;

/// The half of the state where state, locks and readers are.
fn low_half(state: &AtomicU64) -> &AtomicU32 {
    let halves = state.as_ptr().cast::<u32>();
    let low = if cfg!(target_endian = "big") { halves.wrapping_add(1) } else { halves };
    // SAFETY: aligned and inside the state, which lives as long as the result. It is only handed to the kernel as an address:
    // this process never loads or stores half a state.
    unsafe { AtomicU32::from_ptr(low) }
}

impl WaitQueue for Futex {
    fn park(&self, state: &PageState, low: u32) {
        futex::wait(low_half(state.atomic()), low, None, FutexScope::Process);
    }

    fn unpark_all(&self, state: &PageState) {
        futex::wake_all(low_half(state.atomic()), FutexScope::Process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_state::{LockMode, PageStatus};

    #[test]
    fn a_sleeper_wakes_when_the_page_is_there_and_when_its_last_reader_leaves() {
        let state = PageState::new();
        state.begin_read(None).unwrap();
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| state.wait(&Futex, |seen| seen.status() == PageStatus::Clean).shared());
            let writer = threads.spawn(|| state.wait(&Futex, |seen| seen.can_lock_exclusive()).shared());
            let after = state.end_read(LockMode::Shared);
            if after.wake {
                Futex.unpark_all(&state);
            }
            reader.join().unwrap();
            if state.unlock_shared() {
                Futex.unpark_all(&state);
            }
            assert_eq!(writer.join().unwrap(), 0);
        });
    }
}

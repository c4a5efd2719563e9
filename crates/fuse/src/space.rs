//! Whether the slow device has room for bytes that will reach it later, so that a program learns of a full disk when it
//! writes and not when it is too late to say so.
//!
//! Relies on the file system's count of free blocks, asked for now and then, less what is pending. It errs on the safe
//! side: pending bytes that will go over old ones count as if they needed space. Holes within a file are not seen.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quire_sys::at;

/// How old the count may be.
const FRESH: Duration = Duration::from_millis(200);
/// Never promised: metadata needs space, too.
const SLACK_BYTES: u64 = 1 << 20;

/// Free space, as far as known.
#[derive(Debug, Default)]
pub struct Space {
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    free_bytes: u64,
    asked: Instant,
}

impl Space {
    /// Whether `bytes` more may be promised, when `pending` says how many have been and are not there yet.
    pub fn admit(&self, root: &File, bytes: u64, pending: impl FnOnce() -> u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |state: &Option<State>| {
            state.as_ref().is_some_and(|state| {
                state.asked.elapsed() < FRESH && state.free_bytes >= bytes.saturating_add(SLACK_BYTES)
            })
        };
        if !fits(&state) {
            let Ok(space) = at::space(root) else { return true };
            let free_bytes = space.available_blocks.saturating_mul(space.block_bytes).saturating_sub(pending());
            *state = Some(State { free_bytes, asked: Instant::now() });
            if !fits(&state) {
                return false;
            }
        }
        if let Some(state) = &mut *state {
            state.free_bytes -= bytes;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_counts_as_taken() {
        let root = File::open(std::env::temp_dir()).unwrap();
        let free = at::space(&root).unwrap();
        let free_bytes = free.available_blocks * free.block_bytes;
        assert!(Space::default().admit(&root, 1, || 0));
        assert!(!Space::default().admit(&root, 1, || u64::MAX));
        assert!(!Space::default().admit(&root, free_bytes * 2, || 0));
    }
}

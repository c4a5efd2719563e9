//! Whether the slow device has room for bytes that will reach it later, and takes files of their length, so that a program
//! learns of a full disk or of a limit when it writes and not when it is too late to say so.
//!
//! Relies on the file system's count of free blocks, asked for now and then, less what is pending. It errs on the safe
//! side: pending bytes that will go over old ones count as if they needed space. Holes within a file are not seen.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::Errno;
use quire_sys::at;

use crate::error::FuseResult;

/// How old the count may be.
const FRESH: Duration = Duration::from_millis(200);
/// Never promised: metadata needs space, too.
const SLACK_BYTES: u64 = 1 << 20;

/// Free space, as far as known, and the longest file.
#[derive(Debug)]
pub struct FreeSpace {
    state: Mutex<Option<State>>,
    longest_file_bytes: u64,
}

#[derive(Debug)]
struct State {
    free_bytes: u64,
    asked: Instant,
}

impl FreeSpace {
    /// Of a directory whose files may have so many bytes.
    pub fn new(longest_file_bytes: u64) -> Self {
        Self { state: Mutex::default(), longest_file_bytes }
    }

    /// The end of `count` bytes at `offset`, if a file may be so long.
    ///
    /// # Errors
    /// `EFBIG`.
    pub fn end_of(&self, offset: u64, count: u64) -> FuseResult<u64> {
        offset.checked_add(count).filter(|end| *end <= self.longest_file_bytes).ok_or(Errno::EFBIG)
    }

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
        assert!(FreeSpace::new(u64::MAX).admit(&root, 1, || 0));
        assert!(!FreeSpace::new(u64::MAX).admit(&root, 1, || u64::MAX));
        assert!(!FreeSpace::new(u64::MAX).admit(&root, free_bytes * 2, || 0));
    }

    #[test]
    fn no_byte_is_promised_behind_the_end_of_the_longest_file() {
        let space = FreeSpace::new(1000);
        assert_eq!(space.end_of(900, 100).unwrap(), 1000);
        assert_eq!(space.end_of(901, 100).unwrap_err(), Errno::EFBIG);
        assert_eq!(space.end_of(u64::MAX, 1).unwrap_err(), Errno::EFBIG);
    }
}

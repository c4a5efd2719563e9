//! The sparse encoding: runs of registers of one value, in one or two bytes each.
//!
//! `00nnnnnn` is n+1 registers that are 0, `01nnnnnn nnnnnnnn` as well, `1vvvvvnn` n+1 registers that are v+1. Which runs there are
//! follows from the commands, as in Redis: a run is split where a register is raised, and neighbours of one value are joined near to it.

use std::fmt::Write as _;
use std::ops::Range;

use super::{Corrupted, HEADER_BYTES, REGISTERS, STALE_AT, stale};

const LONG_ZEROS: u8 = 0x40;
const VALUE: u8 = 0x80;
/// The largest value of a run.
const MOST_VALUE: u8 = 32;
/// Registers that a run of a value has at most.
const MOST_VALUE_LEN: usize = 4;
/// Registers that a run of zeros of one byte has at most.
const MOST_SHORT_ZEROS: usize = 64;
/// Runs behind a change among which neighbours are joined.
const JOINED_RUNS: usize = 5;

/// A run of registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    value: u8,
    len: usize,
    /// Bytes that it takes.
    bytes: usize,
}

/// What became of raising a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raised {
    /// It is as high already.
    Not,
    /// It was lower.
    Yes,
    /// It is lower, and this encoding has no place for what it should be.
    TooLarge,
}

/// The run at `at`; `None` at the end, or if it is cut short.
fn run_at(runs: &[u8], at: usize) -> Option<Run> {
    let byte = *runs.get(at)?;
    Some(if byte & VALUE != 0 {
        Run { value: (byte >> 2 & 0x1f) + 1, len: usize::from(byte & 3) + 1, bytes: 1 }
    } else if byte & LONG_ZEROS != 0 {
        let low = *runs.get(at + 1)?;
        Run { value: 0, len: (usize::from(byte & 0x3f) << 8 | usize::from(low)) + 1, bytes: 2 }
    } else {
        Run { value: 0, len: usize::from(byte & 0x3f) + 1, bytes: 1 }
    })
}

fn value_byte(value: u8, len: usize) -> u8 {
    VALUE | (value - 1) << 2 | (len - 1) as u8
}

/// Appends a run of zeros, in as few bytes as it takes.
pub fn push_zeros(bytes: &mut Vec<u8>, len: usize) {
    let len = len - 1;
    if len >= MOST_SHORT_ZEROS {
        bytes.push(LONG_ZEROS | (len >> 8) as u8);
    }
    bytes.push(len as u8);
}

fn push_run(bytes: &mut Vec<u8>, value: u8, len: usize) {
    match (value, len) {
        (_, 0) => {}
        (0, len) => push_zeros(bytes, len),
        (value, len) => bytes.push(value_byte(value, len)),
    }
}

/// Calls `f` with the registers of each run and their value.
///
/// # Errors
/// They are not the registers that there are; `f` was called with some of them.
pub fn for_each_run(runs: &[u8], f: &mut dyn FnMut(Range<usize>, u8)) -> Result<(), Corrupted> {
    let (mut at, mut first) = (0, 0);
    while let Some(run) = run_at(runs, at) {
        let end = first + run.len;
        if end > REGISTERS {
            return Err(Corrupted);
        }
        f(first..end, run.value);
        (at, first) = (at + run.bytes, end);
    }
    if first == REGISTERS && at == runs.len() { Ok(()) } else { Err(Corrupted) }
}

/// Raises a register of a sparse HyperLogLog that would not get longer than `limit_bytes`.
///
/// # Errors
/// No run covers the register. Nothing has changed then.
pub fn raise(bytes: &mut Vec<u8>, register: usize, value: u8, limit_bytes: u64) -> Result<Raised, Corrupted> {
    if value > MOST_VALUE {
        return Ok(Raised::TooLarge);
    }
    let (mut at, mut first, mut before) = (HEADER_BYTES, 0, HEADER_BYTES);
    let run = loop {
        let run = run_at(bytes, at).ok_or(Corrupted)?;
        if register < first + run.len {
            break run;
        }
        (before, at, first) = (at, at + run.bytes, first + run.len);
    };
    if run.value >= value {
        return Ok(Raised::Not);
    }
    let mut new = Vec::with_capacity(5);
    push_run(&mut new, run.value, register - first);
    new.push(value_byte(value, 1));
    push_run(&mut new, run.value, first + run.len - register - 1);
    if new.len() > run.bytes && (bytes.len() + new.len() - run.bytes) as u64 > limit_bytes {
        return Ok(Raised::TooLarge);
    }
    bytes.splice(at..at + run.bytes, new);
    join_values(bytes, before);
    bytes[STALE_AT] = stale(bytes[STALE_AT]);
    Ok(Raised::Yes)
}

/// Joins neighbouring runs of one value, from the run at `at` on.
fn join_values(bytes: &mut Vec<u8>, at: usize) {
    let mut at = at;
    for _ in 0..JOINED_RUNS {
        let Some(run) = run_at(bytes, at) else { return };
        let joined = run_at(bytes, at + run.bytes)
            .filter(|next| run.value > 0 && next.value == run.value && run.len + next.len <= MOST_VALUE_LEN);
        match joined {
            Some(next) => {
                bytes[at] = value_byte(run.value, run.len + next.len);
                bytes.remove(at + 1);
            }
            None => at += run.bytes,
        }
    }
}

/// The runs, as PFDEBUG DECODE shows them.
pub fn text(runs: &[u8]) -> String {
    let (mut at, mut text) = (0, String::new());
    while let Some(run) = run_at(runs, at) {
        let gap = if at == 0 { "" } else { " " };
        let _ = match run {
            Run { value: 0, len, bytes: 1 } => write!(text, "{gap}z:{len}"),
            Run { value: 0, len, .. } => write!(text, "{gap}Z:{len}"),
            Run { value, len, .. } => write!(text, "{gap}v:{value},{len}"),
        };
        at += run.bytes;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyperloglog::empty;

    #[test]
    fn a_run_is_split_and_joined_as_registers_are_raised() {
        let mut bytes = empty();
        let mut raise = |register, value| {
            raise(&mut bytes, register, value, 3000).unwrap();
            text(&bytes[HEADER_BYTES..])
        };
        assert_eq!(raise(100, 3), "Z:100 v:3,1 Z:16283");
        assert_eq!(raise(101, 3), "Z:100 v:3,2 Z:16282");
        assert_eq!(raise(99, 3), "Z:99 v:3,3 Z:16282");
        assert_eq!(raise(98, 3), "Z:98 v:3,4 Z:16282");
        assert_eq!(raise(97, 3), "Z:97 v:3,1 v:3,4 Z:16282");
        assert_eq!(raise(99, 4), "Z:97 v:3,2 v:4,1 v:3,2 Z:16282");
        assert_eq!(raise(0, 1), "v:1,1 Z:96 v:3,2 v:4,1 v:3,2 Z:16282");
        assert_eq!(raise(60, 1), "v:1,1 z:59 v:1,1 z:36 v:3,2 v:4,1 v:3,2 Z:16282");
    }

    #[test]
    fn what_has_no_place_is_told() {
        let mut bytes = empty();
        assert_eq!(raise(&mut bytes, 5, 33, 3000), Ok(Raised::TooLarge));
        assert_eq!(raise(&mut bytes, 5, 3, 19), Ok(Raised::TooLarge));
        assert_eq!(raise(&mut bytes, 5, 3, 20), Ok(Raised::Yes));
        assert_eq!(bytes.len(), 20);
        assert_eq!(raise(&mut bytes, 5, 32, 0), Ok(Raised::Yes), "in the place of a run of the same length");
        assert_eq!(raise(&mut bytes, 5, 3, 0), Ok(Raised::Not));
    }
}

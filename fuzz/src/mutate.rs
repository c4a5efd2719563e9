//! Mutations of inputs: what a fuzzing engine does, without its feedback.
//!
//! Relies on a seeded generator, so that every run can be repeated.

use quire_rng::SplitMix64;

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u32::MAX as u64, u64::MAX];
/// Pieces that mean something to the RESP parser; harmless elsewhere.
const WORDS: [&[u8]; 8] = [b"\r\n", b"*", b"$", b"-1", b"*3\r\n$", b"99999999999", b"\"", b"\\x"];

/// Changes `data` in one to four places, keeping it under `most` bytes.
pub fn mutate(data: &mut Vec<u8>, most: usize, rng: &mut SplitMix64) {
    for _ in 0..=rng.index(4) {
        let at = rng.index(data.len());
        match rng.index(9) {
            0 if !data.is_empty() => data[at] ^= 1 << rng.index(8),
            1 if !data.is_empty() => data[at] = rng.next_u64() as u8,
            2 => data.truncate(at),
            3 => put_edge(data, at, rng),
            4 => {
                let word = WORDS[rng.index(WORDS.len())];
                data.splice(at..at, word.iter().copied());
            }
            5 => {
                let end = (at + 1 + rng.index(16)).min(data.len());
                data.drain(at.min(end)..end);
            }
            6 => {
                let end = (at + 1 + rng.index(64)).min(data.len());
                let copy = data[at.min(end)..end].to_vec();
                let to = rng.index(data.len());
                data.splice(to..to, copy);
            }
            7 => {
                let end = (at + 1 + rng.index(64)).min(data.len());
                data[at.min(end)..end].fill(rng.next_u64() as u8);
            }
            _ => data.push(rng.next_u64() as u8),
        }
    }
    data.truncate(most);
}

/// Overwrites one to eight bytes with a value at which arithmetic goes wrong.
pub fn put_edge(data: &mut [u8], at: usize, rng: &mut SplitMix64) {
    let width = 1 << rng.index(4);
    let edge = EDGES[rng.index(EDGES.len())].wrapping_add(rng.next_u64() % 3).wrapping_sub(1);
    if let Some(place) = data.get_mut(at..at + width) {
        place.copy_from_slice(&edge.to_le_bytes()[..width]);
    }
}

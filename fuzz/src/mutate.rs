//! Mutations of inputs: what a fuzzing engine does, without its feedback.
//!
//! Relies on a seeded generator, so that every run can be repeated.

/// Numbers that are random enough for this (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.roll() % bound as u64) as usize }
    }
}

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, u32::MAX as u64, u64::MAX];
/// Pieces that mean something to the RESP parser; harmless elsewhere.
const WORDS: [&[u8]; 8] = [b"\r\n", b"*", b"$", b"-1", b"*3\r\n$", b"99999999999", b"\"", b"\\x"];

/// Changes `data` in one to four places, keeping it under `most` bytes.
pub fn mutate(data: &mut Vec<u8>, most: usize, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let at = dice.below(data.len());
        match dice.below(9) {
            0 if !data.is_empty() => data[at] ^= 1 << dice.below(8),
            1 if !data.is_empty() => data[at] = dice.roll() as u8,
            2 => data.truncate(at),
            3 => put_edge(data, at, dice),
            4 => {
                let word = WORDS[dice.below(WORDS.len())];
                data.splice(at..at, word.iter().copied());
            }
            5 => {
                let end = (at + 1 + dice.below(16)).min(data.len());
                data.drain(at.min(end)..end);
            }
            6 => {
                let end = (at + 1 + dice.below(64)).min(data.len());
                let copy = data[at.min(end)..end].to_vec();
                let to = dice.below(data.len());
                data.splice(to..to, copy);
            }
            7 => {
                let end = (at + 1 + dice.below(64)).min(data.len());
                data[at.min(end)..end].fill(dice.roll() as u8);
            }
            _ => data.push(dice.roll() as u8),
        }
    }
    data.truncate(most);
}

/// Overwrites one to eight bytes with a value at which arithmetic goes wrong.
pub fn put_edge(data: &mut [u8], at: usize, dice: &mut Dice) {
    let width = 1 << dice.below(4);
    let edge = EDGES[dice.below(EDGES.len())].wrapping_add(dice.roll() % 3).wrapping_sub(1);
    if let Some(place) = data.get_mut(at..at + width) {
        place.copy_from_slice(&edge.to_le_bytes()[..width]);
    }
}

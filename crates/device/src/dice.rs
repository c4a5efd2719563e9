//! Chances that a number decides, so that a test that fails can be run again.

/// Dice that always fall alike for the same number.
#[derive(Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// One of two.
    pub(crate) fn heads(&mut self) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33).is_multiple_of(2)
    }
}

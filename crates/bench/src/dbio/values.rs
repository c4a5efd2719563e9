//! What values consist of: how far they can be compressed decides how much a compressing tier holds.
//!
//! Relies on LZ4 finding repetitions and nothing else: it makes no use of an alphabet that is small.

use quire_rng::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::fastmap::kv::VALUE_BYTES;
use crate::requests::Values;

/// Bytes from which values are cut.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of a run in values that compress: noise, then as many equal bytes.
const RUN_BYTES: usize = 50;

/// What values consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// As YCSB fills its fields: random printable characters (6 bits in a byte); LZ4 finds nothing to compress in them
    Printable,
    /// Random bytes, which no compression shrinks
    Random,
    /// Half random bytes and half repetitions, which LZ4 stores in about half
    Half,
}

impl ValueKind {
    /// As the facts of a report name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Printable => "printable",
            Self::Random => "random",
            Self::Half => "half",
        }
    }

    /// Values of this kind.
    pub fn values(self, seed: u64) -> Values {
        let mut rng = SplitMix64::new(seed);
        let byte = |index: usize| {
            let drawn = (rng.next_u64() >> 32) as u8;
            match self {
                Self::Printable => b' ' + (drawn & 63),
                Self::Half if index / RUN_BYTES % 2 == 1 => b'x',
                Self::Random | Self::Half => drawn,
            }
        };
        Values::cut_from((0..POOL_BYTES + VALUE_BYTES).map(byte).collect(), VALUE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(kind: ValueKind) -> Vec<u8> {
        kind.values(3).pick(&mut SplitMix64::new(4)).to_vec()
    }

    #[test]
    fn values_are_what_their_name_says() {
        let printable = picked(ValueKind::Printable);
        assert!(printable.len() == VALUE_BYTES && printable.iter().all(|byte| (b' '..=b'_').contains(byte)));
        let mut seen = printable;
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 64, "every character is used");
        let random = picked(ValueKind::Random);
        assert!(random.iter().any(|&byte| byte >= 128) && random.iter().any(|&byte| byte < 32));
        let equal = |bytes: &[u8]| bytes.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((450..550).contains(&equal(&picked(ValueKind::Half))));
        assert!(equal(&random) < 30);
    }
}

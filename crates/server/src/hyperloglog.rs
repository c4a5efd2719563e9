//! HyperLogLog: how many different elements there were, estimated from 16384 registers, as Redis keeps it in a string.
//!
//! A header of 16 bytes (a magic word, the encoding, the last estimate), then the registers: dense, six bits each, or sparse, runs of
//! registers that have one value. The bytes equal those of Redis after the same commands, since programs copy such strings from
//! server to server. Relies on nothing; strings come from clients, so each is looked at as hostile.

mod estimate;
mod sparse;

pub use estimate::estimate;

/// Registers, of which the low bits of an element's hash choose one.
pub const REGISTERS: usize = 1 << REGISTER_BITS;
/// Bytes before the registers.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a dense one.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * WIDTH / 8;
/// The registers of a longer one would be more than there are.
pub const MOST_BYTES: usize = HEADER_BYTES + 2 * REGISTERS;
/// Place of the byte in whose highest bit the header says that its estimate is out of date.
pub const STALE_AT: usize = 15;

const REGISTER_BITS: u32 = 14;
/// Bits of the hash behind those that choose the register.
const COUNTED_BITS: u32 = 64 - REGISTER_BITS;
/// Bits of a dense register.
const WIDTH: usize = 6;
const WIDTH_MASK: u16 = (1 << WIDTH) - 1;
const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
const STALE: u8 = 0x80;
const HASH_SEED: u64 = 0xadc8_3b19;

/// The value of each register.
pub type Registers = [u8; REGISTERS];

/// How the registers are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HllLayout {
    /// Six bits each.
    Dense = 0,
    /// Runs.
    Sparse = 1,
}

/// Its runs don't cover the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupted;

/// The encoding of a string; `None` if it is no HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<HllLayout> {
    let header = bytes.get(..HEADER_BYTES)?;
    match header[ENCODING_AT] {
        _ if !header.starts_with(MAGIC) => None,
        0 if bytes.len() == DENSE_BYTES => Some(HllLayout::Dense),
        1 => Some(HllLayout::Sparse),
        _ => None,
    }
}

/// One without elements.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING_AT] = HllLayout::Sparse as u8;
    sparse::push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// The estimate in the header, if it is up to date.
pub fn kept_estimate(bytes: &[u8]) -> Option<u64> {
    let estimate = u64::from_le_bytes(bytes.get(ESTIMATE_AT..HEADER_BYTES)?.try_into().ok()?);
    (bytes[STALE_AT] & STALE == 0).then_some(estimate)
}

/// Where the estimate stands in the header, and its bytes.
pub fn estimate_field(estimate: u64) -> (usize, [u8; 8]) {
    (ESTIMATE_AT, estimate.to_le_bytes())
}

/// The byte at [`STALE_AT`] once the estimate is out of date.
pub fn stale(byte: u8) -> u8 {
    byte | STALE
}

/// The register that an element belongs to, and the value that it wants there.
pub fn place_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64(element);
    // A bit behind the last one ends a row of zeros.
    let rest = hash >> REGISTER_BITS | 1 << COUNTED_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A, read in the order of little-endian machines.
fn murmur64(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = HASH_SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    for word in words {
        let mut mixed = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        mixed = (mixed ^ mixed >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = (hash ^ mixed).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

/// The bytes that hold a dense register, the first of them in the string, and how far the register is shifted in them.
fn dense_place(register: usize) -> (usize, u32) {
    let bit = register * WIDTH;
    (HEADER_BYTES + bit / 8, (bit % 8) as u32)
}

/// The value of a register of a dense one.
pub fn dense_get(bytes: &[u8], register: usize) -> u8 {
    let (at, shift) = dense_place(register);
    let pair = u16::from_le_bytes([bytes[at], bytes.get(at + 1).copied().unwrap_or(0)]);
    (pair >> shift & WIDTH_MASK) as u8
}

/// Gives a register of a dense one a value.
pub fn dense_set(bytes: &mut [u8], register: usize, value: u8) {
    let (at, shift) = dense_place(register);
    let pair = u16::from_le_bytes([bytes[at], bytes.get(at + 1).copied().unwrap_or(0)]);
    let [low, high] = (pair & !(WIDTH_MASK << shift) | u16::from(value) << shift).to_le_bytes();
    bytes[at] = low;
    if let Some(byte) = bytes.get_mut(at + 1) {
        *byte = high;
    }
}

/// The bytes of a dense one that hold a register: where they begin, and how many they are.
pub fn dense_span(register: usize) -> (usize, usize) {
    let (at, shift) = dense_place(register);
    (at, if shift as usize + WIDTH > 8 { 2 } else { 1 })
}

/// Raises each register to that of `bytes` where it is lower.
///
/// # Errors
/// The runs of a sparse one don't cover the registers; those before are raised.
pub fn raise_to(registers: &mut Registers, bytes: &[u8], encoding: HllLayout) -> Result<(), Corrupted> {
    match encoding {
        HllLayout::Dense => {
            let raise = |(register, value): (usize, &mut u8)| *value = (*value).max(dense_get(bytes, register));
            registers.iter_mut().enumerate().for_each(raise);
            Ok(())
        }
        HllLayout::Sparse => sparse::for_each_run(&bytes[HEADER_BYTES..], &mut |run, value| {
            registers[run].iter_mut().for_each(|register| *register = (*register).max(value));
        }),
    }
}

/// The dense form of any one: itself, or with the header of the sparse one.
///
/// # Errors
/// As [`raise_to`].
pub fn to_dense(bytes: &[u8]) -> Result<Vec<u8>, Corrupted> {
    if encoding(bytes) == Some(HllLayout::Dense) {
        return Ok(bytes.to_vec());
    }
    let mut dense = vec![0; DENSE_BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    dense[ENCODING_AT] = HllLayout::Dense as u8;
    sparse::for_each_run(&bytes[HEADER_BYTES..], &mut |run, value| {
        if value > 0 {
            run.for_each(|register| dense_set(&mut dense, register, value));
        }
    })?;
    Ok(dense)
}

/// Raises one register to a value, and says whether it was lower. A sparse one that would get longer than `limit_bytes`, or a value too
/// large for a run, makes it dense.
///
/// # Errors
/// As [`raise_to`]; nothing has changed then.
pub fn raise(bytes: &mut Vec<u8>, register: usize, value: u8, limit_bytes: u64) -> Result<bool, Corrupted> {
    if bytes[ENCODING_AT] == HllLayout::Dense as u8 {
        let is_lower = dense_get(bytes, register) < value;
        if is_lower {
            dense_set(bytes, register, value);
        }
        return Ok(is_lower);
    }
    match sparse::raise(bytes, register, value, limit_bytes)? {
        sparse::Raised::Not => Ok(false),
        sparse::Raised::Yes => Ok(true),
        sparse::Raised::TooLarge => {
            *bytes = to_dense(bytes)?;
            dense_set(bytes, register, value);
            Ok(true)
        }
    }
}

/// How many registers have each value.
///
/// # Errors
/// As [`raise_to`].
pub fn histogram(bytes: &[u8], encoding: HllLayout) -> Result<[u32; 64], Corrupted> {
    let mut counts = [0; 64];
    match encoding {
        HllLayout::Dense => {
            (0..REGISTERS).for_each(|register| counts[usize::from(dense_get(bytes, register))] += 1);
        }
        HllLayout::Sparse => sparse::for_each_run(&bytes[HEADER_BYTES..], &mut |run, value| {
            counts[usize::from(value)] += run.len() as u32;
        })?,
    }
    Ok(counts)
}

/// How many of some registers have each value.
pub fn histogram_of(registers: &Registers) -> [u32; 64] {
    let mut counts = [0; 64];
    registers.iter().for_each(|value| counts[usize::from(value & 63)] += 1);
    counts
}

/// The runs of a sparse one as PFDEBUG shows them.
pub fn runs_text(bytes: &[u8]) -> String {
    sparse::text(&bytes[HEADER_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: u64 = 3000;

    fn registers_of(bytes: &[u8]) -> Registers {
        let mut registers = [0; REGISTERS];
        raise_to(&mut registers, bytes, encoding(bytes).unwrap()).unwrap();
        registers
    }

    fn count_of(bytes: &[u8]) -> u64 {
        estimate(&histogram(bytes, encoding(bytes).unwrap()).unwrap())
    }

    fn add(bytes: &mut Vec<u8>, element: &[u8], limit_bytes: u64) -> bool {
        let (register, value) = place_of(element);
        raise(bytes, register, value, limit_bytes).unwrap()
    }

    #[test]
    fn an_empty_one_is_a_header_and_one_run_of_zeros() {
        assert_eq!(empty(), b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        assert_eq!((count_of(&empty()), kept_estimate(&empty())), (0, Some(0)));
    }

    #[test]
    fn estimates_are_near_the_truth_and_the_same_in_both_encodings() {
        let (mut sparse, mut dense) = (empty(), to_dense(&empty()).unwrap());
        let mut next = 10;
        for n in 1..=100_000u64 {
            add(&mut sparse, &n.to_le_bytes(), LIMIT);
            add(&mut dense, &n.to_le_bytes(), LIMIT);
            if n == next {
                assert_eq!(count_of(&sparse), count_of(&dense), "{n}");
                assert!(count_of(&dense).abs_diff(n) <= 1 + n / 20, "{n} is estimated as {}", count_of(&dense));
                next *= 10;
            }
        }
        assert_eq!(sparse[HEADER_BYTES..], dense[HEADER_BYTES..], "one that got too large is dense");
    }

    #[test]
    fn what_is_no_hyperloglog_is_seen() {
        let dense = to_dense(&empty()).unwrap();
        assert_eq!(encoding(&dense), Some(HllLayout::Dense));
        let mut other = dense.clone();
        other[ENCODING_AT] = 2;
        for bytes in
            [&b""[..], b"HYLL", b"hyll\x01\0\0\0\0\0\0\0\0\0\0\0", &dense[1..], &dense[..DENSE_BYTES - 1], &other]
        {
            assert_eq!(encoding(bytes), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn registers_are_raised_as_those_of_a_plain_array(
            places in prop::collection::vec((0..REGISTERS, prop_oneof![9 => 1u8..6, 1 => 1u8..52]), 0..600),
            near: bool, limit_bytes in prop_oneof![Just(0u64), Just(LIMIT), Just(40), Just(u64::MAX)],
        ) {
            let (mut bytes, mut model) = (empty(), [0; REGISTERS]);
            for (register, value) in places {
                // Close to each other, they share runs.
                let register = if near { register % 40 } else { register };
                let raised = raise(&mut bytes, register, value, limit_bytes).unwrap();
                prop_assert_eq!(raised, model[register] < value);
                model[register] = model[register].max(value);
            }
            prop_assert!(registers_of(&bytes) == model);
            prop_assert_eq!(histogram(&bytes, encoding(&bytes).unwrap()).unwrap(), histogram_of(&model));
            prop_assert!(registers_of(&to_dense(&bytes).unwrap()) == model);
        }

        #[test]
        fn no_bytes_make_it_fail_otherwise_than_as_corrupted(
            runs in prop::collection::vec(any::<u8>(), 0..300), register in 0..REGISTERS, value in 1u8..52,
        ) {
            let mut bytes = empty();
            bytes.truncate(HEADER_BYTES);
            bytes.extend(runs);
            let before = bytes.clone();
            let mut registers = [0; REGISTERS];
            let valid = raise_to(&mut registers, &bytes, HllLayout::Sparse);
            prop_assert_eq!(histogram(&bytes, HllLayout::Sparse).is_ok(), valid.is_ok());
            prop_assert_eq!(to_dense(&bytes).is_ok(), valid.is_ok());
            runs_text(&bytes);
            if raise(&mut bytes, register, value, 3000).is_err() {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}

//! Strings as arrays of bits, the highest bit of the first byte first: SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP.
//!
//! Relies on the store for the bytes; counting and searching are done here, on whole words where that is possible.

use std::ops::Range;

use quire_store::{ExpiryChange, STRING_MAX_BYTES, string};

use crate::cmd::range::{forward_span, span};
use crate::ctx::{Args, CmdError, Ctx};
use quire_store::numbers::parse_i64;

pub(super) const BAD_OFFSET: CmdError = CmdError::fixed("ERR bit offset is not an integer or out of range");
const BAD_BIT: CmdError = CmdError::fixed("ERR bit is not an integer or out of range");

/// A bit's place, within the longest string.
fn bit_offset(text: &[u8]) -> Result<u64, CmdError> {
    let offset = parse_i64(text).and_then(|offset| u64::try_from(offset).ok()).ok_or(BAD_OFFSET)?;
    if offset / 8 < STRING_MAX_BYTES as u64 { Ok(offset) } else { Err(BAD_OFFSET) }
}

/// SETBIT key offset value
pub fn setbit(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let offset = bit_offset(ctx.args.at(2))?;
    let bit = match parse_i64(ctx.args.at(3)) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(BAD_BIT),
    };
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let old = match ctx.steps_owner() {
        Some(owner) => string::set_bit_in_steps(ctx.store, owner, db, key, offset, bit)?,
        None => Some(string::set_bit(ctx.store, db, key, offset, bit)?),
    };
    let Some(old) = old else { return Err(ctx.not_made_yet()) };
    ctx.reply.int(i64::from(old));
    Ok(())
}

/// GETBIT key offset
pub fn getbit(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let offset = bit_offset(ctx.args.at(2))?;
    let value = string::get(ctx.store, ctx.client.db, ctx.args.at(1))?.unwrap_or_default();
    let byte = value.get((offset / 8) as usize).copied().unwrap_or_default();
    ctx.reply.int(i64::from(byte >> (7 - offset % 8) & 1));
    Ok(())
}

/// What the numbers of a range count; true for bits.
fn counts_bits(args: Args<'_>, at: usize) -> Result<bool, CmdError> {
    match at {
        _ if at >= args.len() || args.is(at, "BYTE") => Ok(false),
        _ if args.is(at, "BIT") => Ok(true),
        _ => Err(CmdError::SYNTAX),
    }
}

/// BITCOUNT key [start end [BYTE | BIT]]
pub fn bitcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let Some(value) = string::get(ctx.store, ctx.client.db, args.at(1))? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let all = value.len() as u64 * 8;
    let bits = match args.len() {
        2 => 0..all,
        4 | 5 => {
            let (start, end) = (args.int(2)?, args.int(3)?);
            // Redis looks at the unit after it has seen that nothing is to be counted.
            let backward = start < 0 && end < 0 && start > end;
            if !backward && counts_bits(args, 4)? {
                forward_span(all, start, end)
            } else {
                in_bits(forward_span(all / 8, start, end))
            }
        }
        _ => return Err(CmdError::SYNTAX),
    };
    ctx.reply.int(count_ones(value, bits) as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub fn bitpos(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let bit = match args.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(CmdError::fixed("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = string::get(ctx.store, ctx.client.db, args.at(1))? else {
        // A missing key is an endless row of zeros.
        ctx.reply.int(if bit { -1 } else { 0 });
        return Ok(());
    };
    if args.len() > 6 {
        return Err(CmdError::SYNTAX);
    }
    let all = value.len() as u64 * 8;
    let start = if args.len() > 3 { args.int(3)? } else { 0 };
    let by_bits = counts_bits(args, 5)?;
    let has_end = args.len() > 4;
    let end = if has_end { args.int(4)? } else { -1 };
    let bits = if by_bits { span(all, start, end) } else { in_bits(span(all / 8, start, end)) };
    let place = match first_bit(value, bits.clone(), bit) {
        Some(place) => place as i64,
        // Without an end the string is followed by zeros, unless there is nothing to follow.
        None if !bit && !has_end && !bits.is_empty() => bits.end as i64,
        None => -1,
    };
    ctx.reply.int(place);
    Ok(())
}

fn in_bits(bytes: Range<u64>) -> Range<u64> {
    bytes.start * 8..bytes.end * 8
}

/// The bytes that `bits` touches, and for the first and the last of them which bits are meant.
fn edges(bits: &Range<u64>) -> (Range<usize>, u8, u8) {
    let bytes = (bits.start / 8) as usize..bits.end.div_ceil(8) as usize;
    let first = 0xff >> (bits.start % 8);
    let last = 0xff << ((8 - bits.end % 8) % 8);
    (bytes, first, last)
}

/// How many of `bits` are set.
fn count_ones(value: &[u8], bits: Range<u64>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (bytes, first, last) = edges(&bits);
    let bytes = &value[bytes];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut count: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    count += rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    // Whole bytes were counted; the bits before and after are taken off again.
    count -= u64::from((bytes[0] & !first).count_ones());
    count - u64::from((bytes[bytes.len() - 1] & !last).count_ones())
}

/// The first of `bits` that is `bit`.
fn first_bit(value: &[u8], bits: Range<u64>, bit: bool) -> Option<u64> {
    if bits.is_empty() {
        return None;
    }
    let (bytes, first, _) = edges(&bits);
    // Turned over if need be, so that what is searched is a one.
    let flip: u8 = if bit { 0 } else { 0xff };
    let found = |index: usize, byte: u8| index as u64 * 8 + u64::from(byte.leading_zeros());
    let start = (value[bytes.start] ^ flip) & first;
    let place = if start != 0 {
        found(bytes.start, start)
    } else {
        let rest = &value[bytes.start + 1..bytes.end];
        let (words, _) = rest.as_chunks::<8>();
        let blank = [flip; 8];
        let skipped = 8 * words.iter().position(|word| *word != blank).unwrap_or(words.len());
        let index = skipped + rest[skipped..].iter().position(|byte| *byte != flip)?;
        found(bytes.start + 1 + index, rest[index] ^ flip)
    };
    (place < bits.end).then_some(place)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BitOp {
    And,
    Or,
    Xor,
    Not,
}

impl BitOp {
    fn named(args: Args<'_>, at: usize) -> Option<BitOp> {
        let names = [("AND", BitOp::And), ("OR", BitOp::Or), ("XOR", BitOp::Xor), ("NOT", BitOp::Not)];
        names.into_iter().find(|(name, _)| args.is(at, name)).map(|(_, op)| op)
    }

    /// Combines `value` into `result`; the shorter of the two is followed by zeros.
    fn apply(self, result: &mut Vec<u8>, value: &[u8]) {
        let shared = result.len().min(value.len());
        let pairs = result.iter_mut().zip(value);
        match self {
            BitOp::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                result[shared..].fill(0);
                result.resize(result.len().max(value.len()), 0);
            }
            BitOp::Or => {
                pairs.for_each(|(byte, other)| *byte |= other);
                result.extend_from_slice(&value[shared..]);
            }
            BitOp::Xor => {
                pairs.for_each(|(byte, other)| *byte ^= other);
                result.extend_from_slice(&value[shared..]);
            }
            BitOp::Not => result.iter_mut().for_each(|byte| *byte = !*byte),
        }
    }
}

/// BITOP AND | OR | XOR | NOT destination key …
pub fn bitop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let op = BitOp::named(args, 1).ok_or(CmdError::SYNTAX)?;
    if op == BitOp::Not && args.len() != 4 {
        return Err(CmdError::fixed("ERR BITOP NOT must be called with a single source key."));
    }
    let (db, destination) = (ctx.client.db, args.at(2));
    let mut result = string::get(ctx.store, db, args.at(3))?.unwrap_or_default().to_vec();
    if op == BitOp::Not {
        op.apply(&mut result, &[]);
    }
    for key in args.from(4).iter() {
        op.apply(&mut result, string::get(ctx.store, db, key)?.unwrap_or_default());
    }
    if result.is_empty() {
        ctx.store.remove(db, destination)?;
    } else {
        string::set_raw(ctx.store, db, destination, &result, ExpiryChange::Clear)?;
    }
    ctx.reply.int(result.len() as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit_at(value: &[u8], place: u64) -> bool {
        value[(place / 8) as usize] >> (7 - place % 8) & 1 == 1
    }

    #[test]
    fn shorter_strings_count_as_padded_with_zeros() {
        let apply = |op: BitOp, values: [&[u8]; 2]| {
            let mut result = values[0].to_vec();
            op.apply(&mut result, values[1]);
            result
        };
        assert_eq!(apply(BitOp::And, [b"\xff\xff\xff", b"\x0f"]), b"\x0f\0\0");
        assert_eq!(apply(BitOp::And, [b"\x0f", b"\xff\xff\xff"]), b"\x0f\0\0");
        assert_eq!(apply(BitOp::Or, [b"\x01", b"\x02\x03"]), b"\x03\x03");
        assert_eq!(apply(BitOp::Xor, [b"\x01\x07", b"\x03"]), b"\x02\x07");
        assert_eq!(apply(BitOp::Not, [b"\x0f", b""]), b"\xf0");
    }

    #[test]
    fn bit_offsets_end_with_the_longest_string() {
        assert_eq!(bit_offset(b"4294967295").unwrap(), 4_294_967_295);
        for text in ["4294967296", "-1", "x", "", "1.0"] {
            assert!(bit_offset(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn counting_and_searching_agree_with_a_walk_over_single_bits(
            mut value in prop::collection::vec(prop_oneof![Just(0u8), Just(0xffu8), any::<u8>()], 1..40),
            uniform: bool, bit: bool, from in 0u64..330, len in 0u64..330,
        ) {
            if uniform {
                value.fill(if bit { 0 } else { 0xff });
            }
            let all = value.len() as u64 * 8;
            let range = from.min(all)..(from + len).min(all);
            prop_assert_eq!(
                count_ones(&value, range.clone()),
                range.clone().filter(|place| bit_at(&value, *place)).count() as u64
            );
            prop_assert_eq!(first_bit(&value, range.clone(), bit), range.clone().find(|place| bit_at(&value, *place) == bit));
        }
    }
}

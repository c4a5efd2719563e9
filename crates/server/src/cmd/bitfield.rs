//! Integers of any width within strings: BITFIELD and BITFIELD_RO.
//!
//! All words are read before anything is done. Relies on the store for the bytes, and on it to make room for the farthest field that is
//! written, in steps if that is much.

use quire_store::numbers::parse_i64;
use quire_store::string::{self, StringMut};
use quire_store::{DbId, Keyspace, STRING_MAX_BYTES, StoreError};

use crate::cmd::bits::BAD_OFFSET;
use crate::ctx::{Args, CmdError, Ctx};
use crate::resp::Reply;

const BAD_TYPE: CmdError =
    CmdError::fixed("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
/// Bytes that a field touches at most.
const MOST_TOUCHED: usize = 9;

/// What is done with a result that a field is too narrow for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer within a string.
#[derive(Clone, Copy, Debug)]
struct Field {
    signed: bool,
    /// Bits, up to 64 if signed, up to 63 otherwise.
    width: u32,
    /// Its first bit.
    offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    field: Field,
    action: Action,
    overflow: Overflow,
}

impl Field {
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Self, CmdError> {
        let (signed, most) = match kind.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(BAD_TYPE),
        };
        // As in C the text ends at a zero byte.
        let digits = kind[1..].split(|&byte| byte == 0).next().unwrap_or_default();
        let width = parse_i64(digits).filter(|width| (1..=most).contains(width)).ok_or(BAD_TYPE)? as u32;
        let (number, factor) = match offset {
            [b'#', number @ ..] => (number, i64::from(width)),
            number => (number, 1),
        };
        let offset = parse_i64(number).ok_or(BAD_OFFSET)?.wrapping_mul(factor);
        let offset = u64::try_from(offset).ok().filter(|offset| offset / 8 < STRING_MAX_BYTES as u64);
        Ok(Self { signed, width, offset: offset.ok_or(BAD_OFFSET)? })
    }

    /// Bytes that a string has which holds all of it.
    fn end_bytes(&self) -> usize {
        (self.offset + u64::from(self.width)).div_ceil(8) as usize
    }

    /// The bytes that it touches.
    fn bytes(&self) -> std::ops::Range<usize> {
        (self.offset / 8) as usize..self.end_bytes()
    }

    /// The bits behind the field in the bytes that it touches.
    fn bits_behind(&self) -> u32 {
        (self.end_bytes() as u64 * 8 - self.offset) as u32 - self.width
    }

    fn mask(&self) -> u128 {
        (1 << self.width) - 1
    }

    /// Its value in a string, behind whose end there are zeros. An unsigned one is never negative.
    fn get(&self, string: &[u8]) -> i64 {
        let touched = self.bytes().fold(0u128, |bits, at| bits << 8 | u128::from(string.get(at).copied().unwrap_or(0)));
        let bits = (touched >> self.bits_behind() & self.mask()) as u64;
        let unused = 64 - self.width;
        if self.signed { ((bits << unused) as i64) >> unused } else { bits as i64 }
    }

    /// Gives it the low bits of a value in a string that holds all of it.
    fn put(&self, string: &mut StringMut<'_>, value: i64) -> Result<(), StoreError> {
        let (range, shift) = (self.bytes(), self.bits_behind());
        let touched = string.bytes()?.get(range.clone()).unwrap_or_default();
        let bits = touched.iter().fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
        let bits = bits & !(self.mask() << shift) | (u128::from(value as u64) & self.mask()) << shift;
        let bytes = bits.to_be_bytes();
        debug_assert!(range.len() <= MOST_TOUCHED);
        string.write(range.start, &bytes[bytes.len() - range.len()..])
    }

    /// What it can hold.
    fn range(&self) -> (i128, i128) {
        match self.signed {
            true => (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1),
            false => (0, (1 << self.width) - 1),
        }
    }

    /// What it holds after a result; `None` if that is to change nothing.
    fn fit(&self, result: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.range();
        if (least..=most).contains(&result) {
            return Some(result as i64);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(result.clamp(least, most) as i64),
            Overflow::Wrap => {
                let unused = 64 - self.width;
                let bits = (result as u64) << unused;
                Some(if self.signed { (bits as i64) >> unused } else { (bits >> unused) as i64 })
            }
        }
    }
}

impl Operation {
    /// Does it; the reply is the old value of a field that is set, the new one of one that is added to.
    fn write(&self, string: &mut StringMut<'_>) -> Result<Option<i64>, StoreError> {
        let old = self.field.get(string.bytes()?);
        let result = match self.action {
            Action::Get => return Ok(Some(old)),
            // A negative number is a very large one of no sign.
            Action::Set(value) if !self.field.signed => i128::from(value as u64),
            Action::Set(value) => i128::from(value),
            Action::Add(value) => i128::from(old) + i128::from(value),
        };
        let Some(new) = self.field.fit(result, self.overflow) else { return Ok(None) };
        self.field.put(string, new)?;
        Ok(Some(if matches!(self.action, Action::Set(_)) { old } else { new }))
    }
}

fn parse(args: Args<'_>) -> Result<Vec<Operation>, CmdError> {
    let (mut operations, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < args.len() {
        let behind = args.len() - at - 1;
        if behind >= 1 && args.is(at, "OVERFLOW") {
            overflow = match args.at(at + 1).to_ascii_uppercase().as_slice() {
                b"WRAP" => Overflow::Wrap,
                b"SAT" => Overflow::Saturate,
                b"FAIL" => Overflow::Fail,
                _ => return Err(CmdError::fixed("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let is_get = behind >= 2 && args.is(at, "GET");
        let is_set = behind >= 3 && args.is(at, "SET");
        if !(is_get || is_set || behind >= 3 && args.is(at, "INCRBY")) {
            return Err(CmdError::SYNTAX);
        }
        let field = Field::parse(args.at(at + 1), args.at(at + 2))?;
        let action = match (is_get, is_set) {
            (true, _) => Action::Get,
            (_, true) => Action::Set(args.int(at + 3)?),
            _ => Action::Add(args.int(at + 3)?),
        };
        operations.push(Operation { field, action, overflow });
        at += if is_get { 3 } else { 4 };
    }
    Ok(operations)
}

/// BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type offset increment …]
pub fn bitfield(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let operations = parse(ctx.args)?;
    let written = operations.iter().filter(|operation| operation.action != Action::Get);
    let Some(len) = written.map(|operation| operation.field.end_bytes()).max() else { return read(ctx, &operations) };
    if len > STRING_MAX_BYTES {
        return Err(BAD_OFFSET);
    }
    let (owner, db) = (ctx.steps_owner(), ctx.client.db);
    let Some(results) = write(ctx.store, owner, (db, ctx.args.at(1)), len, &operations)? else {
        return Err(ctx.not_made_yet());
    };
    ctx.reply.array(results.len());
    results.into_iter().for_each(|result| write_result(ctx.reply, result));
    Ok(())
}

/// Does the operations on a key's string of at least `len` bytes; `None` as long as that is made.
fn write(
    store: &mut Keyspace,
    owner: Option<u64>,
    (db, key): (DbId, &[u8]),
    len: usize,
    operations: &[Operation],
) -> Result<Option<Vec<Option<i64>>>, StoreError> {
    let string = match owner {
        Some(owner) => string::open_mut_in_steps(store, owner, db, key, len)?,
        None => Some(string::open_mut(store, db, key, len)?),
    };
    let Some(mut string) = string else { return Ok(None) };
    operations.iter().map(|operation| operation.write(&mut string)).collect::<Result<Vec<_>, _>>().map(Some)
}

/// BITFIELD_RO key [GET type offset …]
pub fn bitfield_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let operations = parse(ctx.args)?;
    if operations.iter().any(|operation| operation.action != Action::Get) {
        return Err(CmdError::fixed("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(ctx, &operations)
}

fn read(ctx: &mut Ctx<'_>, operations: &[Operation]) -> Result<(), CmdError> {
    let value = string::get(ctx.store, ctx.client.db, ctx.args.at(1))?.unwrap_or_default();
    ctx.reply.array(operations.len());
    operations.iter().for_each(|operation| ctx.reply.int(operation.field.get(value)));
    Ok(())
}

fn write_result(reply: &mut Reply, result: Option<i64>) {
    match result {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quire_store::{Store, StoreConfig};

    #[test]
    fn types_and_offsets_are_read_as_redis_reads_them() {
        let field = Field::parse(b"u7", b"#3").unwrap();
        assert_eq!((field.signed, field.width, field.offset), (false, 7, 21));
        assert_eq!(Field::parse(b"i64", b"4294967295").unwrap().end_bytes(), STRING_MAX_BYTES + 8);
        for (kind, offset) in
            [("u64", "0"), ("i65", "0"), ("i0", "0"), ("x8", "0"), ("i", "0"), ("", "0"), ("i08", "0")]
        {
            assert_eq!(Field::parse(kind.as_bytes(), offset.as_bytes()).unwrap_err().line(), BAD_TYPE.line(), "{kind}");
        }
        for offset in ["-1", "4294967296", "#4294967296", "x", "#", "", "##1", "#9223372036854775807"] {
            assert_eq!(Field::parse(b"u8", offset.as_bytes()).unwrap_err().line(), BAD_OFFSET.line(), "{offset}");
        }
    }

    #[test]
    fn results_that_do_not_fit_wrap_saturate_or_fail() {
        let field = |kind: &str| Field::parse(kind.as_bytes(), b"0").unwrap();
        for (kind, result, wrapped, saturated) in [
            ("u8", 256, 0, 255),
            ("u8", -1, 255, 0),
            ("i8", 128, -128, 127),
            ("i8", -129, 127, -128),
            ("i64", i128::from(i64::MAX) + 1, i64::MIN, i64::MAX),
            ("i64", i128::from(i64::MIN) - 1, i64::MAX, i64::MIN),
            ("u63", 1 << 63, 0, i64::MAX),
            ("u1", 3, 1, 1),
        ] {
            assert_eq!(field(kind).fit(result, Overflow::Wrap), Some(wrapped), "{kind} {result}");
            assert_eq!(field(kind).fit(result, Overflow::Saturate), Some(saturated), "{kind} {result}");
            assert_eq!(field(kind).fit(result, Overflow::Fail), None, "{kind} {result}");
        }
        assert_eq!(field("i8").fit(127, Overflow::Fail), Some(127));
    }

    proptest! {
        #[test]
        fn a_field_is_as_its_single_bits_say(
            width in 1u32..=64, offset in 0u64..200, value: i64, fill in prop::collection::vec(any::<u8>(), 40),
        ) {
            let signed = width == 64 || value % 2 == 0;
            let field = Field { signed, width, offset };
            let mut store = Store::create(StoreConfig::default()).unwrap();
            string::set_raw(&mut store, DbId(0), b"k", &fill, quire_store::ExpiryChange::Clear).unwrap();
            field.put(&mut string::open_mut(&mut store, DbId(0), b"k", 0).unwrap(), value).unwrap();
            let written = string::get(&mut store, DbId(0), b"k").unwrap().unwrap().to_vec();
            let bit = |bytes: &[u8], at: u64| bytes[(at / 8) as usize] >> (7 - at % 8) & 1;
            for at in 0..320u64 {
                let expected = match at.checked_sub(offset).filter(|at| *at < u64::from(width)) {
                    Some(place) => (value >> (u64::from(width) - 1 - place) & 1) as u8,
                    None => bit(&fill, at),
                };
                prop_assert_eq!(bit(&written, at), expected, "bit {}", at);
            }
            let got = field.get(&written);
            prop_assert_eq!(got, field.fit(i128::from(value), Overflow::Wrap).unwrap());
            prop_assert_eq!(field.get(&[]), 0);
        }
    }
}

//! `bit`: operations on 32-bit numbers, as in LuaBitOp.

use mlua::{IntoLuaMulti, Lua, Table};

use crate::arguments::Arguments;
use crate::raise::{self, Results};

/// Adding this leaves the number, rounded, in the low bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

fn bits(args: &Arguments<'_>, index: usize) -> Result<u32, raise::Raise> {
    Ok((args.number(index)? + ROUNDING).to_bits() as u32)
}

fn number(lua: &Lua, bits: u32) -> Results {
    Ok(f64::from(bits as i32).into_lua_multi(lua)?)
}

/// A function of one number.
type Unary = fn(u32) -> u32;
/// A function of two.
type Binary = fn(u32, u32) -> u32;

const UNARY: &[(&str, Unary)] = &[("tobit", |a| a), ("bnot", |a| !a), ("bswap", u32::swap_bytes)];
/// Functions of any number of numbers.
const FOLDS: &[(&str, Binary)] = &[("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
/// Functions of a number and a count of bits.
const SHIFTS: &[(&str, Binary)] = &[
    ("lshift", |a, n| a << (n & 31)),
    ("rshift", |a, n| a >> (n & 31)),
    ("arshift", |a, n| ((a as i32) >> (n & 31)) as u32),
    ("rol", |a, n| a.rotate_left(n & 31)),
    ("ror", |a, n| a.rotate_right(n & 31)),
];

/// The library.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    for &(name, operation) in UNARY {
        let function = raise::function(lua, move |lua, values| {
            number(lua, operation(bits(&Arguments::new(lua, name, values), 1)?))
        })?;
        library.raw_set(name, function)?;
    }
    for &(name, operation) in FOLDS {
        let function = raise::function(lua, move |lua, values| {
            let args = Arguments::new(lua, name, values);
            let mut folded = bits(&args, 1)?;
            for index in 2..=args.count() {
                folded = operation(folded, bits(&args, index)?);
            }
            number(lua, folded)
        })?;
        library.raw_set(name, function)?;
    }
    for &(name, operation) in SHIFTS {
        let function = raise::function(lua, move |lua, values| {
            let args = Arguments::new(lua, name, values);
            number(lua, operation(bits(&args, 1)?, bits(&args, 2)?))
        })?;
        library.raw_set(name, function)?;
    }
    library.raw_set("tohex", raise::function(lua, to_hex)?)?;
    Ok(library)
}

fn to_hex(lua: &Lua, values: mlua::MultiValue) -> Results {
    let args = Arguments::new(lua, "tohex", values);
    let number = bits(&args, 1)?;
    let digits = if args.count() < 2 { 8 } else { bits(&args, 2)? as i32 };
    let text = if digits < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    let shown = (digits.unsigned_abs() as usize).min(8);
    Ok(text[8 - shown..].into_lua_multi(lua)?)
}

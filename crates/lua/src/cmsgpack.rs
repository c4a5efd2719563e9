//! `cmsgpack`: MessagePack, as in lua-cmsgpack 0.4.0. This file has the library and writes; `cmsgpack_decode` reads.

use mlua::{IntoLua, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::arguments::{Arguments, number_of};
use crate::cmsgpack_decode::Decoder;
use crate::raise::{self, Raise, Results};

/// Tables within tables are written down to this depth; deeper ones are nil.
const DEEPEST: usize = 16;
/// Most bytes of a text.
const MOST_BYTES: usize = 512 << 20;
/// Values that a function may return at once.
const MOST_RESULTS: usize = 7000;

/// The library.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", raise::function(lua, pack)?)?;
    library.raw_set(
        "unpack",
        raise::function(lua, |lua, values| unpack(lua, &Arguments::new(lua, "unpack", values), 0, 0))?,
    )?;
    let one = raise::function(lua, |lua, values| {
        let args = Arguments::new(lua, "unpack_one", values);
        let offset = args.integer_or(2, 0)?;
        unpack(lua, &args, 1, offset)
    })?;
    library.raw_set("unpack_one", one)?;
    let limited = raise::function(lua, |lua, values| {
        let args = Arguments::new(lua, "unpack_limit", values);
        let (limit, offset) = (args.integer(2)?, args.integer_or(3, 0)?);
        unpack(lua, &args, limit, offset)
    })?;
    library.raw_set("unpack_limit", limited)?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

fn pack(lua: &Lua, values: MultiValue) -> Results {
    let args = Arguments::new(lua, "pack", values);
    if args.count() == 0 {
        return Err(args.error(0, "MessagePack pack needs input."));
    }
    let mut bytes = Vec::new();
    for value in args.into_values() {
        write(&mut bytes, &value, 0)?;
    }
    Ok(lua.create_string(bytes)?.into_lua_multi(lua)?)
}

/// Without a limit and an offset all values that are there; with one, where the next one begins comes first.
fn unpack(lua: &Lua, args: &Arguments<'_>, limit: i64, offset: i64) -> Results {
    let bytes = args.string(1)?;
    let bytes = bytes.as_bytes();
    let (limit, offset) = (limit as i32, offset as i32);
    if offset < 0 || limit < 0 {
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {}.", bytes.len());
        return Err(Raise::Message(text));
    }
    if offset as usize > bytes.len() {
        let text = format!("Start offset {offset} greater than input length {}.", bytes.len());
        return Err(Raise::Message(text));
    }
    let all = limit == 0 && offset == 0;
    let limit = if all { usize::MAX } else { limit as usize };
    let mut decoder = Decoder::new(lua, &bytes[offset as usize..]);
    let mut results = Vec::new();
    while decoder.left() > 0 && results.len() < limit {
        if results.len() >= MOST_RESULTS {
            let text = "too many return values at once; use unpack_one or unpack_limit instead.";
            return Err(Raise::Message(format!("stack overflow ({text})")));
        }
        results.push(decoder.value(0)?);
    }
    if !all {
        let next = if decoder.left() == 0 { -1 } else { (bytes.len() - decoder.left()) as i64 };
        results.insert(0, next.into_lua(lua)?);
    }
    Ok(MultiValue::from_vec(results))
}

/// The first byte of the form that fits, and the length in as many bytes.
fn write_length(
    bytes: &mut Vec<u8>,
    length: usize,
    (fixed, most_fixed): (u8, usize),
    one: Option<u8>,
    (two, four): (u8, u8),
) {
    if length <= most_fixed {
        bytes.push(fixed | length as u8);
    } else if let Some(one) = one.filter(|_| length <= 0xFF) {
        bytes.extend([one, length as u8]);
    } else if length <= 0xFFFF {
        bytes.push(two);
        bytes.extend((length as u16).to_be_bytes());
    } else {
        bytes.push(four);
        bytes.extend((length as u32).to_be_bytes());
    }
}

fn write(bytes: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), Raise> {
    if bytes.len() > MOST_BYTES {
        return Err(Raise::message("not enough memory"));
    }
    match value {
        Value::String(string) => {
            let string = string.as_bytes();
            write_length(bytes, string.len(), (0xA0, 31), Some(0xD9), (0xDA, 0xDB));
            bytes.extend_from_slice(&string);
        }
        Value::Boolean(value) => bytes.push(if *value { 0xC3 } else { 0xC2 }),
        Value::Integer(_) | Value::Number(_) => write_number(bytes, number_of(value).unwrap_or_default()),
        Value::Table(table) if depth < DEEPEST => write_table(bytes, table, depth)?,
        _ => bytes.push(0xC0),
    }
    Ok(())
}

fn write_number(bytes: &mut Vec<u8>, number: f64) {
    let integer = number as i64;
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if fits && integer as f64 == number {
        return write_integer(bytes, integer);
    }
    let short = number as f32;
    if f64::from(short) == number {
        bytes.push(0xCA);
        bytes.extend(short.to_be_bytes());
    } else {
        bytes.push(0xCB);
        bytes.extend(number.to_be_bytes());
    }
}

fn write_integer(bytes: &mut Vec<u8>, number: i64) {
    match number {
        0..=127 => bytes.push(number as u8),
        128..=0xFF => bytes.extend([0xCC, number as u8]),
        0x100..=0xFFFF => {
            bytes.push(0xCD);
            bytes.extend((number as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            bytes.push(0xCE);
            bytes.extend((number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            bytes.push(0xCF);
            bytes.extend(number.to_be_bytes());
        }
        -32..=-1 => bytes.push(number as u8),
        -128..=-33 => bytes.extend([0xD0, number as u8]),
        -0x8000..=-129 => {
            bytes.push(0xD1);
            bytes.extend((number as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            bytes.push(0xD2);
            bytes.extend((number as i32).to_be_bytes());
        }
        _ => {
            bytes.push(0xD3);
            bytes.extend(number.to_be_bytes());
        }
    }
}

fn write_table(bytes: &mut Vec<u8>, table: &Table, depth: usize) -> Result<(), Raise> {
    let (mut longest, mut items, mut is_array) = (0i64, 0usize, true);
    for pair in table.pairs::<Value, Value>() {
        items += 1;
        match number_of(&pair?.0) {
            Some(number) if number >= 1.0 && number.fract() == 0.0 && number <= f64::from(i32::MAX) => {
                longest = longest.max(number as i64);
            }
            _ => is_array = false,
        }
    }
    if is_array && longest as usize == items {
        write_length(bytes, items, (0x90, 15), None, (0xDC, 0xDD));
        for index in 1..=longest {
            write(bytes, &table.raw_get(index)?, depth + 1)?;
        }
        return Ok(());
    }
    write_length(bytes, items, (0x80, 15), None, (0xDE, 0xDF));
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        write(bytes, &key, depth + 1)?;
        write(bytes, &value, depth + 1)?;
    }
    Ok(())
}

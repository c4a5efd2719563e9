//! `struct`: packs values into bytes and back by a format, as in Roberto Ierusalimschy's library of that name.

use mlua::{IntoLua, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::arguments::{Arguments, number_of};
use crate::raise::{self, Raise, Results};

/// Longest integer, bytes.
const MAX_INT_BYTES: i64 = 32;
/// The alignment of `!` alone.
const MAX_ALIGN: i64 = 8;
/// Most bytes that are packed.
const MOST_BYTES: usize = 512 << 20;
/// Values that a function may return at once.
const MOST_RESULTS: usize = 7000;

/// The library.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", raise::function(lua, pack)?)?;
    library.raw_set("unpack", raise::function(lua, unpack)?)?;
    library.raw_set("size", raise::function(lua, size)?)?;
    Ok(library)
}

/// A format that is being read.
struct Format<'f> {
    text: &'f [u8],
    at: usize,
    big_endian: bool,
    align: usize,
}

impl<'f> Format<'f> {
    fn new(text: &'f [u8]) -> Self {
        Self { text, at: 0, big_endian: false, align: 1 }
    }

    fn next(&mut self) -> Option<u8> {
        let option = self.text.get(self.at).copied().filter(|byte| *byte != 0)?;
        self.at += 1;
        Some(option)
    }

    fn number(&mut self, default: i64) -> Result<i64, Raise> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        self.at += digits;
        let number = text.parse::<i32>().map_err(|_| Raise::message("integral size overflow"))?;
        Ok(i64::from(number))
    }

    /// Bytes of an option.
    fn bytes(&mut self, option: u8) -> Result<usize, Raise> {
        Ok(match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(1)? as usize,
            b'i' | b'I' => {
                let bytes = self.number(4)?;
                if bytes > MAX_INT_BYTES {
                    let text = format!("integral size {bytes} is larger than limit of {MAX_INT_BYTES}");
                    return Err(Raise::Message(text));
                }
                bytes as usize
            }
            _ => 0,
        })
    }

    fn padding(&self, length: usize, option: u8, bytes: usize) -> usize {
        if bytes == 0 || option == b'c' {
            return 0;
        }
        let bytes = bytes.min(self.align);
        bytes.wrapping_sub(length & (bytes.wrapping_sub(1))) & bytes.wrapping_sub(1)
    }

    /// What is no value, but says how the others are packed.
    fn control(&mut self, option: u8, args: &Arguments<'_>) -> Result<(), Raise> {
        match option {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let align = self.number(MAX_ALIGN)?;
                if align <= 0 || align & (align - 1) != 0 {
                    return Err(Raise::Message(format!("alignment {align} is not a power of 2")));
                }
                self.align = align as usize;
            }
            other => return Err(args.error(1, &format!("invalid format option '{}'", char::from(other)))),
        }
        Ok(())
    }

    fn ordered<const N: usize>(&self, little: [u8; N]) -> [u8; N] {
        let mut bytes = little;
        if self.big_endian {
            bytes.reverse();
        }
        bytes
    }
}

fn is_integer(option: u8) -> bool {
    matches!(option, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
}

fn pack(lua: &Lua, values: MultiValue) -> Results {
    let args = Arguments::new(lua, "pack", values);
    let text = args.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut packed: Vec<u8> = Vec::new();
    let mut arg = 2;
    // As in the library, what is aligned is the sum of the sizes, which counts options that pack nothing, too.
    let mut total = 0usize;
    while let Some(option) = format.next() {
        let mut bytes = format.bytes(option)?;
        let padding = format.padding(total, option, bytes);
        total += padding;
        packed.resize(packed.len() + padding, 0);
        match option {
            _ if is_integer(option) => {
                packed.extend(integer_bytes(args.number(arg)?, bytes, format.big_endian));
                arg += 1;
            }
            b'x' => packed.push(0),
            b'f' => {
                packed.extend(format.ordered((args.number(arg)? as f32).to_le_bytes()));
                arg += 1;
            }
            b'd' => {
                packed.extend(format.ordered(args.number(arg)?.to_le_bytes()));
                arg += 1;
            }
            b'c' | b's' => {
                let string = args.string(arg)?;
                let string = string.as_bytes();
                arg += 1;
                bytes = if bytes == 0 { string.len() } else { bytes };
                let part = string.get(..bytes).ok_or_else(|| args.error(arg, "string too short"))?;
                packed.extend_from_slice(part);
                if option == b's' {
                    packed.push(0);
                    bytes += 1;
                }
            }
            other => format.control(other, &args)?,
        }
        total += bytes;
        if packed.len() > MOST_BYTES {
            return Err(Raise::message("not enough memory"));
        }
    }
    Ok(lua.create_string(packed)?.into_lua_multi(lua)?)
}

fn integer_bytes(number: f64, bytes: usize, big_endian: bool) -> Vec<u8> {
    let mut value = if number < 0.0 { crate::arguments::truncated(number) as u64 } else { number as u64 };
    let mut packed = Vec::with_capacity(bytes);
    for _ in 0..bytes {
        packed.push(value as u8);
        value >>= 8;
    }
    if big_endian {
        packed.reverse();
    }
    packed
}

fn integer_of(data: &[u8], signed: bool, big_endian: bool) -> f64 {
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if big_endian { data.iter().fold(0, push) } else { data.iter().rev().fold(0, push) };
    if !signed {
        return value as f64;
    }
    let mask = u64::MAX.wrapping_shl((data.len() as u32 * 8).wrapping_sub(1));
    (if value & mask != 0 { value | mask } else { value }) as i64 as f64
}

fn unpack(lua: &Lua, values: MultiValue) -> Results {
    let args = Arguments::new(lua, "unpack", values);
    let (text, data) = (args.string(1)?, args.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let position = args.integer_or(3, 1)?;
    if position < 1 {
        return Err(args.error(3, "offset must be 1 or greater"));
    }
    let mut at = position as usize - 1;
    let mut format = Format::new(&text);
    let mut results: Vec<Value> = Vec::new();
    while let Some(option) = format.next() {
        let mut bytes = format.bytes(option)?;
        at = at.saturating_add(format.padding(at, option, bytes));
        let too_short = || args.error(2, "data string too short");
        let mut part = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
        if results.len() >= MOST_RESULTS {
            return Err(Raise::message("stack overflow (too many results)"));
        }
        match option {
            _ if is_integer(option) => {
                results.push(integer_of(part, option.is_ascii_lowercase(), format.big_endian).into_lua(lua)?);
            }
            b'x' => {}
            b'f' => {
                let bytes = format.ordered(part.try_into().unwrap_or_default());
                results.push(f64::from(f32::from_le_bytes(bytes)).into_lua(lua)?);
            }
            b'd' => {
                let bytes = format.ordered(part.try_into().unwrap_or_default());
                results.push(f64::from_le_bytes(bytes).into_lua(lua)?);
            }
            b'c' => {
                if bytes == 0 {
                    let needs = || Raise::message("format 'c0' needs a previous size");
                    let length = results.pop().as_ref().and_then(number_of).ok_or_else(needs)?;
                    // A negative or huge length is none that there could be.
                    bytes = if length >= 0.0 { length as usize } else { usize::MAX };
                    part = at.checked_add(bytes).and_then(|end| data.get(at..end)).ok_or_else(too_short)?;
                }
                results.push(Value::String(lua.create_string(part)?));
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| Raise::message("unfinished string in data"))?;
                bytes = end + 1;
                results.push(Value::String(lua.create_string(&rest[..end])?));
            }
            other => format.control(other, &args)?,
        }
        at += bytes;
    }
    results.push((at as i64 + 1).into_lua(lua)?);
    Ok(MultiValue::from_vec(results))
}

fn size(lua: &Lua, values: MultiValue) -> Results {
    let args = Arguments::new(lua, "size", values);
    let text = args.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(&text);
    let mut total = 0usize;
    while let Some(option) = format.next() {
        let bytes = format.bytes(option)?;
        total = total.saturating_add(format.padding(total, option, bytes));
        if option == b's' {
            return Err(args.error(1, "option 's' has no fixed size"));
        }
        if option == b'c' && bytes == 0 {
            return Err(args.error(1, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option, &args)?;
        }
        total = total.saturating_add(bytes);
    }
    Ok((total as i64).into_lua_multi(lua)?)
}

//! Reads MessagePack, whatever the bytes are: none is read twice, and nothing is reserved because a length says so.

use mlua::{IntoLua, Lua, Value};

use crate::arguments::number_of;
use crate::raise::Raise;

/// Deeper data is refused, since each level takes room on the stack.
const DEEPEST: usize = 2000;

/// What is left to read.
pub(crate) struct Decoder<'d> {
    lua: &'d Lua,
    bytes: &'d [u8],
}

impl<'d> Decoder<'d> {
    pub(crate) fn new(lua: &'d Lua, bytes: &'d [u8]) -> Self {
        Self { lua, bytes }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Result<&'d [u8], Raise> {
        let missing = || Raise::message("Missing bytes in input.");
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(missing)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Raise> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn length16(&mut self) -> Result<usize, Raise> {
        Ok(usize::from(u16::from_be_bytes(self.array()?)))
    }

    fn length32(&mut self) -> Result<usize, Raise> {
        Ok(u32::from_be_bytes(self.array()?) as usize)
    }

    fn string(&mut self, length: usize) -> Result<Value, Raise> {
        let bytes = self.take(length)?;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    /// The next value.
    pub(crate) fn value(&mut self, depth: usize) -> Result<Value, Raise> {
        if depth > DEEPEST {
            return Err(Raise::message("stack overflow (in function mp_decode_to_lua_type)"));
        }
        let first = self.array::<1>()?[0];
        let number = match first {
            0x00..=0x7F => f64::from(first),
            0xE0..=0xFF => f64::from(first as i8),
            0xCC => f64::from(self.array::<1>()?[0]),
            0xCD => f64::from(u16::from_be_bytes(self.array()?)),
            0xCE => f64::from(u32::from_be_bytes(self.array()?)),
            0xCF => u64::from_be_bytes(self.array()?) as f64,
            0xD0 => f64::from(self.array::<1>()?[0] as i8),
            0xD1 => f64::from(i16::from_be_bytes(self.array()?)),
            0xD2 => f64::from(i32::from_be_bytes(self.array()?)),
            0xD3 => i64::from_be_bytes(self.array()?) as f64,
            0xCA => f64::from(f32::from_be_bytes(self.array()?)),
            0xCB => f64::from_be_bytes(self.array()?),
            _ => return self.other(first, depth),
        };
        Ok(number.into_lua(self.lua)?)
    }

    fn other(&mut self, first: u8, depth: usize) -> Result<Value, Raise> {
        match first {
            0xC0 => Ok(Value::Nil),
            0xC2 => Ok(Value::Boolean(false)),
            0xC3 => Ok(Value::Boolean(true)),
            0xA0..=0xBF => self.string(usize::from(first & 31)),
            0xD9 => {
                let length = usize::from(self.array::<1>()?[0]);
                self.string(length)
            }
            0xDA => {
                let length = self.length16()?;
                self.string(length)
            }
            0xDB => {
                let length = self.length32()?;
                self.string(length)
            }
            0x90..=0x9F => self.list(usize::from(first & 15), depth),
            0xDC => {
                let length = self.length16()?;
                self.list(length, depth)
            }
            0xDD => {
                let length = self.length32()?;
                self.list(length, depth)
            }
            0x80..=0x8F => self.map(usize::from(first & 15), depth),
            0xDE => {
                let length = self.length16()?;
                self.map(length, depth)
            }
            0xDF => {
                let length = self.length32()?;
                self.map(length, depth)
            }
            _ => Err(Raise::message("Bad data format in input.")),
        }
    }

    fn list(&mut self, length: usize, depth: usize) -> Result<Value, Raise> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value, Raise> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if key.is_nil() {
                return Err(Raise::message("table index is nil"));
            }
            if number_of(&key).is_some_and(f64::is_nan) {
                return Err(Raise::message("table index is NaN"));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}

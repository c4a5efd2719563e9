//! A value that is about to be read, by the number of its type.
//!
//! Relies on `elements` and `stream` for values of many parts.

use std::io::Read;

use crate::elements::{ElementSource, Elements, Pairs, Scored};
use crate::error::{Cause, Result};
use crate::input::Input;
use crate::packed::Form;
use crate::stream::{StreamReader, StreamVersion};
use crate::type_number::TypeNumber;

/// A value whose parts are still to be read, all of them, before anything behind it is.
#[derive(Debug)]
pub enum Value<'r, R> {
    /// A string.
    String(Vec<u8>),
    /// The elements of a list, in their order.
    List(Elements<'r, R>),
    /// The members of a set.
    Set(Elements<'r, R>),
    /// The fields and values of a hash.
    Hash(Pairs<'r, R>),
    /// The members of a sorted set, with their scores.
    Zset(Scored<'r, R>),
    /// The entries and the groups of a stream.
    Stream(StreamReader<'r, R>),
    /// A value of a module, of which nothing is known but the module's name. It has been read over.
    Module(String),
}

impl<'r, R: Read> Value<'r, R> {
    /// Begins the value of type `number`.
    pub(crate) fn begin(input: &'r mut Input<R>, number: TypeNumber) -> Result<Self> {
        use TypeNumber as T;
        let packed = |form| ElementSource::Packed { form };
        Ok(match number.0 {
            T::STRING => Value::String(input.string()?),
            T::MODULE => {
                let id = input.length()?;
                skip_module(input)?;
                Value::Module(module_name(id))
            }
            T::LIST => Value::List(Elements::begin(input, ElementSource::Strings { each: 1 })?),
            T::LIST_ZIPLIST => Value::List(Elements::begin(input, packed(Form::Ziplist))?),
            T::LIST_ZIPLISTS => Value::List(Elements::begin(input, ElementSource::Nodes { are_marked: false })?),
            T::LIST_LISTPACKS => Value::List(Elements::begin(input, ElementSource::Nodes { are_marked: true })?),
            T::SET => Value::Set(Elements::begin(input, ElementSource::Strings { each: 1 })?),
            T::SET_INTSET => Value::Set(Elements::begin(input, packed(Form::Intset))?),
            T::SET_LISTPACK => Value::Set(Elements::begin(input, packed(Form::Listpack))?),
            T::HASH => Value::Hash(Pairs::begin(input, ElementSource::Strings { each: 2 })?),
            T::HASH_ZIPMAP => Value::Hash(Pairs::begin(input, packed(Form::Zipmap))?),
            T::HASH_ZIPLIST => Value::Hash(Pairs::begin(input, packed(Form::Ziplist))?),
            T::HASH_LISTPACK => Value::Hash(Pairs::begin(input, packed(Form::Listpack))?),
            T::HASH_TTL_EARLY => Value::Hash(Pairs::begin_mortal(input, ElementSource::Strings { each: 2 }, false)?),
            T::HASH_LISTPACK_TTL_EARLY => Value::Hash(Pairs::begin_mortal(input, packed(Form::Listpack), false)?),
            T::HASH_TTL => Value::Hash(Pairs::begin_mortal(input, ElementSource::Strings { each: 2 }, true)?),
            T::HASH_LISTPACK_TTL => Value::Hash(Pairs::begin_mortal(input, packed(Form::Listpack), true)?),
            T::ZSET_TEXT => Value::Zset(Scored::begin(input, ElementSource::Strings { each: 1 }, false)?),
            T::ZSET => Value::Zset(Scored::begin(input, ElementSource::Strings { each: 1 }, true)?),
            T::ZSET_ZIPLIST => Value::Zset(Scored::begin(input, packed(Form::Ziplist), false)?),
            T::ZSET_LISTPACK => Value::Zset(Scored::begin(input, packed(Form::Listpack), false)?),
            T::STREAM => Value::Stream(StreamReader::begin(input, StreamVersion::First)?),
            T::STREAM_2 => Value::Stream(StreamReader::begin(input, StreamVersion::Second)?),
            T::STREAM_3 => Value::Stream(StreamReader::begin(input, StreamVersion::Third)?),
            other => return input.fail(Cause::Unsupported { what: "type of values", number: u64::from(other) }),
        })
    }

    /// Reads all of it, and keeps nothing.
    ///
    /// # Errors
    /// As reading it.
    pub fn skip(self) -> Result<()> {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        match self {
            Value::String(_) | Value::Module(_) => {}
            Value::List(mut elements) | Value::Set(mut elements) => while elements.next_into(&mut first)? {},
            Value::Hash(mut pairs) => while pairs.next_into(&mut first, &mut second)? {},
            Value::Zset(mut scored) => while scored.next_into(&mut first)?.is_some() {},
            Value::Stream(stream) => drop(stream.finish()?),
        }
        Ok(())
    }
}

/// The name of the module that a number stands for.
pub(crate) fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|index| char::from(LETTERS[(id >> (58 - 6 * index) & 0x3f) as usize])).collect()
}

/// Reads over what a module has written: parts, each behind its form.
pub(crate) fn skip_module<R: Read>(input: &mut Input<R>) -> Result<()> {
    let mut text = Vec::new();
    loop {
        match input.length()? {
            0 => return Ok(()),
            1 | 2 => drop(input.length()?),
            3 => drop(input.array::<4>()?),
            4 => drop(input.array::<8>()?),
            5 => input.string_into(&mut text)?,
            number => return input.fail(Cause::Unsupported { what: "part of a module's value", number }),
        }
    }
}

//! Writes JSON as lua-cjson does: which tables are arrays, which numbers are refused, what is escaped.

use mlua::{Table, Value};

use crate::arguments::{number_of, type_name};
use crate::cjson_settings::{InvalidNumbers, Settings};
use crate::number_text::shortest_of;
use crate::raise::Raise;

/// Deeper tables are refused whatever the settings say, since each level takes room on the stack.
const DEEPEST: i64 = 5000;
/// Most bytes of a text.
const MOST_BYTES: usize = 512 << 20;

/// The text of a value.
pub(crate) fn encode(value: &Value, settings: &Settings) -> Result<Vec<u8>, Raise> {
    let mut encoder = Encoder { settings, text: Vec::new() };
    encoder.value(value, 0)?;
    Ok(encoder.text)
}

struct Encoder<'s> {
    settings: &'s Settings,
    text: Vec<u8>,
}

fn refused(value: &Value, reason: &str) -> Raise {
    Raise::Message(format!("Cannot serialise {}: {reason}", type_name(value)))
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: i64) -> Result<(), Raise> {
        match value {
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::Boolean(true) => self.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.text.extend_from_slice(b"false"),
            Value::String(string) => self.string(&string.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.text.extend_from_slice(b"null"),
            other => return Err(refused(other, "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<(), Raise> {
        let number = number_of(value).unwrap_or_default();
        let text = match self.settings.encode_invalid_numbers {
            _ if number.is_finite() => shortest_of(number, self.settings.precision as usize),
            InvalidNumbers::Refused => return Err(refused(value, "must not be NaN or Inf")),
            InvalidNumbers::Taken if number.is_nan() => "nan".to_owned(),
            InvalidNumbers::Taken => shortest_of(number, 14),
            InvalidNumbers::Null => "null".to_owned(),
        };
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        if self.text.len() + bytes.len() > MOST_BYTES {
            return Err(Raise::message("not enough memory"));
        }
        self.text.push(b'"');
        for &byte in bytes {
            match byte {
                b'"' | b'\\' | b'/' => self.text.extend([b'\\', byte]),
                8 => self.text.extend_from_slice(b"\\b"),
                b'\t' => self.text.extend_from_slice(b"\\t"),
                b'\n' => self.text.extend_from_slice(b"\\n"),
                12 => self.text.extend_from_slice(b"\\f"),
                b'\r' => self.text.extend_from_slice(b"\\r"),
                0..32 | 127 => self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.text.push(byte),
            }
        }
        self.text.push(b'"');
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: i64) -> Result<(), Raise> {
        if depth > self.settings.encode_max_depth.min(DEEPEST) {
            return Err(Raise::Message(format!("Cannot serialise, excessive depth ({depth})")));
        }
        match self.array_length(table)? {
            0 => self.object(table, depth),
            length => self.array(table, length, depth),
        }
    }

    /// The length of a table that is an array; 0 for all others.
    fn array_length(&self, table: &Table) -> Result<i64, Raise> {
        let (mut longest, mut items) = (0i64, 0i64);
        for pair in table.pairs::<Value, Value>() {
            match number_of(&pair?.0) {
                Some(number) if number >= 1.0 && number.fract() == 0.0 => {
                    longest = longest.max(number as i64);
                    items += 1;
                }
                _ => return Ok(0),
            }
        }
        let Settings { sparse_convert, sparse_ratio, sparse_safe, .. } = *self.settings;
        if sparse_ratio > 0 && longest > items.saturating_mul(sparse_ratio) && longest > sparse_safe {
            if !sparse_convert {
                return Err(refused(&Value::Table(table.clone()), "excessively sparse array"));
            }
            return Ok(0);
        }
        Ok(longest)
    }

    fn array(&mut self, table: &Table, length: i64, depth: i64) -> Result<(), Raise> {
        self.text.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.text.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
            if self.text.len() > MOST_BYTES {
                return Err(Raise::message("not enough memory"));
            }
        }
        self.text.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: i64) -> Result<(), Raise> {
        self.text.push(b'{');
        let mut first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut first) {
                self.text.push(b',');
            }
            match &key {
                Value::String(name) => self.string(&name.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.text.push(b'"');
                    self.number(&key)?;
                    self.text.push(b'"');
                }
                other => return Err(refused(other, "table key must be a number or string")),
            }
            self.text.push(b':');
            self.value(&value, depth)?;
        }
        self.text.push(b'}');
        Ok(())
    }
}

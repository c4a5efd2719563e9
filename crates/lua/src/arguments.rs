//! The arguments of a library's function, checked as Lua's own functions check theirs.

use mlua::{Lua, MultiValue, Table, Value};

use crate::raise::Raise;

/// Arguments, counted from 1.
#[derive(Debug)]
pub struct Arguments<'l> {
    lua: &'l Lua,
    function: &'static str,
    values: MultiValue,
}

impl<'l> Arguments<'l> {
    /// The arguments that a function of this name was called with.
    pub fn new(lua: &'l Lua, function: &'static str, values: MultiValue) -> Self {
        Self { lua, function, values }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Argument `index`; nil if there are fewer.
    pub fn value(&self, index: usize) -> &Value {
        self.values.get(index - 1).unwrap_or(&Value::Nil)
    }

    /// All of them.
    pub fn into_values(self) -> MultiValue {
        self.values
    }

    /// Argument `index` is not what it should be.
    pub fn error(&self, index: usize, what: &str) -> Raise {
        Raise::Message(format!("bad argument #{index} to '{}' ({what})", self.function))
    }

    fn wrong_type(&self, index: usize, expected: &str) -> Raise {
        let got = self.values.get(index - 1).map_or("no value", type_name);
        self.error(index, &format!("{expected} expected, got {got}"))
    }

    /// A number, or a string that reads as one.
    pub fn number(&self, index: usize) -> Result<f64, Raise> {
        let value = self.value(index);
        number_of(value)
            .or_else(|| match value {
                Value::String(_) => self.lua.coerce_number(value.clone()).ok().flatten(),
                _ => None,
            })
            .ok_or_else(|| self.wrong_type(index, "number"))
    }

    /// A number without its fraction; as in C, one that is out of range is the least one.
    pub fn integer(&self, index: usize) -> Result<i64, Raise> {
        self.number(index).map(truncated)
    }

    /// The same, or `default` where there is none.
    pub fn integer_or(&self, index: usize, default: i64) -> Result<i64, Raise> {
        if self.value(index).is_nil() { Ok(default) } else { self.integer(index) }
    }

    /// A string, or a number as text.
    pub fn string(&self, index: usize) -> Result<mlua::String, Raise> {
        match self.value(index) {
            Value::String(string) => Ok(string.clone()),
            Value::Integer(_) | Value::Number(_) => {
                let text = self.lua.coerce_string(self.value(index).clone())?;
                text.ok_or_else(|| self.wrong_type(index, "string"))
            }
            _ => Err(self.wrong_type(index, "string")),
        }
    }

    /// A table.
    pub fn table(&self, index: usize) -> Result<&Table, Raise> {
        self.value(index).as_table().ok_or_else(|| self.wrong_type(index, "table"))
    }

    /// A function.
    pub fn function(&self, index: usize) -> Result<&mlua::Function, Raise> {
        self.value(index).as_function().ok_or_else(|| self.wrong_type(index, "function"))
    }
}

/// What Lua calls the type of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) | Value::Number(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// The number that a value is.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// A number without its fraction, as conversions in C do it on the machines that Redis runs on.
pub(crate) fn truncated(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) { number as i64 } else { i64::MIN }
}

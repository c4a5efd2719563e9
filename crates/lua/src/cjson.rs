//! `cjson`: JSON, as in lua-cjson 2.1.0, with its settings. `cjson_decode` reads, `cjson_encode` writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{IntoLua, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::arguments::Arguments;
use crate::cjson_settings::{InvalidNumbers, Settings};
use crate::raise::{self, Raise, Results};
use crate::{cjson_decode, cjson_encode};

/// The settings, shared by the functions of an instance.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Settings>>);

impl Shared {
    fn get(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance of the library.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let shared = Shared::default();
    let settings = shared.clone();
    let encode = raise::function(lua, move |lua, values| {
        let args = Arguments::new(lua, "encode", values);
        if args.count() != 1 {
            return Err(args.error(1, "expected 1 argument"));
        }
        let settings = *settings.get();
        Ok(lua.create_string(cjson_encode::encode(args.value(1), &settings)?)?.into_lua_multi(lua)?)
    })?;
    library.raw_set("encode", encode)?;
    let settings = shared.clone();
    let decode = raise::function(lua, move |lua, values| {
        let args = Arguments::new(lua, "decode", values);
        if args.count() != 1 {
            return Err(args.error(1, "expected 1 argument"));
        }
        let settings = *settings.get();
        let text = args.string(1)?;
        let text = text.as_bytes();
        Ok(cjson_decode::decode(lua, &text, &settings)?.into_lua_multi(lua)?)
    })?;
    library.raw_set("decode", decode)?;
    for (name, setting) in SETTINGS {
        let shared = shared.clone();
        let function = raise::function(lua, move |lua, values| {
            setting(lua, Arguments::new(lua, name, values), &mut shared.get())
        })?;
        library.raw_set(*name, function)?;
    }
    library.raw_set("new", raise::function(lua, |lua, _| Ok(self::library(lua)?.into_lua_multi(lua)?))?)?;
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    Ok(library)
}

type Setting = fn(&Lua, Arguments<'_>, &mut Settings) -> Results;

const SETTINGS: &[(&str, Setting)] = &[
    ("encode_sparse_array", |lua, args, settings| {
        check_count(&args, 3)?;
        let (convert, mut ratio, mut safe) =
            (switch(&args, settings.sparse_convert)?, settings.sparse_ratio, settings.sparse_safe);
        integer(&args, 2, &mut ratio, 0, i64::from(i32::MAX))?;
        integer(&args, 3, &mut safe, 0, i64::from(i32::MAX))?;
        (settings.sparse_convert, settings.sparse_ratio, settings.sparse_safe) = (convert, ratio, safe);
        Ok((convert, ratio, safe).into_lua_multi(lua)?)
    }),
    ("encode_max_depth", |lua, args, settings| limit(lua, &args, &mut settings.encode_max_depth, i64::from(i32::MAX))),
    ("decode_max_depth", |lua, args, settings| limit(lua, &args, &mut settings.decode_max_depth, i64::from(i32::MAX))),
    ("encode_number_precision", |lua, args, settings| limit(lua, &args, &mut settings.precision, 14)),
    ("encode_keep_buffer", |lua, args, settings| {
        check_count(&args, 1)?;
        settings.keep_buffer = switch(&args, settings.keep_buffer)?;
        Ok(settings.keep_buffer.into_lua_multi(lua)?)
    }),
    ("encode_invalid_numbers", |lua, args, settings| {
        check_count(&args, 1)?;
        if matches!(args.value(1), Value::String(text) if *text.as_bytes() == *b"null") {
            settings.encode_invalid_numbers = InvalidNumbers::Null;
        } else if !args.value(1).is_nil() {
            let taken = switch(&args, false)?;
            settings.encode_invalid_numbers = if taken { InvalidNumbers::Taken } else { InvalidNumbers::Refused };
        }
        let shown: Value = match settings.encode_invalid_numbers {
            InvalidNumbers::Refused => Value::Boolean(false),
            InvalidNumbers::Taken => Value::Boolean(true),
            InvalidNumbers::Null => "null".into_lua(lua)?,
        };
        Ok(MultiValue::from_vec(vec![shown]))
    }),
    ("decode_invalid_numbers", |lua, args, settings| {
        check_count(&args, 1)?;
        settings.decode_invalid_numbers = switch(&args, settings.decode_invalid_numbers)?;
        Ok(settings.decode_invalid_numbers.into_lua_multi(lua)?)
    }),
];

fn check_count(args: &Arguments<'_>, most: usize) -> Result<(), Raise> {
    if args.count() > most { Err(args.error(most + 1, "found too many arguments")) } else { Ok(()) }
}

/// A setting of yes and no: the first argument, or what it is.
fn switch(args: &Arguments<'_>, now: bool) -> Result<bool, Raise> {
    match args.value(1) {
        Value::Nil => Ok(now),
        Value::Boolean(value) => Ok(*value),
        _ => {
            let option = args.string(1)?;
            match &*option.as_bytes() {
                b"on" => Ok(true),
                b"off" => Ok(false),
                other => Err(args.error(1, &format!("invalid option '{}'", String::from_utf8_lossy(other)))),
            }
        }
    }
}

fn integer(args: &Arguments<'_>, index: usize, setting: &mut i64, least: i64, most: i64) -> Result<(), Raise> {
    if !args.value(index).is_nil() {
        let value = args.integer(index)?;
        if !(least..=most).contains(&value) {
            // The library names the first argument, whichever it is.
            return Err(args.error(1, &format!("expected integer between {least} and {most}")));
        }
        *setting = value;
    }
    Ok(())
}

fn limit(lua: &Lua, args: &Arguments<'_>, setting: &mut i64, most: i64) -> Results {
    check_count(args, 1)?;
    integer(args, 1, setting, 1, most)?;
    Ok(setting.into_lua_multi(lua)?)
}

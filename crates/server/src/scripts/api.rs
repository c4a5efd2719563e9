//! The table `redis` of scripts. What needs the server's data is the host's, by its number.

use quire_lua::mlua::{self, IntoLuaMulti, Lua, MultiValue, Table, Value};
use quire_lua::{Interpreter, Raise, Results};

use super::cache::{digest_of, digest_text};
use crate::COMPATIBLE_VERSION;

/// `redis.setresp`.
pub const SETRESP: i64 = 1;
/// `redis.acl_check_cmd`.
pub const ACL_CHECK: i64 = 2;
/// `redis.register_function`.
pub const REGISTER: i64 = 3;

const LOG_LEVELS: [&str; 4] = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
/// Bytes of a message that are logged.
const LOGGED_BYTES: usize = 1024;

/// An error as scripts get it: a line that begins with a code, as a table.
pub fn error_table(lua: &Lua, line: &str) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", line)?;
    Ok(Value::Table(table))
}

/// A function fails.
fn failed(lua: &Lua, text: &str) -> Raise {
    match error_table(lua, &format!("ERR {text}")) {
        Ok(table) => Raise::Value(table),
        Err(error) => Raise::Interpreter(error),
    }
}

fn nothing(lua: &Lua) -> Results {
    Ok(().into_lua_multi(lua)?)
}

/// An interpreter with all that scripts have.
pub(super) fn make_interpreter(memory_limit_bytes: usize) -> mlua::Result<Interpreter> {
    let interpreter = Interpreter::new(memory_limit_bytes)?;
    let redis = redis_library(&interpreter)?;
    let only_evaluated: &[(&str, Function)] = &[
        // The effects of a script are always what is logged.
        ("replicate_commands", |lua, _| Ok(true.into_lua_multi(lua)?)),
        // There is no debugger that could stop here.
        ("breakpoint", |lua, _| Ok(false.into_lua_multi(lua)?)),
        ("debug", |lua, _| nothing(lua)),
    ];
    add_functions(&interpreter, &redis, only_evaluated)?;
    interpreter.add_library("redis", &redis)?;
    // Its name in scripts that are written for Valkey.
    interpreter.add_library("server", &redis)?;
    Ok(interpreter)
}

/// A function that scripts may call.
type Function = fn(&Lua, MultiValue) -> Results;

/// The table `redis` of scripts and of functions that run.
pub(super) fn redis_library(interpreter: &Interpreter) -> mlua::Result<Table> {
    let redis = interpreter.lua().create_table()?;
    redis.raw_set("call", interpreter.command_function(true)?)?;
    redis.raw_set("pcall", interpreter.command_function(false)?)?;
    for (name, number) in [("setresp", SETRESP), ("acl_check_cmd", ACL_CHECK)] {
        redis.raw_set(name, interpreter.host_function(number)?)?;
    }
    let functions: &[(&str, Function)] = &[
        ("sha1hex", sha1_hex),
        ("error_reply", |lua, args| reply(lua, &args, "err")),
        ("status_reply", |lua, args| reply(lua, &args, "ok")),
        ("set_repl", set_repl),
    ];
    add_functions(interpreter, &redis, functions)?;
    for (name, number) in [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)] {
        redis.raw_set(name, number)?;
    }
    add_common(interpreter, &redis)?;
    Ok(redis)
}

/// The table `redis` of a library that is being loaded.
pub(super) fn registering_library(interpreter: &Interpreter) -> mlua::Result<Table> {
    let redis = interpreter.lua().create_table()?;
    redis.raw_set("register_function", interpreter.host_function(REGISTER)?)?;
    add_common(interpreter, &redis)?;
    Ok(redis)
}

fn add_functions(interpreter: &Interpreter, redis: &Table, functions: &[(&str, Function)]) -> mlua::Result<()> {
    for (name, function) in functions {
        redis.raw_set(*name, interpreter.function(*function)?)?;
    }
    Ok(())
}

/// What there is in any table `redis`.
fn add_common(interpreter: &Interpreter, redis: &Table) -> mlua::Result<()> {
    redis.raw_set("log", interpreter.function(log)?)?;
    for (level, name) in LOG_LEVELS.iter().enumerate() {
        redis.raw_set(*name, level)?;
    }
    redis.raw_set("REDIS_VERSION", COMPATIBLE_VERSION)?;
    let number =
        COMPATIBLE_VERSION.split('.').fold(0, |number: u32, part| number << 8 | part.parse::<u32>().unwrap_or(0));
    redis.raw_set("REDIS_VERSION_NUM", number)
}

fn sha1_hex(lua: &Lua, args: MultiValue) -> Results {
    if args.len() != 1 {
        return Err(failed(lua, "wrong number of arguments"));
    }
    let text = lua.coerce_string(args[0].clone())?;
    let digest = text.map_or_else(|| digest_of(b""), |text| digest_of(&text.as_bytes()));
    Ok(digest_text(&digest).into_lua_multi(lua)?)
}

/// A table with one field, which a reply is made from.
fn reply(lua: &Lua, args: &MultiValue, field: &str) -> Results {
    let (Some(Value::String(text)), 1) = (args.front(), args.len()) else {
        return Ok(error_table(lua, "ERR wrong number or type of arguments")?.into_lua_multi(lua)?);
    };
    let table = lua.create_table()?;
    if field == "err" {
        let text = text.as_bytes();
        let text = super::without_line_end(text.strip_prefix(b"-").unwrap_or(&text));
        // An error begins with a code.
        let line = if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() };
        table.raw_set(field, lua.create_string(line)?)?;
    } else {
        table.raw_set(field, text)?;
    }
    Ok(table.into_lua_multi(lua)?)
}

fn log(lua: &Lua, args: MultiValue) -> Results {
    if args.len() < 2 {
        return Err(failed(lua, "redis.log() requires two arguments or more."));
    }
    let Some(level) = lua.coerce_number(args[0].clone())? else {
        return Err(failed(lua, "First argument must be a number (log level)."));
    };
    let mut text = Vec::new();
    for part in args.iter().skip(1) {
        if let Some(part) = lua.coerce_string(part.clone())? {
            if !text.is_empty() {
                text.push(b' ');
            }
            text.extend_from_slice(&part.as_bytes()[..part.as_bytes().len().min(LOGGED_BYTES)]);
        }
    }
    let text = String::from_utf8_lossy(&text[..text.len().min(LOGGED_BYTES)]).into_owned();
    match level as i64 {
        0 => tracing::debug!(text, "a script says"),
        1 | 2 => tracing::info!(text, "a script says"),
        3 => tracing::warn!(text, "a script says"),
        _ => return Err(failed(lua, "Invalid debug level.")),
    }
    nothing(lua)
}

fn set_repl(lua: &Lua, args: MultiValue) -> Results {
    if args.len() != 1 {
        return Err(failed(lua, "redis.set_repl() requires two arguments."));
    }
    let flags = lua.coerce_number(args[0].clone())?.unwrap_or_default() as i64;
    if flags & !3 != 0 {
        return Err(failed(lua, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."));
    }
    nothing(lua)
}

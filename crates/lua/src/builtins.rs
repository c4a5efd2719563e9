//! The global functions that differ from Lua's own: chunks are loaded from text only, since no check makes compiled ones
//! safe, and a script can't stop the collection of garbage for those that follow.

use mlua::{ChunkMode, Function, IntoLuaMulti, Lua, Table, Value};

use crate::arguments::Arguments;
use crate::protection::Protection;
use crate::raise::{self, Raise, Results};
use crate::watch;

/// Names that scripts of Redis don't have.
const REMOVED: &[&str] = &[
    "dofile", "loadfile", "print", "require", "module", "package", "newproxy", "getfenv", "setfenv", "debug", "os",
    "io",
];
/// Most bytes of a chunk that a function gives piece by piece.
const MOST_CHUNK_BYTES: usize = 64 << 20;

/// Changes what Lua has by itself.
pub(crate) fn install(lua: &Lua, globals: &Table, protection: &Protection) -> mlua::Result<()> {
    for name in REMOVED {
        globals.raw_remove(*name)?;
    }
    globals.raw_set("load", raise::function(lua, load)?)?;
    globals.raw_set("loadstring", raise::function(lua, load_string)?)?;
    let original: Function = globals.raw_get("collectgarbage")?;
    globals
        .raw_set("collectgarbage", raise::function(lua, move |lua, values| collect_garbage(lua, &original, values))?)?;
    for name in ["setmetatable", "rawset"] {
        guard_write(lua, globals, name, protection)?;
    }
    for name in ["next", "rawget"] {
        let original: Function = globals.raw_get(name)?;
        globals.raw_set(name, protection.guard_read(lua, original)?)?;
    }
    globals.raw_set("pairs", Protection::pairs(lua, globals.raw_get("next")?)?)?;
    globals.raw_set("pcall", watch::pcall(lua)?)?;
    globals.raw_set("xpcall", watch::xpcall(lua)?)?;
    let coroutines: Table = globals.raw_get("coroutine")?;
    for name in ["create", "wrap"] {
        let original: Function = coroutines.raw_get(name)?;
        coroutines.raw_set(name, watch::while_alive(lua, original)?)?;
    }
    let table: Table = globals.raw_get("table")?;
    for name in ["insert", "remove", "sort"] {
        guard_write(lua, &table, name, protection)?;
    }
    Ok(())
}

fn guard_write(lua: &Lua, library: &Table, name: &str, protection: &Protection) -> mlua::Result<()> {
    let original: Function = library.raw_get(name)?;
    library.raw_set(name, protection.guard_write(lua, original)?)
}

/// load(func [, chunkname])
fn load(lua: &Lua, values: mlua::MultiValue) -> Results {
    let args = Arguments::new(lua, "load", values);
    let reader = args.function(1)?;
    let name = if args.value(2).is_nil() { "=(load)".to_owned() } else { text(&args.string(2)?) };
    let mut chunk = Vec::new();
    loop {
        match reader.call::<Value>(()) {
            Ok(Value::Nil) => break,
            Ok(Value::String(piece)) if piece.as_bytes().is_empty() => break,
            Ok(Value::String(piece)) => chunk.extend_from_slice(&piece.as_bytes()),
            Ok(_) => return failed(lua, "reader function must return a string"),
            Err(error) => return failed(lua, &raise::text_of(&error)),
        }
        if chunk.len() > MOST_CHUNK_BYTES {
            return failed(lua, "not enough memory");
        }
    }
    compile(lua, &chunk, &name)
}

/// loadstring(string [, chunkname])
fn load_string(lua: &Lua, values: mlua::MultiValue) -> Results {
    let args = Arguments::new(lua, "loadstring", values);
    let chunk = args.string(1)?;
    let name = if args.value(2).is_nil() { text(&chunk) } else { text(&args.string(2)?) };
    compile(lua, &chunk.as_bytes(), &name)
}

/// What C would take as a string.
fn text(bytes: &mlua::String) -> String {
    let bytes = bytes.as_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn compile(lua: &Lua, chunk: &[u8], name: &str) -> Results {
    match lua.load(chunk).set_name(name).set_mode(ChunkMode::Text).into_function() {
        Ok(function) => Ok(function.into_lua_multi(lua)?),
        Err(error) => failed(lua, &raise::text_of(&error)),
    }
}

fn failed(lua: &Lua, message: &str) -> Results {
    Ok((Value::Nil, message).into_lua_multi(lua)?)
}

/// collectgarbage([opt [, arg]])
fn collect_garbage(lua: &Lua, original: &Function, values: mlua::MultiValue) -> Results {
    let args = Arguments::new(lua, "collectgarbage", values);
    let option = if args.value(1).is_nil() { "collect".to_owned() } else { text(&args.string(1)?) };
    match option.as_str() {
        "collect" | "count" | "step" => {
            let result: Value =
                original.call(args.into_values()).map_err(|error| Raise::message(raise::text_of(&error)))?;
            Ok(result.into_lua_multi(lua)?)
        }
        "stop" | "restart" | "setpause" | "setstepmul" => Ok(0.into_lua_multi(lua)?),
        other => Err(args.error(1, &format!("invalid option '{other}'"))),
    }
}

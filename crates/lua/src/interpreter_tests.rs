//! Tests of the interpreter: what scripts see of Redis's globals and libraries, what they cannot change, how they end.
//!
//! Relies on the interpreter alone.

use mlua::{IntoLuaMulti, Value};

use super::*;

fn nothing(lua: &Lua) -> Results {
    Ok(().into_lua_multi(lua)?)
}

fn run_with(source: &str, host: impl FnMut(&Lua, i64, MultiValue) -> Results) -> Result<String, ScriptError> {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let function = interpreter.compile("user_script", source.as_bytes()).map_err(ScriptError::Failed)?;
    let value = interpreter.run(&function, host)?;
    Ok(value.to_string().unwrap())
}

fn run(source: &str) -> Result<String, ScriptError> {
    run_with(source, |lua, _, _| nothing(lua))
}

fn error_line(source: &str) -> String {
    match run(source) {
        Err(ScriptError::Raised { line, .. }) => String::from_utf8(line).unwrap(),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn globals_and_libraries_cannot_be_changed() {
    for source in ["x = 1", "redis = 1", "string.rep = 1", "cjson.x = 1", "getmetatable('').__index = 1"] {
        assert_eq!(error_line(source), "ERR user_script:1: Attempt to modify a readonly table", "{source}");
    }
    for source in [
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "table.insert(table, 1)",
        "rawset(getmetatable(_G), '__index', nil)",
        "table.sort(math)",
    ] {
        assert_eq!(error_line(source), "ERR Attempt to modify a readonly table", "{source}");
    }
    assert_eq!(
        error_line("local t = {}\nfor k, v in pairs(_G) do t[k] = v end\nreturn t.string.rep('x', 2) .. y"),
        "ERR user_script:3: Script attempted to access nonexistent global variable 'y'"
    );
    let source = "local _, t = pairs(string) t.rep = nil";
    assert_eq!(error_line(source), "ERR user_script:1: Attempt to modify a readonly table");
}

#[test]
fn what_reaches_the_machine_is_not_there() {
    for name in
        ["os", "io", "debug", "require", "package", "dofile", "loadfile", "print", "setfenv", "getfenv", "newproxy"]
    {
        assert_eq!(run(&format!("return tostring(rawget(_G, '{name}'))")), Ok("nil".to_owned()), "{name}");
    }
    let binary = "return tostring(loadstring(string.dump(function() return 1 end)))";
    assert_eq!(run(binary), Ok("nil".to_owned()));
}

#[test]
fn numbers_are_drawn_as_by_redis() {
    let source = "local t = {math.random(), math.random(), math.random()} \
        math.randomseed(5) return table.concat(t, ' ') .. ' ' .. math.random() .. ' ' .. math.random(100)";
    let drawn = "0.39646477363839 0.84048536971234 0.35333609737146 0.52483957937213 28";
    assert_eq!(run(source), Ok(drawn.to_owned()));
}

#[test]
fn an_endless_script_can_be_ended_whatever_it_catches() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) end while true do f() end",
        "while true do coroutine.wrap(function() while true do pcall(function() while true do end end) end end)() end",
        "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "return xpcall(function() while true do end end, function() while true do end end)",
        "repeat local ok = pcall(string.rep, 'x', 100) until false",
    ] {
        let mut ticks = 0;
        let done = run_with(source, |lua, number, _| {
            assert_eq!(number, TICK);
            ticks += 1;
            assert!(ticks < 100_000, "{source} goes on");
            if ticks > 3 { Err(Raise::Value(Value::String(lua.create_string("ended")?))) } else { nothing(lua) }
        });
        assert!(matches!(done, Err(ScriptError::Raised { .. })), "{source}: {done:?}");
    }
}

#[test]
fn memory_is_bounded() {
    for source in [
        "return string.rep('x', 1e9)",
        "local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end",
        "local s = 'x' while true do s = s .. s end",
        "return table.concat({string.rep('x', 3e7), string.rep('y', 3e7)})",
    ] {
        assert!(run(source).is_err(), "{source}");
    }
}

#[test]
fn deep_recursion_is_an_error() {
    assert!(error_line("local function f() return 1 + f() end return f()").contains("stack overflow"));
    assert!(run("local t = {} for i = 1, 1e5 do t = {t} end return cjson.encode(t)").is_err());
    assert!(run("return cjson.decode(string.rep('[', 1e6))").is_err());
    assert!(run("return cmsgpack.unpack(string.rep('\\145', 1e6))").is_err());
    assert_eq!(run("local t = {} t.t = t return #cmsgpack.pack(t)"), Ok("49".to_owned()));
}

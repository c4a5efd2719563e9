//! Tests of the interpreter: what scripts see of Redis's globals and libraries, what they cannot change, how they end.
//!
//! Relies on the interpreter alone.

use mlua::{IntoLuaMulti, Value};

use super::*;
use crate::host::CommandOutcome;

fn nothing(lua: &Lua) -> Results {
    Ok(().into_lua_multi(lua)?)
}

/// A host whose commands reply with what `reply` makes of their words.
struct Commands<S, R> {
    serve: S,
    reply_to: R,
    words: Vec<String>,
    reply: Vec<u8>,
}

impl<S, R> ScriptHost for Commands<S, R>
where
    S: FnMut(&Lua, i64, MultiValue) -> Results,
    R: FnMut(&[String]) -> (String, CommandOutcome),
{
    fn serve(&mut self, lua: &Lua, number: i64, args: MultiValue) -> Results {
        (self.serve)(lua, number, args)
    }

    fn begin_command(&mut self) {
        self.words.clear();
    }

    fn add_word(&mut self, word: &[u8]) {
        self.words.push(String::from_utf8_lossy(word).into_owned());
    }

    fn add_number(&mut self, number: f64) {
        self.words.push(number.to_string());
    }

    fn run_command(&mut self, has_words: bool) -> CommandOutcome {
        let (reply, outcome) = if has_words { (self.reply_to)(&self.words) } else { ("-ERR words".to_owned(), FAILED) };
        self.reply = format!("{reply}\r\n").into_bytes();
        outcome
    }

    fn reply(&self) -> &[u8] {
        &self.reply
    }
}

const FAILED: CommandOutcome = CommandOutcome { failed: true, counted: false, ends_script: false };

fn run_in(
    source: &str,
    serve: impl FnMut(&Lua, i64, MultiValue) -> Results,
    reply_to: impl FnMut(&[String]) -> (String, CommandOutcome),
) -> Result<String, ScriptError> {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let redis = interpreter.lua().create_table().unwrap();
    redis.raw_set("call", interpreter.command_function(true).unwrap()).unwrap();
    redis.raw_set("pcall", interpreter.command_function(false).unwrap()).unwrap();
    interpreter.add_library("redis", &redis).unwrap();
    let function = interpreter.compile("user_script", source.as_bytes()).map_err(ScriptError::Failed)?;
    let mut host = Commands { serve, reply_to, words: Vec::new(), reply: Vec::new() };
    let value = interpreter.run_script(&function, &[], &mut host)?;
    Ok(value.to_string().unwrap())
}

fn run_with(source: &str, serve: impl FnMut(&Lua, i64, MultiValue) -> Results) -> Result<String, ScriptError> {
    run_in(source, serve, |_| ("-ERR none".to_owned(), FAILED))
}

/// What a script makes of the reply `reply` to its command.
fn run_on(source: &str, reply: &str) -> Result<String, ScriptError> {
    let failed = reply.starts_with('-');
    let outcome = CommandOutcome { failed, counted: failed, ends_script: false };
    run_in(source, |lua, _, _| nothing(lua), |_| (reply.to_owned(), outcome))
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

#[test]
fn the_words_of_a_command_are_strings_and_numbers() {
    let mut seen = Vec::new();
    let done = run_in(
        "return redis.call('SET', 'k\\0', 1.5, 7)",
        |lua, _, _| nothing(lua),
        |words| {
            seen.push(words.to_vec());
            (":1".to_owned(), CommandOutcome::default())
        },
    );
    assert_eq!(done, Ok("1".to_owned()));
    assert_eq!(seen, [["SET", "k\0", "1.5", "7"]]);
    for words in ["{}", "nil", "true", "'a', {}", "function() end"] {
        let source = format!("return redis.pcall({words}).err");
        assert_eq!(run_on(&source, ":1"), Ok("ERR words".to_owned()), "{words}");
    }
}

#[test]
fn replies_are_values_of_lua() {
    let json = "return cjson.encode(redis.call('X'))";
    for (reply, text) in [
        (":-5", "[-5]"),
        ("$3\r\na\r\n", "[\"a\\r\\n\"]"),
        ("$-1", "[false]"),
        ("*-1", "[false]"),
        ("_", "[]"),
        ("+OK", "[{\"ok\":\"OK\"}]"),
        ("*2\r\n:1\r\n*1\r\n$1\r\na", "[[1,[\"a\"]]]"),
        ("%1\r\n$1\r\na\r\n:2", "[{\"map\":{\"a\":2}}]"),
        ("~1\r\n$1\r\na", "[{\"set\":{\"a\":true}}]"),
        ("~2\r\n_\r\n$1\r\na", "[{\"set\":{\"a\":true}}]"),
        (",1.5", "[{\"double\":1.5}]"),
        ("#t", "[true]"),
        ("(123", "[{\"big_number\":\"123\"}]"),
    ] {
        let source = "return cjson.encode({redis.call('X')})";
        assert_eq!(run_on(source, reply), Ok(if text == "[]" { "{}".to_owned() } else { text.to_owned() }), "{reply}");
    }
    assert_eq!(run_on("return redis.call('X').verbatim_string.string", "=5\r\ntxt:a"), Ok("a".to_owned()));
    assert_eq!(run_on(json, "-ERR x y"), Err(raised_at("ERR x y", 1, true)));
    let deep = format!("{}:1", "*1\r\n".repeat(150));
    assert_eq!(
        run_on("local t, n = redis.call('X'), 0 while type(t) == 'table' do t, n = t[1], n + 1 end return n", &deep),
        Ok("150".to_owned())
    );
}

fn raised_at(line: &str, number: u64, counted: bool) -> ScriptError {
    ScriptError::Raised { line: line.into(), place: Some(("@user_script".to_owned(), number)), counted }
}

#[test]
fn errors_of_commands_are_raised_or_returned_and_an_end_cannot_be_caught() {
    assert_eq!(run_on("return redis.pcall('X').err", "-ERR x"), Ok("ERR x".to_owned()));
    assert_eq!(run_on("return tostring(redis.pcall('X').ignore_error_stats_update)", "-ERR x"), Ok("true".to_owned()));
    assert_eq!(run_on("local ok, e = pcall(redis.call, 'X') return e", "-ERR x"), Ok("ERR x".to_owned()));
    let ends = CommandOutcome { failed: true, counted: false, ends_script: true };
    let done = run_in("redis.pcall('X') return 1", |lua, _, _| nothing(lua), |_| ("-ERR end".to_owned(), ends));
    assert_eq!(done, Err(raised_at("ERR end", 1, false)));
}

#[test]
fn a_panic_of_the_host_passes_the_interpreter_and_leaves_it_usable() {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let redis = interpreter.lua().create_table().unwrap();
    redis.raw_set("call", interpreter.command_function(true).unwrap()).unwrap();
    interpreter.add_library("redis", &redis).unwrap();
    let function = interpreter.compile("x", b"return redis.call('X')").unwrap();
    let run = |panics: bool| {
        let mut host = Commands {
            serve: |lua: &Lua, _, _| nothing(lua),
            reply_to: |_: &[String]| {
                if panics { panic!("of the host") } else { (":3".to_owned(), CommandOutcome::default()) }
            },
            words: Vec::new(),
            reply: Vec::new(),
        };
        interpreter.run(&function, &mut host).map(|value| value.to_string().unwrap())
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(true))).is_err());
    assert_eq!(run(false), Ok("3".to_owned()));
    // Without a script there is no host.
    assert!(function.call::<Value>(()).is_err());
}

#[test]
fn lists_are_globals_of_scripts() {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let words: [&[u8]; 2] = [b"a\0b", b"2"];
    let function = interpreter.compile("x", b"ARGV[1] = 'own' return #KEYS .. KEYS[1] .. KEYS[2] .. #ARGV").unwrap();
    let reply_to = |_: &[String]| (String::new(), FAILED);
    let mut host = Commands { serve: |lua: &Lua, _, _| nothing(lua), reply_to, words: Vec::new(), reply: Vec::new() };
    let mut run = |keys| {
        let lists: [WordList<'_, '_>; 2] =
            [(c"KEYS", keys, &|index| words[index]), (c"ARGV", 0, &|index| words[index])];
        interpreter.run_script(&function, &lists, &mut host)
    };
    // What a script has made of its lists is gone when the next one runs.
    for _ in 0..2 {
        assert_eq!(run(2).unwrap().to_string().unwrap(), "2a\0b21");
    }
    assert!(run(1).is_err(), "there is no second key");
}

fn run_bound(interpreter: &Interpreter, function: &Function) -> Result<Value, ScriptError> {
    let reply_to = |_: &[String]| (":1".to_owned(), CommandOutcome::default());
    let mut host = Commands { serve: |lua: &Lua, _, _| nothing(lua), reply_to, words: Vec::new(), reply: Vec::new() };
    interpreter.run(function, &mut host)
}

#[test]
fn code_in_an_environment_sees_what_that_shows_when_it_runs() {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let environment = interpreter.environment().unwrap();
    let only = interpreter.lua().create_table().unwrap();
    only.raw_set("answer", 42).unwrap();
    let only = interpreter.protect_strictly(&only).unwrap();
    environment.show(&only).unwrap();
    let run = |source: &str| {
        let function = interpreter.compile_within(&environment, "library", source.as_bytes()).unwrap();
        run_bound(&interpreter, &function)
    };
    assert_eq!(run("return answer").unwrap().to_string().unwrap(), "42");
    for (source, error) in [
        ("return math", "ERR library:1: Script attempted to access nonexistent global variable 'math'"),
        ("answer = 1", "ERR library:1: Attempt to modify a readonly table"),
    ] {
        match run(source) {
            Err(ScriptError::Raised { line, .. }) => assert_eq!(String::from_utf8_lossy(&line), error),
            other => panic!("{other:?}"),
        }
    }
    let inner = run("return function(a, b) return #a .. #b .. math.abs(-3) end").unwrap();
    environment.show(interpreter.shown_globals()).unwrap();
    let list = |length: usize| interpreter.lua().create_sequence_from(vec!["x"; length]).unwrap();
    let bound = interpreter.bind(inner.as_function().unwrap(), list(2), list(5)).unwrap();
    assert_eq!(run_bound(&interpreter, &bound).unwrap().to_string().unwrap(), "253");
}

#[test]
fn a_command_may_have_as_many_words_as_unpack_returns() {
    let count = |words: usize| {
        let source = format!(
            "local words = {{}} for number = 1, {words} do words[number] = number end \
             return tostring(redis.call('LPUSH', 'key', unpack(words)))"
        );
        let done = CommandOutcome { failed: false, counted: false, ends_script: false };
        run_in(&source, |lua, _, _| nothing(lua), |words| (format!(":{}", words.len()), done))
    };
    assert_eq!(count(7999), Ok("8001".to_owned()));
    assert!(count(8000).is_err(), "unpack itself returns no more, as in Redis");
}

#[test]
fn what_is_told_beside_a_reply_is_left_out() {
    let reply = "|1\r\n$1\r\nk\r\n*2\r\n:1\r\n:2\r\n$4\r\nreal";
    assert_eq!(run_on("return redis.call('X')", reply), Ok("real".to_owned()));
}

#[test]
fn more_values_than_there_are_places_for_end_the_script_and_nothing_else() {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let deep = "local t = {} for i = 1, 2000 do t[i] = 'x' .. i end\n\
        local function deep(n) return load(function() if n > 0 then deep(n - 1) end return nil end, 'a', unpack(t)) end\n";
    let mut host = Commands {
        serve: |lua: &Lua, _, _| nothing(lua),
        reply_to: |_: &[String]| ("-ERR none".to_owned(), FAILED),
        words: Vec::new(),
        reply: Vec::new(),
    };
    for _ in 0..3 {
        let function = interpreter.compile("user_script", format!("{deep}return deep(20)").as_bytes()).unwrap();
        assert!(interpreter.run(&function, &mut host).is_err(), "there are no places for all");
        let function = interpreter.compile("user_script", format!("{deep}deep(1) return 7").as_bytes()).unwrap();
        assert_eq!(interpreter.run(&function, &mut host).unwrap().to_string().unwrap(), "7");
    }
}

#[test]
fn stored_functions_are_as_many_as_memory_has_room_for() {
    let interpreter = Interpreter::new(64 << 20).unwrap();
    let stored: Vec<StoredFunction> = (0..10_000)
        .map(|number| interpreter.compile_stored("x", format!("return {number}").as_bytes()).unwrap())
        .collect();
    let last = stored[9_999].get(interpreter.lua()).unwrap();
    assert_eq!(last.call::<i64>(()).unwrap(), 9_999);
    let before = interpreter.memory_bytes();
    drop((stored, last));
    interpreter.free_stored();
    interpreter.lua().gc_collect().unwrap();
    assert!(interpreter.memory_bytes() < before / 2);
}

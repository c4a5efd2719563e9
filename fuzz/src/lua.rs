//! Target `lua_libraries`: what scripts give to `cjson`, `cmsgpack` and `struct`, and any text as a script.
//!
//! Relies on the first byte of the input for what is done with the rest. The promise: a value or an error, no panic, memory within the limit,
//! and an end, as the host of a script that goes on too long ends it.

use std::cell::RefCell;

use quire_lua::mlua::{IntoLuaMulti, Lua, MultiValue};
use quire_lua::{CommandOutcome, Interpreter, Raise, Results, ScriptHost, WordList};

/// Memory of the interpreter.
const MEMORY_BYTES: usize = 16 << 20;
/// Times that a script is asked whether it goes on, before it is ended.
const MOST_TICKS: u32 = 20;

/// What is done with the input, which is the first argument.
const USES: [&str; 6] = [
    "local v = cjson.decode(ARGV[1]) return cjson.encode(v)",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "return select('#', cmsgpack.unpack_limit(ARGV[1], 3, 1))",
    "local at = string.find(ARGV[1], '\\0', 1, true) or 0 \
     return struct.unpack(string.sub(ARGV[1], 1, at - 1), string.sub(ARGV[1], at + 1))",
    "return struct.size(ARGV[1])",
    "return loadstring(ARGV[1])()",
];

/// A host without commands, which ends what takes too long.
struct NoCommands {
    ticks: u32,
}

impl ScriptHost for NoCommands {
    fn serve(&mut self, lua: &Lua, _: i64, _: MultiValue) -> Results {
        self.ticks += 1;
        if self.ticks > MOST_TICKS { Err(Raise::message("it takes too long")) } else { Ok(().into_lua_multi(lua)?) }
    }

    fn begin_command(&mut self) {}

    fn add_word(&mut self, _: &[u8]) {}

    fn add_number(&mut self, _: f64) {}

    fn run_command(&mut self, _: bool) -> CommandOutcome {
        CommandOutcome { failed: true, ..CommandOutcome::default() }
    }

    fn reply(&self) -> &[u8] {
        b"-ERR there are no commands\r\n"
    }
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// Runs one of the `USES`, or the input itself as a script.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    INTERPRETER.with_borrow_mut(|place| {
        let interpreter = place.take().unwrap_or_else(|| Interpreter::new(MEMORY_BYTES).expect("an interpreter fits"));
        let script = match USES.get(usize::from(choice) % (USES.len() + 1)) {
            Some(script) => script.as_bytes(),
            None => rest,
        };
        if let Ok(function) = interpreter.compile("input", script) {
            let lists: [WordList<'_, '_>; 2] = [(c"KEYS", 0, &|_| b""), (c"ARGV", 1, &|_| rest)];
            let _ = interpreter.run_script(&function, &lists, &mut NoCommands { ticks: 0 });
        }
        assert!(interpreter.memory_bytes() <= MEMORY_BYTES, "the interpreter takes more memory than it may");
        *place = Some(interpreter);
    });
}

/// Valid inputs of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts: [(u8, &[u8]); 14] = [
        (0, br#"{"a":[1,2.5e3,-0,null,true],"\u00e9":"\ud83d\ude00"}"#),
        (0, b"[[[[[]]]],{},\"\\\"\\\\\\/\"]"),
        (1, b"\x93\x01\xa3abc\x82\xa1a\xcb?\xf0\0\0\0\0\0\0\xa1b\xc0"),
        (1, b"\xdc\0\x02\xd9\x03abc\xde\0\x01\x01\xc3"),
        (2, b"\x01\x02\xcd\x01\0\xd3\xff\xff\xff\xff\xff\xff\xff\xff\xc2"),
        (3, b">I2i4d\0\0\x01\0\0\0\x02?\xf0\0\0\0\0\0\0"),
        (3, b"<sbBhHlLfc3c0\0abc\0\x01\x02\x03\0\x04\0\x05\0\0\0\0\0\0\0"),
        (4, b">!4xbI3i8"),
        (5, b"return 1 + 1"),
        (5, b"local t = {} for i = 1, 10 do t[i] = i end return #t"),
        (6, b"return redis"),
        (6, b"while true do end"),
        (6, b"return string.rep('x', 1e9)"),
        (6, b"local t = setmetatable({}, {__index = function(t, k) return k end}) return t[5] .. table.concat({1, 'b'})"),
    ];
    texts.iter().map(|(choice, text)| [&[*choice], *text].concat()).collect()
}

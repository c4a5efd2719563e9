//! `redis.call` and `redis.pcall`: the words of a command go from Lua's stack to the host and its reply back onto the stack, without a value of
//! `mlua` for each, as these two are what scripts spend their time in.
//!
//! Relies on the host for the command. Lua leaves a frame with an error by a jump, so no value that has an end of its own lives in a frame here
//! that calls what may fail: words are read by calls that cannot, the host runs in a frame of its own, and replies are read by reference.

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use mlua::{Function, Lua, ffi};

use crate::host::{CommandOutcome, HostCell, ScriptHost};

/// Room on the stack that a value of a reply takes, without those within it.
const VALUE_ROOM: c_int = 6;
/// The field of an error that says that it was counted.
const COUNTED: &CStr = c"ignore_error_stats_update";

/// The function for scripts; `raises` says whether it raises an error that is the reply, or returns it.
///
/// The cell has to live as long as the interpreter.
pub(crate) fn function(lua: &Lua, cell: &Arc<HostCell>, raises: bool) -> mlua::Result<Function> {
    let place = Arc::as_ptr(cell).cast_mut().cast();
    // SAFETY: `call_command` is a C function with the two upvalues that are pushed here, and `lua_pushcclosure` takes both from the stack.
    unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_pushlightuserdata(state, place);
            ffi::lua_pushboolean(state, c_int::from(raises));
            ffi::lua_pushcclosure(state, call_command, 2);
        })
    }
}

unsafe extern "C-unwind" fn call_command(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state and the two upvalues that `function` has given it. The cell lives as long as the interpreter, by
    // `function`'s demand. What is alive in this frame has no end of its own.
    unsafe {
        let cell = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<HostCell>();
        let raises = ffi::lua_toboolean(state, ffi::lua_upvalueindex(2)) != 0;
        let Some((outcome, reply)) = run(state, &*cell) else {
            ffi::lua_pushstring(state, c"the host of the script has failed".as_ptr());
            ffi::lua_error(state)
        };
        // The host has copied the words. Without them there is room for the reply, also behind as many as the stack takes.
        ffi::lua_settop(state, 0);
        // The host is not entered, and so its reply not changed, until this function has returned.
        push_value(state, &mut ReplyReader { bytes: &*reply });
        if outcome.failed && outcome.counted && ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            set_field(state, COUNTED, true);
        }
        if outcome.ends_script || outcome.failed && raises {
            ffi::lua_error(state);
        }
        1
    }
}

/// Has the host run the command whose words lie on the stack; `None` if there is no host.
///
/// # Safety
/// The state is valid.
unsafe fn run(state: *mut ffi::lua_State, cell: &HostCell) -> Option<(CommandOutcome, *const [u8])> {
    cell.enter(|host| {
        host.begin_command();
        // SAFETY: the state is valid, which `run` demands of its caller.
        let has_words = unsafe { add_words(state, host) };
        let outcome = host.run_command(has_words);
        (outcome, std::ptr::from_ref(host.reply()))
    })
}

/// Gives the host the words on the stack; false if one of them is neither a string nor a number.
///
/// # Safety
/// The state is valid.
unsafe fn add_words(state: *mut ffi::lua_State, host: &mut dyn ScriptHost) -> bool {
    // SAFETY: the state is valid, by this function's demand. Indices from 1 to `lua_gettop` lie on the stack; the type of each is looked at
    // first, so that `lua_tolstring` and `lua_tonumber` convert nothing and cannot fail, and the string stays as long as it lies there.
    unsafe {
        for index in 1..=ffi::lua_gettop(state) {
            match ffi::lua_type(state, index) {
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let bytes = ffi::lua_tolstring(state, index, &raw mut len);
                    host.add_word(std::slice::from_raw_parts(bytes.cast(), len));
                }
                ffi::LUA_TNUMBER => host.add_number(ffi::lua_tonumber(state, index)),
                _ => return false,
            }
        }
    }
    true
}

/// A reply that is being read.
struct ReplyReader<'r> {
    bytes: &'r [u8],
}

impl<'r> ReplyReader<'r> {
    /// The first byte of a line, and the rest of it.
    fn line(&mut self) -> (u8, &'r [u8]) {
        let end = self.bytes.iter().position(|&byte| byte == b'\r').unwrap_or(self.bytes.len());
        let (line, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(2..).unwrap_or_default();
        line.split_first().map_or((b'_', &[][..]), |(first, line)| (*first, line))
    }

    fn bulk(&mut self, len: i64) -> &'r [u8] {
        let (bulk, rest) = self.bytes.split_at(self.bytes.len().min(usize::try_from(len).unwrap_or(0)));
        self.bytes = rest.get(2..).unwrap_or_default();
        bulk
    }
}

fn text(line: &[u8]) -> &str {
    std::str::from_utf8(line).unwrap_or_default()
}

/// Pushes the value of a reply as RESP has it, as scripts of Redis get it.
///
/// # Safety
/// The state is valid, and no value with an end of its own lives in the frames that an error leaves. The reply is well formed.
unsafe fn push_value(state: *mut ffi::lua_State, reply: &mut ReplyReader<'_>) {
    let (kind, line) = reply.line();
    let number = || text(line).parse::<i64>().unwrap_or_default();
    // SAFETY: the state is valid, by this function's demand, which covers the frames that an error leaves, too: readers and slices have no end of
    // their own. `luaL_checkstack` makes the room that each value takes.
    unsafe {
        ffi::luaL_checkstack(state, VALUE_ROOM, std::ptr::null());
        match kind {
            b':' => ffi::lua_pushnumber(state, number() as f64),
            b'$' | b'*' if number() < 0 => ffi::lua_pushboolean(state, 0),
            b'$' => push_string(state, reply.bulk(number())),
            b'+' => push_wrapped(state, c"ok", |state| push_string(state, line)),
            b'-' => push_wrapped(state, c"err", |state| push_string(state, line)),
            b'*' | b'>' => {
                let len = number();
                ffi::lua_createtable(state, c_int::try_from(len).unwrap_or(0), 0);
                for index in 1..=len {
                    push_value(state, reply);
                    ffi::lua_rawseti(state, -2, index as _);
                }
            }
            b'|' => {
                // What is told beside a reply is not for scripts.
                push_pairs(state, reply, number(), true);
                ffi::lua_settop(state, -2);
                push_value(state, reply);
            }
            b'%' => push_wrapped(state, c"map", |state| push_pairs(state, reply, number(), true)),
            b'~' => push_wrapped(state, c"set", |state| push_pairs(state, reply, number(), false)),
            b',' => push_wrapped(state, c"double", |state| {
                ffi::lua_pushnumber(state, text(line).parse().unwrap_or(f64::NAN));
            }),
            b'#' => ffi::lua_pushboolean(state, c_int::from(line == b"t")),
            b'(' => push_wrapped(state, c"big_number", |state| push_string(state, line)),
            b'=' => push_wrapped(state, c"verbatim_string", |state| {
                let bulk = reply.bulk(number());
                let (format, text) = bulk.split_at(bulk.len().min(3));
                ffi::lua_createtable(state, 0, 2);
                push_string(state, format);
                ffi::lua_setfield(state, -2, c"format".as_ptr());
                push_string(state, text.get(1..).unwrap_or_default());
                ffi::lua_setfield(state, -2, c"string".as_ptr());
            }),
            _ => ffi::lua_pushnil(state),
        }
    }
}

/// Pushes a table of keys and values, or of keys alone.
///
/// # Safety
/// As [`push_value`].
unsafe fn push_pairs(state: *mut ffi::lua_State, reply: &mut ReplyReader<'_>, len: i64, has_values: bool) {
    // SAFETY: `push_pairs` demands of its caller what `push_value` does. A key is no nil and no NaN, as replies have neither as a key.
    unsafe {
        ffi::luaL_checkstack(state, VALUE_ROOM, std::ptr::null());
        ffi::lua_createtable(state, 0, c_int::try_from(len).unwrap_or(0));
        for _ in 0..len {
            push_value(state, reply);
            if has_values {
                push_value(state, reply);
            } else {
                ffi::lua_pushboolean(state, 1);
            }
            if ffi::lua_type(state, -2) == ffi::LUA_TNIL {
                ffi::lua_settop(state, -3);
            } else {
                ffi::lua_rawset(state, -3);
            }
        }
    }
}

/// Pushes a table with one field, whose value `push` pushes.
///
/// # Safety
/// As [`push_value`].
unsafe fn push_wrapped(state: *mut ffi::lua_State, field: &CStr, push: impl FnOnce(*mut ffi::lua_State)) {
    // SAFETY: `push_wrapped` demands of its caller what `push_value` does; the new table has no metatable, so `lua_setfield` calls nothing.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        push(state);
        ffi::lua_setfield(state, -2, field.as_ptr());
    }
}

/// # Safety
/// As [`push_value`].
unsafe fn push_string(state: *mut ffi::lua_State, bytes: &[u8]) {
    // SAFETY: the state is valid, by this function's demand; Lua copies the bytes.
    unsafe { ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len()) };
}

/// Sets a field of the table on top of the stack to a boolean.
///
/// # Safety
/// As [`push_value`]; the table was made here.
unsafe fn set_field(state: *mut ffi::lua_State, field: &CStr, value: bool) {
    // SAFETY: as `push_value`; the table has no metatable.
    unsafe {
        ffi::lua_pushboolean(state, c_int::from(value));
        ffi::lua_setfield(state, -2, field.as_ptr());
    }
}

//! How a script is interrupted: Lua calls a hook every so many instructions, which asks the host whether the script goes on.
//!
//! Once the host has said no, every further instruction of the thread fails, so that no `pcall` keeps the script alive; no
//! further coroutine begins, and a handler of `xpcall` runs where hooks are called again.

use std::ffi::{CStr, c_int};

use mlua::{Function, Lua, Table, ffi};

/// Instructions between two questions to the host.
const TICK_INSTRUCTIONS: c_int = 100_000;
/// Where the registry has the table whose first value is the host.
const HOST: &CStr = c"quire.host";
/// Where the registry has the thread that runs scripts.
const MAIN: &CStr = c"quire.main";
/// Where the registry says that the script is to end.
const ENDED: &CStr = c"quire.ended";
/// The field of an error that is a table which has its text.
const ERROR_FIELD: &CStr = c"err";
const ENDED_TEXT: &CStr = c"the script is to end";

/// Has the host in `slot` asked while scripts run.
pub(crate) fn install(lua: &Lua, slot: &Table) -> mlua::Result<()> {
    // SAFETY: the table is on the stack; the registry takes it, and the thread that is pushed.
    unsafe {
        lua.exec_raw::<()>(slot, |state| {
            ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, HOST.as_ptr());
            ffi::lua_pushthread(state);
            ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, MAIN.as_ptr());
            ffi::lua_sethook(state, Some(tick), ffi::LUA_MASKCOUNT, TICK_INSTRUCTIONS);
        })
    }
}

/// The next script is not to end.
pub(crate) fn begin_anew(lua: &Lua) -> mlua::Result<()> {
    // SAFETY: what is pushed is taken from the stack again.
    unsafe {
        lua.exec_raw::<()>((), |state| {
            ffi::lua_pushnil(state);
            ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, ENDED.as_ptr());
            ffi::lua_sethook(state, Some(tick), ffi::LUA_MASKCOUNT, TICK_INSTRUCTIONS);
        })
    }
}

/// `original` for scripts, a C function without upvalues: it fails once the script is to end.
pub(crate) fn while_alive(lua: &Lua, original: Function) -> mlua::Result<Function> {
    // SAFETY: `run_while_alive` is a C function with the one upvalue that is on the stack here.
    unsafe { lua.exec_raw(original, |state| ffi::lua_pushcclosure(state, run_while_alive, 1)) }
}

/// `xpcall` for scripts.
pub(crate) fn xpcall(lua: &Lua) -> mlua::Result<Function> {
    // SAFETY: `protected_call` is a C function that needs no upvalue.
    unsafe { lua.create_c_function(protected_call) }
}

/// `pcall` for scripts.
pub(crate) fn pcall(lua: &Lua) -> mlua::Result<Function> {
    // SAFETY: `plain_call` is a C function that needs no upvalue.
    unsafe { lua.create_c_function(plain_call) }
}

/// The hook.
unsafe extern "C-unwind" fn tick(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this with a valid state. No value of Rust lives in this frame, so that an error may leave it.
    // The thread in the registry is the interpreter's first, which lives as long as the interpreter.
    unsafe {
        ffi::luaL_checkstack(state, 6, std::ptr::null());
        let top = ffi::lua_gettop(state);
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, HOST.as_ptr());
        ffi::lua_rawgeti(state, -1, 1);
        if ffi::lua_type(state, -1) != ffi::LUA_TFUNCTION {
            ffi::lua_settop(state, top);
            return;
        }
        ffi::lua_pushinteger(state, crate::TICK as ffi::lua_Integer);
        ffi::lua_call(state, 1, 2);
        if ffi::lua_toboolean(state, -2) != 0 {
            ffi::lua_settop(state, top);
            return;
        }
        ffi::lua_pushboolean(state, 1);
        ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, ENDED.as_ptr());
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, MAIN.as_ptr());
        let main = ffi::lua_tothread(state, -1);
        ffi::lua_settop(state, -2);
        for thread in [main, state] {
            ffi::lua_sethook(thread, Some(tick), ffi::LUA_MASKCOUNT, 1);
        }
        ffi::lua_error(state);
    }
}

unsafe extern "C-unwind" fn run_while_alive(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state and the upvalue with which `while_alive` has made it: a C function that
    // finds on the stack what it would have found if it had been called itself.
    unsafe {
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, ENDED.as_ptr());
        if ffi::lua_toboolean(state, -1) != 0 {
            ffi::lua_pushstring(state, ENDED_TEXT.as_ptr());
            ffi::lua_error(state);
        }
        ffi::lua_settop(state, -2);
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(original) => original(state),
            None => 0,
        }
    }
}

/// Lua's own runs the handler where the error is raised, which may be in a hook, during which no other is called. For a script,
/// which can't look at the stack, it makes no difference that this one runs it afterwards.
unsafe extern "C-unwind" fn protected_call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state. No value of Rust lives in this frame.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let failed = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 0) != ffi::LUA_OK;
        if failed {
            // The handler, and the error as its argument. If it fails, its error is the result.
            let _ = ffi::lua_pcall(state, 1, 1, 0);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_insert(state, 1);
        } else {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_replace(state, 1);
        }
        ffi::lua_gettop(state)
    }
}

/// As Lua's own, but for errors that are tables, as those of commands are: the script gets their text, as it did when
/// they were no tables yet.
unsafe extern "C-unwind" fn plain_call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state. No value of Rust lives in this frame.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let args = ffi::lua_gettop(state);
        if ffi::lua_pcall(state, args - 1, ffi::LUA_MULTRET, 0) == ffi::LUA_OK {
            ffi::lua_pushboolean(state, 1);
            ffi::lua_insert(state, 1);
            return ffi::lua_gettop(state);
        }
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            ffi::lua_pushstring(state, ERROR_FIELD.as_ptr());
            ffi::lua_rawget(state, -2);
            if ffi::lua_type(state, -1) == ffi::LUA_TSTRING {
                ffi::lua_replace(state, -2);
            } else {
                ffi::lua_settop(state, -2);
            }
        }
        ffi::lua_pushboolean(state, 0);
        ffi::lua_insert(state, 1);
        2
    }
}

//! Tables that scripts can read and not change. Redis has changed Lua for that; here a script gets an empty table in the place
//! of each, whose metatable reads the real one, and the functions that pass metatables by know of it.
//!
//! A real table never reaches a script: what iterates over it gets keys and values only.

use std::ffi::c_int;

use mlua::{Function, Lua, Table, Value, ffi};

/// What a script is told that changes such a table.
const READ_ONLY: &std::ffi::CStr = c"Attempt to modify a readonly table";

/// All protected tables of an interpreter.
#[derive(Debug)]
pub(crate) struct Protection {
    /// The real table of each that stands in for it.
    reals: Table,
    refuse: Function,
}

impl Protection {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        // SAFETY: `refuse_assignment` is a C function that needs no upvalue.
        let refuse = unsafe { lua.create_c_function(refuse_assignment)? };
        Ok(Self { reals: lua.create_table()?, refuse })
    }

    /// A table that stands in for `real`. What `getmetatable` shows of it is `shown`.
    pub(crate) fn protect(&self, lua: &Lua, real: &Table, shown: Value) -> mlua::Result<Table> {
        let proxy = lua.create_table()?;
        let metatable = lua.create_table()?;
        metatable.raw_set("__index", real)?;
        metatable.raw_set("__newindex", &self.refuse)?;
        metatable.raw_set("__metatable", shown)?;
        proxy.set_metatable(Some(metatable))?;
        self.reals.raw_set(&proxy, real)?;
        Ok(proxy)
    }

    /// `original` for scripts, a C function without upvalues that changes its first argument: it refuses protected tables.
    pub(crate) fn guard_write(&self, lua: &Lua, original: Function) -> mlua::Result<Function> {
        // SAFETY: `write` is a C function with the two upvalues that are on the stack here.
        unsafe { lua.exec_raw((original, &self.reals), |state| ffi::lua_pushcclosure(state, write, 2)) }
    }

    /// `original` for scripts, a C function without upvalues that reads its first argument: it gets the real table.
    pub(crate) fn guard_read(&self, lua: &Lua, original: Function) -> mlua::Result<Function> {
        // SAFETY: `read` is a C function with the two upvalues that are on the stack here.
        unsafe { lua.exec_raw((original, &self.reals), |state| ffi::lua_pushcclosure(state, read, 2)) }
    }

    /// `pairs` that iterates with this `next`.
    pub(crate) fn pairs(lua: &Lua, next: Function) -> mlua::Result<Function> {
        // SAFETY: `pairs` is a C function with the one upvalue that is on the stack here.
        unsafe { lua.exec_raw(next, |state| ffi::lua_pushcclosure(state, pairs, 1)) }
    }
}

unsafe extern "C-unwind" fn refuse_assignment(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state; no value of Rust lives in this frame.
    unsafe { ffi::luaL_error(state, READ_ONLY.as_ptr()) }
}

/// Leaves on the stack what the protected table that is the first argument stands for, or nil.
///
/// # Safety
/// The state is that of a C function whose second upvalue is the table of all protected ones.
unsafe fn push_real(state: *mut ffi::lua_State) -> bool {
    // SAFETY: the caller promises the state of a C function, which has room for LUA_MINSTACK values more than its arguments, and that its
    // second upvalue is a table.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE {
            return false;
        }
        ffi::lua_pushvalue(state, 1);
        ffi::lua_rawget(state, ffi::lua_upvalueindex(2));
        if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
            return true;
        }
        ffi::lua_settop(state, -2);
        false
    }
}

/// Runs the C function that is the first upvalue in this function's frame.
///
/// # Safety
/// The first upvalue is a C function that uses no upvalues.
unsafe fn run_original(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller promises a C function without upvalues as the first upvalue; the original finds on the stack what it would have found if it had been called itself.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(1)) {
            Some(original) => original(state),
            None => 0,
        }
    }
}

unsafe extern "C-unwind" fn write(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state and the upvalues with which `guard_write` has made it; no value of Rust
    // lives in this frame.
    unsafe {
        if push_real(state) {
            ffi::lua_pushstring(state, READ_ONLY.as_ptr());
            ffi::lua_error(state);
        }
        run_original(state)
    }
}

unsafe extern "C-unwind" fn read(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `write`, made by `guard_read`.
    unsafe {
        if push_real(state) {
            ffi::lua_replace(state, 1);
        }
        run_original(state)
    }
}

unsafe extern "C-unwind" fn pairs(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `write`, made by `Protection::pairs`, with one upvalue.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

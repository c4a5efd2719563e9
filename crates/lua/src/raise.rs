//! Functions of a library that fail as functions written in C do: with any Lua value as the error, and with the place of the
//! caller in front of a message. `mlua` alone raises errors of its own type, which scripts would see.
//!
//! A function written in Rust returns whether it has succeeded, and its results or the error; a few lines of C-like code
//! around it raise that error once all of Rust has returned.

use std::ffi::c_int;

use mlua::{Function, Lua, MultiValue, Table, Value, ffi};

/// Why a function of a library fails.
#[derive(Debug)]
pub enum Raise {
    /// With a message, behind the place where a script has called the function.
    Message(String),
    /// With this value.
    Value(Value),
    /// The interpreter fails, for want of memory.
    Interpreter(mlua::Error),
}

impl From<mlua::Error> for Raise {
    fn from(error: mlua::Error) -> Self {
        Raise::Interpreter(error)
    }
}

impl Raise {
    /// A message.
    pub fn message(text: impl Into<String>) -> Self {
        Raise::Message(text.into())
    }
}

/// What a function of a library returns.
pub type Results = Result<MultiValue, Raise>;

/// Levels of the stack between a function written in Rust and its caller: itself, and what raises its error.
const CALLER: usize = 2;

/// The place in a script at a level of the stack, as it stands in front of messages; empty where there is no script.
pub(crate) fn place(lua: &Lua, level: usize) -> String {
    let place = lua.inspect_stack(level, |debug| {
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", debug.source().short_src.unwrap_or_default()))
    });
    place.flatten().unwrap_or_default()
}

/// The results of a function in the form that [`raise`] takes.
pub(crate) fn pack(lua: &Lua, results: Results) -> mlua::Result<MultiValue> {
    let error = match results {
        Ok(mut values) => {
            values.push_front(Value::Boolean(true));
            return Ok(values);
        }
        Err(Raise::Message(text)) => Value::String(lua.create_string(format!("{}{text}", place(lua, CALLER)))?),
        Err(Raise::Value(value)) => value,
        Err(Raise::Interpreter(error)) => Value::String(lua.create_string(text_of(&error))?),
    };
    Ok(MultiValue::from_vec(vec![Value::Boolean(false), error]))
}

/// What has gone wrong, without what `mlua` says around it.
pub(crate) fn text_of(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::CallbackError { cause, .. } => text_of(cause),
        other => other.to_string(),
    }
}

/// Makes a function for scripts.
pub(crate) fn function(
    lua: &Lua,
    body: impl Fn(&Lua, MultiValue) -> Results + Send + 'static,
) -> mlua::Result<Function> {
    let inner = lua.create_function(move |lua, args: MultiValue| pack(lua, body(lua, args)))?;
    // SAFETY: `call_inner` is a C function whose one upvalue is the function that is on the stack here;
    // `lua_pushcclosure` takes it from there and leaves the closure.
    unsafe { lua.exec_raw(inner, |state| ffi::lua_pushcclosure(state, call_inner, 1)) }
}

/// Makes a function for scripts whose body is whatever function `slot[1]` is when it is called, with `number` as its
/// first argument.
pub(crate) fn slot_function(lua: &Lua, slot: &Table, number: i64) -> mlua::Result<Function> {
    // SAFETY: `call_slot` is a C function with two upvalues, the table and the number that are on the stack here; `lua_pushcclosure` takes
    // both from there and leaves the closure.
    unsafe { lua.exec_raw((slot, number), |state| ffi::lua_pushcclosure(state, call_slot, 2)) }
}

/// Calls the function that is its upvalue, and raises the error that it returns.
unsafe extern "C-unwind" fn call_inner(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state, on which at least LUA_MINSTACK values have room. No value of Rust
    // lives in this frame, so that an error of the callee may leave it.
    unsafe {
        let args = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, args, ffi::LUA_MULTRET);
        finish(state)
    }
}

/// Calls the function in the table that is its first upvalue, with its second one as the first argument.
unsafe extern "C-unwind" fn call_slot(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with a valid state, on which at least LUA_MINSTACK values have room. No value of Rust lives in this frame, so
    // that an error of the callee may leave it.
    unsafe {
        let args = ffi::lua_gettop(state);
        ffi::lua_rawgeti(state, ffi::lua_upvalueindex(1), 1);
        ffi::lua_insert(state, 1);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 2);
        ffi::lua_call(state, args + 1, ffi::LUA_MULTRET);
        finish(state)
    }
}

/// Returns the results on the stack behind `true`, or raises the error behind `false`.
///
/// # Safety
/// The state is valid, and no value of Rust lives in the frames that an error leaves.
unsafe fn finish(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the caller promises a valid state, and frames that an error may leave.
    unsafe {
        if ffi::lua_toboolean(state, 1) == 0 {
            ffi::lua_settop(state, 2);
            ffi::lua_error(state);
        }
        ffi::lua_gettop(state) - 1
    }
}

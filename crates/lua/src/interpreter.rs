//! One interpreter: its globals, its limits, and how a function in it is run for a host.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use mlua::{ChunkMode, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value, ffi};

use crate::environment::Environment;
use crate::host::{HostCell, ScriptHost, is_stack_exhausted};
use crate::protection::Protection;
use crate::raise::{self, Raise, Results};
use crate::{StoredFunction, bit, builtins, cjson, cmsgpack, command_call, random, struct_format, watch};

/// What the host is called with every so often while a script runs: it ends the script by raising an error.
pub const TICK: i64 = 0;

/// A script has passed more values at once, or deeper ones, than there are places for.
const TOO_MANY_VALUES: &str = "stack overflow (too many values at once)";

/// Makes of a function and two arguments a function that takes none: its call leaves nothing on the stack below the function.
const BINDER: &str = "local f, a, b = ... return function() return f(a, b) end";

/// A list of strings for scripts: the name of its global, its length, and its elements by their numbers from 0 on.
pub type WordList<'l, 'w> = (&'l CStr, usize, &'l dyn Fn(usize) -> &'w [u8]);

/// Why a script has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScriptError {
    /// It has raised an error: its line (`CODE text`), and where, if that is known.
    Raised {
        /// The error line.
        line: Vec<u8>,
        /// The chunk, and the line in it.
        place: Option<(String, u64)>,
        /// A command has failed, and was counted already.
        counted: bool,
    },
    /// The interpreter gave up.
    Failed(String),
}

/// Lua with the globals of Redis.
#[derive(Debug)]
pub struct Interpreter {
    lua: Lua,
    /// The real table of globals.
    globals: Table,
    /// What scripts see of it.
    shown: Table,
    protection: Protection,
    /// The host of the script that runs.
    host: Arc<HostCell>,
    slot: Table,
    xpcall: Function,
    handler: Function,
    binder: Function,
    /// The last script has failed, and may have been one that was to end.
    ended: Cell<bool>,
}

impl Interpreter {
    /// An interpreter that takes at most so much memory.
    ///
    /// # Errors
    /// That isn't enough to begin with.
    pub fn new(memory_limit_bytes: usize) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        lua.set_memory_limit(memory_limit_bytes)?;
        let globals = lua.globals();
        let protection = Protection::new(&lua)?;
        // Lua's own: it is called from here, so that no instruction follows it which a script that is to end would fail at.
        let xpcall: Function = globals.raw_get("xpcall")?;
        builtins::install(&lua, &globals, &protection)?;
        random::install(&lua, &globals.raw_get("math")?)?;
        globals.raw_set("bit", bit::library(&lua)?)?;
        globals.raw_set("cjson", cjson::library(&lua)?)?;
        globals.raw_set("cmsgpack", cmsgpack::library(&lua)?)?;
        globals.raw_set("struct", struct_format::library(&lua)?)?;
        let host = Arc::new(HostCell::default());
        let slot = lua.create_table()?;
        slot.raw_set(1, serving_function(&lua, &host)?)?;
        let handler = lua.create_function(handle_error)?;
        globals.raw_set("__redis__err__handler", &handler)?;
        let binder = lua.load(BINDER).set_name("=bind").into_function()?;
        let shown = shown_globals(&lua, &globals, &protection)?;
        watch::install(&lua, &slot)?;
        Ok(Self { lua, globals, shown, protection, host, slot, xpcall, handler, binder, ended: Cell::new(false) })
    }

    /// Lua itself.
    pub fn lua(&self) -> &Lua {
        &self.lua
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Sets a global of scripts.
    pub fn set_global(&self, name: &str, value: impl mlua::IntoLua) -> mlua::Result<()> {
        self.globals.raw_set(name, value)
    }

    /// A global of scripts.
    pub fn global<T: mlua::FromLua>(&self, name: &str) -> mlua::Result<T> {
        self.globals.raw_get(name)
    }

    /// Makes a library that scripts can't change known to them.
    pub fn add_library(&self, name: &str, library: &Table) -> mlua::Result<()> {
        let shown = self.protection.protect(&self.lua, library, Value::Boolean(false))?;
        self.globals.raw_set(name, shown)
    }

    /// What scripts see of a table that they can't change.
    pub fn protect(&self, table: &Table) -> mlua::Result<Table> {
        self.protection.protect(&self.lua, table, Value::Boolean(false))
    }

    /// The same, and of which they read no field that isn't there.
    pub fn protect_strictly(&self, table: &Table) -> mlua::Result<Table> {
        table.set_metatable(Some(absent_fields(&self.lua)?))?;
        self.protect(table)
    }

    /// Globals that can be exchanged, which are those of scripts first.
    pub fn environment(&self) -> mlua::Result<Environment> {
        Environment::new(&self.lua, &self.protection, &self.shown)
    }

    /// A function for scripts that this program has.
    pub fn function(&self, body: impl Fn(&Lua, MultiValue) -> Results + Send + 'static) -> mlua::Result<Function> {
        raise::function(&self.lua, body)
    }

    /// A function for scripts that the host of the running script has, under this number.
    pub fn host_function(&self, number: i64) -> mlua::Result<Function> {
        raise::slot_function(&self.lua, &self.slot, number)
    }

    /// Compiles a script. It is called `name` in messages.
    ///
    /// # Errors
    /// The text says why it isn't one.
    pub fn compile(&self, name: &str, source: &[u8]) -> Result<Function, String> {
        let chunk = self.lua.load(source).set_name(format!("@{name}")).set_mode(ChunkMode::Text);
        chunk.into_function().map_err(|error| raise::text_of(&error))
    }

    /// Compiles a script to be kept, as [`Interpreter::compile`] does.
    ///
    /// # Errors
    /// The text says why it isn't one.
    pub fn compile_stored(&self, name: &str, source: &[u8]) -> Result<StoredFunction, String> {
        let function = self.compile(name, source)?;
        StoredFunction::new(&self.lua, function).map_err(|error| raise::text_of(&error))
    }

    /// Gives the memory of stored functions free that are not kept any more.
    pub fn free_stored(&self) {
        self.lua.expire_registry_values();
    }

    /// `redis.call`, or `redis.pcall`, which returns the errors that the other one raises.
    pub fn command_function(&self, raises: bool) -> mlua::Result<Function> {
        command_call::function(&self.lua, &self.host, raises)
    }

    /// Compiles code that sees these globals.
    ///
    /// # Errors
    /// The text says why it isn't a script.
    pub fn compile_within(&self, environment: &Environment, name: &str, source: &[u8]) -> Result<Function, String> {
        let chunk = self.lua.load(source).set_name(format!("@{name}")).set_mode(ChunkMode::Text);
        let chunk = chunk.set_environment(environment.table().clone());
        chunk.into_function().map_err(|error| raise::text_of(&error))
    }

    /// What is to be run to call a function with two arguments.
    pub fn bind(&self, function: &Function, first: Table, second: Table) -> mlua::Result<Function> {
        self.binder.call((function, first, second))
    }

    /// Runs a function for this host.
    pub fn run(&self, function: &Function, host: &mut dyn ScriptHost) -> Result<Value, ScriptError> {
        self.run_by(host, || self.xpcall.call((function, &self.handler)))
    }

    /// Runs a script for this host, which finds these lists among its globals.
    pub fn run_script(
        &self,
        function: &Function,
        lists: &[WordList<'_, '_>],
        host: &mut dyn ScriptHost,
    ) -> Result<Value, ScriptError> {
        // SAFETY: the state is valid, with the three values on its stack, the table of globals first, and room for more than the four that are
        // pushed. What may be left by an error are references and numbers, which have no end of their own.
        let call = || unsafe {
            self.lua.exec_raw((&self.globals, &self.handler, function), |state| {
                set_lists(state, lists);
                ffi::lua_remove(state, 1);
                // As `xpcall`, and called no deeper than by it: how deep scripts may call is the same for functions.
                let succeeded = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1) == ffi::LUA_OK;
                ffi::lua_pushboolean(state, c_int::from(succeeded));
                ffi::lua_replace(state, 1);
            })
        };
        self.run_by(host, call)
    }

    /// Runs by `call` what gives, for this host, what `xpcall` does.
    fn run_by(
        &self,
        host: &mut dyn ScriptHost,
        call: impl FnOnce() -> mlua::Result<(bool, Value)>,
    ) -> Result<Value, ScriptError> {
        if self.ended.take() {
            watch::begin_anew(&self.lua).map_err(|error| self.give_up(&error))?;
        }
        let result = self.host.with(host, || catch_unwind(AssertUnwindSafe(call))).unwrap_or_else(|panic| {
            if is_stack_exhausted(&*panic) { Err(mlua::Error::runtime(TOO_MANY_VALUES)) } else { resume_unwind(panic) }
        });
        self.ended.set(!matches!(result, Ok((true, _))));
        match result {
            Ok((true, value)) => Ok(value),
            Ok((false, error)) => Err(self.error_of(&error)),
            Err(error) => Err(self.give_up(&error)),
        }
    }

    fn error_of(&self, error: &Value) -> ScriptError {
        match error {
            Value::Table(table) => {
                let text = |name: &str| table.raw_get::<Option<mlua::String>>(name).ok().flatten();
                let line = text("err").map_or_else(|| b"ERR unknown error".to_vec(), |line| line.as_bytes().to_vec());
                let source = text("source").map(|source| source.to_string_lossy());
                let number = table.raw_get::<Option<u64>>("line").ok().flatten();
                let counted = table.raw_get::<bool>("ignore_error_stats_update").unwrap_or(false);
                ScriptError::Raised { line, place: source.zip(number), counted }
            }
            Value::String(text) => self.give_up(&mlua::Error::runtime(text.to_string_lossy())),
            _ => ScriptError::Failed("execution failure".to_owned()),
        }
    }

    /// Something went wrong that is no error of a script, most likely a want of memory.
    fn give_up(&self, error: &mlua::Error) -> ScriptError {
        if let Err(error) = self.lua.gc_collect() {
            return ScriptError::Failed(raise::text_of(&error));
        }
        ScriptError::Failed(raise::text_of(error))
    }
}

/// The function by which Lua reaches the host.
fn serving_function(lua: &Lua, host: &Arc<HostCell>) -> mlua::Result<Function> {
    let host = host.clone();
    lua.create_function(move |lua, mut args: MultiValue| {
        let number = args.pop_front().and_then(|number| number.as_integer()).unwrap_or(TICK);
        raise::pack(lua, host.serve(lua, number, args))
    })
}

/// Sets globals of scripts to lists of strings.
///
/// # Safety
/// The state is valid, with the table of globals at index 1 and room for four values, and no value with an end of its own lives in the frames
/// that an error leaves.
unsafe fn set_lists(state: *mut ffi::lua_State, lists: &[WordList<'_, '_>]) {
    // SAFETY: the state is valid, by this function's demand. No more than three values are pushed at once, and all of them are taken again.
    unsafe {
        for (name, len, element) in lists {
            ffi::lua_pushstring(state, name.as_ptr());
            ffi::lua_createtable(state, c_int::try_from(*len).unwrap_or(0), 0);
            for index in 0..*len {
                let bytes = element(index);
                ffi::lua_pushlstring(state, bytes.as_ptr().cast(), bytes.len());
                ffi::lua_rawseti(state, -2, index as ffi::lua_Integer + 1);
            }
            ffi::lua_rawset(state, 1);
        }
    }
}

/// Runs where an error is raised, before the stack is left: says where that is.
fn handle_error(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match error {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::Error(error) => raise::text_of(error).into_bytes(),
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string([b"ERR ", text.as_slice()].concat())?)?;
            table
        }
    };
    // The function that has failed is the one before this; if it isn't a script's, the place is that of its caller.
    let is_native = lua.inspect_stack(1, |debug| debug.source().what == "C").unwrap_or(false);
    let level = if is_native { 2 } else { 1 };
    let place = lua
        .inspect_stack(level, |debug| (debug.source().source.map(|source| source.into_owned()), debug.current_line()));
    if let Some((source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The metatable of a table of which no field is read that isn't there.
fn absent_fields(lua: &Lua) -> mlua::Result<Table> {
    let missing = raise::function(lua, |lua, args| {
        let name = args.get(1).and_then(|name| lua.coerce_string(name.clone()).ok().flatten());
        let name = name.map_or_else(|| "(null)".to_owned(), |name| name.to_string_lossy());
        Err(Raise::Message(format!("Script attempted to access nonexistent global variable '{name}'")))
    })?;
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", missing)?;
    Ok(metatable)
}

/// Shows scripts all that is there, protected.
fn shown_globals(lua: &Lua, globals: &Table, protection: &Protection) -> mlua::Result<Table> {
    let real_strings: Table = globals.raw_get("string")?;
    for name in ["string", "table", "math", "coroutine", "bit", "cjson", "cmsgpack", "struct"] {
        let library: Table = globals.raw_get(name)?;
        globals.raw_set(name, protection.protect(lua, &library, Value::Boolean(false))?)?;
    }
    let strings: Table = globals.raw_get("string")?;
    let strings_metatable = lua.create_table()?;
    let shown = lua.create_table()?;
    shown.raw_set("__index", strings)?;
    strings_metatable.raw_set("__index", real_strings)?;
    strings_metatable.raw_set("__metatable", protection.protect(lua, &shown, Value::Boolean(false))?)?;
    lua.set_type_metatable::<mlua::String>(Some(strings_metatable));
    let metatable = absent_fields(lua)?;
    let shown_metatable = protection.protect(lua, &metatable, Value::Boolean(false))?;
    globals.set_metatable(Some(metatable))?;
    let shown = protection.protect(lua, globals, Value::Table(shown_metatable))?;
    globals.raw_set("_G", &shown)?;
    lua.set_globals(shown.clone())?;
    Ok(shown)
}

impl Interpreter {
    /// The table that scripts see as their globals.
    pub fn shown_globals(&self) -> &Table {
        &self.shown
    }
}

#[cfg(test)]
#[path = "interpreter_tests.rs"]
mod tests;

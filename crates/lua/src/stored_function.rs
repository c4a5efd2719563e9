//! A function that the caller keeps for long. `mlua` holds each of its own values in a place of one stack that has some thousands, and gives
//! up the thread that needs one more; what is stored here lies in a table, of which memory alone is the bound.
//!
//! Relies on Lua's registry.

use std::sync::Arc;

use mlua::{Function, Lua, RegistryKey};

/// A function of an interpreter.
#[derive(Clone, Debug)]
pub struct StoredFunction(Arc<RegistryKey>);

impl StoredFunction {
    /// Stores a function.
    ///
    /// # Errors
    /// There isn't enough memory.
    pub fn new(lua: &Lua, function: Function) -> mlua::Result<Self> {
        Ok(Self(Arc::new(lua.create_registry_value(function)?)))
    }

    /// The function, for a while.
    ///
    /// # Errors
    /// It is another interpreter's.
    pub fn get(&self, lua: &Lua) -> mlua::Result<Function> {
        lua.registry_value(&self.0)
    }
}

//! The globals of libraries of functions: those of scripts while a function runs, and others while a library is loaded.
//!
//! A library's code and all functions that it makes have one table of globals, which stands in for what is to be seen and can't
//! be changed. No script ever gets hold of the table itself.

use mlua::{Lua, Table, Value};

use crate::protection::Protection;

/// Globals that can be exchanged.
#[derive(Debug)]
pub struct Environment {
    table: Table,
    metatable: Table,
}

impl Environment {
    /// One that shows these globals first.
    pub(crate) fn new(lua: &Lua, protection: &Protection, globals: &Table) -> mlua::Result<Self> {
        let table = protection.protect(lua, globals, Value::Boolean(false))?;
        let metatable = table.metatable().ok_or_else(|| mlua::Error::runtime("globals without a metatable"))?;
        Ok(Self { table, metatable })
    }

    /// From here on these globals are seen.
    pub fn show(&self, globals: &Table) -> mlua::Result<()> {
        self.metatable.raw_set("__index", globals)
    }

    /// The globals of functions that are compiled with them.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

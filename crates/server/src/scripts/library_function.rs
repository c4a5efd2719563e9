//! A function that a library has registered: what runs it, and what it says about itself.

use quire_lua::StoredFunction;

use super::shebang::ScriptFlags;

/// A function of a library.
#[derive(Clone, Debug)]
pub struct LibraryFunction {
    /// Its name.
    pub name: String,
    /// What it says about itself.
    pub description: Option<Vec<u8>>,
    /// What it may do.
    pub flags: ScriptFlags,
    /// What is run.
    pub callback: StoredFunction,
}

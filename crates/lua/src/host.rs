//! The host of a running script: what the script asks of the program around the interpreter.
//!
//! Relies on one thread at a time using an interpreter, and on the host being entered once at a time: no command and no answer of
//! the host's runs Lua.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use mlua::{Lua, MultiValue};

use crate::raise::{Raise, Results};

/// What has become of a command that a script has called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Its reply is an error.
    pub failed: bool,
    /// That error was counted already.
    pub counted: bool,
    /// The script is to end, whatever it catches: the reply says why.
    pub ends_script: bool,
}

/// What the program around the interpreter does for a running script.
pub trait ScriptHost {
    /// One of the host's functions was called, by its number, or the script has run for a while
    /// ([`TICK`](crate::TICK)).
    ///
    /// # Errors
    /// Those of the function, which the script may catch.
    fn serve(&mut self, lua: &Lua, number: i64, args: MultiValue) -> Results;

    /// A command is called: its words follow.
    fn begin_command(&mut self);

    /// A word of the command.
    fn add_word(&mut self, word: &[u8]);

    /// A word that is a number to the script.
    fn add_number(&mut self, number: f64);

    /// All words are there: runs the command. `has_words` is false if one of them was neither a string nor a number.
    fn run_command(&mut self, has_words: bool) -> CommandOutcome;

    /// The reply of the last command, in RESP.
    fn reply(&self) -> &[u8];
}

type HostPointer = NonNull<dyn ScriptHost>;

/// Where the functions of scripts find the host of the script that runs.
#[derive(Default)]
pub(crate) struct HostCell {
    host: Cell<Option<HostPointer>>,
    /// The host has panicked inside of Lua, which no panic may pass.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the cells are reached by the thread that runs a script in the interpreter, which is one at a time: `Interpreter` is not `Sync`, and hands
// its Lua to no other thread. Between scripts there is no host.
unsafe impl Send for HostCell {}
// SAFETY: no two threads reach the cells at once: they run scripts in the interpreter by a reference that they cannot share, as `Interpreter` is
// not `Sync`.
unsafe impl Sync for HostCell {}

impl std::fmt::Debug for HostCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCell").field("has_host", &self.host.get().is_some()).finish_non_exhaustive()
    }
}

/// Takes the host away again.
struct Reset<'c>(&'c HostCell);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.0.host.set(None);
    }
}

impl HostCell {
    /// Runs `script` with this host; a panic of the host goes on here.
    pub(crate) fn with<R>(&self, host: &mut dyn ScriptHost, script: impl FnOnce() -> R) -> R {
        let host = NonNull::from(host);
        // SAFETY: only the lifetime changes; the pointer is used until `reset` is dropped, while the caller's borrow lasts.
        let host = unsafe { std::mem::transmute::<NonNull<dyn ScriptHost + '_>, HostPointer>(host) };
        self.host.set(Some(host));
        let reset = Reset(self);
        let result = script();
        drop(reset);
        match self.panic.take() {
            Some(panic) => std::panic::resume_unwind(panic),
            None => result,
        }
    }

    /// Calls the host; `None` if no script runs, the host has panicked, or it had no place for a value.
    pub(crate) fn enter<R>(&self, call: impl FnOnce(&mut dyn ScriptHost) -> R) -> Option<R> {
        // Not there while it is entered: no second reference to it is made.
        let mut host = self.host.take()?;
        // SAFETY: `with` has set it and takes it away before the host's borrow ends; this is the only reference, as the cell is empty meanwhile.
        let result = catch_unwind(AssertUnwindSafe(|| call(unsafe { host.as_mut() })));
        match result {
            Ok(result) => {
                self.host.set(Some(host));
                Some(result)
            }
            Err(panic) => {
                if is_stack_exhausted(&*panic) {
                    // It is the script that has too many values, and the host goes on.
                    self.host.set(Some(host));
                } else {
                    self.panic.set(Some(panic));
                }
                None
            }
        }
    }

    /// Has the host serve one of its functions.
    pub(crate) fn serve(&self, lua: &Lua, number: i64, args: MultiValue) -> Results {
        let served = self.enter(|host| host.serve(lua, number, args));
        served.unwrap_or_else(|| Err(Raise::message("the host of the script has failed")))
    }
}

/// Whether a panic is that of `mlua` when its stack of values is full, which a script can bring about by what it passes to functions that
/// are not Lua's own. Nothing is damaged then: `mlua` has given up the one value.
pub(crate) fn is_stack_exhausted(panic: &(dyn Any + Send)) -> bool {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.is_some_and(|text| text.contains("out of auxiliary stack space"))
}

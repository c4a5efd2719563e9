//! Lua 5.1 as scripts of Redis see it: the same globals, which no script can change, and the libraries that Redis brings
//! along (`bit`, `cjson`, `cmsgpack`, `struct`), written anew. Memory and time are bounded by the caller.
//!
//! Relies on `mlua`; knows no commands, keys or clients: what a script asks its host for comes to a function of the caller.

mod arguments;
mod bit;
mod builtins;
mod cjson;
mod cjson_decode;
mod cjson_encode;
mod cjson_settings;
mod cmsgpack;
mod cmsgpack_decode;
mod command_call;
mod environment;
mod host;
mod interpreter;
mod number_text;
mod protection;
mod raise;
mod random;
mod stored_function;
mod struct_format;
mod watch;

pub use arguments::Arguments;
pub use environment::Environment;
pub use host::{CommandOutcome, ScriptHost};
pub use interpreter::{Interpreter, ScriptError, TICK, WordList};
pub use mlua;
pub use number_text::shortest_of;
pub use raise::{Raise, Results};
pub use stored_function::StoredFunction;

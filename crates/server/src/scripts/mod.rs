//! Scripts: the interpreter, the scripts that are known, which one runs, and how values pass between Lua and RESP; libraries of
//! functions, which have an interpreter of their own.
//!
//! Relies on `quire-lua`; what a script asks of the server is done by `script_host`, which knows commands.

mod api;
mod cache;
mod command_buffers;
mod conversion;
mod function_engine;
mod libraries;
mod library_code;
mod library_function;
mod shebang;

use std::time::{Duration, Instant};

use quire_lua::Interpreter;

pub use api::{ACL_CHECK, REGISTER, SETRESP, error_table};
pub use cache::{CachedScript, ScriptCache, ScriptDigest, digest_of, digest_text};
pub use command_buffers::CommandBuffers;
pub use conversion::{is_counted_error, without_line_end, write_reply};
pub use function_engine::{FunctionEngine, LOAD_LIMIT, refused};
pub use libraries::{Library, LibrarySet};
pub use library_code::library_name;
pub use library_function::LibraryFunction;
pub use shebang::{ScriptFlags, parse as parse_shebang};

/// What scripts are called in messages.
pub const CHUNK: &str = "user_script";
/// Other clients are served so often while a script is over its time.
const SERVE_EVERY: Duration = Duration::from_millis(20);

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptKind {
    /// A text that EVAL has brought.
    Script,
    /// A function of a library.
    Function,
}

impl ScriptKind {
    /// Why a command is refused while it runs.
    pub fn busy_line(self) -> &'static str {
        match self {
            ScriptKind::Script => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            ScriptKind::Function => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
            }
        }
    }

    /// What it is told that a client has ended.
    pub fn killed_line(self) -> &'static str {
        match self {
            ScriptKind::Script => "ERR Script killed by user with SCRIPT KILL.",
            ScriptKind::Function => "ERR Script killed by user with FUNCTION KILL.",
        }
    }
}

/// The script that is running.
#[derive(Debug)]
pub struct RunningScript {
    /// What it is.
    pub kind: ScriptKind,
    /// Its name, once others are served.
    pub name: String,
    /// The words of the command that runs it, once others are served.
    pub command: Vec<Vec<u8>>,
    /// When it began.
    began: Instant,
    /// When others were served last, once it was over its time.
    served: Option<Instant>,
    /// It has called a command that writes.
    pub wrote: bool,
    /// A client has asked for its end.
    pub killed: bool,
}

impl RunningScript {
    /// One that began at this time.
    pub fn new(kind: ScriptKind, began: Instant) -> Self {
        let (name, command) = (String::new(), Vec::new());
        Self { kind, name, command, began, served: None, wrote: false, killed: false }
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether other clients are to be served now, as it is over this limit; and whether it is for the first time.
    pub fn serves_others(&mut self, limit: Duration) -> Option<bool> {
        let now = Instant::now();
        match self.served {
            None if now.duration_since(self.began) < limit => return None,
            Some(served) if now.duration_since(served) < SERVE_EVERY => return None,
            _ => {}
        }
        Some(self.served.replace(now).is_none())
    }
}

/// All that is known of functions.
#[derive(Debug, Default)]
pub struct Functions {
    /// Made when the first library comes, and not there while a function runs.
    engine: Option<Box<FunctionEngine>>,
    /// The libraries.
    pub libraries: LibrarySet,
    /// Memory of the interpreter, as it was after the last function.
    memory_bytes: usize,
}

impl Functions {
    /// The interpreter, to be given back ([`Functions::put_back`]); it is made where there is none.
    ///
    /// # Errors
    /// There isn't enough memory for one.
    pub fn take_engine(&mut self, memory_limit_bytes: u64) -> Result<Box<FunctionEngine>, String> {
        match self.engine.take() {
            Some(engine) => Ok(engine),
            None => FunctionEngine::new(memory_limit_bytes as usize).map(Box::new).map_err(|error| error.to_string()),
        }
    }

    /// Gives the interpreter back. Without libraries none is needed.
    pub fn put_back(&mut self, engine: Box<FunctionEngine>) {
        engine.interpreter().free_stored();
        self.memory_bytes = engine.interpreter().memory_bytes();
        self.engine = Some(engine);
        self.drop_unused();
    }

    /// Gives the interpreter up where there are no libraries.
    pub fn drop_unused(&mut self) {
        if self.libraries.is_empty() {
            (self.engine, self.memory_bytes) = (None, 0);
        }
    }

    /// Memory of the interpreter.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

/// All that is known of scripts.
#[derive(Debug, Default)]
pub struct Scripts {
    /// Made when the first script comes, and not there while one runs.
    interpreter: Option<Box<Interpreter>>,
    /// The scripts that are known.
    pub cache: ScriptCache,
    /// Functions of libraries.
    pub functions: Functions,
    /// The one that runs, or the function that does.
    pub running: Option<RunningScript>,
    /// Scripts may call commands of operators (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub may_operate: bool,
    /// The error that the script's reply is was counted when its command failed.
    pub error_counted: bool,
    /// Memory of the interpreter, as it was after the last script.
    memory_bytes: usize,
    /// For the commands of the next script.
    buffers: CommandBuffers,
}

impl Scripts {
    /// The interpreter, to be given back ([`Scripts::put_back`]); it is made where there is none.
    ///
    /// # Errors
    /// There isn't enough memory for one.
    pub fn take_interpreter(&mut self, memory_limit_bytes: u64) -> Result<Box<Interpreter>, String> {
        match self.interpreter.take() {
            Some(interpreter) => Ok(interpreter),
            None => api::make_interpreter(memory_limit_bytes as usize).map(Box::new).map_err(|error| error.to_string()),
        }
    }

    /// Gives the interpreter back.
    pub fn put_back(&mut self, interpreter: Box<Interpreter>) {
        interpreter.free_stored();
        self.memory_bytes = interpreter.memory_bytes();
        self.interpreter = Some(interpreter);
    }

    /// What the commands of a script are written into, to be given back ([`Scripts::give_buffers`]).
    pub fn take_buffers(&mut self) -> CommandBuffers {
        std::mem::take(&mut self.buffers)
    }

    /// Gives the buffers of a script that has ended back.
    pub fn give_buffers(&mut self, mut buffers: CommandBuffers) {
        buffers.reset();
        self.buffers = buffers;
    }

    /// Forgets all scripts, and with them the interpreter.
    pub fn flush(&mut self) {
        self.cache = ScriptCache::default();
        self.interpreter = None;
        self.memory_bytes = 0;
    }

    /// Memory of the interpreter.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Whether a script is running, so that other clients can do little.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

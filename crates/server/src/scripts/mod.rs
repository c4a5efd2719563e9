//! Scripts: the interpreter, the scripts that are known, which one runs, and how values pass between Lua and RESP.
//!
//! Relies on `quire-lua`; what a script asks of the server is done by `script_host`, which knows commands.

mod api;
mod cache;
mod conversion;
mod shebang;

use std::time::{Duration, Instant};

use quire_lua::Interpreter;

pub use api::{ACL_CHECK, SETRESP, error_table};
pub use cache::{CachedScript, ScriptCache, ScriptDigest, digest_of, digest_text};
pub use conversion::write_reply;
pub use shebang::{ScriptFlags, parse as parse_shebang};

/// What scripts are called in messages.
pub const CHUNK: &str = "user_script";
/// Other clients are served so often while a script is over its time.
const SERVE_EVERY: Duration = Duration::from_millis(20);

/// The script that is running.
#[derive(Debug)]
pub struct RunningScript {
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
    /// One that begins now.
    pub fn new(now: Instant) -> Self {
        Self { began: now, served: None, wrote: false, killed: false }
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

/// All that is known of scripts.
#[derive(Debug, Default)]
pub struct Scripts {
    /// Made when the first script comes, and not there while one runs.
    interpreter: Option<Box<Interpreter>>,
    /// The scripts that are known.
    pub cache: ScriptCache,
    /// The one that runs.
    pub running: Option<RunningScript>,
    /// Scripts may call commands of operators (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub may_operate: bool,
    /// The error that the script's reply is was counted when its command failed.
    pub error_counted: bool,
    /// Memory of the interpreter, as it was after the last script.
    memory_bytes: usize,
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
        self.memory_bytes = interpreter.memory_bytes();
        self.interpreter = Some(interpreter);
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

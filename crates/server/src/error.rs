//! Why a command failed, in Redis' words. Relies on the store's errors.

use std::borrow::Cow;

use quire_store::StoreError;

/// Bytes of a subcommand's name that an error shows, as in Redis.
const MOST_SHOWN_BYTES: usize = 128;

/// Why a command failed, as its client will read it.
#[derive(Debug, thiserror::Error)]
pub enum CmdError {
    /// The store refused; [`CmdError::line`] words it as Redis does.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no reply yet: the request is run again when what the client waits for has come. Nothing was done but what a client that
    /// begins to wait does (XREADGROUP makes its consumer).
    #[error("the request is to be run again")]
    NotYet,
    /// The full error line with its code: `ERR syntax error`.
    #[error("{0}")]
    Text(Cow<'static, str>),
}

impl CmdError {
    /// Words that do not form a valid command.
    pub const SYNTAX: CmdError = Self::fixed("ERR syntax error");
    /// A word that should have been a 64-bit integer.
    pub const NOT_INTEGER: CmdError = Self::fixed("ERR value is not an integer or out of range");
    /// A word that should have been a number.
    pub const NOT_FLOAT: CmdError = Self::fixed("ERR value is not a valid float");
    /// The key holds another type of value.
    pub const WRONG_TYPE: CmdError = Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The key is missing where it may not be.
    pub const NO_SUCH_KEY: CmdError = Self::fixed("ERR no such key");
    /// What the command would take away, or collect, is more than may be replied with: nothing was changed.
    pub const REPLY_TOO_LARGE: CmdError = Self::fixed(
        "ERR the reply would be larger than what a client may leave unread (client-output-buffer-limit, maxmemory-clients)",
    );
    /// A number outside of what the command takes.
    pub const OUT_OF_RANGE: CmdError = Self::fixed("ERR value is out of range");
    /// An index that names nothing.
    pub const INDEX_OUT_OF_RANGE: CmdError = Self::fixed("ERR index out of range");
    /// A database number that does not exist.
    pub const DB_OUT_OF_RANGE: CmdError = Self::fixed("ERR DB index is out of range");
    /// A SCAN cursor that is not a number.
    pub const INVALID_CURSOR: CmdError = Self::fixed("ERR invalid cursor");
    /// `maxmemory` is reached and the command would use more.
    pub const OUT_OF_MEMORY: CmdError = Self::fixed("OOM command not allowed when used memory > 'maxmemory'.");

    /// An error whose whole line is known beforehand.
    pub const fn fixed(line: &'static str) -> CmdError {
        CmdError::Text(Cow::Borrowed(line))
    }

    /// An error whose line was put together.
    pub fn owned(line: String) -> CmdError {
        CmdError::Text(Cow::Owned(line))
    }

    /// Wrong number of words for the command of this (lower-case) name; subcommands are written `config|get`.
    pub fn wrong_args(name: &str) -> CmdError {
        Self::owned(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// Too few words, or too many, for a subcommand, or none of this name.
    pub fn subcommand_syntax(command: &[u8], subcommand: &[u8]) -> CmdError {
        Self::owned(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try {} HELP.",
            String::from_utf8_lossy(&subcommand[..subcommand.len().min(MOST_SHOWN_BYTES)]),
            String::from_utf8_lossy(command).to_ascii_uppercase()
        ))
    }

    /// An expiry that is zero, negative or too large.
    pub fn invalid_expire(name: &str) -> CmdError {
        Self::owned(format!("ERR invalid expire time in '{name}' command"))
    }

    /// The error line to send.
    pub fn line(&self) -> Cow<'_, str> {
        match self {
            CmdError::Text(line) => Cow::Borrowed(line),
            CmdError::Store(error) => store_error_line(error),
            CmdError::NotYet => Cow::Borrowed("ERR the request is to be run again"),
        }
    }
}

/// Redis' wording of what the store reports.
fn store_error_line(error: &StoreError) -> Cow<'static, str> {
    Cow::Borrowed(match error {
        StoreError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
        StoreError::NotInteger => "ERR value is not an integer or out of range",
        StoreError::NotFloat => "ERR value is not a valid float",
        StoreError::Overflow => "ERR increment or decrement would overflow",
        StoreError::NanOrInfinity => "ERR increment would produce NaN or Infinity",
        StoreError::HashValueNotInteger => "ERR hash value is not an integer",
        StoreError::HashValueNotFloat => "ERR hash value is not a float",
        StoreError::TooLarge { .. } => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        StoreError::NoSuchKey => "ERR no such key",
        // No setting of the server is at fault, and what is can be told.
        StoreError::OutOfMemory { is_refused: true, .. } => return Cow::Owned(format!("OOM {error}")),
        StoreError::OutOfMemory { is_refused: false, .. } => "OOM command not allowed when used memory > 'maxmemory'.",
        other => return Cow::Owned(format!("ERR {other}")),
    })
}

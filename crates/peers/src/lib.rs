//! C libraries of other projects that experiments set beside Quire: SQLite and RocksDB, loaded at run time.
//!
//! Relies on the libraries' stable C interfaces; nothing of them is needed to build Quire. Each module has the functions that experiments
//! call, and a safe way to them.

mod functions;
pub mod rocksdb;
pub mod sqlite;

/// Why a peer can't be used, or what it complained of.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The library isn't there.
    #[error("{library} is not here (Debian's package {package}): {reason}")]
    Missing {
        /// The library.
        library: &'static str,
        /// The package that has it.
        package: &'static str,
        /// What the dynamic linker says.
        reason: String,
    },
    /// The library is too old, or another one of that name.
    #[error("{library} has no function {function}")]
    Function {
        /// The library.
        library: String,
        /// What it lacks.
        function: &'static str,
    },
    /// The library refused to do something.
    #[error("{what}: {reason}")]
    Refused {
        /// What was to be done.
        what: String,
        /// What the library says.
        reason: String,
    },
    /// A name that C can't take, since it has a NUL in it.
    #[error("{0:?} has a NUL in it")]
    Name(String),
}

pub(crate) fn c_string(text: &str) -> Result<std::ffi::CString, PeerError> {
    std::ffi::CString::new(text).map_err(|_| PeerError::Name(text.to_owned()))
}

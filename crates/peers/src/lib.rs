//! C libraries of other projects that experiments set beside Quire: SQLite and RocksDB, loaded at run time.
//!
//! Relies on the libraries' stable C interfaces; nothing of them is needed to build Quire. Each module has the functions that experiments
//! call, and a safe way to them.

/// Defines a struct with a field for each function of a library, and `of`, which finds them all.
macro_rules! functions {
    ($(#[$attribute:meta])* $name:ident { $($function:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[allow(non_snake_case, reason = "fields have the names of the functions")]
        pub(crate) struct $name {
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            /// The functions of `library`.
            ///
            /// # Safety
            /// The library's functions of these names have these types.
            pub(crate) unsafe fn of(library: &quire_sys::library::Library) -> Result<Self, $crate::PeerError> {
                Ok(Self {
                    $($function: {
                        let function = stringify!($function);
                        let found = library.symbol(function).ok_or_else(|| $crate::PeerError::Function {
                            library: library.name().to_owned(),
                            function,
                        })?;
                        // SAFETY: `of` demands of its caller that the function has this type; a function's address is a pointer.
                        unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<()>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

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

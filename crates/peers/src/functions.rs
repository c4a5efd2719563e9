//! Tables of a library's functions.
//!
//! Relies on the author of a table for the functions' types: the dynamic linker knows names only.

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

pub(crate) use functions;

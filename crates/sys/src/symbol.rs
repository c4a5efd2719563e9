//! Symbols of the dynamic linker: what a library that stands in front of another's functions calls on to.
//!
//! Relies on `dlsym`. `RTLD_NEXT` means the objects loaded after the one that holds this code, which is the shared
//! library that this crate is linked into.

use std::ffi::CStr;
use std::ptr::NonNull;

/// The next definition of `name` after our own; `None` when there is none. May take the dynamic linker's lock: to be
/// called before it matters, such as when the library is loaded.
pub fn next(name: &CStr) -> Option<NonNull<()>> {
    // SAFETY: the name is a C string and the handle is one that the function defines.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.cast())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_library_is_found_behind_us() {
        assert!(super::next(c"getpid").is_some());
        assert!(super::next(c"quire_no_such_function").is_none());
    }
}

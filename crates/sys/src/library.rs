//! Shared libraries that are loaded while the program runs, since it is only then known whether they are there.
//!
//! Relies on `dlopen` and `dlsym`. A library that was loaded stays: what it has started, and the addresses of its functions, hold good as
//! long as the process lives.

use std::ffi::CString;
use std::ptr::NonNull;

/// A library of this process.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<libc::c_void>,
    name: String,
}

// SAFETY: a handle of the dynamic linker, which any thread may use, and which stays as it is.
unsafe impl Send for Library {}
// SAFETY: as for `Send`; `dlsym` may be called by several threads at a time.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the first of the libraries `names` that is there.
    ///
    /// # Errors
    /// What the dynamic linker says of the last one.
    ///
    /// # Safety
    /// What the library does when it is loaded suits this process.
    pub unsafe fn open(names: &[&str]) -> Result<Self, String> {
        let mut reason = "no name was given".to_owned();
        for name in names {
            let Ok(c_name) = CString::new(*name) else { continue };
            // SAFETY: a C string; `open` demands of its caller that the library's initialisers may run.
            let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if let Some(handle) = NonNull::new(handle) {
                return Ok(Self { handle, name: (*name).to_owned() });
            }
            reason = last_error();
        }
        Err(reason)
    }

    /// The name under which it was found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the library has the function or variable `name`.
    pub fn symbol(&self, name: &str) -> Option<NonNull<()>> {
        let name = CString::new(name).ok()?;
        // SAFETY: a handle of `dlopen` that is never closed, and a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) }.cast())
    }
}

/// What the dynamic linker says of its last failure in this thread.
fn last_error() -> String {
    // SAFETY: the function returns null or a C string, which stays until this thread's next call of the dynamic linker.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the dynamic linker gives no reason".to_owned();
        }
        std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_library_that_is_there_is_taken_and_a_missing_one_is_named() {
        // SAFETY: both are parts of the C library, which this process has anyway.
        let library = unsafe { Library::open(&["libquire-none.so.0", "libc.so.6"]) }.unwrap();
        assert_eq!(library.name(), "libc.so.6");
        assert!(library.symbol("getpid").is_some() && library.symbol("no_such_function").is_none());
        // SAFETY: there is no such library, so nothing of it runs.
        let refused = unsafe { Library::open(&["libquire-none.so.0"]) }.unwrap_err();
        assert!(refused.contains("libquire-none.so.0"), "{refused}");
    }
}

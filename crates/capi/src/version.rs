//! Which version this is.
//!
//! Relies on the numbers here being those of Cargo.toml; a test compares them.

use core::ffi::{CStr, c_char};

/// Changes when programs have to be compiled anew, and with it the name libquire.so.0.
pub const QUIRE_VERSION_MAJOR: u32 = 0;
/// Changes when something is added. While QUIRE_VERSION_MAJOR is 0, interfaces may change, too.
pub const QUIRE_VERSION_MINOR: u32 = 1;
/// Changes when something is mended.
pub const QUIRE_VERSION_PATCH: u32 = 0;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The version of the library that is running, such as "0.1.0"; QUIRE_VERSION_MAJOR and so on are those of the header that
/// the program was compiled with. Never NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn quire_version() -> *const c_char {
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_package_are_of_one_version() {
        let header = format!("{QUIRE_VERSION_MAJOR}.{QUIRE_VERSION_MINOR}.{QUIRE_VERSION_PATCH}");
        assert_eq!(header, env!("CARGO_PKG_VERSION"));
        assert_eq!(VERSION.to_str().unwrap(), header);
    }
}

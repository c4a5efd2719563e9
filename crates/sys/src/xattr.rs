//! Extended attributes of files.
//!
//! Relies on `getxattr`. A file system without them says the same as a file without the attribute.

use std::path::Path;

/// Whether the file has an attribute called `name`.
pub fn is_set(path: &Path, name: &str) -> bool {
    let mut none: [u8; 0] = [];
    // With no room for it the call returns the attribute's length.
    rustix::fs::getxattr(path, name, &mut none[..]).is_ok_and(|length| length > 0)
}

/// Whether a program gets privileges when it is started, because its file has capabilities.
pub fn has_capabilities(path: &Path) -> bool {
    is_set(path, "security.capability")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_plain_file_has_no_capabilities() {
        let own = std::env::current_exe().unwrap();
        assert!(!super::has_capabilities(&own) && !super::is_set(&own, "user.quire-none"));
    }
}

//! Telling a mount of `quire mount` for whom requests wait.
//!
//! Relies on the attributes of a mount's root being the way to talk to it; on any other directory they would be plain
//! attributes of that, so it is asked first whether it is one.

use core::ffi::{CStr, c_char};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use quire_sys::{task, xattr};

use crate::api_error::ApiError;
use crate::boundary::{self, check};
use crate::status::quire_status;

/// Every mount has it, and nothing else.
const PROOF: &str = "user.quire.stats";
const HINTS: &str = "user.quire.critical";

/// Tells the mount whose root is at mount_point that requests wait for a process (critical is not 0), or takes that back
/// (critical is 0). 0 as process means the calling one. The hint comes before the mount's rules and ends with the process.
///
/// QUIRE_INVALID if there is no such process, or no mount of Quire at mount_point; QUIRE_UNSUPPORTED to those who may not
/// write to its root.
///
/// # Safety
/// `mount_point` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_critical(mount_point: *const c_char, process: i32, critical: i32) -> quire_status {
    boundary::status(|| {
        check("mount_point", mount_point)?;
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. The bytes are used within this call only.
        let bytes = unsafe { CStr::from_ptr(mount_point) }.to_bytes();
        hint(Path::new(OsStr::from_bytes(bytes)), process, critical != 0)
    })
}

fn hint(mount_point: &Path, process: i32, critical: bool) -> Result<(), ApiError> {
    let unknown =
        ApiError::Unknown { argument: "process", value: process.into(), advice: "no such process is running" };
    let number = match u32::try_from(process) {
        Ok(0) => std::process::id(),
        Ok(number) if !critical || task::identity(number).is_some() => number,
        _ => return Err(unknown),
    };
    let failed = |cause| ApiError::Mount { path: mount_point.display().to_string(), cause };
    xattr::get_at(mount_point, PROOF).map_err(failed)?;
    let words = if critical { number.to_string() } else { format!("-{number}") };
    xattr::set_at(mount_point, HINTS, words.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the message ends with NUL and stays until this thread's next failure; it is copied here, before any other call.
        unsafe { CStr::from_ptr(crate::message::quire_last_error()) }.to_str().unwrap().into()
    }

    #[test]
    fn a_directory_that_is_no_mount_is_told_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        // SAFETY: a string.
        let status = unsafe { quire_critical(path.as_ptr(), 0, 1) };
        assert_eq!(status, quire_status::QUIRE_INVALID);
        assert!(last().contains("no root of a mount"), "{}", last());
        assert!(xattr::get_at(dir.path(), HINTS).is_err());
    }

    #[test]
    fn processes_that_are_none_and_null_are_told() {
        for process in [-1, i32::MAX] {
            // SAFETY: a string.
            assert_eq!(unsafe { quire_critical(c"/".as_ptr(), process, 1) }, quire_status::QUIRE_INVALID);
            assert!(last().contains("no such process"), "{}", last());
        }
        // SAFETY: null is checked.
        assert_eq!(unsafe { quire_critical(core::ptr::null(), 0, 1) }, quire_status::QUIRE_INVALID);
        assert!(last().contains("`mount_point` is NULL"));
    }
}

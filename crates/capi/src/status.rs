//! What calls return.
//!
//! Relies on nothing.

use core::ffi::{CStr, c_char};

/// What a call returns: QUIRE_OK, or the kind of its failure. quire_last_error() tells the rest.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum quire_status {
    /// Done.
    QUIRE_OK = 0,
    /// An argument is wrong; nothing has happened.
    QUIRE_INVALID = 1,
    /// The kernel or the container forbids it. The message says what to do about that.
    QUIRE_UNSUPPORTED = 2,
    /// No memory or no addresses are left.
    QUIRE_NO_MEMORY = 3,
    /// A system call failed that has no business failing, or a file or disk did.
    QUIRE_SYSTEM = 4,
    /// A bound is reached; mostly too many snapshots live at once. Release some.
    QUIRE_EXHAUSTED = 5,
    /// The bytes that were asked for are gone: the snapshot outgrew its budget, or the process that held it was killed, or they were
    /// taken by quire_snapshot_take(); or a map's file could not be written.
    QUIRE_LOST = 6,
    /// A fault in the library itself. Please report the message.
    QUIRE_BUG = 7,
    /// A file is not what was written, or is something else, or of a later version.
    QUIRE_DAMAGED = 8,
}

impl quire_status {
    /// All of them.
    const ALL: [Self; 9] = [
        Self::QUIRE_OK,
        Self::QUIRE_INVALID,
        Self::QUIRE_UNSUPPORTED,
        Self::QUIRE_NO_MEMORY,
        Self::QUIRE_SYSTEM,
        Self::QUIRE_EXHAUSTED,
        Self::QUIRE_LOST,
        Self::QUIRE_BUG,
        Self::QUIRE_DAMAGED,
    ];

    /// As it is spelled in C.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::QUIRE_OK => c"QUIRE_OK",
            Self::QUIRE_INVALID => c"QUIRE_INVALID",
            Self::QUIRE_UNSUPPORTED => c"QUIRE_UNSUPPORTED",
            Self::QUIRE_NO_MEMORY => c"QUIRE_NO_MEMORY",
            Self::QUIRE_SYSTEM => c"QUIRE_SYSTEM",
            Self::QUIRE_EXHAUSTED => c"QUIRE_EXHAUSTED",
            Self::QUIRE_LOST => c"QUIRE_LOST",
            Self::QUIRE_BUG => c"QUIRE_BUG",
            Self::QUIRE_DAMAGED => c"QUIRE_DAMAGED",
        }
    }
}

/// The name of a status, such as "QUIRE_OK"; "unknown" for a number that is none. Never NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn quire_status_name(status: i32) -> *const c_char {
    quire_status::ALL.into_iter().find(|known| *known as i32 == status).map_or(c"unknown", quire_status::name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_name_and_other_numbers_are_unknown() {
        for status in quire_status::ALL {
            assert_eq!(status.name().to_str().unwrap(), format!("{status:?}"));
            assert_eq!(quire_status_name(status as i32), status.name().as_ptr());
        }
        // SAFETY: a static string.
        let unknown = |number| unsafe { CStr::from_ptr(quire_status_name(number)) };
        assert_eq!((unknown(-1), unknown(99)), (c"unknown", c"unknown"));
    }
}

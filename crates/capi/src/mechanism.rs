//! The mechanisms by their numbers and names.
//!
//! Relies on [`Mechanism`] for what they are. C passes any number where an enum is asked for, so calls take an `int32_t`
//! and look it up here.

use core::ffi::{CStr, c_char};

use quire_snapshot::Mechanism;

use crate::api_error::ApiError;
use crate::boundary::{self, check};
use crate::status::quire_status;

/// How memory is kept as it was at a cut while threads go on writing.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum quire_mechanism {
    /// Whichever stalls writers least, among those that work here and do what the flags of quire_options ask for; see
    /// quire_range_why(). In this order: for up to 64 KiB memcpy; barrier, only if writes are announced; uffd; scoot; fork;
    /// mmapcopy; memcpy. If snapshots must be addressable: scoot, mmapcopy, memcpy.
    QUIRE_BEST = 0,
    /// A duplicate in the same process that shares frames until a thread writes. Snapshots are ordinary memory.
    QUIRE_SCOOT = 1,
    /// Write protection by userfaultfd; a thread that writes first keeps the page, in its handler of SIGBUS. A system call
    /// that writes to the range fails with EFAULT, unless quire_prepare_write() went before. The program must not set a
    /// handler of SIGBUS of its own once such a range exists; one that it set before is asked about all other faults.
    QUIRE_UFFD = 2,
    /// Nothing is protected: every write to the range has to be announced by quire_prepare_write().
    QUIRE_BARRIER = 3,
    /// Private mappings of one file in memory. Snapshots are ordinary memory.
    QUIRE_MMAPCOPY = 4,
    /// A child process holds the snapshot and answers reads.
    QUIRE_FORK = 5,
    /// A plain copy, made at the cut. Snapshots are ordinary memory. Works everywhere.
    QUIRE_MEMCPY = 6,
}

use quire_mechanism::{QUIRE_BARRIER, QUIRE_BEST, QUIRE_FORK, QUIRE_MEMCPY, QUIRE_MMAPCOPY, QUIRE_SCOOT, QUIRE_UFFD};

/// `None` for [`QUIRE_BEST`].
const ALL: [(quire_mechanism, &CStr, Option<Mechanism>); 7] = [
    (QUIRE_BEST, c"best", None),
    (QUIRE_SCOOT, c"scoot", Some(Mechanism::Scoot)),
    (QUIRE_UFFD, c"uffd", Some(Mechanism::Uffd)),
    (QUIRE_BARRIER, c"barrier", Some(Mechanism::Barrier)),
    (QUIRE_MMAPCOPY, c"mmapcopy", Some(Mechanism::MmapCopy)),
    (QUIRE_FORK, c"fork", Some(Mechanism::Fork)),
    (QUIRE_MEMCPY, c"memcpy", Some(Mechanism::Memcpy)),
];

/// What `number` stands for; `None` for the best.
pub fn from_number(number: i32) -> Result<Option<Mechanism>, ApiError> {
    let found = ALL.iter().find(|(code, ..)| *code as i32 == number);
    found.map(|(.., mechanism)| *mechanism).ok_or(ApiError::Unknown {
        argument: "mechanism",
        value: number.into(),
        advice: "take one of enum quire_mechanism",
    })
}

/// The number of `mechanism`.
pub fn number_of(mechanism: Mechanism) -> quire_mechanism {
    ALL.iter().find(|(.., known)| *known == Some(mechanism)).map_or(QUIRE_BEST, |(code, ..)| *code)
}

/// The name of a mechanism, such as "scoot"; NULL for a number that is none. Never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn quire_mechanism_name(mechanism: i32) -> *const c_char {
    boundary::value(std::ptr::null(), || {
        from_number(mechanism)?;
        let name = ALL.iter().find(|(code, ..)| *code as i32 == mechanism).map(|(_, name, _)| name.as_ptr());
        Ok(name.unwrap_or(std::ptr::null()))
    })
}

/// Finds a mechanism by its name, "best" among them, and leaves its number in *mechanism.
///
/// # Safety
/// `name` is a string that ends with NUL; `*mechanism` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_mechanism_parse(name: *const c_char, mechanism: *mut i32) -> quire_status {
    boundary::status(|| {
        check("name", name)?;
        check("mechanism", mechanism)?;
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. It is used within this call only.
        let name = unsafe { CStr::from_ptr(name) };
        let found = ALL.iter().find(|(_, known, _)| *known == name);
        let (code, ..) = found.ok_or_else(|| ApiError::NoMechanism(name.to_string_lossy().into_owned()))?;
        // SAFETY: neither null nor unaligned, as was checked; that such a place may be written is the duty of this function's
        // callers.
        unsafe { mechanism.write(*code as i32) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_mechanisms_agree() {
        for mechanism in Mechanism::ALL {
            let number = number_of(mechanism) as i32;
            assert_eq!(from_number(number).unwrap(), Some(mechanism));
            // SAFETY: the name of a known number is a static string.
            let name = unsafe { CStr::from_ptr(quire_mechanism_name(number)) };
            assert_eq!(name.to_str().unwrap(), mechanism.name());
            let mut parsed = -1;
            // SAFETY: a string and a place.
            let status = unsafe { quire_mechanism_parse(name.as_ptr(), &mut parsed) };
            assert_eq!((status, parsed), (quire_status::QUIRE_OK, number));
        }
        assert_eq!(from_number(0).unwrap(), None);
        assert!(from_number(7).unwrap_err().to_string().contains("quire_mechanism"));
        assert!(quire_mechanism_name(-1).is_null());
    }
}

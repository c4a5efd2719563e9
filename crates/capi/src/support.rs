//! Which mechanisms work here.
//!
//! Relies on the probes of `quire-snapshot`, which snapshot a little memory of their own.

use core::ffi::c_char;

use quire_snapshot::{Mechanism, PageRange, Requirements, probe};

use crate::api_error::ApiError;
use crate::boundary;
use crate::mechanism::from_number;
use crate::status::quire_status;

/// Memory larger than a plain copy is best for.
const LARGE_BYTES: usize = 64 << 20;

/// Tries a mechanism on a little memory of the library's own: QUIRE_OK if it works here, QUIRE_UNSUPPORTED if the kernel
/// or the container forbids it. For QUIRE_BEST it is always QUIRE_OK.
///
/// why, if it is not NULL, gets up to why_size bytes of text that ends with NUL: what is forbidden and what to do about
/// it; what QUIRE_BEST would pick for much memory, with default options, and why; or "".
///
/// # Safety
/// `why` is NULL, or `why_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_mechanism_supported(mechanism: i32, why: *mut c_char, why_size: usize) -> quire_status {
    boundary::status(|| {
        let found = from_number(mechanism);
        let result = found.and_then(try_it);
        let text = result.as_ref().map_or_else(ToString::to_string, Clone::clone);
        // SAFETY: `put_text` writes nothing through NULL, and otherwise at most `why_size` bytes, which may be written by the duty
        // of this function's callers.
        unsafe { put_text(&text, why, why_size) };
        result.map(|_| ())
    })
}

fn try_it(mechanism: Option<Mechanism>) -> Result<String, ApiError> {
    match mechanism {
        Some(mechanism) => Ok(probe(mechanism).map(|()| String::new())?),
        None => {
            let span = PageRange::allocate(LARGE_BYTES).map_err(quire_snapshot::MechanismError::from)?;
            let choice = Mechanism::best(&span, Requirements::default());
            Ok(format!("{}: {}", choice.mechanism, choice.why))
        }
    }
}

/// As much of `text` as fits, with a NUL behind it.
///
/// # Safety
/// `to` is null, or `size` bytes may be written there.
unsafe fn put_text(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let len = (0..size.min(text.len() + 1)).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
    // SAFETY: `len` bytes of the text, and of the `size > len` at `to`, which is not null.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
        to.add(len).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn ask(mechanism: i32, room: usize) -> (quire_status, String) {
        let mut why = [0x55; 300];
        // SAFETY: no more than the array is written.
        let status = unsafe { quire_mechanism_supported(mechanism, why.as_mut_ptr(), room) };
        assert!(why[room..].iter().all(|&byte| byte == 0x55));
        // SAFETY: ends with NUL within the array, or is empty.
        let text = if room == 0 { c"" } else { unsafe { CStr::from_ptr(why.as_ptr()) } };
        (status, text.to_string_lossy().into_owned())
    }

    #[test]
    fn a_reason_is_cut_to_the_room_there_is() {
        assert_eq!(ask(6, 299), (quire_status::QUIRE_OK, String::new()));
        let (status, why) = ask(0, 299);
        assert!(status == quire_status::QUIRE_OK && why.contains(": "), "{why}");
        assert_eq!(ask(0, 5).1, why[..4]);
        assert_eq!(ask(0, 1).1, "");
        assert_eq!(ask(0, 0), (quire_status::QUIRE_OK, String::new()));
        let (status, why) = ask(17, 299);
        assert!(status == quire_status::QUIRE_INVALID && why.contains("17"), "{why}");
    }

    #[test]
    fn a_letter_of_several_bytes_is_not_cut_in_two() {
        let mut to = [1; 4];
        // SAFETY: four bytes.
        unsafe { put_text("aéé", to.as_mut_ptr(), 3) };
        // SAFETY: null takes nothing.
        unsafe { put_text("aéé", std::ptr::null_mut(), 3) };
        assert_eq!(to, [b'a' as c_char, 0, 1, 1]);
    }
}

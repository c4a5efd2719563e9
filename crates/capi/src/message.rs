//! What went wrong last in this thread.
//!
//! Relies on thread-local storage; a thread that is ending has no message any more.

use core::ffi::{CStr, c_char};
use std::cell::RefCell;
use std::ffi::CString;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps `text` for `quire_last_error`.
pub fn set(text: &str) {
    // Where the thread is ending, or a handler interrupts this very function, the message is lost, and no more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = c_string(text);
        }
    });
}

/// `text` for C: a NUL within would end it early.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// What went wrong in the last call of this thread that failed, in words for people: what was refused, and often what to
/// do about it. "" if none has failed yet. Calls that succeed leave it alone, so ask after a failure only.
///
/// Never NULL. Valid until the next call of this thread fails; never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn quire_last_error() -> *const c_char {
    let empty: &CStr = c"";
    LAST.try_with(|last| last.try_borrow().map_or(empty.as_ptr(), |last| last.as_ptr())).unwrap_or(empty.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the message ends with NUL and stays until this thread's next failure; it is copied here, before any other call.
        unsafe { CStr::from_ptr(quire_last_error()) }.to_str().unwrap().into()
    }

    #[test]
    fn each_thread_has_its_own_message() {
        assert_eq!(last(), "");
        set("one\0two");
        assert_eq!(last(), "one?two");
        std::thread::spawn(|| {
            assert_eq!(last(), "");
            set("another");
        })
        .join()
        .unwrap();
        assert_eq!(last(), "one?two");
    }
}

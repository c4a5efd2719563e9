//! The line between C and Rust: nothing unwinds across it, and no pointer crosses it unchecked.
//!
//! Relies on callers for what can't be checked: that a pointer that isn't NULL leads to what its type says.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::api_error::ApiError;
use crate::status::quire_status;
use crate::{handle, message};

/// Runs `work` and says how it went. A panic of ours is a status, too: what `work` was about to change may be half done,
/// but the mechanisms below keep their own state whole by the order in which they do things.
pub fn status(work: impl FnOnce() -> Result<(), ApiError>) -> quire_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => quire_status::QUIRE_OK,
        Ok(Err(failure)) => {
            message::set(&failure.to_string());
            failure.status()
        }
        Err(panic) => {
            message::set(&format!("a fault in libquire, please report it: {}", words(&*panic)));
            // Whatever the panic carries isn't dropped: that could panic again.
            std::mem::forget(panic);
            quire_status::QUIRE_BUG
        }
    }
}

/// As [`status`], for calls that return a value: `fallback` if they fail.
pub fn value<T: Copy>(fallback: T, work: impl FnOnce() -> Result<T, ApiError>) -> T {
    let mut result = fallback;
    status(|| {
        result = work()?;
        Ok(())
    });
    result
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

/// Whether `pointer` may lead to a `T` at all.
pub fn check<T>(argument: &'static str, pointer: *const T) -> Result<(), ApiError> {
    if pointer.is_null() {
        return Err(ApiError::Null { argument });
    }
    if !pointer.is_aligned() {
        return Err(ApiError::Unaligned { argument, address: pointer as usize });
    }
    Ok(())
}

/// A place in which a call leaves a new object: NULL until it succeeds.
pub struct OutPointer<T>(*mut *mut T);

impl<T: 'static> OutPointer<T> {
    /// Checks the place and clears it.
    ///
    /// # Safety
    /// Unless it is null or unaligned, `place` may be written until the call returns.
    pub unsafe fn new(argument: &'static str, place: *mut *mut T) -> Result<Self, ApiError> {
        check(argument, place)?;
        // SAFETY: `check` has found it neither null nor unaligned, and this function's caller answers for that such a place may
        // be written.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(Self(place))
    }

    /// Hands `object` to the caller, whose duty it is to release it.
    ///
    /// # Errors
    /// [`ApiError::Handles`] if there are too many objects.
    pub fn fill(self, object: T) -> Result<(), ApiError> {
        let handle = handle::make(object)?;
        // SAFETY: `OutPointer::new` checked the place, and its caller promised that it may be written until the call returns.
        unsafe { self.0.write(handle) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn last() -> String {
        // SAFETY: the message ends with NUL and stays until this thread's next failure; it is copied here, before any other call.
        unsafe { CStr::from_ptr(message::quire_last_error()) }.to_str().unwrap().into()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(status(|| panic!("split page {}", 7)), quire_status::QUIRE_BUG);
        assert!(last().contains("split page 7"), "{}", last());
        assert_eq!(status(|| std::panic::panic_any(5)), quire_status::QUIRE_BUG);
        assert!(last().contains("no words"));
        assert_eq!(value(3, || panic!("again")), 3);
        assert_eq!(value(3, || Ok(4)), 4);
    }

    #[test]
    fn a_place_is_cleared_before_anything_can_fail() {
        let mut place = std::ptr::dangling_mut::<u64>();
        // SAFETY: `place` is a local variable, aligned, and outlives `out`.
        let out = unsafe { OutPointer::new("out", &raw mut place) }.unwrap();
        assert!(place.is_null());
        out.fill(8).unwrap();
        assert_eq!(*handle::get("object", place).unwrap(), 8);
        handle::release("object", place).unwrap();
    }

    #[test]
    fn null_and_crooked_pointers_are_named() {
        let crooked = std::ptr::without_provenance::<u64>(0x1001);
        let (null, crooked) = (check::<u64>("a", std::ptr::null()), check("b", crooked));
        assert_eq!(null.unwrap_err().to_string(), "`a` is NULL");
        assert_eq!(crooked.unwrap_err().to_string(), "`b` is not aligned: 0x1001");
    }
}

//! The line between C and Rust: nothing unwinds across it, and no pointer crosses it unchecked.
//!
//! Relies on callers for what can't be checked: that a pointer that isn't NULL leads to what its type says.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::Failure;
use crate::message;
use crate::status::quire_status;

/// Runs `work` and says how it went. A panic of ours is a status, too: what `work` was about to change may be half done,
/// but the mechanisms below keep their own state whole by the order in which they do things.
pub fn status(work: impl FnOnce() -> Result<(), Failure>) -> quire_status {
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
pub fn value<T: Copy>(fallback: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
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

/// What `pointer` leads to.
///
/// # Safety
/// Unless it is null or unaligned, it leads to a `T` that lives for `'a` and that nobody changes.
pub unsafe fn borrow<'a, T>(argument: &'static str, pointer: *const T) -> Result<&'a T, Failure> {
    check(argument, pointer)?;
    // SAFETY: neither null nor unaligned; the rest is promised by the caller.
    Ok(unsafe { &*pointer })
}

/// Whether `pointer` may lead to a `T` at all.
pub fn check<T>(argument: &'static str, pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::Null { argument });
    }
    if !pointer.is_aligned() {
        return Err(Failure::Unaligned { argument, address: pointer as usize });
    }
    Ok(())
}

/// A place in which a call leaves a new object: NULL until it succeeds.
pub struct Out<T>(*mut *mut T);

impl<T> Out<T> {
    /// Checks the place and clears it.
    ///
    /// # Safety
    /// Unless it is null or unaligned, `place` may be written until the call returns.
    pub unsafe fn new(argument: &'static str, place: *mut *mut T) -> Result<Self, Failure> {
        check(argument, place)?;
        // SAFETY: neither null nor unaligned; promised to be writable.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(Self(place))
    }

    /// Hands `object` to the caller, whose duty it is to release it.
    pub fn fill(self, object: T) {
        // SAFETY: checked when it was made, and writable until the call returns.
        unsafe { self.0.write(Box::into_raw(Box::new(object))) };
    }
}

/// Takes back what [`Out::fill`] handed out and ends it; NULL is nothing to end.
///
/// # Safety
/// `object` is NULL or was handed out by [`Out::fill`], was not released before, and nobody uses it.
pub unsafe fn release<T>(argument: &'static str, object: *mut T) -> Result<(), Failure> {
    if object.is_null() {
        return Ok(());
    }
    check(argument, object)?;
    // SAFETY: made by `Box::into_raw` in `fill`, released once, as the caller promises.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn last() -> String {
        // SAFETY: valid until the next failure of this thread.
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
        // SAFETY: a place of ours.
        let out = unsafe { Out::new("out", &raw mut place) }.unwrap();
        assert!(place.is_null());
        out.fill(8);
        // SAFETY: just filled.
        assert_eq!(unsafe { *place }, 8);
        // SAFETY: filled above, released once.
        unsafe { release("object", place) }.unwrap();
        // SAFETY: null is nothing to release.
        unsafe { release::<u64>("object", std::ptr::null_mut()) }.unwrap();
    }

    #[test]
    fn null_and_crooked_pointers_are_named() {
        let crooked = 0x1001 as *const u64;
        // SAFETY: neither gets as far as being read.
        let (null, crooked) = unsafe { (borrow::<u64>("a", std::ptr::null()), borrow("b", crooked)) };
        assert_eq!(null.unwrap_err().to_string(), "`a` is NULL");
        assert_eq!(crooked.unwrap_err().to_string(), "`b` is not aligned: 0x1001");
    }
}

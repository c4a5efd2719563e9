//! Guards: the right to read or change a page's bytes, given back when they are dropped.
//!
//! Relies on the state: while a guard lives the page stays in memory, and no other thread changes its bytes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::futex::Futex;
use crate::page_state::{PageState, WaitQueue};

/// The bytes of a page that are in the file: a page, or less at the file's end.
#[derive(Clone, Copy)]
struct Bytes {
    at: *mut u8,
    len: usize,
}

/// A page that stays in memory and unchanged while this lives.
pub struct ReadGuard<'a> {
    state: &'a PageState,
    bytes: Bytes,
    _map: PhantomData<&'a [u8]>,
}

// SAFETY: the shared lock, which any thread may give back, keeps the bytes from being changed; the state is an atomic.
unsafe impl Send for ReadGuard<'_> {}
// SAFETY: threads that share the guard only read bytes that the shared lock keeps from being changed.
unsafe impl Sync for ReadGuard<'_> {}

impl<'a> ReadGuard<'a> {
    /// # Safety
    /// The caller has locked the page of `state` for reading, and leaves the lock to the guard; its bytes are the `len` ones at
    /// `at`, which live as long as the state.
    #[inline]
    pub(crate) unsafe fn new(state: &'a PageState, at: *mut u8, len: usize) -> Self {
        Self { state, bytes: Bytes { at, len }, _map: PhantomData }
    }
}

impl Deref for ReadGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `new` was promised `len` bytes at `at` and a shared lock. The lock, which this guard has until it is dropped,
        // keeps the page in memory and writers from it.
        unsafe { std::slice::from_raw_parts(self.bytes.at, self.bytes.len) }
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.state.unlock_shared() {
            wake(self.state);
        }
    }
}

/// A page that this thread alone uses while this lives. It is dirty from the start.
pub struct WriteGuard<'a> {
    state: &'a PageState,
    bytes: Bytes,
    _map: PhantomData<&'a mut [u8]>,
}

// SAFETY: the exclusive lock, which any thread may give back, keeps all others from the bytes; the state is an atomic.
unsafe impl Send for WriteGuard<'_> {}
// SAFETY: threads that share the guard only read; changing the bytes takes `&mut`.
unsafe impl Sync for WriteGuard<'_> {}

impl<'a> WriteGuard<'a> {
    /// # Safety
    /// The caller has locked the page of `state` exclusively, and leaves the lock to the guard; its bytes are the `len` ones at
    /// `at`, which live as long as the state.
    #[inline]
    pub(crate) unsafe fn new(state: &'a PageState, at: *mut u8, len: usize) -> Self {
        Self { state, bytes: Bytes { at, len }, _map: PhantomData }
    }
}

impl Deref for WriteGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `new` was promised `len` bytes at `at` and the exclusive lock, which keeps the page in memory and all other
        // threads from it until this guard is dropped.
        unsafe { std::slice::from_raw_parts(self.bytes.at, self.bytes.len) }
    }
}

impl DerefMut for WriteGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` was promised `len` bytes at `at` and the exclusive lock, which keeps all other threads from the page;
        // `&mut self` is the only access by way of this guard.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.at, self.bytes.len) }
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.state.unlock_exclusive() {
            wake(self.state);
        }
    }
}

#[cold]
fn wake(state: &PageState) {
    Futex.unpark_all(state);
}

impl fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadGuard").field("len", &self.bytes.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for WriteGuard<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WriteGuard").field("len", &self.bytes.len).finish_non_exhaustive()
    }
}

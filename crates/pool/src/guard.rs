//! Guards: the right to read or change a page's bytes, given back when they are dropped.
//!
//! Relies on the word: while a guard lives the page stays in memory, and its bytes are changed by nobody else.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::park::Futex;
use crate::word::{Parking, Word};

/// The bytes of a page that are in the file: a page, or less at the file's end.
#[derive(Clone, Copy)]
struct Bytes {
    at: *mut u8,
    len: usize,
}

/// A page that stays in memory and unchanged while this lives.
pub struct ReadGuard<'a> {
    word: &'a Word,
    bytes: Bytes,
    _map: PhantomData<&'a [u8]>,
}

// SAFETY: shared access to bytes that nobody changes meanwhile, and a word of atomics.
unsafe impl Send for ReadGuard<'_> {}
// SAFETY: as above.
unsafe impl Sync for ReadGuard<'_> {}

impl<'a> ReadGuard<'a> {
    /// # Safety
    /// The caller shares the page of `word`, and leaves that to the guard; its bytes are the `len` ones at `at`, which live as
    /// long as the word.
    #[inline]
    pub(crate) unsafe fn new(word: &'a Word, at: *mut u8, len: usize) -> Self {
        Self { word, bytes: Bytes { at, len }, _map: PhantomData }
    }
}

impl Deref for ReadGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the page is shared by this guard: it is in memory and nobody changes it.
        unsafe { std::slice::from_raw_parts(self.bytes.at, self.bytes.len) }
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.word.unshare() {
            wake(self.word);
        }
    }
}

/// A page that this thread alone uses while this lives. It is dirty from the start.
pub struct WriteGuard<'a> {
    word: &'a Word,
    bytes: Bytes,
    _map: PhantomData<&'a mut [u8]>,
}

// SAFETY: sole access to the bytes, and a word of atomics.
unsafe impl Send for WriteGuard<'_> {}
// SAFETY: as above.
unsafe impl Sync for WriteGuard<'_> {}

impl<'a> WriteGuard<'a> {
    /// # Safety
    /// The caller has the page of `word` for itself, and leaves that to the guard; its bytes are the `len` ones at `at`,
    /// which live as long as the word.
    #[inline]
    pub(crate) unsafe fn new(word: &'a Word, at: *mut u8, len: usize) -> Self {
        Self { word, bytes: Bytes { at, len }, _map: PhantomData }
    }
}

impl Deref for WriteGuard<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the page is this guard's alone and in memory.
        unsafe { std::slice::from_raw_parts(self.bytes.at, self.bytes.len) }
    }
}

impl DerefMut for WriteGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the page is this guard's alone and in memory; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.at, self.bytes.len) }
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.word.unexclude() {
            wake(self.word);
        }
    }
}

#[cold]
fn wake(word: &Word) {
    Futex.unpark_all(word);
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

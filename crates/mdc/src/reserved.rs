//! Values and slices in memory of their own, which is mapped for them and which no allocator knows.
//!
//! Relies on [`AnonymousMap`]. A dump gives the memory of the program back, the allocator's too; what the dump itself works with must be
//! none of it.

use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::slice;

use quire_sys::area::AnonymousMap;
use zerocopy::FromZeros;

/// A slice of `T`s that begins with zeros.
pub(crate) struct ReservedSlice<T> {
    area: AnonymousMap,
    len: usize,
    of: PhantomData<T>,
}

impl<T: FromZeros> ReservedSlice<T> {
    /// `len` zeros.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { area: AnonymousMap::private(bytes)?, len, of: PhantomData })
    }
}

impl<T> ReservedSlice<T> {
    /// Its addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        range_of(&self.area)
    }
}

impl<T> Deref for ReservedSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the area has room for `len` values, is aligned to pages (which suffices: `new` asserts it), began as zeros, which are
        // values, and only this struct reaches it; `self` is borrowed, so no code changes them.
        unsafe { slice::from_raw_parts(self.area.base().cast::<T>(), self.len) }
    }
}

impl<T> DerefMut for ReservedSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the area has room for `len` values, is aligned to pages (which suffices: `new` asserts it), began as zeros, which are
        // values, and only this struct reaches it; `self` is borrowed mutably, so no other reference into it exists.
        unsafe { slice::from_raw_parts_mut(self.area.base().cast::<T>(), self.len) }
    }
}

/// One value.
pub(crate) struct ReservedBox<T> {
    area: AnonymousMap,
    of: PhantomData<T>,
}

impl<T> ReservedBox<T> {
    /// Moves `value` there.
    pub(crate) fn new(value: T) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        let area = AnonymousMap::private(size_of::<T>())?;
        // SAFETY: the area has room for the value, is aligned to pages, and only this struct knows it.
        unsafe { area.base().cast::<T>().write(value) };
        Ok(Self { area, of: PhantomData })
    }

    /// Its addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        range_of(&self.area)
    }
}

fn range_of(area: &AnonymousMap) -> Range<usize> {
    let base = area.base() as usize;
    base..base + area.len()
}

impl<T> Deref for ReservedBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` put a value there, which only this struct reaches; `self` is borrowed, so no code changes it.
        unsafe { &*self.area.base().cast::<T>() }
    }
}

impl<T> DerefMut for ReservedBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `new` put a value there, which only this struct reaches; `self` is borrowed mutably, so no other reference to it exists.
        unsafe { &mut *self.area.base().cast::<T>() }
    }
}

impl<T> Drop for ReservedBox<T> {
    fn drop(&mut self) {
        // SAFETY: `new` put a value there, which is dropped only here.
        unsafe { self.area.base().cast::<T>().drop_in_place() };
    }
}

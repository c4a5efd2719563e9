//! A value in memory of its own instead of the heap: the mechanism can use it while pages of the heap are isolated.
//!
//! Relies on [`quire_sys::area`]; such memory lies outside every range that was there before it.

use std::io;
use std::ops::Deref;

use quire_sys::area::AnonymousMap;

/// See the head of this file.
pub(super) struct OffHeap<T>(AnonymousMap, std::marker::PhantomData<T>);

impl<T> OffHeap<T> {
    /// # Errors
    /// The system has no memory.
    pub(super) fn new(value: T) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        let area = AnonymousMap::private(size_of::<T>())?;
        // SAFETY: the area is writable, at least as large as the value, aligned to a page, and known to no other code.
        unsafe { area.base().cast::<T>().write(value) };
        Ok(Self(area, std::marker::PhantomData))
    }
}

impl<T> Deref for OffHeap<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` put a value there, which only this struct reaches and which `drop` alone takes away.
        unsafe { &*self.0.base().cast::<T>() }
    }
}

impl<T> Drop for OffHeap<T> {
    fn drop(&mut self) {
        // SAFETY: `new` put a value there; `&mut self` shows that no reference to it is left, and nothing uses it after `drop`.
        unsafe { self.0.base().cast::<T>().drop_in_place() };
    }
}

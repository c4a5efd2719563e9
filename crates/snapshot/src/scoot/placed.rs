//! A value in memory of its own instead of the heap: it can be used while pages of the heap are set aside.
//!
//! Relies on [`quire_sys::area`]; such memory lies outside every range that was there before it.

use std::io;
use std::ops::Deref;

use quire_sys::area::Area;

/// See the head of this file.
pub(super) struct Placed<T>(Area, std::marker::PhantomData<T>);

impl<T> Placed<T> {
    /// # Errors
    /// The system has no memory.
    pub(super) fn new(value: T) -> io::Result<Self> {
        let area = Area::private(size_of::<T>())?;
        // SAFETY: writable memory of our own, large enough, and aligned to a page.
        unsafe { area.base().cast::<T>().write(value) };
        Ok(Self(area, std::marker::PhantomData))
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: written when this was made, not changed since, dropped with this.
        unsafe { &*self.0.base().cast::<T>() }
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        // SAFETY: the value is there, and no code uses it any more.
        unsafe { self.0.base().cast::<T>().drop_in_place() };
    }
}

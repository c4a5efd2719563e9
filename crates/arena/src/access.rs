//! Bounds-checked access to objects: the only place where handles become references.
//!
//! Relies on bytes below the arena's `limit` being mapped readable and writable for the arena's life, on `&self` and
//! `&mut self` for exclusion, and on plain-data types, for which any bytes are a value.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, BoundsChecked};
use crate::error::ArenaError;
use crate::handle::{GRANULE, Handle};

impl Arena {
    #[inline]
    pub(crate) fn raw_bytes(&self, place: BoundsChecked) -> &[u8] {
        // SAFETY: the place lies below the limit, so its bytes are mapped for as long as `self` lives. A writer needs `&mut self`,
        // and the thread that reads a snapshot writes nothing.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(place.start()), place.len()) }
    }

    #[inline]
    pub(crate) fn raw_bytes_mut(&mut self, place: BoundsChecked) -> &mut [u8] {
        self.barrier.before_write(place.start(), place.len());
        // SAFETY: the place lies below the limit, so its bytes are mapped for as long as `self` lives. `&mut self` makes this the
        // only reference. The thread that reads a snapshot keeps off pages that have passed the barrier, until the next cut, which
        // needs `&mut self` too.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(place.start()), place.len()) }
    }

    /// `len` bytes of an object from `offset`.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if they don't lie in the arena.
    #[inline]
    pub fn bytes(&self, handle: Handle, offset: usize, len: usize) -> Result<&[u8], ArenaError> {
        let place = self.locate(handle, offset, len)?;
        Ok(self.raw_bytes(place))
    }

    /// `len` bytes of an object from `offset`, to be changed. Passes the barrier.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if they don't lie in the arena.
    #[inline]
    pub fn bytes_mut(&mut self, handle: Handle, offset: usize, len: usize) -> Result<&mut [u8], ArenaError> {
        let place = self.locate(handle, offset, len)?;
        Ok(self.raw_bytes_mut(place))
    }

    /// The object at `handle`.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if it doesn't lie in the arena.
    #[inline]
    pub fn get<T: FromBytes + KnownLayout + Immutable>(&self, handle: Handle) -> Result<&T, ArenaError> {
        let len = size_of::<T>();
        T::ref_from_bytes(self.bytes(handle, 0, len)?).map_err(|_| ArenaError::BadHandle { handle, offset: 0, len })
    }

    /// The object at `handle`, to be changed. Passes the barrier.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if it doesn't lie in the arena.
    #[inline]
    pub fn get_mut<T: FromBytes + IntoBytes + KnownLayout>(&mut self, handle: Handle) -> Result<&mut T, ArenaError> {
        let len = size_of::<T>();
        T::mut_from_bytes(self.bytes_mut(handle, 0, len)?).map_err(|_| ArenaError::BadHandle { handle, offset: 0, len })
    }

    /// `count` values from `offset_bytes` into an object.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if they don't lie in the arena, or the offset isn't aligned for `T`.
    #[inline]
    pub fn slice<T: FromBytes + KnownLayout + Immutable>(
        &self,
        handle: Handle,
        offset_bytes: usize,
        count: usize,
    ) -> Result<&[T], ArenaError> {
        let len = count.saturating_mul(size_of::<T>());
        let bytes = self.bytes(handle, offset_bytes, len)?;
        <[T]>::ref_from_bytes_with_elems(bytes, count).map_err(|_| ArenaError::BadHandle {
            handle,
            offset: offset_bytes,
            len,
        })
    }

    /// `count` values from `offset_bytes` into an object, to be changed. Passes the barrier.
    ///
    /// # Errors
    /// As [`Arena::slice`].
    #[inline]
    pub fn slice_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable>(
        &mut self,
        handle: Handle,
        offset_bytes: usize,
        count: usize,
    ) -> Result<&mut [T], ArenaError> {
        let len = count.saturating_mul(size_of::<T>());
        let bytes = self.bytes_mut(handle, offset_bytes, len)?;
        <[T]>::mut_from_bytes_with_elems(bytes, count).map_err(|_| ArenaError::BadHandle {
            handle,
            offset: offset_bytes,
            len,
        })
    }

    /// Copies `len` bytes between objects (or within one; the ranges may overlap). Passes the barrier.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if either range doesn't lie in the arena.
    pub fn copy(
        &mut self,
        from: Handle,
        from_offset: usize,
        to: Handle,
        to_offset: usize,
        len: usize,
    ) -> Result<(), ArenaError> {
        let source = self.locate(from, from_offset, len)?;
        let target = self.locate(to, to_offset, len)?;
        self.barrier.before_write(target.start(), target.len());
        // SAFETY: both places lie below the limit and are `len` bytes long; `&mut self` excludes other references; `copy` allows
        // overlap; the target has passed the barrier.
        unsafe { std::ptr::copy(self.base.as_ptr().add(source.start()), self.base.as_ptr().add(target.start()), len) };
        Ok(())
    }

    /// The object at `handle` for a change that may be lost (an access clock): `None` while a snapshot is open or memory
    /// is being restored, where it is shared with a file, and if there is no such object. Doesn't mark the page as written.
    #[inline]
    pub fn hint_mut<T: FromBytes + IntoBytes + KnownLayout>(&mut self, handle: Handle) -> Option<&mut T> {
        if self.barrier.is_open() || self.barrier.is_restoring() || self.barrier.is_file_backed() {
            return None;
        }
        let place = self.locate(handle, 0, size_of::<T>()).ok()?;
        // SAFETY: the place lies below the limit, so its bytes are mapped for as long as `self` lives, and `&mut self` makes this
        // the only reference. The barrier may be left out: no snapshot is open (so no other thread reads), and no region is going
        // to be exchanged.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(place.start()), place.len()) };
        T::mut_from_bytes(bytes).ok()
    }

    /// Starts loading the object's first cache line; any handle may be given.
    #[inline]
    pub fn prefetch(&self, handle: Handle) {
        let offset = handle.offset();
        if offset < self.limit {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                // SAFETY: a prefetch of a mapped address; it reads nothing as far as the program can tell.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(offset).cast()) };
            }
        }
    }
}

// Handles are multiples of a granule, so any type up to this alignment can lie at one.
const _: () = assert!(GRANULE >= align_of::<u128>());

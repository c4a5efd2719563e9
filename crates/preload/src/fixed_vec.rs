//! A list in memory of the library's own, so that nothing is taken from the program's allocator.
//!
//! Relies on address space being plenty: room for all entries is mapped at once and backed as it is used.

use std::io;
use std::marker::PhantomData;

use quire_sys::area::AnonymousMap;

/// A list of plain values with a fixed capacity.
#[derive(Debug)]
pub struct FixedVec<T> {
    area: AnonymousMap,
    len: usize,
    capacity: usize,
    holds: PhantomData<T>,
}

impl<T: Copy> FixedVec<T> {
    /// An empty list with room for `capacity` values.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let area = AnonymousMap::private(capacity * std::mem::size_of::<T>())?;
        area.keep_from_children();
        Ok(Self { area, len: 0, capacity, holds: PhantomData })
    }

    /// Adds `value`; false if there is no room.
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: `len` is below `capacity`, for which `new` has mapped room; the mapping starts at a page, so it is
        // aligned for `T`, and
        // `&mut self` keeps others from it.
        unsafe { self.area.base().cast::<T>().add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The values.
    pub fn all(&self) -> &[T] {
        // SAFETY: `push` has written the first `len` values, and they change only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.area.base().cast(), self.len) }
    }

    /// The values, to be changed.
    pub fn all_mut(&mut self) -> &mut [T] {
        // SAFETY: `push` has written the first `len` values; `&mut self` makes the borrow the only one.
        unsafe { std::slice::from_raw_parts_mut(self.area.base().cast(), self.len) }
    }

    /// The addresses that the list occupies.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let base = self.area.base() as usize;
        base..base + self.area.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_what_fits() {
        let mut fixed_vec = FixedVec::<u64>::new(3).unwrap();
        assert!(fixed_vec.push(1) && fixed_vec.push(2) && fixed_vec.push(3) && !fixed_vec.push(4));
        fixed_vec.all_mut()[1] = 9;
        assert_eq!(fixed_vec.all(), [1, 9, 3]);
        assert!(fixed_vec.addresses().contains(&(fixed_vec.all().as_ptr() as usize)));
        fixed_vec.clear();
        assert!(fixed_vec.all().is_empty());
    }
}

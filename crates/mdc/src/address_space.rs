//! The mappings of the process and which of them objects were referenced in: the paper's address space table.
//!
//! Relies on `/proc/self/maps`, read when the checkpoint begins, when an object lies in none of the mappings that are known, and before
//! the dump. The table lies in memory of its own.

use std::io;
use std::ops::Range;

use quire_sys::proc_maps::{self, Mapping};
use zerocopy::FromZeros;

use crate::reserved::ReservedSlice;

/// Room for mappings that are made while the table is read.
const SPARE: usize = 64;

/// Its memory can be dumped and given back: private, anonymous, readable and writable, not executable, no stack.
const DUMPABLE: u32 = 1;
/// An object was referenced in it.
const REFERENCED: u32 = 2;
/// A stack.
const STACK: u32 = 4;
/// It can't be read.
const HIDDEN: u32 = 8;

#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Entry {
    start: usize,
    end: usize,
    flags: u32,
    unused: u32,
}

/// What is known of a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressContent {
    /// It may be written as an address.
    Dumpable,
    /// It lies on a stack, in shared memory, in a file's mapping or in code: only its bytes can be written.
    Other,
    /// Some of it is not mapped, or can't be read.
    Nowhere,
}

pub(crate) struct AddressSpace {
    entries: ReservedSlice<Entry>,
    count: usize,
    /// The mapping in which the last object was found.
    last: usize,
    text: ReservedSlice<u8>,
}

impl AddressSpace {
    /// Reads the mappings as they are now.
    pub(crate) fn read() -> io::Result<Self> {
        let text = ReservedSlice::new(proc_maps::BUFFER_BYTES)?;
        let mut made = Self { entries: ReservedSlice::new(1)?, count: 0, last: 0, text };
        made.refresh()?;
        Ok(made)
    }

    /// Addresses that it works with.
    pub(crate) fn ranges(&self) -> [Range<usize>; 2] {
        [self.entries.range(), self.text.range()]
    }

    /// Reads the mappings again. A mapping in whose place an object was referenced counts as referenced.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let mut wanted = 0;
        proc_maps::each(&mut self.text, |_| {
            wanted += 1;
            true
        })?;
        let mut entries: ReservedSlice<Entry> = ReservedSlice::new(wanted + SPARE)?;
        let (mut count, mut old) = (0, 0);
        let known = &self.entries[..self.count];
        proc_maps::each(&mut self.text, |mapping| {
            while known.get(old).is_some_and(|entry| entry.end <= mapping.start) {
                old += 1;
            }
            let overlapping = known[old..].iter().take_while(|entry| entry.start < mapping.end);
            let mut flags = flags_of(&mapping);
            for entry in overlapping {
                flags |= entry.flags & REFERENCED;
            }
            if let Some(room) = entries.get_mut(count) {
                *room = Entry { start: mapping.start, end: mapping.end, flags, unused: 0 };
                count += 1;
            }
            count < wanted + SPARE
        })?;
        (self.entries, self.count, self.last) = (entries, count, 0);
        Ok(())
    }

    /// Where an object of `len` bytes (at least one) lies; if it is dumpable, its mappings will be dumped.
    pub(crate) fn reference(&mut self, address: usize, len: usize, stack: &Range<usize>) -> io::Result<AddressContent> {
        let found = self.find(address, len, stack);
        if found != AddressContent::Nowhere {
            return Ok(found);
        }
        // The program may have mapped it since.
        self.refresh()?;
        Ok(self.find(address, len, stack))
    }

    fn find(&mut self, address: usize, len: usize, stack: &Range<usize>) -> AddressContent {
        let Some(end) = address.checked_add(len) else { return AddressContent::Nowhere };
        let entries = &mut self.entries[..self.count];
        let holds = |entry: &Entry| entry.start <= address && address < entry.end;
        let first = match entries.get(self.last) {
            Some(entry) if holds(entry) => self.last,
            _ => entries.partition_point(|entry| entry.end <= address),
        };
        let (mut at, mut covered, mut is_dumpable) = (first, address, true);
        while covered < end {
            match entries.get(at) {
                Some(entry) if entry.start <= covered && entry.flags & HIDDEN == 0 => {
                    let holds_stack = entry.start <= stack.start && stack.start < entry.end;
                    let is_stack = entry.flags & STACK != 0 || holds_stack && stack.contains(&address);
                    is_dumpable &= entry.flags & DUMPABLE != 0 && !is_stack;
                    covered = entry.end;
                }
                _ => return AddressContent::Nowhere,
            }
            at += 1;
        }
        self.last = first;
        if !is_dumpable {
            return AddressContent::Other;
        }
        for entry in &mut entries[first..at] {
            entry.flags |= REFERENCED;
        }
        AddressContent::Dumpable
    }

    /// The mappings to be dumped, in the order of addresses; neighbours are one.
    pub(crate) fn referenced(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        let mut entries = self.entries[..self.count]
            .iter()
            .filter(|entry| entry.flags & (DUMPABLE | REFERENCED) == DUMPABLE | REFERENCED);
        let mut next = entries.next();
        std::iter::from_fn(move || {
            let first = next?;
            let mut range = first.start..first.end;
            loop {
                next = entries.next();
                match next {
                    Some(entry) if entry.start == range.end => range.end = entry.end,
                    _ => return Some(range),
                }
            }
        })
    }
}

fn flags_of(mapping: &Mapping) -> u32 {
    if !mapping.readable {
        return HIDDEN;
    }
    if mapping.stack {
        return STACK;
    }
    if mapping.anonymous && !mapping.executable { DUMPABLE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::area::AnonymousMap;
    use quire_sys::mem::PAGE_SIZE;
    use quire_sys::this_thread;

    fn stack() -> Range<usize> {
        let here = this_thread::stack_address();
        here..here + (1 << 20)
    }

    #[test]
    fn memory_of_each_kind_is_told() {
        let mut space = AddressSpace::read().unwrap();
        assert!(space.referenced().next().is_none());
        let (private, shared) = (AnonymousMap::private(1 << 20).unwrap(), AnonymousMap::shared(1 << 20).unwrap());
        let local = [0_u8; 64];
        let mut place = |address: usize, len| space.reference(address, len, &stack()).unwrap();
        assert_eq!(place(private.base() as usize, 1 << 20), AddressContent::Dumpable);
        assert_eq!(place(shared.base() as usize, 10), AddressContent::Other);
        assert_eq!(place(&raw const local as usize, 64), AddressContent::Other);
        assert_eq!(place(b"a word of the program".as_ptr() as usize, 10), AddressContent::Other);
        assert_eq!(place(8, 10), AddressContent::Nowhere);
        assert_eq!(place(usize::MAX - 4, 10), AddressContent::Nowhere);
        let base = private.base() as usize;
        assert!(space.referenced().any(|area| area.start <= base && base + (1 << 20) <= area.end));
    }

    #[test]
    fn an_area_that_was_referenced_stays_so_when_it_grows_shrinks_or_is_cut() {
        let mut space = AddressSpace::read().unwrap();
        let area = AnonymousMap::private(8 * PAGE_SIZE).unwrap();
        let base = area.base() as usize;
        space.reference(base + 2 * PAGE_SIZE, 100, &stack()).unwrap();
        let hint = quire_sys::map::Protection::Read;
        // SAFETY: memory of this test that no code uses.
        unsafe { quire_sys::map::protect(area.base().add(3 * PAGE_SIZE), PAGE_SIZE, hint) }.unwrap();
        space.refresh().unwrap();
        let dumped: Vec<_> = space.referenced().collect();
        let is_dumped = |page: usize| dumped.iter().any(|area| area.contains(&(base + page * PAGE_SIZE)));
        assert!(is_dumped(2) && !is_dumped(3) && is_dumped(4));
    }
}

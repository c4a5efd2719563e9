//! One pool: a range of addresses from which objects are taken.
//!
//! Objects of up to 32 KiB share spans of 64 KiB with others of their size, larger ones have spans of their own. A free object waits in
//! the list of its size. The memory of a free large object is given back at once: it takes no space in the next dump either.
//!
//! Relies on its user holding the pool's lock.

use quire_sys::mem::{HUGE_PAGE_SIZE, Reservation};
use zerocopy::FromZeros;

use super::size_class::{CLASSES, MOST_SMALL_BYTES, SMALL_CLASSES, bytes_of, class_of};
use crate::reserved::ReservedSlice;

const SPAN_BYTES: usize = 64 << 10;
/// Addresses that a pool asks for; less where the system has fewer.
const MOST_BYTES: usize = 1 << 40;
const LEAST_BYTES: usize = 1 << 28;

/// What a span holds.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Span {
    /// The class of its objects plus one; 0: nothing begins here.
    class: u16,
    /// A large object that is free.
    is_free: u16,
    /// The next free one of its class, plus one.
    next: u32,
}

/// The free objects of a class, and for small ones the part of a span that was never used.
#[derive(Clone, Copy, Default)]
struct Class {
    /// Address of a small object, or number of a span plus one; 0 if there is none.
    free: usize,
    fresh: usize,
    fresh_end: usize,
}

pub(super) struct PoolMemory {
    memory: Reservation,
    spans: ReservedSlice<Span>,
    used: usize,
    classes: [Class; CLASSES],
}

/// An object: where its memory begins, and whether it is all zero.
pub(super) struct PoolObject {
    pub(super) at: usize,
    pub(super) is_zero: bool,
}

impl PoolMemory {
    /// A pool with as many addresses as the system has for it.
    pub(super) fn new() -> Option<Self> {
        let mut bytes = MOST_BYTES;
        while bytes >= LEAST_BYTES {
            if let (Ok(memory), Ok(spans)) = (Reservation::new(bytes), ReservedSlice::new(bytes / SPAN_BYTES)) {
                return Some(Self { memory, spans, used: 0, classes: [Class::default(); CLASSES] });
            }
            bytes /= 4;
        }
        None
    }

    fn base(&self) -> usize {
        self.memory.base() as usize
    }

    /// Whether `address` is one of this pool's.
    pub(super) fn has(&self, address: usize) -> bool {
        (self.base()..self.base() + self.used * SPAN_BYTES).contains(&address)
    }

    /// An object of at least `bytes`; `None` if there is no memory.
    pub(super) fn take(&mut self, bytes: usize) -> Option<PoolObject> {
        if bytes > MOST_BYTES {
            return None;
        }
        let class = class_of(bytes.max(1));
        if class < SMALL_CLASSES { self.take_small(class) } else { self.take_large(class) }
    }

    fn take_small(&mut self, class: usize) -> Option<PoolObject> {
        let free = self.classes[class].free;
        if free != 0 {
            // SAFETY: a free object of this pool has the next one's address in its first word, which `give` put there.
            self.classes[class].free = unsafe { (free as *const usize).read() };
            return Some(PoolObject { at: free, is_zero: false });
        }
        let size = bytes_of(class);
        if self.classes[class].fresh_end - self.classes[class].fresh < size {
            let span = self.new_spans(1)?;
            self.spans[span].class = class as u16 + 1;
            let start = self.base() + span * SPAN_BYTES;
            (self.classes[class].fresh, self.classes[class].fresh_end) = (start, start + SPAN_BYTES);
        }
        let at = self.classes[class].fresh;
        self.classes[class].fresh += size;
        Some(PoolObject { at, is_zero: true })
    }

    fn take_large(&mut self, class: usize) -> Option<PoolObject> {
        let free = self.classes[class].free;
        let span = if free != 0 {
            let entry = &mut self.spans[free - 1];
            entry.is_free = 0;
            self.classes[class].free = entry.next as usize;
            free - 1
        } else {
            let span = self.new_spans(bytes_of(class).div_ceil(SPAN_BYTES))?;
            self.spans[span].class = class as u16 + 1;
            span
        };
        Some(PoolObject { at: self.base() + span * SPAN_BYTES, is_zero: true })
    }

    /// The first of `count` spans that were never used.
    fn new_spans(&mut self, count: usize) -> Option<usize> {
        let first = self.used;
        let end = first.checked_add(count).filter(|&end| end <= self.spans.len())?;
        let committed = (end * SPAN_BYTES).next_multiple_of(HUGE_PAGE_SIZE).min(self.memory.len());
        let from = first * SPAN_BYTES / HUGE_PAGE_SIZE * HUGE_PAGE_SIZE;
        self.memory.ensure_committed(from..committed).ok()?;
        self.used = end;
        Some(first)
    }

    /// The class of the object that begins at `address`; `None` if none does, as far as that can be told.
    fn class_at(&self, address: usize) -> Option<usize> {
        if !self.has(address) {
            return None;
        }
        let (span, within) = ((address - self.base()) / SPAN_BYTES, (address - self.base()) % SPAN_BYTES);
        let entry = self.spans[span];
        let class = usize::from(entry.class).checked_sub(1)?;
        let size = bytes_of(class);
        let begins = if class < SMALL_CLASSES {
            within.is_multiple_of(size) && within + size <= SPAN_BYTES
        } else {
            within == 0 && entry.is_free == 0
        };
        begins.then_some(class)
    }

    /// Bytes that the object at `address` has room for.
    pub(super) fn room(&self, address: usize) -> Option<usize> {
        let size = bytes_of(self.class_at(address)?);
        Some(if size > MOST_SMALL_BYTES { size.next_multiple_of(SPAN_BYTES) } else { size })
    }

    /// Takes an object back; false if there is none at `address`.
    ///
    /// # Safety
    /// The object at `address`, if there is one, is in use, and is not used from now on.
    pub(super) unsafe fn give(&mut self, address: usize) -> bool {
        let Some(class) = self.class_at(address) else { return false };
        let list = &mut self.classes[class];
        if class < SMALL_CLASSES {
            // SAFETY: the object is at least a word long, aligned to 16 bytes, and no longer the program's: `give` demands that of its caller.
            unsafe { (address as *mut usize).write(list.free) };
            list.free = address;
            return true;
        }
        let start = address - self.memory.base() as usize;
        let len = bytes_of(class).next_multiple_of(SPAN_BYTES);
        // Locked memory stays, and then it would not be zero.
        if self.memory.release(start..start + len).is_err() {
            // SAFETY: memory of the object, which is no longer the program's.
            unsafe { (address as *mut u8).write_bytes(0, len) };
        }
        let entry = &mut self.spans[start / SPAN_BYTES];
        (entry.is_free, entry.next) = (1, list.free as u32);
        list.free = start / SPAN_BYTES + 1;
        true
    }
}

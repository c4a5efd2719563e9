//! Large blocks of memory that the library hands out in place of the C library: the only memory into which reads are remapped.
//!
//! Relies on one range of addresses that is reserved at the start, and made accessible as far as blocks need it. A block begins at a page, keeps its addresses for good and goes back
//! to those of its class, so that what is remapped in it never becomes other memory unseen. `free` takes no lock; `malloc` tries one and
//! leaves the request to the C library if it is taken (a signal handler may have interrupted it).

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use quire_sys::area::AnonymousMap;
use quire_sys::map::{self, Protection};
use quire_sys::thread::BlockedSignals;
use quire_sys::{bare_thread, guest};

use super::maps;
use super::probe_budget::ProbeBudget;
use super::use_history::UseHistory;
use crate::confinement;

/// Smaller requests are the C library's.
pub const LEAST_BLOCK_BYTES: usize = 128 << 10;
const MOST_BLOCK_BYTES: usize = 1 << 30;
/// Blocks begin at multiples of it.
const GRANULE_BYTES: usize = 64 << 10;
const ARENA_BYTES: usize = 64 << 30;
const GRANULES: usize = ARENA_BYTES / GRANULE_BYTES;
const MOST_BLOCKS: usize = 8192;
const CLASSES: usize = 56;
/// Blocks that are as long begin at multiples of it, as the kernel's huge pages do: those of a file can be mapped there whole.
const HUGE_BYTES: usize = 2 << 20;
/// Memory that freed blocks may keep; what is freed beyond goes back to the system.
const MOST_KEPT_BYTES: usize = 64 << 20;
const TRIES: usize = 200;
/// How long a thread waits for a lock before it tries it again, and how often it tries that of the maps for a block whose mapping is to be made
/// anew.
const WAIT: Duration = Duration::from_micros(50);
const MOST_WAITS: usize = 20;

/// A read that was remapped only to see what becomes of it. The next read there has to inspect it, as it may be copied, which stores to all pages.
#[derive(Debug, Default)]
struct Trial {
    /// Where; 0 if it is seen.
    at: AtomicUsize,
    /// How many bytes from there on.
    bytes: AtomicUsize,
    /// Reads to other places of the block meanwhile.
    passed: AtomicU32,
}

/// One block. Zeros are one that does not exist yet.
#[derive(Debug, Default)]
pub struct Block {
    start: AtomicUsize,
    len: AtomicUsize,
    /// Bytes that the program may count on; 0 while it is free.
    asked: AtomicUsize,
    class: AtomicU32,
    /// The next in its list, by number and one; 0 for none.
    next: AtomicU32,
    /// The program has given advice about it.
    is_advised: AtomicU32,
    /// Whether what was remapped here was touched and written.
    pub history: UseHistory,
    /// Remaps so far.
    pub remaps: AtomicU32,
    trial: Trial,
    /// Reads that are copied before the loss model makes another try.
    pub declines: AtomicU32,
    /// How many these were at first the last time.
    pub backoff: AtomicU32,
    /// How many bytes the read had after which the loss model decided so.
    pub declined_bytes: AtomicUsize,
    /// A read was remapped since the last one that was copied.
    pub remapped: AtomicU32,
    /// Reads into this block that were copied because the loss model chose so.
    model_copies: AtomicU32,
    /// Whether probes of reads to this block pay.
    pub probes: ProbeBudget,
}

impl Block {
    /// Whether the program has given advice about it, so that nothing is remapped here.
    pub fn is_advised(&self) -> bool {
        self.is_advised.load(Ordering::SeqCst) != 0
    }

    /// Whether a read was remapped since the last one that was copied.
    pub fn is_remapped(&self) -> bool {
        self.remapped.load(Ordering::Relaxed) != 0
    }

    /// Whether a trial lies here whose outcome is not seen yet.
    pub fn has_trial(&self) -> bool {
        self.trial.at.load(Ordering::Relaxed) != 0
    }

    /// A trial lies at `range`; none, if that is empty.
    pub fn set_trial(&self, range: &Range<usize>) {
        self.trial.bytes.store(range.len(), Ordering::Relaxed);
        self.trial.at.store(range.start, Ordering::Relaxed);
    }

    /// Where a trial lies, of which no thread sees the outcome but the caller.
    pub fn take_trial(&self) -> Option<usize> {
        Some(self.trial.at.swap(0, Ordering::Relaxed)).filter(|&at| at != 0)
    }

    /// Whether a read to `buffer` overwrites a part of the trial. A hint: two threads may be at it.
    pub fn is_trial_in(&self, buffer: &Range<usize>) -> bool {
        let (at, bytes) = (self.trial.at.load(Ordering::Relaxed), self.trial.bytes.load(Ordering::Relaxed));
        at != 0 && at < buffer.end && buffer.start < at.saturating_add(bytes)
    }

    /// Whether it is the turn of a read to another place to look at the trial: of one in `every`.
    pub fn is_turn_past_trial(&self, every: u32) -> bool {
        self.trial.passed.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(every)
    }

    /// The loss model chose to copy a read into this block.
    #[inline]
    pub fn note_model_copy(&self) {
        self.model_copies.fetch_add(1, Ordering::Relaxed);
    }

    /// How many reads into this block the loss model chose to copy. Each copy may have stored to what was remapped before it.
    pub fn model_copies(&self) -> u32 {
        self.model_copies.load(Ordering::Relaxed)
    }
}

/// Everything about blocks; zeros are the beginning.
struct BlockTable {
    blocks: [Block; MOST_BLOCKS],
    /// The block of each granule, by number and one.
    owners: [AtomicU16; GRANULES],
    free: [AtomicU32; CLASSES],
    /// Freed and not in the lists yet, and how many bytes that are.
    pending: AtomicU32,
    pending_bytes: AtomicUsize,
    taken: AtomicU32,
    block_count: AtomicUsize,
    granule_count: AtomicUsize,
    kept_bytes: AtomicUsize,
}

static BASE: AtomicUsize = AtomicUsize::new(0);
/// Where the library's range ends, now.
static END: AtomicUsize = AtomicUsize::new(0);
static TABLE: AtomicPtr<BlockTable> = AtomicPtr::new(std::ptr::null_mut());

/// Reserves the addresses, while the library is loaded; whether there are any.
pub fn open() -> bool {
    let (Ok(arena), Ok(table)) =
        (AnonymousMap::reserved(ARENA_BYTES + HUGE_BYTES), AnonymousMap::private(size_of::<BlockTable>()))
    else {
        return false;
    };
    TABLE.store(table.base().cast(), Ordering::Release);
    let base = (arena.base() as usize).next_multiple_of(HUGE_BYTES);
    END.store(base + ARENA_BYTES, Ordering::Release);
    BASE.store(base, Ordering::Release);
    // Both stay for as long as the process.
    std::mem::forget((arena, table));
    true
}

/// Hands out no more blocks, and knows none.
#[cfg(test)]
pub fn close() {
    BASE.store(0, Ordering::Relaxed);
}

fn table() -> Option<&'static BlockTable> {
    // SAFETY: null, or memory that `open` has mapped and leaked; zeros are a valid table, which holds atomics only.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// The library's range; empty if it has none.
pub fn range() -> Range<usize> {
    match BASE.load(Ordering::Relaxed) {
        0 => 0..0,
        base => base..END.load(Ordering::Relaxed),
    }
}

/// Whether `address` is of the library's range.
#[inline]
pub fn has(address: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address >= base && address < END.load(Ordering::Relaxed)
}

/// Whether any of `len` bytes at `address` is of the library's range.
#[inline]
pub fn touches(address: usize, len: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address < END.load(Ordering::Relaxed) && address.saturating_add(len) > base
}

/// Gives the addresses back that no block has yet: the program limits how many it may have, or locks all of its memory. There are no more blocks
/// than there are from then on.
pub fn give_up_addresses() {
    let Some(table) = table().filter(|_| BASE.load(Ordering::Relaxed) != 0) else { return };
    // A thread that has them for long has interrupted itself, or forks.
    if !hold() {
        return;
    }
    let reserved_end = BASE.load(Ordering::Relaxed) + ARENA_BYTES;
    let end = BASE.load(Ordering::Relaxed) + table.granule_count.load(Ordering::Relaxed) * GRANULE_BYTES;
    // First, as other memory may come to lie there at once.
    let old_end = END.swap(end, Ordering::SeqCst);
    if old_end > end && old_end <= reserved_end {
        // SAFETY: the library's own addresses, at which no block lies.
        let _ = unsafe { map::unmap(end as *mut u8, old_end - end) };
    }
    release(true, false);
}

/// The block that `address` lies in.
pub fn of(address: usize) -> Option<&'static Block> {
    if !has(address) {
        return None;
    }
    let table = table()?;
    let granule = (address - BASE.load(Ordering::Relaxed)) / GRANULE_BYTES;
    let number = usize::from(table.owners[granule].load(Ordering::Acquire));
    table.blocks.get(number.checked_sub(1)?)
}

/// The block that all of `len` bytes at `address` lie in.
pub fn containing(address: usize, len: usize) -> Option<&'static Block> {
    let block = of(address)?;
    let end = block.start.load(Ordering::Relaxed) + block.len.load(Ordering::Relaxed);
    (address.checked_add(len)? <= end).then_some(block)
}

/// The class of blocks for `size` bytes, and the bytes of each: four to a doubling.
fn class_of(size: usize) -> (usize, usize) {
    let granules = size.div_ceil(GRANULE_BYTES).max(2);
    if granules <= 8 {
        return (granules, granules * GRANULE_BYTES);
    }
    let doublings = granules.ilog2() as usize;
    let step = doublings - 2;
    let steps = granules.div_ceil(1 << step);
    (8 + (doublings - 3) * 4 + steps - 4, (steps << step) * GRANULE_BYTES)
}

/// A block for `size` bytes; `None` if the C library is to have the request.
#[inline]
pub fn allocate(size: usize, align: usize) -> Option<*mut c_void> {
    if size < LEAST_BLOCK_BYTES || BASE.load(Ordering::Relaxed) == 0 {
        return None;
    }
    allocate_block(size, align)
}

#[cold]
fn allocate_block(size: usize, align: usize) -> Option<*mut c_void> {
    if size > MOST_BLOCK_BYTES || align > GRANULE_BYTES {
        return None;
    }
    let table = table()?;
    table.try_lock().then_some(())?;
    table.sort_pending();
    let (class, len) = class_of(size);
    let block = table.pop(class).or_else(|| table.make(class, len));
    table.taken.store(0, Ordering::Release);
    let block = block?;
    block.asked.store(size, Ordering::Relaxed);
    Some(std::ptr::with_exposed_provenance_mut(block.start.load(Ordering::Relaxed)))
}

/// Gives a block back. Takes no lock.
pub fn free(pointer: *mut c_void) {
    let address = pointer.addr();
    let (Some(table), Some(block)) = (table(), of(address)) else { return };
    // As the C library does: what is no block, or was freed already, ends the program before it does harm.
    if block.start.load(Ordering::Relaxed) != address || block.asked.swap(0, Ordering::AcqRel) == 0 {
        guest::abort();
    }
    let granule = (address - BASE.load(Ordering::Relaxed)) / GRANULE_BYTES;
    let number = u32::from(table.owners[granule].load(Ordering::Relaxed));
    let len = block.len.load(Ordering::Relaxed);
    let pending_bytes = table.pending_bytes.fetch_add(len, Ordering::Relaxed) + len;
    table.put_back(block, number);
    // Much memory goes back to the system now, as the C library does with it: the program may ask for none again.
    if pending_bytes > MOST_KEPT_BYTES && !confinement::is_quiesced() && table.try_lock() {
        table.sort_pending();
        table.taken.store(0, Ordering::Release);
    }
}

/// Bytes of a block that may be used, all of which count from now on.
pub fn usable_bytes(pointer: *mut c_void) -> usize {
    let Some(block) = of(pointer.addr()) else { return 0 };
    let len = block.len.load(Ordering::Relaxed);
    block.asked.store(len, Ordering::Relaxed);
    len
}

/// Whether a block can stay where it is for `size` bytes; takes note of the size if so.
pub fn resize(pointer: *mut c_void, size: usize) -> bool {
    let Some(block) = of(pointer.addr()) else { return false };
    let len = block.len.load(Ordering::Relaxed);
    let stays = size <= len && size >= len / 2;
    if stays {
        block.asked.store(size, Ordering::Relaxed);
    }
    stays
}

/// Bytes of a block that the program counts on.
pub fn asked_bytes(pointer: *mut c_void) -> usize {
    of(pointer.addr()).map_or(0, |block| block.asked.load(Ordering::Relaxed))
}

/// Nothing is remapped from now on in blocks of which a part lies in the range.
pub fn advise(start: usize, len: usize) {
    let mut at = start.max(BASE.load(Ordering::Relaxed));
    let end = start.saturating_add(len);
    while at < end && has(at) {
        if let Some(block) = of(at) {
            block.is_advised.store(1, Ordering::SeqCst);
        }
        at = (at / GRANULE_BYTES + 1) * GRANULE_BYTES;
    }
}

/// Before a fork: keeps other threads from the lists, unless this thread has them.
pub fn hold() -> bool {
    let Some(table) = table() else { return true };
    for _ in 0..1000 {
        if table.try_lock() {
            return true;
        }
        bare_thread::sleep(WAIT);
    }
    false
}

/// After a fork: gives up what [`hold`] has. In a child in which the lists may be half changed no more blocks are made.
pub fn release(was_held: bool, is_child: bool) {
    let Some(table) = table() else { return };
    if was_held {
        table.taken.store(0, Ordering::Release);
    } else if is_child {
        // The thread that has them is not here, or is this one, which has interrupted itself.
        table.taken.store(2, Ordering::Release);
    }
}

impl BlockTable {
    fn try_lock(&self) -> bool {
        (0..TRIES).any(|_| {
            std::hint::spin_loop();
            // Acquire pairs with the release that gives it up.
            self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    /// Puts what was freed into the lists.
    fn sort_pending(&self) {
        // Acquire pairs with the release in `free`.
        let mut number = self.pending.swap(0, Ordering::Acquire);
        self.pending_bytes.store(0, Ordering::Relaxed);
        while let Some(block) = (number as usize).checked_sub(1).and_then(|at| self.blocks.get(at)) {
            let next = block.next.load(Ordering::Relaxed);
            let (start, len) = (block.start.load(Ordering::Relaxed), block.len.load(Ordering::Relaxed));
            if !self.clean(block, start, len) {
                self.put_back(block, number);
                number = next;
                continue;
            }
            self.kept_bytes.fetch_add(len, Ordering::Relaxed);
            let list = &self.free[block.class.load(Ordering::Relaxed) as usize];
            block.next.store(list.load(Ordering::Relaxed), Ordering::Relaxed);
            list.store(number, Ordering::Relaxed);
            number = next;
        }
    }

    /// Leaves a freed block for the next time.
    fn put_back(&self, block: &Block, number: u32) {
        let mut first = self.pending.load(Ordering::Relaxed);
        loop {
            block.next.store(first, Ordering::Relaxed);
            // Release publishes `next` to `sort_pending`.
            match self.pending.compare_exchange_weak(first, number, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Before a freed block goes to its list: takes away what the program has made of its mapping, or its memory if much is kept. Whether it
    /// may be handed out: one that the program has protected or unmapped is not, while its mapping can't be made anew.
    fn clean(&self, block: &Block, start: usize, len: usize) -> bool {
        let is_advised = block.is_advised();
        if confinement::is_quiesced() {
            // No system calls any more.
            return !is_advised;
        }
        if !is_advised && self.kept_bytes.load(Ordering::Relaxed) + len <= MOST_KEPT_BYTES {
            return true;
        }
        // The lease process may be converting it: then its frames must stay until that is done.
        let _blocked = BlockedSignals::with_the_c_library_s();
        for _ in 0..if is_advised { MOST_WAITS } else { 1 } {
            let Some(mut maps) = maps::try_lock().filter(|maps| maps.extents.has_room()) else {
                bare_thread::sleep(WAIT);
                continue;
            };
            if is_advised {
                // SAFETY: a free block is the library's; no reference into it exists.
                let renewed = unsafe { map::map_anonymous_over(start as *mut u8, len, Protection::ReadWrite) };
                if renewed.is_err() {
                    return false;
                }
                maps.extents.remove(&(start..start + len));
                block.set_trial(&(0..0));
                block.is_advised.store(0, Ordering::SeqCst);
            } else {
                // SAFETY: a free block is the library's, and what it holds is not used any more.
                let _ = unsafe { map::discard(start as *mut u8, len) };
                // What the program did with it can't be seen any more.
                block.set_trial(&(0..0));
                block.note_model_copy();
            }
            return true;
        }
        !is_advised
    }

    fn pop(&self, class: usize) -> Option<&Block> {
        let list = self.free.get(class)?;
        let block = self.blocks.get((list.load(Ordering::Relaxed) as usize).checked_sub(1)?)?;
        list.store(block.next.load(Ordering::Relaxed), Ordering::Relaxed);
        self.kept_bytes.fetch_sub(block.len.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(block)
    }

    /// A new block, while there are addresses.
    fn make(&self, class: usize, len: usize) -> Option<&Block> {
        let (number, used) = (self.block_count.load(Ordering::Relaxed), self.granule_count.load(Ordering::Relaxed));
        let granules = len / GRANULE_BYTES;
        let block = self.blocks.get(number)?;
        let first = if len < HUGE_BYTES { used } else { used.next_multiple_of(HUGE_BYTES / GRANULE_BYTES) };
        let owners = self.owners.get(first..first + granules)?;
        let (base, end) = (BASE.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
        let (begin, start) = (base + used * GRANULE_BYTES, base + first * GRANULE_BYTES);
        if start + len > end || confinement::is_quiesced() {
            return None;
        }
        // With what was left out before it, so that all of it stays one mapping.
        // SAFETY: the library's own addresses, at which no block lies yet.
        unsafe { map::protect(begin as *mut u8, start + len - begin, Protection::ReadWrite) }.ok()?;
        block.start.store(start, Ordering::Relaxed);
        block.len.store(len, Ordering::Relaxed);
        block.class.store(class as u32, Ordering::Relaxed);
        // Release publishes the block to `of`.
        owners.iter().for_each(|owner| owner.store(number as u16 + 1, Ordering::Release));
        self.block_count.store(number + 1, Ordering::Relaxed);
        self.granule_count.store(first + granules, Ordering::Relaxed);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_is_asked_for_and_follow_each_other() {
        let mut last = (0, 0);
        for granules in 1..=MOST_BLOCK_BYTES / GRANULE_BYTES {
            let size = granules * GRANULE_BYTES - 5;
            let (class, len) = class_of(size);
            assert!(len >= size && len <= (size + size / 4 + GRANULE_BYTES).max(LEAST_BLOCK_BYTES) && class < CLASSES);
            assert!(class == last.0 && len == last.1 || class > last.0 && len > last.1, "{granules}");
            last = (class, len);
        }
    }

    #[test]
    fn blocks_are_apart_come_back_and_know_what_lies_in_them() {
        let _alone = crate::state::alone();
        assert!(allocate(1 << 20, 16).is_none() || BASE.load(Ordering::Relaxed) != 0);
        assert!(open() && allocate(LEAST_BLOCK_BYTES - 1, 16).is_none() && allocate(1 << 20, 1 << 20).is_none());
        let first = allocate(1 << 20, 16).unwrap();
        let second = allocate(1 << 20, 4096).unwrap();
        assert!(first.addr().abs_diff(second.addr()) >= 1 << 20 && first.addr().is_multiple_of(4096));
        // SAFETY: a block of that size, of this test's.
        unsafe { first.cast::<u8>().write_bytes(5, 1 << 20) };
        assert!(containing(first.addr() + 5, 1000).is_some() && containing(first.addr() + 5, 1 << 20).is_none());
        assert!(resize(first, 600 << 10) && !resize(first, 9) && asked_bytes(first) == 600 << 10);
        assert!(usable_bytes(first) == 1 << 20 && asked_bytes(first) == 1 << 20);
        advise(first.addr() + 70_000, 1);
        assert!(of(first.addr()).unwrap().is_advised() && !of(second.addr()).unwrap().is_advised());
        free(first);
        let again = allocate((1 << 20) - 3, 16).unwrap();
        assert_eq!(again, first);
        assert!(!of(again.addr()).unwrap().is_advised(), "what the program had it advised is gone with its mapping");
        // SAFETY: a block of that size, of this test's.
        assert_eq!(unsafe { again.cast::<u8>().read() }, 0);
        assert!(has(again.addr()) && touches(0, usize::MAX) && !touches(0, 4096) && !has(5));
        let huge = allocate(5 << 20, 16).unwrap();
        assert!(huge.addr().is_multiple_of(2 << 20), "a huge page of a file fits there");
        // SAFETY: a block of that size, of this test's.
        unsafe { huge.cast::<u8>().write_bytes(1, 5 << 20) };
        free(huge);
        assert!(hold() && allocate(1 << 20, 16).is_none());
        release(true, false);
        // The lease process converts it: what the program has made of its mapping can't be taken away meanwhile.
        advise(again.addr(), 1);
        free(again);
        let held = maps::lock(|| true).unwrap();
        let other = allocate((1 << 20) - 3, 16).unwrap();
        assert!(
            other != again && of(again.addr()).unwrap().is_advised(),
            "a block with another mapping is not handed out"
        );
        drop(held);
        let cleaned = allocate((1 << 20) - 3, 16).unwrap();
        assert!(cleaned == again && !of(again.addr()).unwrap().is_advised(), "it is not forgotten");
        let many: Vec<_> = (0..60).map(|_| allocate(4 << 20, 16).unwrap()).collect();
        // SAFETY: blocks of that size, of this test's.
        many.iter().for_each(|block| unsafe { block.cast::<u8>().write_bytes(1, 4 << 20) });
        many.iter().for_each(|&block| free(block));
        // SAFETY: blocks of that size, of this test's, which stay mapped.
        let zeros = many.iter().filter(|block| unsafe { block.cast::<u8>().read() } == 0).count();
        assert!((20..60).contains(&zeros), "much of what is freed goes back at once, and not all: {zeros}");
        let forgotten = many.iter().filter(|block| of(block.addr()).unwrap().model_copies() > 0).count();
        assert_eq!(forgotten, zeros, "what goes back tells nothing of the program's use");
        let end = range().end;
        give_up_addresses();
        assert!(range().end < end && has(second.addr()) && !has(end - 1) && allocate(1 << 30, 16).is_none());
        assert!(allocate(4 << 20, 16).is_some_and(|block| many.contains(&block)), "what was made before is used again");
        [cleaned, other, second].into_iter().for_each(free);
        close();
    }
}

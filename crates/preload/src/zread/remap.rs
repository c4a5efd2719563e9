//! A read whose whole pages are remapped: what is looked at before, in which order, and the remap itself.
//!
//! Relies on MAPS being held from the look at the file to the last byte: the lease process gives no lease back meanwhile, so the file
//! stays as long as it is and holds what it held. All signals are blocked, and the hooks have disabled cancellation.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quire_sys::caller_file::{CallerFile, IoVec};
use quire_sys::guest;
use quire_sys::lease::FileKey;
use quire_sys::map::{self, Protection};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::thread::BlockedSignals;

use super::blocks::{self, Block};
use super::extents::Extent;
use super::maps::{self, LeasedFile, MapsState};
use super::stats::{self, CopyReason};
use super::use_history::{UseHistory, UseShares};
use super::{convert, forks, lease_process, loss_model, memory_hooks, patterns, unseen_child};

/// The first remaps of a buffer whose pages are looked at afterwards, and of the later ones one in so many.
const LOOKED_AT: u32 = 8;
const LOOKED_AT_EVERY: u32 = 16;
/// Pages that a look takes.
const MOST_LOOKED_AT: usize = 32;
/// Reads that the loss model has copied before the next try, at first and at most.
const LEAST_PATIENCE: u32 = 256;
/// Of the reads that gain only where their buffers are left untouched, one in so many is remapped to see whether they are.
const EXPLORED_EVERY: u32 = 64;
const MOST_PATIENCE: u32 = 65_536;
/// Most buffers of a `readv` of which parts are remapped; those of more are not looked at.
pub const MOST_BUFFERS: usize = 16;
/// So much is read by one call at most.
const MOST_BYTES: usize = 0x7fff_f000;

/// Answers of the files that were refused lately, by their number: the number, the device, until when, and how often leases were asked for.
static REFUSED: [[AtomicU64; 4]; 64] = [const { [const { AtomicU64::new(0) }; 4] }; 64];
/// A lease on a file is asked for again after this time, and after twice as long each time: one that writers take away again and again is not
/// worth what that costs.
const ASKED_AGAIN_MS: u64 = 100;
/// Times that the time is doubled.
const MOST_DOUBLINGS: u64 = 7;
const NEVER_LEASED_MS: u64 = 1000;
/// Files for which leases are asked for within [`ASKED_AGAIN_MS`]. A program that opens many files and reads each once gains nothing by leases.
const MOST_ASKED: u64 = 16;

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// At the descriptor's position, which it moves.
    Position,
    /// Here.
    Offset(u64),
}

/// A read that has begun: what it returns.
pub type ReadResult = Result<usize, i32>;

/// Reads to `buffers`, remapping what can be. `None` if all of it is to be copied by the real function, and nothing has happened.
pub fn read(number: i32, buffers: &[IoVec], start: ReadStart) -> Option<ReadResult> {
    match try_read(number, buffers, start) {
        Ok(result) => Some(result),
        Err(reason) => {
            stats::copied(reason);
            None
        }
    }
}

/// The whole pages of a buffer, which is filled from `offset` on: their place in the buffer. Empty if there are none.
fn whole_pages(at: usize, len: usize, offset: u64) -> Range<usize> {
    let head = (PAGE_SIZE - at % PAGE_SIZE) % PAGE_SIZE;
    if at % PAGE_SIZE != offset as usize % PAGE_SIZE || len < head + PAGE_SIZE {
        return 0..0;
    }
    head..head + (len - head) / PAGE_SIZE * PAGE_SIZE
}

fn try_read(number: i32, buffers: &[IoVec], start: ReadStart) -> Result<ReadResult, CopyReason> {
    let total = buffers.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.iov_len));
    let total = total.filter(|&total| total <= MOST_BYTES).ok_or(CopyReason::Unaligned)?;
    let is_ours = |buffer: &&IoVec| blocks::containing(buffer.iov_base as usize, buffer.iov_len.max(1)).is_some();
    let ours = buffers.iter().find(is_ours);
    let block = ours.and_then(|ours| blocks::of(ours.iov_base as usize)).ok_or(CopyReason::ForeignBuffer)?;
    if block.is_advised() {
        return Err(CopyReason::AdvisedMemory);
    }
    let is_worth_a_look = || loss_model::favours(total, UseShares::UNTOUCHED);
    if is_declined(block) || loss_model::is_known() && has_model() && !is_worth_a_look() {
        return Err(CopyReason::Loss);
    }
    if unseen_child::is_here() {
        return Err(CopyReason::NotReady);
    }
    let caller = CallerFile::new(number).ok_or(CopyReason::Uncacheable)?;
    let key = caller.regular().ok_or(CopyReason::Uncacheable)?;
    if !caller.is_buffered() {
        // A device stores to the frames that the memory has now, so it must keep them.
        for buffer in buffers {
            memory_hooks::make_plain(buffer.iov_base as usize, buffer.iov_len);
        }
        return Err(CopyReason::Uncacheable);
    }
    if !lease_process::is_ready() {
        // Who only reads what was not asked for needs no process.
        return Err(ask_for(caller, number, key).unwrap_or(CopyReason::NotReady));
    }
    let _blocked = BlockedSignals::with_the_c_library_s();
    let mut maps = maps::try_lock().ok_or(CopyReason::Contended)?;
    if forks::is_forking() {
        return Err(CopyReason::Forking);
    }
    let Some(file) = maps.find(key) else {
        drop(maps);
        return Err(ask_for(caller, number, key).unwrap_or(CopyReason::NoLease));
    };
    let offset = match start {
        ReadStart::Offset(offset) => offset,
        ReadStart::Position => caller.advance(0).map_err(|_| CopyReason::Uncacheable)?,
    };
    let count = left(maps.files[file].len, offset).min(total as u64) as usize;
    check(&mut maps, file, caller, buffers, offset, count, block)?;
    note_access(caller, offset)?;
    let offset = match start {
        ReadStart::Offset(offset) => offset,
        // From here on the read has happened to all who share the position.
        ReadStart::Position => caller.advance(count as i64).map_err(|_| CopyReason::Uncacheable)? - count as u64,
    };
    // Another thread or process may have moved the position between.
    let possible = (left(maps.files[file].len, offset) as usize).min(count);
    let result = fill(&mut maps, file, caller, buffers, offset, possible);
    let done = result.unwrap_or(0);
    if start == ReadStart::Position && done < count {
        let _ = caller.advance(done as i64 - count as i64);
    }
    Ok(result)
}

fn has_model() -> bool {
    patterns::settings().is_some_and(|settings| settings.has_model)
}

fn left(len: u64, offset: u64) -> u64 {
    len.saturating_sub(offset)
}

/// Whether the loss model has this buffer copied without a further look.
fn is_declined(block: &Block) -> bool {
    match block.declines.load(Ordering::Relaxed) {
        0 => return false,
        left => block.declines.store(left - 1, Ordering::Relaxed),
    }
    if block.declines.load(Ordering::Relaxed) == 0 {
        // The next read is another try: what was seen is forgotten, and looks begin anew.
        block.history.clear();
        block.remaps.store(0, Ordering::Relaxed);
    }
    true
}

/// The loss model has decided against a buffer: it is left alone for twice as long as the last time.
fn decline(block: &Block) {
    let patience = block.patience.load(Ordering::Relaxed).saturating_mul(2).clamp(LEAST_PATIENCE, MOST_PATIENCE);
    block.patience.store(patience, Ordering::Relaxed);
    block.declines.store(patience, Ordering::Relaxed);
}

/// Whether `count` bytes from `offset` on may be remapped as far as they can be.
fn check(
    maps: &mut MapsState,
    file: usize,
    caller: CallerFile,
    buffers: &[IoVec],
    offset: u64,
    count: usize,
    block: &Block,
) -> Result<(), CopyReason> {
    let settings = patterns::settings().ok_or(CopyReason::NotAskedFor)?;
    let mut whole = 0;
    each_piece(buffers, offset, count, |at, len, from| {
        whole += whole_pages(at, len, from).len();
        true
    });
    if whole == 0 || count < settings.least_bytes {
        return Err(CopyReason::Unaligned);
    }
    if !maps.extents.has_room()
        || buffers.len() > 1 && maps.extents.all().len() + 2 * MOST_BUFFERS > super::extents::MOST_EXTENTS
    {
        return Err(CopyReason::TableFull);
    }
    if !convert::has_maps() {
        return Err(CopyReason::NoMaps);
    }
    if block.explored.swap(0, Ordering::Relaxed) != 0 {
        each_piece(buffers, offset, count, |at, len, from| {
            let pages = whole_pages(at, len, from);
            look(maps, &(at + pages.start..at + pages.end));
            true
        });
    }
    let leased = &mut maps.files[file];
    if settings.has_model && !is_favoured(whole, block, leased, offset) {
        return Err(CopyReason::Loss);
    }
    leased.is_used = true;
    let look = |start, len| caller.is_cached(start, len) == Some(true);
    if !leased.is_cached(offset, count as u64, guest::coarse_ms(), look) {
        return Err(CopyReason::NotCached);
    }
    Ok(())
}

/// Whether the loss model has a read remapped, by what is known of the buffer and of the file's range.
fn is_favoured(whole: usize, block: &Block, leased: &mut LeasedFile, offset: u64) -> bool {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let is_worth_it = |shares| loss_model::favours(whole, shares);
    let [of_buffer, of_range] = [&block.history, leased.history(offset)].map(UseHistory::shares);
    let expected = match (of_buffer, of_range) {
        (Some(one), Some(other)) => one.or_more(other),
        (one, other) => one.or(other).unwrap_or(UseShares::UNKNOWN),
    };
    if is_worth_it(expected) {
        return true;
    }
    if !is_worth_it(UseShares::UNTOUCHED) {
        return false;
    }
    match of_buffer {
        // Learnt of the buffer: it is left alone for a while.
        Some(of_buffer) if !is_worth_it(of_buffer) => decline(block),
        // Of the file's range: the next read may be another one.
        Some(_) => leased.forget_in_time(offset),
        None if of_range.is_some() && is_worth_it(UseShares::UNKNOWN) => leased.forget_in_time(offset),
        // Of neither, or the size alone: how much is touched can be learnt only by remapping.
        None if TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(EXPLORED_EVERY) => {
            block.explored.store(1, Ordering::Relaxed);
            return true;
        }
        None => {}
    }
    false
}

/// Calls `visit` with address, length and offset of the buffers' parts that `count` bytes fill, while it returns true.
fn each_piece(buffers: &[IoVec], offset: u64, count: usize, mut visit: impl FnMut(usize, usize, u64) -> bool) {
    let mut done = 0;
    for buffer in buffers {
        let len = buffer.iov_len.min(count - done);
        if len > 0 && !visit(buffer.iov_base as usize, len, offset + done as u64) {
            return;
        }
        done += len;
    }
}

/// Fills the buffers with `count` bytes from `offset` on; returns how many were.
fn fill(
    maps: &mut MapsState,
    file: usize,
    caller: CallerFile,
    buffers: &[IoVec],
    offset: u64,
    count: usize,
) -> ReadResult {
    let (mut done, mut error) = (0, None);
    each_piece(buffers, offset, count, |at, len, from| {
        let result = fill_one(maps, file, caller, at, len, from);
        done += *result.as_ref().unwrap_or(&0);
        error = result.err();
        error.is_none() && result.ok() == Some(len)
    });
    match error {
        Some(error) if done == 0 => Err(error),
        _ => Ok(done),
    }
}

/// A read changes the file's access time, is told to programs that watch the file, and may be refused by what guards it: a byte that is read for
/// nothing is so, too. What is refused is left to the real function, which says why.
fn note_access(caller: CallerFile, offset: u64) -> Result<(), CopyReason> {
    let mut byte = 0_u8;
    // SAFETY: the byte is this function's.
    match unsafe { caller.read_at(&raw mut byte as usize, 1, offset) } {
        Ok(1) => Ok(()),
        _ => Err(CopyReason::Refused),
    }
}

fn fill_one(maps: &mut MapsState, file: usize, caller: CallerFile, at: usize, len: usize, offset: u64) -> ReadResult {
    let copy = |from: usize, to: usize| {
        // SAFETY: the program has asked for these bytes to be read to its buffer.
        let result = unsafe { caller.read_at(at + from, to - from, offset + from as u64) };
        result.map_err(|error| error.raw_os_error().unwrap_or(guest::INVALID))
    };
    let whole = whole_pages(at, len, offset);
    let is_ours = blocks::containing(at, len).is_some_and(|block| !block.is_advised());
    if whole.is_empty() || !is_ours || !maps.extents.has_room() {
        return copy(0, len);
    }
    let head = copy(0, whole.start)?;
    if head < whole.start {
        return Ok(head);
    }
    let extent = Extent { start: at + whole.start, len: whole.len(), file, offset: offset + whole.start as u64 };
    if !remap(maps, extent) {
        stats::copied(CopyReason::Refused);
        return copy(whole.start, len).map(|count| head + count);
    }
    match copy(whole.end, len) {
        Ok(tail) => Ok(whole.end + tail),
        Err(_) => Ok(whole.end),
    }
}

/// Puts pages of the file over memory of the library's blocks.
fn remap(maps: &mut MapsState, extent: Extent) -> bool {
    look_back(maps, &extent.range());
    let source = maps.files[extent.file].base + extent.offset as usize;
    // SAFETY: `move_over` demands whole pages of the caller's, without references into them. The source lies in the library's own mapping of
    // the file, as `try_read` fills no more bytes than the file has left. The target lies in a block of the library's (`fill_one` has
    // looked), whose bytes the program has asked to be overwritten.
    if unsafe { map::move_over(source as *mut u8, extent.len, extent.start as *mut u8) }.is_err() {
        // What lay there may be gone.
        // SAFETY: `map_anonymous_over` demands whole pages of the caller's: they lie in a block of the library's, and the program has asked for
        // its bytes to be overwritten.
        let renewed = unsafe { map::map_anonymous_over(extent.start as *mut u8, extent.len, Protection::ReadWrite) };
        // Refused as well, so what lies there is what lay there: a writer may have to wait until it is converted.
        if renewed.is_ok() {
            maps.extents.remove(&extent.range());
        }
        return false;
    }
    maps.extents.insert(extent);
    if let Some(block) = blocks::of(extent.start) {
        block.remaps.fetch_add(1, Ordering::Relaxed);
    }
    stats::add(&stats::REMAPS, 1);
    stats::add(&stats::REMAPPED_BYTES, extent.len as u64);
    true
}

/// Before memory is remapped again: learns how much of what lies there was touched and written, now and then.
fn look_back(maps: &MapsState, range: &Range<usize>) {
    let Some(block) = blocks::of(range.start) else { return };
    let remaps = block.remaps.load(Ordering::Relaxed);
    if remaps <= LOOKED_AT || remaps.is_multiple_of(LOOKED_AT_EVERY) {
        look(maps, range);
    }
}

/// Learns how much of what lies there was touched and written.
fn look(maps: &MapsState, range: &Range<usize>) {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let Some(block) = blocks::of(range.start) else { return };
    let Some(old) = maps.extents.first_within(range) else { return };
    let mut words = [0; MOST_LOOKED_AT];
    let (pages, turn) = (old.len / PAGE_SIZE, TURN.fetch_add(1, Ordering::Relaxed) as usize);
    // Another part each time.
    let first = (turn.wrapping_mul(MOST_LOOKED_AT)) % pages.saturating_sub(MOST_LOOKED_AT).max(1);
    let count = pages.min(MOST_LOOKED_AT);
    let words = &mut words[..count];
    let looked = Pagemap::open(None).and_then(|pagemap| pagemap.read_words(old.start + first * PAGE_SIZE, words));
    if looked.is_err() {
        return;
    }
    let (mut touched, mut written) = (0, 0);
    for entry in words.iter().map(|&word| PagemapEntry::from_word(word)) {
        let is_touched = entry.present || entry.swapped;
        touched += u32::from(is_touched);
        written += u32::from(is_touched && !entry.file_or_shared);
    }
    block.history.note(count as u32, touched, written);
    if let Some(file) = maps.files.get(old.file) {
        file.history(old.offset).note(count as u32, touched, written);
    }
}

/// After a read that was copied without a look at it: has the lease process started and the file leased, if they shall be.
pub fn ask_after(number: i32) {
    let Some(caller) = CallerFile::new(number) else { return };
    if let Some(key) = caller.regular().filter(|_| caller.is_buffered()) {
        ask_for(caller, number, key);
    }
}

/// A file that is not leased: asks for that, if it may be. Returns why it is copied, if that is not for want of a lease.
fn ask_for(caller: CallerFile, number: i32, key: FileKey) -> Option<CopyReason> {
    let now = guest::coarse_ms();
    let mixed = key.inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key.device;
    let [inode, device, until, asks] = &REFUSED[(mixed >> 58) as usize];
    let is_known = inode.load(Ordering::Relaxed) == key.inode && device.load(Ordering::Relaxed) == key.device;
    let (ends, is_wanted) = (until.load(Ordering::Relaxed) >> 1, until.load(Ordering::Relaxed) & 1 != 0);
    if is_known && now < ends {
        return (!is_wanted).then_some(CopyReason::NotAskedFor);
    }
    if !may_ask(now) {
        return None;
    }
    if guest::is_on_signal_stack() {
        return Some(CopyReason::NotReady);
    }
    let is_wanted = is_asked_for(caller);
    // Neither another machine nor another process, which may not answer, is to be asked by the lease process. A lease of the program's own would
    // be broken by it.
    let is_leasable = is_wanted && caller.is_local() && !caller.has_own_lease();
    let asked = if is_known { asks.load(Ordering::Relaxed).min(MOST_DOUBLINGS) } else { 0 };
    let ends = now + if is_leasable { ASKED_AGAIN_MS << asked } else { NEVER_LEASED_MS };
    asks.store(asked + 1, Ordering::Relaxed);
    inode.store(key.inode, Ordering::Relaxed);
    device.store(key.device, Ordering::Relaxed);
    until.store(ends << 1 | u64::from(is_wanted), Ordering::Relaxed);
    if !is_wanted {
        return Some(CopyReason::NotAskedFor);
    }
    if !is_leasable {
        return None;
    }
    let is_there = lease_process::start();
    if is_there {
        super::requests::open(number, key);
    }
    (!is_there).then_some(CopyReason::NotReady)
}

/// Whether a file may be asked for now: what that costs is bounded for each time.
fn may_ask(now_ms: u64) -> bool {
    /// The time by numbers of [`ASKED_AGAIN_MS`], and in the low bits how many were asked for in it.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let (period, asked) = (now_ms / ASKED_AGAIN_MS, ASKED.load(Ordering::Relaxed));
    let count = if asked >> 8 == period { (asked & 0xff) + 1 } else { 1 };
    // Two threads that come at once may count as one.
    ASKED.store(period << 8 | count.min(MOST_ASKED + 1), Ordering::Relaxed);
    count <= MOST_ASKED
}

/// Whether a pattern fits the file's path.
#[inline(never)]
fn is_asked_for(caller: CallerFile) -> bool {
    let mut path = [0; 4096];
    let path = caller.path(&mut path).unwrap_or_default();
    patterns::settings().is_some_and(|settings| settings.has(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_those_that_the_read_fills_and_the_file_has_alike() {
        const PAGE: usize = PAGE_SIZE;
        // The dissertation's 9 KiB.
        assert_eq!(whole_pages(8 * PAGE, 9 << 10, 0), 0..2 * PAGE);
        assert_eq!(whole_pages(8 * PAGE + 100, 9 << 10, 5 * 4096 + 100), PAGE - 100..2 * PAGE - 100);
        assert_eq!(whole_pages(8 * PAGE, 9 << 10, 100), 0..0);
        assert_eq!(whole_pages(8 * PAGE + 1, PAGE, 1), 0..0);
        assert_eq!(whole_pages(8 * PAGE, PAGE - 1, 0), 0..0);
        assert_eq!(whole_pages(8 * PAGE, PAGE, 0), 0..PAGE);
    }

    #[test]
    fn pieces_are_as_long_as_what_is_read() {
        let buffer = |at: usize, len| IoVec { iov_base: at as *mut _, iov_len: len };
        let mut seen = Vec::new();
        each_piece(&[buffer(10, 5), buffer(100, 0), buffer(200, 50)], 1000, 30, |at, len, from| {
            seen.push((at, len, from));
            true
        });
        assert_eq!(seen, [(10, 5, 1000), (200, 25, 1005)]);
    }
}

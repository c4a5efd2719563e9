//! A read whose whole pages are remapped: what is asked before, in which order, and the remap itself.
//!
//! Relies on MAPS being held from the look at the file to the last byte: the lease process gives no lease back meanwhile, so the file
//! stays as long as it is and holds what it held. All signals are blocked, and the hooks have disabled cancellation.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use quire_sys::caller_file::{CallerFile, FileAccess, IoVec, RegularFile};
use quire_sys::guest;
use quire_sys::map::{self, Protection};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};
use quire_sys::thread::BlockedSignals;

use super::blocks::{self, Block};
use super::decision::{self, ReadProbe, has_model};
use super::extents::Extent;
use super::maps::{self, LeasedFile, MapsState};
use super::stats::{self, CopyReason};
use super::use_history::{UseHistory, UseShares};
use super::{convert, forks, lease_asks, lease_process, loss_model, memory_hooks, patterns, unseen_child};

/// The first remaps of a buffer whose pages are inspected afterwards, and of the later ones one in so many.
const INSPECTED_FIRST: u32 = 8;
const INSPECTED_EVERY: u32 = 16;
/// Pages that are inspected at a time.
const MOST_INSPECTED: usize = 32;
/// Most buffers of a `readv` of which parts are remapped; those of more are not probed.
pub const MOST_BUFFERS: usize = 16;

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

/// What a remap brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemapGain {
    /// So many nanoseconds, as the loss model expects.
    Expected(u32),
    /// It is a trial, which shows what becomes of the buffer.
    Unknown,
}

/// Reads to `buffers`, remapping what can be. `None` if all of it is to be copied by the real function, and nothing has happened.
pub fn read(number: i32, buffers: &[IoVec], start: ReadStart, probe: ReadProbe) -> Option<ReadResult> {
    match try_read(number, buffers, start, probe) {
        Ok((result, expected)) => {
            if let RemapGain::Expected(gain_ns) = expected {
                decision::gained(probe.block, gain_ns);
            }
            Some(result)
        }
        Err(reason) => {
            stats::copied(reason);
            decision::lost(probe.block);
            // At the end there is nothing that would be copied over it.
            if reason != CopyReason::AtEnd && probe.block.is_remapped() {
                inspect_before_copy(probe.block);
                // If it could not be looked at, it can't be later.
                probe.block.set_trial(&(0..0));
                probe.block.remapped.store(0, Ordering::Relaxed);
            }
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

/// Reads as [`read`], and says what that brings.
fn try_read(
    number: i32,
    buffers: &[IoVec],
    start: ReadStart,
    probe: ReadProbe,
) -> Result<(ReadResult, RemapGain), CopyReason> {
    if unseen_child::is_here() {
        return Err(CopyReason::NotReady);
    }
    let caller = CallerFile::new(number).ok_or(CopyReason::Uncacheable)?;
    let RegularFile { key, len } = leasable(caller, buffers, start, probe.total)?;
    if !lease_process::is_ready() {
        // Who only reads what was not asked for needs no process.
        return Err(lease_asks::ask_for(caller, number, key).unwrap_or(CopyReason::NotReady));
    }
    if !maps::may_have(key) {
        return Err(lease_asks::ask_for(caller, number, key).unwrap_or(CopyReason::NoLease));
    }
    let offset = match start {
        ReadStart::Offset(offset) => offset,
        ReadStart::Position => caller.advance(0).map_err(|_| CopyReason::Uncacheable)?,
    };
    if offset >= len {
        return Err(CopyReason::AtEnd);
    }
    let _blocked = BlockedSignals::with_the_c_library_s();
    let mut maps = maps::try_lock().ok_or(CopyReason::Contended)?;
    if forks::is_forking() {
        return Err(CopyReason::Forking);
    }
    let Some(file) = maps.find(key) else {
        drop(maps);
        return Err(lease_asks::ask_for(caller, number, key).unwrap_or(CopyReason::NoLease));
    };
    let count = left(maps.files[file].len, offset).min(probe.total as u64) as usize;
    let gain = check(&mut maps, file, caller, buffers, offset, count, probe)?;
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
    // Only now: what isn't remapped, such as a file that is not in the page cache, is no trial.
    let is_trial = gain == RemapGain::Unknown && probe.block.is_remapped();
    let trial = if is_trial { trial_of(&maps, probe.block, buffers) } else { 0..0 };
    probe.block.set_trial(&trial);
    Ok((result, gain))
}

/// Which file a descriptor reads, if its reads may be remapped and the file is worth a lease.
fn leasable(caller: CallerFile, buffers: &[IoVec], start: ReadStart, total: usize) -> Result<RegularFile, CopyReason> {
    let access = caller.access();
    if access == FileAccess::ReadWrite {
        return Err(CopyReason::Writable);
    }
    let file = caller.regular().ok_or(CopyReason::Uncacheable)?;
    if access == FileAccess::Other {
        // A device stores to the frames that the memory has now, so it must keep them.
        for buffer in buffers {
            memory_hooks::make_plain(buffer.iov_base as usize, buffer.iov_len);
        }
        return Err(CopyReason::Uncacheable);
    }
    let most = match start {
        ReadStart::Offset(offset) => left(file.len, offset),
        ReadStart::Position => file.len,
    };
    let most = most.min(total as u64) as usize;
    let is_long = patterns::settings().is_some_and(|settings| most >= settings.least_bytes);
    let is_known = has_model() && loss_model::is_known();
    if !is_long || is_known && !loss_model::favours(most, UseShares::UNTOUCHED) {
        return Err(CopyReason::Short);
    }
    Ok(file)
}

fn left(len: u64, offset: u64) -> u64 {
    len.saturating_sub(offset)
}

/// Whether `count` bytes from `offset` on may be remapped as far as they can be, and what that brings.
fn check(
    maps: &mut MapsState,
    file: usize,
    caller: CallerFile,
    buffers: &[IoVec],
    offset: u64,
    count: usize,
    probe: ReadProbe,
) -> Result<RemapGain, CopyReason> {
    let settings = patterns::settings().ok_or(CopyReason::NotAskedFor)?;
    if count == 0 {
        return Err(CopyReason::AtEnd);
    }
    let mut whole = 0;
    each_piece(buffers, offset, count, |at, len, from| {
        whole += whole_pages(at, len, from).len();
        true
    });
    if whole == 0 || count < settings.least_bytes {
        return Err(if whole == 0 { CopyReason::Unaligned } else { CopyReason::Short });
    }
    if !maps.extents.has_room()
        || buffers.len() > 1 && maps.extents.all().len() + 2 * MOST_BUFFERS > super::extents::MOST_EXTENTS
    {
        return Err(CopyReason::TableFull);
    }
    if !convert::has_maps() {
        return Err(CopyReason::NoMaps);
    }
    inspect_after_trial(maps, probe.block);
    let leased = &mut maps.files[file];
    let gain = match settings.has_model {
        true => favoured_gain(whole, probe, leased, offset).ok_or(CopyReason::Loss)?,
        false => RemapGain::Expected(0),
    };
    leased.is_used = true;
    let is_there = |start, len| caller.is_cached(start, len) == Some(true);
    if !leased.is_cached(offset, count as u64, guest::coarse_ms(), is_there) {
        return Err(CopyReason::NotCached);
    }
    Ok(gain)
}

/// What a remap brings, if the loss model favours it by what is known of the buffer and of the file's range.
fn favoured_gain(whole: usize, probe: ReadProbe, leased: &mut LeasedFile, offset: u64) -> Option<RemapGain> {
    let is_worth_it = |shares| loss_model::favours(whole, shares);
    let [of_buffer, of_range] = [&probe.block.history, leased.history(offset)].map(UseHistory::shares);
    let expected = match (of_buffer, of_range) {
        (Some(one), Some(other)) => one.filled_from(other),
        (one, other) => one.or(other).unwrap_or(UseShares::UNKNOWN),
    };
    if is_worth_it(expected) {
        return Some(RemapGain::Expected(loss_model::gain_ns(whole, expected)));
    }
    if !is_worth_it(UseShares::UNTOUCHED) {
        return None;
    }
    match of_buffer {
        // Learnt of the buffer: it is left alone for a while.
        Some(of_buffer) if !is_worth_it(of_buffer) => {
            decision::decline(probe.block, probe.total);
            probe.block.note_model_copy();
        }
        // Of the file's range: the next read may be another one.
        Some(_) => leased.forget_in_time(offset),
        None if of_range.is_some() && is_worth_it(UseShares::UNKNOWN) => leased.forget_in_time(offset),
        // Of neither, or the size alone: how much is touched can be learnt only by remapping.
        None if probe.is_trial || decision::is_turn_of_trial() => return Some(RemapGain::Unknown),
        None => {}
    }
    if of_buffer.is_none() {
        probe.block.note_model_copy();
    }
    None
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
    let (start, offset_of_whole) = (at + whole.start, offset + whole.start as u64);
    let model_copies = blocks::of(start).map_or(0, Block::model_copies);
    let extent = Extent { start, len: whole.len(), file, offset: offset_of_whole, model_copies };
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
    inspect_before_remap(maps, &extent.range());
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
        block.remapped.store(1, Ordering::Relaxed);
    }
    stats::add(&stats::REMAPS, 1);
    stats::add(&stats::REMAPPED_BYTES, extent.len as u64);
    true
}

/// Before memory is remapped again: learns how much of what lies there was touched and written, now and then.
fn inspect_before_remap(maps: &MapsState, range: &Range<usize>) {
    let Some(block) = blocks::of(range.start) else { return };
    let remaps = block.remaps.load(Ordering::Relaxed);
    if remaps <= INSPECTED_FIRST || remaps.is_multiple_of(INSPECTED_EVERY) {
        let old = maps.extents.first_in_use(range, block.model_copies());
        old.and_then(|old| old.within(range)).inspect(|&old| inspect(maps, block, old));
    }
}

/// Where a read that was a trial has been remapped, in this block: the first piece; empty if it has not.
fn trial_of(maps: &MapsState, block: &Block, buffers: &[IoVec]) -> Range<usize> {
    let is_here = |extent: &Extent| blocks::of(extent.start).is_some_and(|other| std::ptr::eq(other, block));
    let remapped_in = |buffer: &IoVec| {
        let range = buffer.iov_base as usize..(buffer.iov_base as usize).saturating_add(buffer.iov_len);
        maps.extents.first_in_use(&range, block.model_copies()).and_then(|extent| extent.within(&range)).filter(is_here)
    };
    buffers.iter().find_map(remapped_in).map_or(0..0, |extent| extent.range())
}

/// After a trial: learns what became of it, before anything else becomes of its memory.
fn inspect_after_trial(maps: &MapsState, block: &Block) {
    if let Some(at) = block.take_trial() {
        maps.extents.first_in_use(&(at..at + 1), block.model_copies()).inspect(|&trial| inspect(maps, block, trial));
    }
}

/// A read is about to be copied over what was remapped, which stores to all of its pages: of a trial it is seen now what became of it.
fn inspect_before_copy(block: &Block) {
    if block.has_trial() && lease_process::is_ready() {
        let _blocked = BlockedSignals::with_the_c_library_s();
        if let Some(maps) = maps::try_lock() {
            inspect_after_trial(&maps, block);
        }
    }
}

/// Learns how much of what lies there was touched and written. The caller passes only what no copy that the loss model chose has overwritten, since a
/// copy stores to all pages.
fn inspect(maps: &MapsState, block: &Block, old: Extent) {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let mut words = [0; MOST_INSPECTED];
    let (pages, turn) = (old.len / PAGE_SIZE, TURN.fetch_add(1, Ordering::Relaxed) as usize);
    // Another part each time.
    let first = (turn.wrapping_mul(MOST_INSPECTED)) % pages.saturating_sub(MOST_INSPECTED).max(1);
    let count = pages.min(MOST_INSPECTED);
    let words = &mut words[..count];
    let read = Pagemap::open(None).and_then(|pagemap| pagemap.read_words(old.start + first * PAGE_SIZE, words));
    if read.is_err() {
        return;
    }
    let (mut touched, mut written) = (0, 0);
    for entry in words.iter().map(|&word| PagemapEntry::from_word(word)) {
        let is_touched = entry.present || entry.swapped;
        touched += u32::from(is_touched);
        written += u32::from(is_touched && !entry.file_or_shared);
    }
    block.history.note(count as u32, touched, written);
    // What was copied over it was no use of the file's range: another file, perhaps one that was not in the page cache.
    if let Some(file) = maps.files.get(old.file).filter(|_| block.is_remapped()) {
        file.history(old.offset).note(count as u32, touched, written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::area::AnonymousMap;
    use quire_sys::lease::FileKey;
    use quire_sys::map::MapSharing;

    const LEN: usize = 1 << 20;

    /// Stores to every page.
    fn store(at: usize) {
        // SAFETY: a block of that size, of the calling test's.
        (0..LEN).step_by(PAGE_SIZE).for_each(|place| unsafe { ((at + place) as *mut u8).write_volatile(1) });
    }

    /// As the lease process does it: a file that is leased, at the first place.
    fn lease_file(maps: &mut MapsState) {
        let file = map::memory_file("quire-zread", LEN as u64).unwrap();
        let source = AnonymousMap::private(LEN).unwrap();
        // SAFETY: a mapping of this function's, into which no reference exists.
        unsafe { map::map_file_over(source.base(), LEN, &file, 0, MapSharing::Private, Protection::ReadWrite) }
            .unwrap();
        maps.begin(0, FileKey { device: 1, inode: 2 }, source.base() as usize, LEN as u64);
        // `MapsState::clear` unmaps it.
        std::mem::forget(source);
    }

    #[test]
    fn what_the_loss_model_has_copied_over_a_trial_is_no_use_that_the_program_makes_of_it() {
        let _alone = crate::state::alone();
        assert!(blocks::open());
        let pointer = blocks::allocate(LEN, 16).unwrap();
        let (at, block) = (pointer.addr(), blocks::of(pointer.addr()).unwrap());
        let mut maps = maps::lock(|| true).unwrap();
        lease_file(&mut maps);
        let remap_all = |maps: &mut MapsState| {
            let extent = Extent { start: at, len: LEN, file: 0, offset: 0, model_copies: block.model_copies() };
            assert!(remap(maps, extent));
        };
        for _ in 0..3 {
            // A try, as it begins after reads that were copied.
            block.history.clear();
            block.remaps.store(0, Ordering::Relaxed);
            remap_all(&mut maps);
            assert_eq!(block.history.shares(), None, "nothing is learnt from what the model itself had copied there");
            let buffer = IoVec { iov_base: pointer, iov_len: LEN };
            block.set_trial(&trial_of(&maps, block, &[buffer]));
            inspect_after_trial(&maps, block);
            assert_eq!(block.history.shares(), Some(UseShares::UNTOUCHED));
            block.remapped.store(0, Ordering::Relaxed);
            block.note_model_copy();
            store(at);
        }
        // What others than the model had copied, or the program stored, counts for the buffer.
        block.history.clear();
        remap_all(&mut maps);
        block.remapped.store(0, Ordering::Relaxed);
        store(at);
        remap_all(&mut maps);
        assert_eq!(block.history.shares(), Some(UseShares { touched: 1000, written: 1000 }));
        assert_eq!(maps.files[0].history(0).shares(), Some(UseShares::UNTOUCHED), "and not for the file");
        maps.clear();
        drop(maps);
        blocks::free(pointer);
        blocks::close();
    }

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

//! What copying, remapping, and touching and writing afterwards cost on this machine, measured when the lease process starts.
//!
//! Relies on the lease process sharing the program's memory: what a remap costs the processors on which the program runs is in its time.
//! Nothing allocates.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use quire_sys::area::AnonymousMap;
use quire_sys::caller_file::{self, CallerFile, IoVec};
use quire_sys::map::{self, MapSharing, Protection};
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::Pagemap;
use quire_sys::thread::BlockedSignals;

use super::loss_model::{ReadCost, SIZES};
use super::maps;

const MOST_BYTES: usize = SIZES[SIZES.len() - 1];
/// Each is done that often; the least counts, as whatever else runs only adds.
const ROUNDS: usize = 7;

/// Nothing.
fn leave(_: &AnonymousMap, _: usize) {}

/// Loads a byte of each page.
fn touch(memory: &AnonymousMap, len: usize) {
    for at in (0..len).step_by(PAGE_SIZE) {
        // SAFETY: within the mapping, which the caller owns.
        unsafe { memory.base().add(at).read_volatile() };
    }
}

/// Stores a byte to each page.
fn store(memory: &AnonymousMap, len: usize) {
    for at in (0..len).step_by(PAGE_SIZE) {
        // SAFETY: within the mapping, which the caller owns.
        unsafe { memory.base().add(at).write_volatile(1) };
    }
}

/// Measures what reads cost, and a probe of one; `None` if something that it takes is refused.
pub fn measure() -> Option<([ReadCost; SIZES.len()], u64)> {
    let file = map::memory_file("quire-zread", MOST_BYTES as u64).ok()?;
    let caller = CallerFile::new(file.as_raw_fd())?;
    let page = [7; PAGE_SIZE];
    for at in (0..MOST_BYTES).step_by(PAGE_SIZE) {
        file.write_all_at(&page, at as u64).ok()?;
    }
    let (source, buffer) = (AnonymousMap::private(MOST_BYTES).ok()?, AnonymousMap::private(MOST_BYTES).ok()?);
    source.keep_from_children();
    buffer.keep_from_children();
    // SAFETY: a mapping of this function's, into which no reference exists.
    unsafe { map::map_file_over(source.base(), MOST_BYTES, &file, 0, MapSharing::Private, Protection::ReadWrite) }
        .ok()?;
    let mut costs = [ReadCost::default(); SIZES.len()];
    for (cost, len) in costs.iter_mut().zip(SIZES) {
        // SAFETY: fresh memory for each size, in place of what the one before has left.
        unsafe { map::map_anonymous_over(buffer.base(), MOST_BYTES, Protection::ReadWrite) }.ok()?;
        let read = |after: fn(&AnonymousMap, usize)| {
            let begun = Instant::now();
            // SAFETY: `read_at` demands mapped bytes that may change: `buffer` is a mapping of this function's, and `len` is at most its length.
            let count = unsafe { caller.read_at(buffer.base() as usize, len, 0) }.ok()?;
            if count < len {
                return None;
            }
            after(&buffer, len);
            Some(begun.elapsed().as_nanos() as u64)
        };
        let [read_ns, read_touched_ns, read_stored_ns] = each_use(read)?;
        let zread = |after: fn(&AnonymousMap, usize)| {
            let begun = Instant::now();
            // SAFETY: both are this function's, and nothing refers into them.
            unsafe { map::move_over(source.base(), len, buffer.base()) }.ok()?;
            after(&buffer, len);
            Some(begun.elapsed().as_nanos() as u64)
        };
        let [zread_ns, zread_touched_ns, zread_stored_ns] = each_use(zread)?;
        let stores_ns = read_stored_ns.saturating_sub(read_touched_ns);
        *cost = ReadCost {
            read_ns,
            read_touch_ns: read_touched_ns.saturating_sub(read_ns),
            zread_ns,
            zread_touch_ns: zread_touched_ns.saturating_sub(zread_ns),
            cow_ns: zread_stored_ns.saturating_sub(zread_touched_ns).saturating_sub(stores_ns),
        };
    }
    Some((costs, probe_ns(caller)?))
}

/// What a probe of a read costs that is copied all the same.
fn probe_ns(caller: CallerFile) -> Option<u64> {
    least(|| {
        let begun = Instant::now();
        caller.regular()?;
        let _ = (caller.access(), caller.advance(0));
        let _blocked = BlockedSignals::with_the_c_library_s();
        drop(maps::try_lock());
        Some(begun.elapsed().as_nanos() as u64)
    })
}

/// What `once` costs if the bytes are left alone, touched and stored to afterwards.
fn each_use(once: impl Fn(fn(&AnonymousMap, usize)) -> Option<u64>) -> Option<[u64; 3]> {
    Some([least(|| once(leave))?, least(|| once(touch))?, least(|| once(store))?])
}

/// In the lease process, before it says that it is ready: makes each system call once that a thread of the program makes to remap. Where a filter
/// ends a process for one of them, it is not the program.
pub fn rehearse() {
    let _blocked = BlockedSignals::with_the_c_library_s();
    let none = IoVec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (given, mut room) = ([none], [none]);
    // SAFETY: no array lies in the first page, so nothing is looked at without the kernel.
    unsafe { caller_file::buffers(given.as_ptr(), 1, &mut room, std::ptr::null()) };
    let Some(caller) = CallerFile::new(0) else { return };
    let _ = (caller.regular(), caller.access(), caller.is_cached(0, 1), caller.advance(0));
    let _ = Pagemap::open(None).and_then(|pagemap| pagemap.read_words(given.as_ptr().addr(), &mut [0]));
}

fn least(mut once: impl FnMut() -> Option<u64>) -> Option<u64> {
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        least = least.min(once()?);
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_measured() {
        let _alone = crate::state::alone();
        let (costs, probe_ns) = measure().unwrap();
        assert!(probe_ns > 0);
        assert!(costs.iter().all(|cost| cost.read_ns > 0 && cost.zread_ns > 0 && cost.zread_touch_ns > 0));
    }
}

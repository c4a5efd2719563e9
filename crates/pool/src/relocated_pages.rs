//! Relocated pages, whose bytes are in spare frames: where they are, and how they get back to their addresses when the leases have ended.
//!
//! Relies on the page's state: a page is moved by a thread that has locked it exclusively, or claimed it, while it has no lease.
//! Nothing here is on the way of a page that isn't relocated.

use std::sync::atomic::Ordering;

use crate::mapped_file::MappedFile;
use crate::page_state::PageStatus;
use crate::pool_state::PoolState;

/// Where the bytes of a page are that the caller has locked.
pub(crate) fn place(map: &MappedFile, page: u64, is_relocated: bool) -> *mut u8 {
    if !is_relocated {
        return map.address(page);
    }
    let place = map.spare_frames_if_any().and_then(|frames| Some(frames.at(frames.frame_of(page)?)));
    place.expect("a relocated page that is in memory has a frame")
}

/// Moves a relocated page back that the caller has locked exclusively, and that is not leased any more. It stays locked.
///
/// # Safety
/// The caller has locked the page exclusively, and the page is relocated and has no lease.
pub(crate) unsafe fn move_back_locked(shared: &PoolState, map: &MappedFile, page: u64) -> *mut u8 {
    // SAFETY: `move_bytes` demands a relocated page that the caller has locked exclusively and that has no lease: `move_back_locked` demands
    // that of its caller.
    unsafe { move_bytes(map, page) };
    map.state(page).end_relocation_locked();
    // SAFETY: `release` demands a page that is claimed exclusively and has its bytes elsewhere: `move_back_locked`'s caller has the lock, and
    // the bytes are at the page's address now.
    unsafe { release(shared, map, page) };
    map.address(page)
}

/// Makes a relocated page whose leases have ended a page as every other, if no thread uses it now. Whether it did.
pub(crate) fn settle(shared: &PoolState, map: &MappedFile, page: u64) -> bool {
    let state = map.state(page);
    let seen = state.load();
    if !seen.is_relocated() || seen.leases() > 0 {
        return false;
    }
    match seen.status() {
        PageStatus::Absent => {
            if state.begin_end_detached().is_err() {
                return false;
            }
            // SAFETY: `begin_end_detached` has claimed the page, which is absent and has no lease: nothing refers to the bytes at its address.
            let discarded = unsafe { map.frames.discard(&[page]) };
            map.shard(page).resident.fetch_sub(1, Ordering::Relaxed);
            map.follow_up(page, state.end_detached());
            match discarded {
                Ok(_) => {
                    shared.credits.give(1);
                    shared.pressure.progress(1);
                }
                // Its memory stays taken, and so does its credit.
                Err(error) => tracing::error!(%error, "memory of a page that was leased is lost"),
            }
            true
        }
        PageStatus::Clean | PageStatus::Dirty => {
            if state.begin_move_back().is_err() {
                return false;
            }
            // SAFETY: `move_bytes` demands a relocated page that is locked exclusively and has no lease: `begin_move_back` has checked the
            // one and claimed the other.
            unsafe { move_bytes(map, page) };
            // The frame is given up before another thread can relocate the page again.
            // SAFETY: `release` demands a page that is claimed exclusively and has its bytes elsewhere: the claim ends below, and the bytes
            // are at the page's address now.
            unsafe { release(shared, map, page) };
            map.follow_up(page, state.end_move_back());
            true
        }
        PageStatus::Reading | PageStatus::Writing | PageStatus::Evicting => false,
    }
}

/// Copies a page from its frame to its address.
///
/// # Safety
/// The page is relocated, and locked exclusively by the caller. It has no lease.
unsafe fn move_bytes(map: &MappedFile, page: u64) {
    let from = place(map, page, true);
    // SAFETY: `move_bytes` demands a page that its caller has locked exclusively, so no other thread has it locked. It has no lease, so no
    // lease refers to the bytes at its address. An optimistic reader that began before the page was relocated is refuted by its version. Frame
    // and address are `page_bytes` long and apart.
    unsafe { map.address(page).copy_from_nonoverlapping(from, map.frames.page_bytes()) };
}

/// Gives the frame of a page up, if it has one.
///
/// # Safety
/// The caller has claimed the page exclusively, and its bytes are elsewhere or not needed any more.
unsafe fn release(shared: &PoolState, map: &MappedFile, page: u64) {
    let Some(frames) = map.spare_frames_if_any() else { return };
    let Some(frame) = frames.frame_of(page) else { return };
    // SAFETY: `give_back` demands a page that is claimed exclusively and needs the frame no more: `release` demands the same of its caller,
    // so no guard and no transfer refers to the frame.
    match unsafe { frames.give_back(frame) } {
        Ok(()) => {
            shared.credits.give(1);
            shared.pressure.progress(1);
        }
        // Its memory stays taken, and so does its credit.
        Err(error) => tracing::error!(%error, "memory of a relocated page is lost"),
    }
}

/// Forgets a clean page that is leased or relocated: what is read of it next comes from the file. Whether it did.
pub(crate) fn detach(shared: &PoolState, map: &MappedFile, page: u64) -> bool {
    let state = map.state(page);
    if let Ok(after) = state.detach() {
        map.follow_up(page, after);
        // The last lease may have ended before it could see that the page is relocated.
        settle(shared, map, page);
        return true;
    }
    evict(shared, map, page)
}

/// Forgets a clean page that is relocated, leased or not; its frame is free then. Whether it did.
fn evict(shared: &PoolState, map: &MappedFile, page: u64) -> bool {
    let state = map.state(page);
    if state.begin_evict_relocated().is_err() {
        return false;
    }
    // SAFETY: `release` demands a page that is claimed exclusively and whose bytes are not needed: `begin_evict_relocated` has claimed a clean
    // page, and the claim ends below.
    unsafe { release(shared, map, page) };
    map.follow_up(page, state.end_evict());
    settle(shared, map, page);
    true
}

/// Moves back what can be moved back of `map`; returns how many pages.
pub(crate) fn sweep(shared: &PoolState, map: &MappedFile) -> usize {
    let frames = map.spare_frames_if_any();
    frames.map_or(0, |frames| frames.pages().filter(|&page| settle(shared, map, page)).count())
}

/// Moves back what can be moved back of all maps, and forgets clean pages that can't; returns how many frames that has freed.
pub(crate) fn free_frames(shared: &PoolState) -> usize {
    let free = |map: &MappedFile| {
        let frames = map.spare_frames_if_any()?;
        let pages = frames.pages().filter(|&page| settle(shared, map, page) || evict(shared, map, page));
        Some(pages.count())
    };
    shared.maps().iter().filter_map(|map| map.while_open(|| free(map)).flatten()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MapOptions, PoolConfig};
    use crate::page::PageNo;
    use crate::pool::Pool;
    use quire_device::{Directory, MemoryDirectory};
    use std::sync::{Arc, TryLockError, mpsc};

    const PAGE: usize = 4096;

    #[test]
    fn a_dirty_page_that_is_moved_back_for_want_of_memory_is_written_when_its_map_closes() {
        let directory = MemoryDirectory::with_file("file", &[1; 4 * PAGE]);
        let config = PoolConfig { budget_bytes: 16 * PAGE, page_bytes: PAGE, ..PoolConfig::default() };
        let pool = Pool::new(config).unwrap();
        let map = pool.map(directory.open_to_write("file").unwrap(), MapOptions::default()).unwrap();
        let lease = map.lease(0, PAGE).unwrap();
        let mut guard = map.write(PageNo(0)).unwrap();
        guard.fill(2);
        // The guard keeps the last lease from moving the page back.
        drop(lease);
        drop(guard);
        let (shared, mapped) = (Arc::clone(map.shared()), Arc::clone(map.mapped()));
        assert!(mapped.state(0).load().is_relocated());
        let (locked, is_locked) = mpsc::channel();
        std::thread::scope(|threads| {
            // As `free_frames`, which another map's user calls, while the map is closed.
            threads.spawn(|| {
                let move_back = || {
                    mapped.state(0).begin_move_back().unwrap();
                    locked.send(()).unwrap();
                    // The closing thread waits for this one.
                    while !matches!(mapped.life.try_read(), Err(TryLockError::WouldBlock)) {
                        std::thread::yield_now();
                    }
                    // SAFETY: `begin_move_back` has claimed the page, which is relocated and has no lease; the claim ends below.
                    unsafe { move_bytes(&mapped, 0) };
                    // SAFETY: the claim still holds, and the bytes are at the page's address now.
                    unsafe { release(&shared, &mapped, 0) };
                    mapped.follow_up(0, mapped.state(0).end_move_back());
                };
                mapped.while_open(move_back).unwrap();
            });
            is_locked.recv().unwrap();
            drop(map);
        });
        let mut first = [0; PAGE];
        directory.open("file").unwrap().read_at(0, &mut first).unwrap();
        assert!(first == [2; PAGE]);
    }
}

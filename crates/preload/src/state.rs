//! What the process as a parent remembers: settings, the stats page, the sentinel page, the latest fork.
//!
//! Relies on atomics alone, so that it may be read and written wherever a program forks, and reset in the child.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use quire_sys::area::AnonymousMap;
use quire_sys::guest::{self, FileId};
use quire_sys::thread::ThreadId;

use crate::settings::PreloadSettings;
use crate::stats_page::{SlotId, StatsPage};

/// How it stands with the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// There is none now.
    None,
    /// It was started.
    Started,
    /// There is and will be none: what it needs isn't there.
    GivenUp,
}

static SETTINGS: OnceLock<PreloadSettings> = OnceLock::new();
/// What standard error was when the program started; lines go nowhere else.
static STANDARD_ERROR: OnceLock<Option<FileId>> = OnceLock::new();
static STATS_PAGE: AtomicPtr<StatsPage> = AtomicPtr::new(null_mut());
static SENTINEL: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Some thread of the program is between the preparation and the end of a fork.
static FORKING: AtomicBool = AtomicBool::new(false);
static FORKS: AtomicU32 = AtomicU32::new(0);
static WORKER: AtomicU32 = AtomicU32::new(WorkerState::None as u32);
/// Pid and slot of the latest child.
static LATEST: AtomicU64 = AtomicU64::new(0);
static FORKER: AtomicI32 = AtomicI32::new(0);

/// A fork that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkRecord {
    /// The child.
    pub pid: i32,
    /// Its slot on the stats page.
    pub slot_id: SlotId,
    /// The thread that forked: the one whose writes matter.
    pub forker: Option<ThreadId>,
}

/// Takes the settings, while the library is loaded.
pub fn configure(settings: PreloadSettings) {
    // Set once; a second time (tests) changes nothing.
    let _ = SETTINGS.set(settings);
    let _ = STANDARD_ERROR.set(FileId::of(guest::standard_error()));
}

/// The settings, once they are known.
pub fn configured() -> Option<&'static PreloadSettings> {
    SETTINGS.get()
}

/// The settings.
pub fn settings() -> PreloadSettings {
    configured().copied().unwrap_or_default()
}

/// The file that standard error was when the program started.
pub fn standard_error() -> Option<FileId> {
    STANDARD_ERROR.get().copied().flatten()
}

/// The latest fork.
pub fn latest_fork() -> Option<ForkRecord> {
    let packed = LATEST.load(Ordering::SeqCst);
    let forker = ThreadId::from_raw(FORKER.load(Ordering::Relaxed));
    (packed != 0).then(|| ForkRecord { pid: (packed >> 32) as i32, slot_id: SlotId::from_raw(packed as u32), forker })
}

/// Remembers that the calling thread has made child `pid` at `slot_id`.
pub fn set_latest(pid: i32, slot_id: SlotId) {
    FORKER.store(guest::thread_id(), Ordering::Relaxed);
    // Before it is looked whether there is a worker, which looks for a fork after it counts as gone.
    LATEST.store((pid as u64) << 32 | u64::from(slot_id.raw()), Ordering::SeqCst);
}

/// Address of the page that only children made since it was last written share with this process.
pub fn sentinel() -> usize {
    SENTINEL.load(Ordering::Relaxed) as usize
}

/// The page shared with the children, once there is one.
pub fn stats_page() -> Option<&'static StatsPage> {
    // SAFETY: null, or the page that `next_slot` has made. It leaks the mapping, so the page is there for as long as the
    // process; zeros are a valid `StatsPage`, and it holds atomics only, so processes may share it.
    unsafe { STATS_PAGE.load(Ordering::Acquire).as_ref() }
}

/// Claims the right to prepare a fork; false if another thread has it.
pub fn begin_forking() -> bool {
    !FORKING.swap(true, Ordering::Acquire)
}

/// Gives it back.
pub fn end_forking() {
    FORKING.store(false, Ordering::Release);
}

/// Makes stats page and sentinel if they aren't there, and a slot for the next child. To be called by the thread that may
/// prepare a fork ([`begin_forking`]). `None` when there is no memory.
pub fn next_slot() -> Option<(&'static StatsPage, SlotId)> {
    let stats_page = match stats_page() {
        Some(stats_page) => stats_page,
        None => {
            let page = AnonymousMap::shared(std::mem::size_of::<StatsPage>()).ok()?;
            let sentinel = AnonymousMap::private(1).ok()?;
            SENTINEL.store(sentinel.base(), Ordering::Relaxed);
            STATS_PAGE.store(page.base().cast(), Ordering::Release);
            // Both stay for as long as the process: a child may look at the stats page at any time.
            std::mem::forget((page, sentinel));
            stats_page()?
        }
    };
    let count = FORKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    // SAFETY: the sentinel is a page that was mapped above, now or at an earlier fork, and leaked. Only this function
    // writes it, and
    // `begin_forking` lets one thread at a time prepare a fork. The
    // write breaks the sharing with earlier children: after the fork the page is shared with the new child alone.
    unsafe { SENTINEL.load(Ordering::Relaxed).write_volatile(count as u8) };
    Some((stats_page, stats_page.take(count)))
}

/// How it stands with the worker.
pub fn worker() -> WorkerState {
    match WORKER.load(Ordering::SeqCst) {
        0 => WorkerState::None,
        1 => WorkerState::Started,
        _ => WorkerState::GivenUp,
    }
}

/// Remembers how it stands with the worker.
pub fn set_worker(worker: WorkerState) {
    WORKER.store(worker as u32, Ordering::SeqCst);
}

/// Counts a worker as started if there is none; false if there is, or will be none.
pub fn begin_work() -> bool {
    let (none, started) = (WorkerState::None as u32, WorkerState::Started as u32);
    WORKER.compare_exchange(none, started, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// In a new child: it starts anew as a process, without worker, stats page and children.
pub fn forget() {
    STATS_PAGE.store(null_mut(), Ordering::Relaxed);
    SENTINEL.store(null_mut(), Ordering::Relaxed);
    LATEST.store(0, Ordering::Relaxed);
    set_worker(WorkerState::None);
    FORKING.store(false, Ordering::Relaxed);
}

/// For tests: what is in this file is one for the whole process.
#[cfg(test)]
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_remembered_with_its_place_and_forgotten() {
        let _alone = alone();
        assert!(begin_forking() && !begin_forking());
        let (stats_page, slot_id) = next_slot().unwrap();
        set_latest(77, slot_id);
        let fork = latest_fork().unwrap();
        assert_eq!((fork.pid, fork.slot_id, fork.forker), (77, slot_id, Some(quire_sys::thread::current())));
        assert!(
            std::ptr::eq(stats_page, next_slot().unwrap().0) && next_slot().unwrap().1 != slot_id && sentinel() != 0
        );
        set_worker(WorkerState::GivenUp);
        assert!(worker() == WorkerState::GivenUp && !begin_work());
        forget();
        assert!(
            latest_fork().is_none()
                && super::stats_page().is_none()
                && worker() == WorkerState::None
                && begin_forking()
        );
        end_forking();
    }
}

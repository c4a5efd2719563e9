//! An allocator with two pools: what a checkpoint is to hold, and scratch memory beside it.
//!
//! A dump takes whole mappings. A program that keeps its objects in the first pool, and buffers, caches and the rest in the second (or in
//! the usual allocator), dumps only pages worth keeping. Each pool has one lock.
//!
//! Relies on `pthread_atfork`: a fork waits for the locks, so both pools serve in a child. The handlers are registered as the program (or the
//! library) is loaded: by the first allocation it would be too late for a fork that another thread has begun, whose child would find a lock
//! held, or the registration half done, for ever.

mod pool;
mod pool_lock;
mod size_class;

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pool::PoolMemory;
use pool_lock::PoolLock;
use quire_sys::atfork;

/// Which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// For objects of checkpoints.
    Checkpointed,
    /// For everything else.
    Scratch,
}

const POOLS: [PoolKind; 2] = [PoolKind::Checkpointed, PoolKind::Scratch];

struct AddressContent {
    lock: PoolLock,
    memory: UnsafeCell<Option<PoolMemory>>,
}

// SAFETY: the memory is reached only by the thread that holds the lock.
unsafe impl Sync for AddressContent {}

static PLACES: [AddressContent; 2] =
    [const { AddressContent { lock: PoolLock::new(), memory: UnsafeCell::new(None) } }; 2];

extern "C" fn hold_both() {
    PLACES.iter().for_each(|place| place.lock.acquire());
}

extern "C" fn release_both() {
    PLACES.iter().for_each(|place| place.lock.release());
}

/// Forks wait for the locks.
static FORKS_WAIT: AtomicBool = AtomicBool::new(false);

extern "C" fn watch_forks() {
    // SAFETY: the functions use atomics and futexes only.
    let is_watched = unsafe { atfork::around_forks(hold_both, release_both, release_both) }.is_ok();
    FORKS_WAIT.store(is_watched, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = watch_forks;

/// Does `work` with a pool, which nothing else uses meanwhile.
fn with<T>(pool: PoolKind, work: impl FnOnce(&mut Option<PoolMemory>) -> T) -> T {
    let place = &PLACES[pool as usize];
    let _holding = place.lock.hold();
    // SAFETY: this thread holds the lock, and `work` does not come back here.
    work(unsafe { &mut *place.memory.get() })
}

/// Memory for an object of `bytes`, aligned to 16 bytes; with `zeroed` all zero. `None` if there is none, or if forks could not be made to
/// wait when the program was loaded.
pub fn allocate(pool: PoolKind, bytes: usize, zeroed: bool) -> Option<NonNull<u8>> {
    if !FORKS_WAIT.load(Ordering::Relaxed) {
        return None;
    }
    let taken = with(pool, |memory| {
        if memory.is_none() {
            *memory = PoolMemory::new();
        }
        memory.as_mut()?.take(bytes)
    })?;
    let at = NonNull::new(taken.at as *mut u8)?;
    if zeroed && !taken.is_zero {
        // SAFETY: an object with room for `bytes`, which only this call knows.
        unsafe { at.write_bytes(0, bytes) };
    }
    Some(at)
}

/// The pool of the object at `address`, and how many bytes that has room for. `None` if no object of the pools begins there.
pub fn find(address: usize) -> Option<(PoolKind, usize)> {
    POOLS.into_iter().find_map(|pool| {
        let room = with(pool, |memory| memory.as_ref().and_then(|memory| memory.room(address)));
        room.map(|room| (pool, room))
    })
}

/// Frees the object at `address`. False if no object of the pools begins there.
///
/// # Safety
/// If there is an object, it is in use, and is not used any more.
pub unsafe fn free(address: usize) -> bool {
    POOLS.into_iter().any(|pool| {
        with(pool, |memory| {
            let memory = memory.as_mut().filter(|memory| memory.has(address));
            // SAFETY: `give` demands an object that is in use and is not used from now on: `free` demands that of its caller, and `has` has
            // found the address in this pool.
            memory.is_some_and(|memory| unsafe { memory.give(address) })
        })
    })
}

/// Gives the object at `address` room for `bytes`, at another place of the same pool if need be. `None` if there is no memory, or no
/// such object, which is as it was then.
///
/// # Safety
/// If there is an object, it is in use, and is used at the new place from now on.
pub unsafe fn reallocate(address: usize, bytes: usize) -> Option<NonNull<u8>> {
    let (pool, room) = find(address)?;
    if bytes <= room && bytes >= room / 2 {
        return NonNull::new(address as *mut u8);
    }
    let new = allocate(pool, bytes, false)?;
    // SAFETY: both objects have room for these bytes and don't overlap, since both are in use; afterwards the old one isn't used.
    unsafe {
        (address as *const u8).copy_to_nonoverlapping(new.as_ptr(), room.min(bytes));
        free(address);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_at<'a>(at: NonNull<u8>, len: usize) -> &'a mut [u8] {
        // SAFETY: an object of a test, which uses it alone.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }

    #[test]
    fn objects_of_both_pools_keep_their_bytes_and_their_pool_while_others_come_and_go() {
        let mut live: Vec<(NonNull<u8>, usize, PoolKind, u8)> = Vec::new();
        let mut state = 12345_u64;
        for turn in 0..30_000_usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 33) as usize;
            let mark = turn as u8 | 1;
            if random % 5 < 3 || live.is_empty() {
                let len = if random.is_multiple_of(50) { random % 300_000 } else { random % 900 };
                let pool = POOLS[random / 7 % 2];
                let zeroed = random.is_multiple_of(2);
                let at = allocate(pool, len, zeroed).unwrap();
                assert!(
                    (at.as_ptr() as usize).is_multiple_of(16)
                        && (!zeroed || bytes_at(at, len).iter().all(|&byte| byte == 0))
                );
                bytes_at(at, len).fill(mark);
                live.push((at, len, pool, mark));
                continue;
            }
            let (at, len, pool, mark) = live.swap_remove(random % live.len());
            let (found, room) = find(at.as_ptr() as usize).unwrap();
            assert!(found == pool && room >= len && bytes_at(at, len).iter().all(|&byte| byte == mark));
            if random.is_multiple_of(4) {
                let new_len = len / 2 + random % 2000;
                // SAFETY: an object in use.
                let at = unsafe { reallocate(at.as_ptr() as usize, new_len) }.unwrap();
                assert!(bytes_at(at, len.min(new_len)).iter().all(|&byte| byte == mark));
                bytes_at(at, new_len).fill(mark);
                live.push((at, new_len, pool, mark));
            } else {
                // SAFETY: an object in use.
                assert!(unsafe { free(at.as_ptr() as usize) });
            }
        }
        for (at, ..) in live {
            // SAFETY: an object in use: `live` has only those that were not freed, and this is its last use.
            assert!(unsafe { free(at.as_ptr() as usize) });
        }
    }

    #[test]
    fn what_is_no_object_is_not_freed() {
        let at = allocate(PoolKind::Scratch, 100, false).unwrap().as_ptr() as usize;
        let large = allocate(PoolKind::Checkpointed, 1 << 20, true).unwrap().as_ptr() as usize;
        for address in [0, 16, at + 8, at + 16, large + 4096, large + (64 << 10), usize::MAX] {
            // SAFETY: no objects.
            assert!(find(address).is_none() && !unsafe { free(address) }, "{address:#x}");
        }
        // SAFETY: objects in use; the second time there is none.
        unsafe {
            assert!(free(at) && free(large) && !free(large));
            assert!(reallocate(large, 10).is_none());
        }
        assert!(allocate(PoolKind::Scratch, usize::MAX, false).is_none());
    }

    #[test]
    fn a_fork_waits_for_the_pools_before_their_first_object() {
        use quire_sys::child;
        let asks = "QUIRE_MDC_FIRST_FORK";
        if std::env::var_os(asks).is_none() {
            // A process of its own: in this one other tests allocate.
            let this = std::env::args_os().next().unwrap();
            let name = "heap::tests::a_fork_waits_for_the_pools_before_their_first_object";
            let mut command = std::process::Command::new(this);
            let output = command.args([name, "--exact"]).env(asks, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let is_held = || POOLS.map(|pool| PLACES[pool as usize].lock.is_held());
        let lock = PLACES[0].lock.hold();
        let began = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let forker = scope.spawn(|| {
                began.store(true, Ordering::SeqCst);
                // SAFETY: the child looks at two words.
                unsafe { child::fork_by_library(&mut || i32::from(is_held() != [false; 2])) }.unwrap().wait()
            });
            while !began.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // A fork that does not wait would be over by then; one that waits can't be missed.
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(lock);
            assert_eq!(forker.join().unwrap(), child::WaitStatus::Exited(0));
        });
    }

    #[test]
    fn a_child_that_is_forked_while_other_threads_allocate_allocates_too() {
        use quire_sys::child;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for pool in POOLS {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let at = allocate(pool, 3000, false).unwrap();
                        // SAFETY: an object in use.
                        unsafe { free(at.as_ptr() as usize) };
                    }
                });
            }
            for _ in 0..20 {
                let mut work = || {
                    let both = POOLS.map(|pool| allocate(pool, 5000, true));
                    i32::from(both.iter().any(Option::is_none))
                };
                // SAFETY: the child only allocates here.
                let ending = unsafe { child::fork_by_library(&mut work) }.unwrap().wait();
                assert_eq!(ending, child::WaitStatus::Exited(0));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

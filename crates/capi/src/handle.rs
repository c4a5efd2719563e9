//! Handles: what C holds of a range, a snapshot, a pool or a map. A handle is a number that looks like a pointer, so that one that was
//! released, or never was a handle, is told and not followed.
//!
//! Relies on a table that only grows. Each entry counts how often it was used; a handle holds its entry's number and that
//! count. Nothing here takes a lock, so that a child that is forked in the midst of another thread's call goes on. A call counts
//! itself into the entry while it lasts, and an object that calls are using is not released.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::api_error::ApiError;

/// Entries of the first block; each block has twice as many as the one before.
const FIRST: usize = 64;
const BLOCKS: usize = 20;
/// Handles are multiples of that, as pointers to objects are.
const ALIGN_BITS: u32 = 4;
const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// In an entry's state: how many calls use the object, and above that the entry's count of uses, which is odd while it has an object.
const CALLS_BITS: u32 = 32;
const CALLS_MASK: u64 = (1 << CALLS_BITS) - 1;

/// One object, or room for one.
#[derive(Default)]
struct HandleSlot {
    state: AtomicU64,
    object: AtomicPtr<()>,
    kind: UnsafeCell<Option<TypeId>>,
}

// SAFETY: the other fields are atomics. `kind` is written only by `make`, while the entry has no object, in the one thread
// whose exchange in `claim` has marked the entry; it is read only after the state was found to hold an object, which `make`
// stores (Release) after `kind`, and loaded with Acquire there.
unsafe impl Sync for HandleSlot {}

static TABLE: [AtomicPtr<HandleSlot>; BLOCKS] = [const { AtomicPtr::new(null_mut()) }; BLOCKS];
/// Entries that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Entries that have an object, or are about to. In a child that was forked in the midst of a call it may be off by that call.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Where the search for a free entry goes on. It goes round, so that a stale handle stays stale for long.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Entry number `index`, if there is one.
fn entry(index: usize) -> Option<&'static HandleSlot> {
    if index >= USED.load(Ordering::Acquire) {
        return None;
    }
    let (block, at) = place(index);
    let base = TABLE.get(block)?.load(Ordering::Acquire);
    // SAFETY: only `grow` puts blocks into the table, block `n` with `FIRST << n` entries, and never takes one out or frees it;
    // `place` returns a number below that for each block.
    (!base.is_null()).then(|| unsafe { &*base.add(at) })
}

/// The block of an entry, and its number there.
fn place(index: usize) -> (usize, usize) {
    let block = (index / FIRST + 1).ilog2() as usize;
    (block, index - FIRST * ((1 << block) - 1))
}

/// A free entry, which the caller has alone, and its number. Takes no lock: in a forked child another thread would hold it for ever.
fn take() -> Option<(usize, &'static HandleSlot)> {
    let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
    let used = USED.load(Ordering::Acquire);
    // A quarter stays free, so that a search is short and what was released last is not at once another.
    if used.saturating_sub(taken) > FIRST.max(used / 4)
        && let Some(found) = (0..used).find_map(|_| claim(NEXT.fetch_add(1, Ordering::Relaxed) % used))
    {
        return Some(found);
    }
    while let Some(index) = grow() {
        // A search of another thread may have found it first.
        if let Some(found) = claim(index) {
            return Some(found);
        }
    }
    TAKEN.fetch_sub(1, Ordering::Relaxed);
    None
}

/// Entry number `index` if it is free: then it is the caller's alone.
fn claim(index: usize) -> Option<(usize, &'static HandleSlot)> {
    let entry = entry(index)?;
    let state = entry.state.load(Ordering::Relaxed);
    // The count of a free entry is even, and one call is counted into it while it is claimed.
    let is_free = state & (1 << CALLS_BITS | CALLS_MASK) == 0;
    let claimed =
        is_free && entry.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    claimed.then_some((index, entry))
}

/// The number of one more entry, unless the table is full.
fn grow() -> Option<usize> {
    let most = FIRST * ((1 << BLOCKS) - 1);
    let more = |used| (used < most).then_some(used + 1);
    let index = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
    let (block, _) = place(index);
    if TABLE[block].load(Ordering::Acquire).is_null() {
        let entries: Box<[HandleSlot]> = (0..FIRST << block).map(|_| HandleSlot::default()).collect();
        let base = Box::into_raw(entries);
        let first = TABLE[block].compare_exchange(null_mut(), base.cast(), Ordering::AcqRel, Ordering::Relaxed);
        if first.is_err() {
            // SAFETY: made by `Box::into_raw` above and not put into the table, since another thread's block was faster: so no thread
            // but this one has the pointer.
            drop(unsafe { Box::from_raw(base) });
        }
    }
    Some(index)
}

/// A handle for `object`.
pub fn make<T: 'static>(object: T) -> Result<*mut T, ApiError> {
    let (index, entry) = take().ok_or(ApiError::Handles)?;
    // SAFETY: `take` returned an entry without an object whose state this thread alone has marked as claimed: other calls find an
    // even count there and don't look at the kind.
    unsafe { *entry.kind.get() = Some(TypeId::of::<T>()) };
    entry.object.store(Box::into_raw(Box::new(object)).cast(), Ordering::Relaxed);
    let count = (entry.state.load(Ordering::Relaxed) >> CALLS_BITS) + 1;
    // What was written above is seen by the thread that finds this state.
    entry.state.store(count << CALLS_BITS, Ordering::Release);
    Ok(std::ptr::without_provenance_mut(((count << INDEX_BITS | index as u64) << ALIGN_BITS) as usize))
}

/// The object of a handle, which is not released while this lives.
#[derive(Debug)]
pub struct ObjectGuard<T: 'static> {
    state: &'static AtomicU64,
    object: *const T,
    kind: PhantomData<T>,
}

impl<T> Deref for ObjectGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `get` made this guard after it had counted the call into the state and compared the kind with `T`; the pointer is
        // what `make` got from `Box::into_raw`. `release` frees the object only by an exchange from exactly one call, its own.
        unsafe { &*self.object }
    }
}

impl<T> Drop for ObjectGuard<T> {
    fn drop(&mut self) {
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// The object of `handle`.
///
/// # Errors
/// [`ApiError::Null`], or [`ApiError::Stale`] if it is no handle of such an object.
pub fn get<T: 'static>(argument: &'static str, handle: *const T) -> Result<ObjectGuard<T>, ApiError> {
    let (entry, count) = find(argument, handle)?;
    let stale = || ApiError::Stale { argument, handle: handle.addr() };
    let mut state = entry.state.load(Ordering::Relaxed);
    loop {
        if state >> CALLS_BITS != count {
            return Err(stale());
        }
        match entry.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => state = now,
        }
    }
    let in_use =
        ObjectGuard { state: &entry.state, object: entry.object.load(Ordering::Relaxed).cast(), kind: PhantomData };
    // SAFETY: the exchange above found the count of this handle, so the entry has an object, and counted this call, so
    // `release` can't end it; `kind` is written only while there is no object.
    let kind = unsafe { *entry.kind.get() };
    if kind == Some(TypeId::of::<T>()) { Ok(in_use) } else { Err(stale()) }
}

/// The object of `handle`, as [`get`] finds it, but without counting the call: for calls that are too frequent for two
/// atomic additions, and that several threads make at a time.
///
/// # Safety
/// Unless `handle` is stale already, it is not released for `'a`.
///
/// # Errors
/// As [`get`].
pub unsafe fn borrow<'a, T: 'static>(argument: &'static str, handle: *const T) -> Result<&'a T, ApiError> {
    let (entry, count) = find(argument, handle)?;
    // SAFETY: called only where the state has this handle's count, so the handle isn't stale; then the caller keeps it from being
    // released, and `kind` is written only while there is no object.
    let is_kind = || unsafe { *entry.kind.get() } == Some(TypeId::of::<T>());
    if entry.state.load(Ordering::Acquire) >> CALLS_BITS != count || !is_kind() {
        return Err(ApiError::Stale { argument, handle: handle.addr() });
    }
    // SAFETY: the kind is `T`'s, so `make` got the pointer from `Box::into_raw` for a `T`; the handle isn't stale, and by the duty
    // of this function's callers it is then not released for `'a`.
    Ok(unsafe { &*entry.object.load(Ordering::Relaxed).cast() })
}

/// Releases `handle` and ends its object; null is nothing to release.
///
/// # Errors
/// [`ApiError::Stale`] if it is no handle of such an object, [`ApiError::Busy`] if another call uses it.
pub fn release<T: 'static>(argument: &'static str, handle: *mut T) -> Result<(), ApiError> {
    if handle.is_null() {
        return Ok(());
    }
    // Also tells whether it is a handle of this kind.
    let in_use = get(argument, handle)?;
    let (entry, count) = find(argument, handle)?;
    let (alone, free) = (count << CALLS_BITS | 1, (count + 1) << CALLS_BITS);
    if entry.state.compare_exchange(alone, free, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(ApiError::Busy { argument });
    }
    TAKEN.fetch_sub(1, Ordering::Relaxed);
    let object = in_use.object.cast_mut();
    // The count that it would take back went with the exchange.
    std::mem::forget(in_use);
    // SAFETY: `make` got the pointer from `Box::into_raw`, for a `T` as `get` has checked. The exchange succeeds for one call only,
    // when no other one is counted in, and its new count makes every handle of the object stale.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

/// The entry that `handle` names, and the count of uses that it holds.
fn find<T>(argument: &'static str, handle: *const T) -> Result<(&'static HandleSlot, u64), ApiError> {
    if handle.is_null() {
        return Err(ApiError::Null { argument });
    }
    let number = handle.addr() as u64;
    let (index, count) = (number >> ALIGN_BITS & INDEX_MASK, number >> (ALIGN_BITS + INDEX_BITS));
    let is_handle = number.trailing_zeros() >= ALIGN_BITS && !count.is_multiple_of(2);
    let entry = if is_handle { entry(index as usize) } else { None };
    entry.map(|entry| (entry, count)).ok_or(ApiError::Stale { argument, handle: handle.addr() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many calls use the object.
    fn calls<T>(handle: *const T) -> u64 {
        let (entry, _) = find("handle", handle).unwrap();
        entry.state.load(Ordering::Relaxed) & CALLS_MASK
    }

    #[test]
    fn entries_have_their_places_in_blocks_that_double() {
        assert_eq!([0, 63, 64, 191, 192].map(place), [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0)]);
    }

    #[test]
    fn a_handle_that_was_released_is_told_also_when_its_entry_has_another_object() {
        let first = make(String::from("first")).unwrap();
        assert_eq!(*get("a", first).unwrap(), "first");
        release("a", first).unwrap();
        assert!(get("a", first).is_err() && release("a", first).is_err());
        // SAFETY: stale.
        assert!(unsafe { borrow("a", first) }.is_err());
        for turn in 0..3 * FIRST {
            let other = make(turn.to_string()).unwrap();
            assert!(other != first && *get("b", other).unwrap() == turn.to_string());
            // SAFETY: released below.
            assert_eq!(unsafe { borrow("b", other) }.unwrap(), &turn.to_string());
            // SAFETY: stale.
            assert!(unsafe { borrow("a", first) }.is_err());
            assert!(get("a", first).unwrap_err().to_string().starts_with("`a` is "));
            release("b", other).unwrap();
        }
    }

    #[test]
    fn numbers_that_are_no_handles_and_handles_of_other_objects_are_told() {
        let handle = make(5_u32).unwrap();
        assert!(get("a", handle.cast::<u64>()).is_err() && release("a", handle.cast::<u64>()).is_err());
        // SAFETY: refused for its kind.
        assert!(unsafe { borrow("a", handle.cast::<u64>()) }.is_err());
        assert_eq!(calls(handle), 0);
        for number in [1, 15, 16, 0x1001, usize::MAX, usize::MAX << 4, handle.addr() + 8, handle.addr() ^ 1 << 60] {
            assert!(get("a", std::ptr::without_provenance::<u32>(number)).is_err(), "{number:#x}");
        }
        assert!(matches!(get::<u32>("a", std::ptr::null()), Err(ApiError::Null { .. })));
        release("a", handle).unwrap();
        release::<u32>("a", null_mut()).unwrap();
    }

    #[test]
    fn an_object_that_a_call_uses_is_not_released() {
        let handle = make(vec![1, 2, 3]).unwrap();
        let in_use = get("a", handle).unwrap();
        assert!(matches!(release("a", handle), Err(ApiError::Busy { .. })));
        assert_eq!((in_use.len(), calls(handle)), (3, 1));
        drop(in_use);
        release("a", handle).unwrap();
    }

    #[test]
    fn threads_that_use_and_release_never_meet_a_freed_object() {
        for _ in 0..200 {
            let handle = make(vec![7_u8; 100]).unwrap().addr();
            let pointer = || std::ptr::without_provenance_mut::<Vec<u8>>(handle);
            let released = std::thread::scope(|scope| {
                let threads = [0, 1, 2].map(|_| {
                    scope.spawn(move || {
                        for _ in 0..20 {
                            if let Ok(object) = get("a", pointer()) {
                                assert!(object.iter().all(|&byte| byte == 7));
                            }
                        }
                        release("a", pointer()).is_ok()
                    })
                });
                threads.map(|thread| thread.join().unwrap()).iter().filter(|&&released| released).count()
            });
            assert!(released <= 1);
            assert_eq!(release("a", pointer()).is_ok(), released == 0);
        }
    }
}

//! A range as it was at a cut.
//!
//! Relies on [`View`] for reading, and on its [`LeaseHold`] to tell buffers that can't be read to.

use core::ffi::c_void;
use std::sync::Arc;

use ::quire_snapshot::{TAKE_BYTES, View};

use crate::api_error::{ApiError, check_bounds};
use crate::boundary::{self, OutPointer};
use crate::handle;
use crate::range_lease::LeaseHold;
use crate::status::quire_status;

/// A range as it was at a cut. Any thread may read it, several at once, until it is released; it outlives its range.
pub struct quire_snapshot {
    // Dropped in this order: adopted memory is the program's when the mechanism has let go of it.
    view: Arc<dyn View>,
    hold: LeaseHold,
}

impl quire_snapshot {
    /// Wraps `view` of the memory that `hold` is on.
    pub fn new(view: Arc<dyn View>, hold: LeaseHold) -> Self {
        Self { view, hold }
    }

    /// Reading into the range or into the view itself would change what is being read.
    fn check_target(&self, to: usize, len: usize) -> Result<(), ApiError> {
        if self.hold.meets(to, len) {
            return Err(ApiError::Overlap { what: "range" });
        }
        let own = self.view.as_ptr().map_or(0, |own| own as usize);
        if own != 0 && own < to.saturating_add(len) && to < own + self.view.len() {
            return Err(ApiError::Overlap { what: "snapshot" });
        }
        Ok(())
    }
}

/// Copies len bytes of the snapshot from offset on to buffer. Works with every mechanism; see quire_snapshot_data() for
/// those whose snapshots can be read in place.
///
/// The buffer must lie neither in the snapshot's range nor in the snapshot itself. On failure what it holds is undefined.
///
/// # Safety
/// `snapshot` is a snapshot that is not released; `len` bytes at `buffer` may be written, and no other thread uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_read(
    snapshot: *const quire_snapshot,
    offset: usize,
    buffer: *mut c_void,
    len: usize,
) -> quire_status {
    boundary::status(|| {
        let snapshot = handle::get("snapshot", snapshot)?;
        check_bounds(offset, len, snapshot.view.len())?;
        if len == 0 {
            return Ok(());
        }
        boundary::check("buffer", buffer)?;
        snapshot.check_target(buffer as usize, len)?;
        // SAFETY: not null, as was checked, and no longer than a range, which `check_bounds` saw; that `len` bytes may be written
        // and no other thread uses them during this call is the duty of this function's callers, and `check_target` refuses
        // the snapshot's own memory. What the bytes are now doesn't matter: views only write them, and C's memory is initialised as far as Rust can tell.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
        Ok(snapshot.view.read(offset, buffer)?)
    })
}

/// Copies the next bytes of the snapshot from offset on to buffer, at most len and at most 256 KiB. *start is where they begin, *count how many
/// they are: 0 at the snapshot's end. Bytes that are passed over are zeros. To dump a snapshot, call it with offset 0, and then with the
/// sum of *start and *count, until that is 0.
///
/// The caller has no more use for what lies before offset. With QUIRE_FORK the snapshot's process gives that memory back, by 2 MiB, so
/// that later writes to the range copy no more pages there; bytes before offset can't be read any more (QUIRE_LOST), but from
/// snapshots of the snapshot that were made before. Other mechanisms hold them on.
///
/// # Safety
/// `snapshot` is a snapshot that is not released; `len` bytes at `buffer` may be written, and no other thread uses them; so may
/// `*start` and `*count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_take(
    snapshot: *const quire_snapshot,
    offset: usize,
    buffer: *mut c_void,
    len: usize,
    start: *mut usize,
    count: *mut usize,
) -> quire_status {
    boundary::status(|| {
        let snapshot = handle::get("snapshot", snapshot)?;
        boundary::check("start", start)?;
        boundary::check("count", count)?;
        check_bounds(offset, 0, snapshot.view.len())?;
        boundary::check("buffer", buffer)?;
        if len == 0 {
            return Err(ApiError::Unknown { argument: "len", value: 0, advice: "it has to be 1 or more" });
        }
        let len = len.min(TAKE_BYTES);
        snapshot.check_target(buffer as usize, len)?;
        // SAFETY: not null, as was checked, and no longer than `TAKE_BYTES`; that `len` bytes may be written and no other thread uses them
        // during this call is the duty of this function's callers, and `check_target` refuses the snapshot's own memory. What the bytes are
        // now doesn't matter: views only write them, and C's memory is initialised as far as Rust can tell.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
        let taken = snapshot.view.take(offset, buffer)?;
        // SAFETY: neither null nor unaligned, as was checked; that such places may be written is the duty of this function's callers.
        unsafe {
            start.write(taken.start);
            count.write(taken.len());
        }
        Ok(())
    })
}

/// The snapshot as ordinary memory of quire_snapshot_size() bytes, where the mechanism has such (QUIRE_SCOOT,
/// QUIRE_MMAPCOPY, QUIRE_MEMCPY): its first address. NULL where it hasn't, or if snapshot is NULL.
///
/// Valid until the snapshot is released. Writing there changes this snapshot alone.
///
/// # Safety
/// `snapshot` is NULL or a snapshot that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_data(snapshot: *const quire_snapshot) -> *mut c_void {
    boundary::value(std::ptr::null_mut(), || {
        let data = handle::get("snapshot", snapshot)?.view.as_ptr();
        Ok(data.map_or(std::ptr::null_mut(), <*mut u8>::cast))
    })
}

/// The snapshot's size in bytes, that of its range. 0 if snapshot is NULL.
///
/// # Safety
/// `snapshot` is NULL or a snapshot that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_size(snapshot: *const quire_snapshot) -> usize {
    boundary::value(0, || Ok(handle::get("snapshot", snapshot)?.view.len()))
}

/// Bytes that the snapshot holds now beyond the range's own, as far as they can be told. 0 if snapshot is NULL.
///
/// # Safety
/// `snapshot` is NULL or a snapshot that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_held_bytes(snapshot: *const quire_snapshot) -> usize {
    boundary::value(0, || Ok(handle::get("snapshot", snapshot)?.view.held_bytes()))
}

/// A snapshot of a snapshot, in *copy. It outlives the first one, and what is written to the data of one later doesn't
/// show in the other. NULL on failure. No thread may write to the snapshot's data during the call.
///
/// # Safety
/// `snapshot` is a snapshot that is not released; `*copy` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_cut(
    snapshot: *const quire_snapshot,
    copy: *mut *mut quire_snapshot,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("copy", copy) }?;
        let snapshot = handle::get("snapshot", snapshot)?;
        out.fill(quire_snapshot::new(snapshot.view.cut()?, snapshot.hold.clone()))
    })
}

/// Ends a snapshot; the memory that only it held is free. Its range and other snapshots stay as they are, and may be
/// released before or after it. NULL is nothing to release.
///
/// # Safety
/// `snapshot` is NULL or a snapshot that is not released, no other thread is in a call with it, and no thread uses its data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_snapshot_release(snapshot: *mut quire_snapshot) -> quire_status {
    boundary::status(|| handle::release("snapshot", snapshot))
}

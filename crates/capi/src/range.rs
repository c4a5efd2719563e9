//! Memory that goes on being written, and of which snapshots are cut.
//!
//! Relies on [`Origin`] for what mechanisms do, and on [`RangeLease`] for memory being in one range at a time.

use core::ffi::{c_char, c_void};
use std::ffi::CString;
use std::sync::Arc;

use ::quire_snapshot::{Mechanism, MechanismError, Origin, OriginOptions, PAGE_SIZE, PageRange, Requirements, attach};

use crate::api_error::{ApiError, check_bounds};
use crate::boundary::{self, OutPointer};
use crate::handle;
use crate::mechanism::{from_number, number_of, quire_mechanism};
use crate::message::c_string;
use crate::options::{self, quire_options};
use crate::range_lease::{LeaseHold, RangeLease, check_memory};
use crate::snapshot::quire_snapshot;
use crate::status::quire_status;

/// The largest size that leaves room for rounding up.
const MOST_BYTES: usize = isize::MAX as usize / 2;

/// Memory that goes on being written, and of which snapshots are cut.
///
/// Any thread may load and store there as anywhere, and any thread may call with a range, several at once, until it is
/// released. Two duties: no thread writes during quire_range_adopt() and quire_cut(), and quire_prepare_write() comes
/// first where its description says so.
///
/// A child that the program makes by fork() must neither call the library nor write to a range.
pub struct quire_range {
    // Dropped in this order: memory of the library's own must not be leased any more when it goes back to the system,
    // which may hand it to another thread at once.
    lease: Arc<RangeLease>,
    adopted: bool,
    why: CString,
    origin: Box<dyn Origin>,
}

impl quire_range {
    /// The mechanism on its memory.
    pub fn origin(&self) -> &dyn Origin {
        &*self.origin
    }

    fn new(
        span: PageRange,
        adopted: bool,
        mechanism: Option<Mechanism>,
        settings: (OriginOptions, Requirements),
    ) -> Result<Self, ApiError> {
        let (options, wants) = settings;
        let lease = RangeLease::new(span.base() as usize, span.len())?;
        let (mechanism, why) = match mechanism {
            Some(mechanism) => (mechanism, "it was asked for".into()),
            None => {
                let choice = Mechanism::best(&span, wants);
                (choice.mechanism, choice.why)
            }
        };
        // Of a clone, so that if this fails the lease ends before the memory does.
        let origin = attach(mechanism, span.clone(), &options)?;
        Ok(Self { lease, adopted, why: c_string(&why), origin })
    }
}

/// Makes a range of new memory of size bytes, rounded up to whole pages of 4096. It reads as zero, and no memory is taken
/// for pages that were never written.
///
/// mechanism is one of enum quire_mechanism, options may be NULL. On success *range is the new range, to be released by
/// quire_range_release(); on failure it is NULL.
///
/// # Safety
/// `options` is NULL or leads to options with `struct_size` set; `*range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_create(
    size: usize,
    mechanism: i32,
    options: *const quire_options,
    range: *mut *mut quire_range,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("range", range) }?;
        let mechanism = from_number(mechanism)?;
        // SAFETY: `options::read` takes NULL, or options whose `struct_size` says how much may be read: what this function's
        // callers have to pass.
        let settings = unsafe { options::read(options) }?;
        if size == 0 || size > MOST_BYTES {
            return Err(ApiError::Size { size, most: MOST_BYTES });
        }
        let span = PageRange::allocate(size).map_err(MechanismError::from)?;
        out.fill(quire_range::new(span, false, mechanism, settings)?)
    })
}

/// As quire_range_create(), for memory that the program has already; what it holds stays. It has to be private anonymous
/// memory that can be read and written, as mmap(MAP_PRIVATE | MAP_ANONYMOUS) gives it, in whole pages of 4096. Best, it
/// also begins at a multiple of 2 MiB, and is made of huge pages.
///
/// Until the range and all its snapshots are released, the program must not unmap, remap or protect that memory. From
/// then on it is the program's again, with what it holds. With QUIRE_SCOOT and QUIRE_MMAPCOPY it may be backed by a file in
/// memory then: it can be used and unmapped as before, but perhaps not be adopted again.
///
/// # Safety
/// `size` bytes at `memory` are as described above; no thread writes there during the call. `options` is NULL or leads to
/// options with `struct_size` set; `*range` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_adopt(
    memory: *mut c_void,
    size: usize,
    mechanism: i32,
    options: *const quire_options,
    range: *mut *mut quire_range,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("range", range) }?;
        boundary::check("memory", memory)?;
        let mechanism = from_number(mechanism)?;
        // SAFETY: `options::read` takes NULL, or options whose `struct_size` says how much may be read: what this function's
        // callers have to pass.
        let settings = unsafe { options::read(options) }?;
        if size == 0 || size > MOST_BYTES {
            return Err(ApiError::Size { size, most: MOST_BYTES });
        }
        let base = memory as usize;
        if !base.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(MechanismError::Range { base, len: size }.into());
        }
        check_memory(base, size)?;
        // SAFETY: `check_memory` has just found private anonymous memory there that can be read and written. That it stays so
        // until range and snapshots are released is the duty of this function's callers; `PageRange::borrow` needs both.
        let span = unsafe { PageRange::borrow(memory.cast(), size) }?;
        out.fill(quire_range::new(span, true, mechanism, settings)?)
    })
}

/// The range's first address; it never changes. NULL if range is.
///
/// # Safety
/// `range` is NULL or a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_base(range: *const quire_range) -> *mut c_void {
    boundary::value(std::ptr::null_mut(), || Ok(handle::get("range", range)?.origin.base().cast()))
}

/// The range's size in bytes, a multiple of 4096. 0 if range is NULL.
///
/// # Safety
/// `range` is NULL or a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_size(range: *const quire_range) -> usize {
    boundary::value(0, || Ok(handle::get("range", range)?.origin.len()))
}

/// The range's mechanism: never QUIRE_BEST, but what that picked. QUIRE_BEST if range is NULL.
///
/// # Safety
/// `range` is NULL or a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_mechanism(range: *const quire_range) -> quire_mechanism {
    let none = quire_mechanism::QUIRE_BEST;
    boundary::value(none, || Ok(number_of(handle::get("range", range)?.origin.mechanism())))
}

/// Why the range has its mechanism, and why not a better one; for people. NULL if range is. Valid until the range is
/// released.
///
/// # Safety
/// `range` is NULL or a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_why(range: *const quire_range) -> *const c_char {
    boundary::value(std::ptr::null(), || Ok(handle::get("range", range)?.why.as_ptr()))
}

/// Makes len bytes at offset safe to change until the next cut.
///
/// - With QUIRE_BARRIER a duty before every write: what isn't announced may show in snapshots.
/// - With QUIRE_UFFD a duty before a system call writes to the range (read, recv, ...): it would fail with EFAULT, or return
///   having written less, as a system call does not fault the way a store does. Stores need nothing.
/// - Otherwise it does nothing.
///
/// It is cheap where a page was prepared, or written, since the last cut. Any thread may call it, but not while another
/// thread is in quire_cut().
///
/// # Safety
/// `range` is a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_prepare_write(range: *const quire_range, offset: usize, len: usize) -> quire_status {
    boundary::status(|| {
        // SAFETY: `handle::borrow` needs a handle that is stale already or stays unreleased while the object is used: the
        // duty of this function's callers, and the object is not used after it returns.
        let range = unsafe { handle::borrow("range", range) }?;
        check_bounds(offset, len, range.origin.len())?;
        range.origin.prepare_write(offset..offset + len);
        Ok(())
    })
}

/// Fixes what the range holds now: *snapshot shows that for as long as it lives, whatever is written to the range
/// afterwards. To be released by quire_snapshot_release(); NULL on failure. Several snapshots may live at once.
///
/// No thread may write to the range during the call: nothing breaks if one does, but its write may be in the snapshot or
/// not. So stop the writers at a point at which the data make sense, cut, and let them go on; that is the time for which
/// they stall (last_cut_ns in quire_stats). Threads that read need not stop.
///
/// # Safety
/// `range` is a range that is not released; `*snapshot` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_cut(range: *const quire_range, snapshot: *mut *mut quire_snapshot) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("snapshot", snapshot) }?;
        let range = handle::get("range", range)?;
        out.fill(quire_snapshot::new(range.origin.cut()?, LeaseHold::new(&range.lease, range.adopted)))
    })
}

/// Waits until all upkeep that the last snapshots left behind (giving memory back, making huge pages whole again) is done;
/// it goes on in the background otherwise. For measurements, or when there is time before the next cut.
///
/// # Safety
/// `range` is a range that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_settle(range: *const quire_range) -> quire_status {
    boundary::status(|| {
        handle::get("range", range)?.origin.settle();
        Ok(())
    })
}

/// Ends a range. Its snapshots stay as they are, and may be released later, in any order.
///
/// Memory of quire_range_create() must not be touched afterwards. Memory of quire_range_adopt() is the program's again
/// once its last snapshot is released, too. NULL is nothing to release.
///
/// # Safety
/// `range` is NULL or a range that is not released, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_range_release(range: *mut quire_range) -> quire_status {
    boundary::status(|| handle::release("range", range))
}

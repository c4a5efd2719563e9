//! Checkpoints of programs that fork, and their restore.
//!
//! Relies on `quire-mdc` for all of it. One kind of object stands for a checkpoint being written and for one being read, as a FILE does.

use core::ffi::{CStr, c_char, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use quire_mdc::{Checkpoint, CheckpointError, CheckpointOptions, PassMode, ReadMode, Restore};

use crate::api_error::ApiError;
use crate::boundary::{self, check};
use crate::handle;
use crate::status::quire_status;

/// For mdc_fwrite(): the object's bytes are copied to the checkpoint's log now. Needed for objects that change or go before
/// mdc_checkpoint_end().
pub const MDC_VAL: u32 = 0;
/// For mdc_fwrite(): the object's address is logged, and its bytes are dumped by mdc_checkpoint_end(). Until then the program must
/// neither change nor free it in the process that makes the checkpoint. Objects that a dump can't serve (8 bytes or less, on
/// the stack, in shared memory or a file's mapping) are copied as by MDC_VAL.
pub const MDC_REF: u32 = 1;

/// For mdc_checkpoint_start(): the process is a child that was forked to make this checkpoint, and gives its memory back to the
/// system as it is dumped, so that what the parent writes from then on costs no copies. The memory reads as before, from the file.
///
/// The process must have one thread, and not be made by vfork(). Refused for a process with several.
pub const MDC_RELEASE: u32 = 1;

/// For mdc_restore_start(): the whole file is read to memory and verified first. Otherwise it is mapped, each piece is verified
/// when it is read first, and a process that cuts the file off meanwhile ends this one by SIGBUS.
pub const MDC_LOAD: u32 = 1;

/// A checkpoint that is being written, between mdc_checkpoint_start() and mdc_checkpoint_end(), or one that is being read, between
/// mdc_restore_start() and mdc_restore_end().
pub struct mdc_file {
    path: String,
    stage: Mutex<Stage>,
}

enum Stage {
    /// The second is whether a write has failed.
    Writing(Checkpoint, bool),
    /// The second is whether a read has failed.
    ReadMode(Box<Restore>, bool),
    Ended,
}

impl mdc_file {
    fn with<T>(&self, work: impl FnOnce(&mut Stage) -> Result<T, ApiError>) -> Result<T, ApiError> {
        work(&mut self.stage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn failure(&self, source: quire_mdc::CheckpointError) -> ApiError {
        ApiError::Checkpoint { file: self.path.clone(), source }
    }
}

fn unknown(argument: &'static str, value: u32, advice: &'static str) -> ApiError {
    ApiError::Unknown { argument, value: value.into(), advice }
}

/// Bytes of `count` objects of `size` bytes.
fn bytes(size: usize, count: usize) -> Result<usize, ApiError> {
    size.checked_mul(count)
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or(ApiError::Size { size: size.saturating_mul(count), most: isize::MAX as usize })
}

fn check_type(kind: u32) -> Result<PassMode, ApiError> {
    match kind {
        MDC_VAL => Ok(PassMode::Value),
        MDC_REF => Ok(PassMode::Reference),
        other => Err(unknown("type", other, "it is MDC_VAL or MDC_REF")),
    }
}

/// Begins a checkpoint that takes the place of the file path when it is complete. Until then path is not touched: whatever
/// happens to this process, path leads to the old checkpoint or to the new one. flags are 0 or MDC_RELEASE.
///
/// Returns what mdc_fwrite() writes to, or NULL: the file can't be written, or another process is writing it.
///
/// # Safety
/// `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_checkpoint_start(path: *const c_char, flags: u32) -> *mut mdc_file {
    boundary::value(std::ptr::null_mut(), || {
        check("path", path)?;
        if flags & !MDC_RELEASE != 0 {
            return Err(unknown("flags", flags, "they are 0 or MDC_RELEASE"));
        }
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. It is used within this call only.
        let path = unsafe { CStr::from_ptr(path) };
        let name = path.to_string_lossy().into_owned();
        let options = CheckpointOptions { gives_back: flags & MDC_RELEASE != 0 };
        match Checkpoint::start(path, options) {
            Ok(made) => handle::make(mdc_file { path: name, stage: Mutex::new(Stage::Writing(made, false)) }),
            Err(source) => Err(ApiError::Checkpoint { file: name, source }),
        }
    })
}

/// Writes count objects of size bytes each, that lie one behind the other at ptr, as fwrite() does. type is MDC_VAL or MDC_REF.
/// Returns count, or 0 on failure. After a failed write every later one fails, and so does mdc_checkpoint_end().
///
/// # Safety
/// `file` comes from mdc_checkpoint_start(). `size` times `count` bytes at `ptr` may be read; by MDC_REF they are neither changed
/// nor freed before the checkpoint ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_fwrite(
    ptr: *const c_void,
    size: usize,
    count: usize,
    file: *mut mdc_file,
    r#type: u32,
) -> usize {
    boundary::value(0, || {
        let file = handle::get("file", file)?;
        file.with(|stage| {
            let Stage::Writing(made, has_failed) = stage else {
                return Err(ApiError::Stage { argument: "file", wanted: "mdc_checkpoint_start()" });
            };
            let written = bytes(size, count).and_then(|len| {
                let passing = check_type(r#type)?;
                if len > 0 {
                    check("ptr", ptr.cast::<u8>())?;
                }
                if *has_failed {
                    return Err(file.failure(CheckpointError::Failed));
                }
                // SAFETY: `Checkpoint::write` needs `len` readable bytes, and that referenced ones stay as they are until the
                // checkpoint ends: both are the duty of this function's callers. NULL was refused above, unless `len` is 0.
                unsafe { made.write(ptr.cast(), len, passing) }.map_err(|source| file.failure(source))
            });
            // A checkpoint that lacks an object would be read as another one.
            *has_failed |= written.is_err();
            written
        })?;
        Ok(if size == 0 { 0 } else { count })
    })
}

/// Dumps the memory that objects were referenced in, makes the checkpoint durable, puts it in place of the old one, and ends
/// file. On failure the old one is as it was, unless the message says that only the directory was not flushed.
///
/// With MDC_RELEASE the memory that was dumped has been given back to the system and is read from the file from now on.
///
/// # Safety
/// `file` comes from mdc_checkpoint_start(), and no other thread uses it. With MDC_RELEASE this process is a child that was forked
/// (by fork(), not vfork() or clone() with CLONE_VM), and the kernel does not write to its memory by itself (asynchronous reads).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_checkpoint_end(file: *mut mdc_file) -> quire_status {
    boundary::status(|| {
        let ended = {
            let file = handle::get("file", file)?;
            let (made, has_failed) = file.with(|stage| match std::mem::replace(stage, Stage::Ended) {
                Stage::Writing(made, has_failed) => Ok((made, has_failed)),
                other => {
                    *stage = other;
                    Err(ApiError::Stage { argument: "file", wanted: "mdc_checkpoint_start()" })
                }
            })?;
            if has_failed {
                // Given up by its end.
                drop(made);
                Err(file.failure(CheckpointError::Failed))
            } else {
                // SAFETY: `Checkpoint::end` needs, if memory is given back, a forked child that shares no memory with its parent and
                // to which the kernel writes nothing by itself: the duty of this function's callers who passed MDC_RELEASE.
                unsafe { made.end() }.map_err(|source| file.failure(source))
            }
        };
        handle::release("file", file)?;
        ended.map(|_| ())
    })
}

/// Gives a checkpoint up: the old one stays as it is. NULL is nothing to give up.
///
/// # Safety
/// `file` is NULL or comes from mdc_checkpoint_start(), and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_checkpoint_cancel(file: *mut mdc_file) -> quire_status {
    boundary::status(|| {
        if !file.is_null() {
            handle::get("file", file)?.with(|stage| match stage {
                Stage::Writing(..) => Ok(()),
                _ => Err(ApiError::Stage { argument: "file", wanted: "mdc_checkpoint_start()" }),
            })?;
        }
        handle::release("file", file)
    })
}

/// Begins to read a checkpoint. flags are 0 or MDC_LOAD. Returns what mdc_fread() reads from, or NULL: there is none, or it is
/// damaged, or it is something else.
///
/// # Safety
/// `path` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_restore_start(path: *const c_char, flags: u32) -> *mut mdc_file {
    boundary::value(std::ptr::null_mut(), || {
        check("path", path)?;
        let reading = match flags {
            0 => ReadMode::Map,
            MDC_LOAD => ReadMode::Load,
            other => return Err(unknown("flags", other, "they are 0 or MDC_LOAD")),
        };
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. It is used within this call only.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        let restore = Restore::open(path, reading)?;
        let stage = Mutex::new(Stage::ReadMode(Box::new(restore), false));
        handle::make(mdc_file { path: path.display().to_string(), stage })
    })
}

/// Reads count objects of size bytes each to ptr, as fread() does: the objects come in the order in which they were written, by
/// value or by reference, and may be read in other pieces. They need not lie where they lay; pointers in them are as they were.
/// type is MDC_VAL or MDC_REF, as in mdc_fwrite(), and makes no difference.
///
/// Returns how many objects were read: fewer than count at the end of the checkpoint, or because it is damaged, which
/// mdc_restore_end() tells. What lies at ptr behind these objects is undefined.
///
/// # Safety
/// `file` comes from mdc_restore_start(). `size` times `count` bytes at `ptr` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_fread(
    ptr: *mut c_void,
    size: usize,
    count: usize,
    file: *mut mdc_file,
    r#type: u32,
) -> usize {
    boundary::value(0, || {
        let file = handle::get("file", file)?;
        let len = bytes(size, count)?;
        check_type(r#type)?;
        file.with(|stage| {
            let Stage::ReadMode(restore, has_failed) = stage else {
                return Err(ApiError::Stage { argument: "file", wanted: "mdc_restore_start()" });
            };
            if len == 0 {
                return Ok(0);
            }
            check("ptr", ptr.cast::<u8>())?;
            // SAFETY: not null and no longer than memory, as was checked; that `len` bytes may be written and no other thread
            // uses them during this call is the duty of this function's callers. The reader only writes to it.
            let into = unsafe { std::slice::from_raw_parts_mut(ptr.cast::<u8>(), len) };
            let read = restore.read(into);
            *has_failed |= read.is_err();
            Ok(read? / size)
        })
    })
}

/// Ends the reading of a checkpoint. QUIRE_DAMAGED if a read has failed; NULL is nothing to end.
///
/// # Safety
/// `file` is NULL or comes from mdc_restore_start(), and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mdc_restore_end(file: *mut mdc_file) -> quire_status {
    boundary::status(|| {
        let mut has_failed = None;
        if !file.is_null() {
            let file = handle::get("file", file)?;
            has_failed = file.with(|stage| match stage {
                Stage::ReadMode(_, failed) => Ok(failed.then(|| file.path.clone())),
                _ => Err(ApiError::Stage { argument: "file", wanted: "mdc_restore_start()" }),
            })?;
        }
        handle::release("file", file)?;
        has_failed.map_or(Ok(()), |file| Err(ApiError::PartlyRead { file }))
    })
}

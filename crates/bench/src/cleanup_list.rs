//! The directories and control groups that an experiment has made: the worker keeps the list, and sends each path to its supervisor, so
//! that either of them can remove all when the other one is gone.
//!
//! Relies on the socket that the supervisor gives its worker. Without a supervisor, as in tests, nothing is noted.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

struct CleanupList {
    paths: Vec<PathBuf>,
    supervisor: UnixStream,
}

static LIST: OnceLock<Mutex<CleanupList>> = OnceLock::new();

/// Notes from now on, here and for the process at the other end of `supervisor`.
pub fn begin(supervisor: UnixStream) {
    let _ = LIST.set(Mutex::new(CleanupList { paths: Vec::new(), supervisor }));
}

/// The directory, or the control group, `path` is an experiment's. Should nothing else remove it, the supervisor does, or the worker if
/// that is gone.
pub fn note(path: &Path) {
    let Some(list) = LIST.get() else { return };
    let Ok(path) = std::path::absolute(path) else { return };
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    let line = [path.as_os_str().as_bytes(), b"\0"].concat();
    // If it is gone, this process is about to end, too.
    let _ = list.supervisor.write_all(&line);
    list.paths.push(path);
}

/// All that was noted; the list is empty afterwards.
pub fn take() -> Vec<PathBuf> {
    let paths =
        |list: &Mutex<CleanupList>| std::mem::take(&mut list.lock().unwrap_or_else(PoisonError::into_inner).paths);
    LIST.get().map(paths).unwrap_or_default()
}

//! Files whose names are gone give their space back in a thread for which no other thread waits.
//!
//! The system frees a file in the call that ends its last name or its last descriptor. For a large file that takes long:
//! more than a minute for 3 GB on ext4 mounted with `discard`. So a caller that removes a file keeps a descriptor, and the
//! thread of this file drops it. A process that ends meanwhile is gone only when the system has freed what was left:
//! descriptors are closed on the way, and no program can put that off.
//!
//! A forked child has no such thread; files are removed by the process that opened the directory.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::directory::Directory;
use crate::error::DeviceError;
use quire_sys::thread::spawn_unsignalled;

/// Files that may wait, each with a descriptor. A file beyond them is freed by the thread that removes it.
const MOST_WAITING: usize = 64;

/// From this duration on freeing is told in the log without being asked.
const SLOW: Duration = Duration::from_secs(1);

static FREEING: Freeing = Freeing { state: Mutex::new(State::NONE), changed: Condvar::new() };

struct Freeing {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Arc<dyn Device>>,
    /// There is a thread, which ends when it finds nothing waiting.
    is_running: bool,
    /// Files whose space is free again.
    freed: u64,
}

impl State {
    const NONE: Self = Self { waiting: VecDeque::new(), is_running: false, freed: 0 };
}

/// Removes a file: its name is gone when this returns, its space is given back soon afterwards.
///
/// # Errors
/// As [`Directory::remove`].
///
/// ```
/// use quire_device::{Directory, DiskDirectory, await_freed, remove_then_free};
///
/// let folder = tempfile::tempdir()?;
/// let directory = DiskDirectory::new(folder.path());
/// directory.create("large")?.set_len(1 << 30)?;
/// remove_then_free(&directory, "large")?; // the name is gone; a thread gives the space back
/// assert!(directory.list()?.is_empty());
/// await_freed(std::time::Duration::from_secs(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn remove_then_free(directory: &dyn Directory, name: &str) -> Result<(), DeviceError> {
    // A file that can't be opened is freed here and now: it is removed all the same.
    let last = directory.open(name).ok();
    directory.remove(name)?;
    if let Some(last) = last {
        free_later(last);
    }
    Ok(())
}

/// Drops the device of a file whose name is gone, or soon is, in the thread that frees.
pub fn free_later(device: Arc<dyn Device>) {
    let mut state = FREEING.state();
    if state.waiting.len() >= MOST_WAITING {
        drop(state);
        return drop(device);
    }
    state.waiting.push_back(device);
    if state.is_running {
        return;
    }
    match spawn_unsignalled("quire-free", free_all) {
        Ok(_) => state.is_running = true,
        Err(error) => {
            let refused = std::mem::take(&mut state.waiting);
            drop(state);
            tracing::warn!(%error, "no thread to free removed files, so this one does it");
            drop(refused);
        }
    }
}

/// Whether files that were removed have not given all their space back.
pub fn is_freeing() -> bool {
    FREEING.state().is_running
}

/// How many removed files have given all their space back in the background so far. A caller that met a full disk tries again
/// when there are more.
pub fn freed_files() -> u64 {
    FREEING.state().freed
}

/// Waits, `most` at the longest, until all files that were removed have given their space back: for a caller that has met
/// a full disk.
pub fn await_freed(most: Duration) {
    let waited = FREEING.changed.wait_timeout_while(FREEING.state(), most, |state| state.is_running);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl Freeing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Arc<dyn Device>> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.is_running = false;
            self.changed.notify_all();
        }
        next
    }
}

fn free_all() {
    while let Some(device) = FREEING.next() {
        let (file, start) = (device.name().to_owned(), Instant::now());
        drop(device);
        FREEING.state().freed += 1;
        let took = start.elapsed();
        let took_ms = took.as_millis() as u64;
        if took >= SLOW {
            tracing::info!(file, took_ms, "the space of a removed file is free again");
        } else {
            tracing::debug!(file, took_ms, "the space of a removed file is free again");
        }
    }
}

//! How a mount ended, noted in the directory for the program that waits for its end and is not its parent.
//!
//! ```text
//! BACKING/.quire/end: "process PID, started at TICKS\n", then what failed; nothing if nothing did
//! ```
//! The daemon writes the note as its last act, before the lock of the directory is released; the next mount leaves it there. A
//! daemon that was killed leaves none of its own, and that is an answer, too.
//!
//! Relies on a process number and the time of its start naming one process.

use std::io::{self, Read};
use std::path::Path;

use quire_sys::file::open_regular;
use quire_sys::task::TaskIdentity;

use crate::backing_root::{BackingRoot, END, FOLDER};
use crate::error::MountError;

/// Longest note that is read.
const MOST_BYTES: u64 = 64 << 10;

/// How a mount ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmountResult {
    /// Everything was made durable.
    Clean,
    /// Something failed, in words.
    Failed(String),
    /// The process left no note: it was ended, or could not write one.
    Unknown,
}

fn first_line(process: u32, identity: &TaskIdentity) -> String {
    format!("process {process}, started at {}\n", identity.start_ticks)
}

impl BackingRoot {
    /// Notes how this process's mount ended.
    pub(crate) fn note_end(&self, failed: Option<&MountError>) {
        let process = std::process::id();
        let Some(identity) = quire_sys::task::identity(process) else { return };
        let words = failed.map(ToString::to_string).unwrap_or_default();
        if let Err(error) = self.replace(END, &(first_line(process, &identity) + &words)) {
            tracing::error!(%error, "`quire unmount` can't be told how the mount ended");
        }
    }
}

/// How the mount of `backing` ended that this process served, which has ended.
///
/// # Errors
/// The note can't be read.
pub fn of(backing: &Path, process: u32, identity: &TaskIdentity) -> io::Result<UnmountResult> {
    let mut text = String::new();
    match open_regular(&backing.join(FOLDER).join(END)) {
        Ok(file) => file.take(MOST_BYTES).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(UnmountResult::Unknown),
        Err(error) => return Err(error),
    };
    Ok(match text.strip_prefix(&first_line(process, identity)) {
        Some("") => UnmountResult::Clean,
        Some(words) => UnmountResult::Failed(words.to_owned()),
        None => UnmountResult::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_about_the_process_that_wrote_it_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let backing_root = BackingRoot::open(dir.path()).unwrap();
        let process = std::process::id();
        let identity = quire_sys::task::identity(process).unwrap();
        let unmount_result = || of(dir.path(), process, &identity).unwrap();
        assert_eq!(unmount_result(), UnmountResult::Unknown);
        backing_root.note_end(None);
        assert_eq!(unmount_result(), UnmountResult::Clean);
        let failed = MountError::Untold { files: vec!["f".to_owned()] };
        backing_root.note_end(Some(&failed));
        assert_eq!(unmount_result(), UnmountResult::Failed(failed.to_string()));
        assert_eq!(of(dir.path(), process + 1, &identity).unwrap(), UnmountResult::Unknown);
        let later = TaskIdentity { start_ticks: identity.start_ticks + 1, ..identity.clone() };
        assert_eq!(of(dir.path(), process, &later).unwrap(), UnmountResult::Unknown);
    }
}

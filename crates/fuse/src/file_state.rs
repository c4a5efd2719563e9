//! The life of a regular file in the mount, from its first opening until the mount forgets it.
//!
//! ```text
//!              WrittenThrough                Attached
//!   Uncached ────────────────▶ WriteThrough ──────────▶ Cached
//!      │  ◀──────────────────       ▲  Flushed            │
//!      │         Flushed            └─ WrittenThrough     │ Idle, or Closed and Unlinked
//!      └────────────── Closed, Unlinked ──────▶ Forgotten ◀┘
//! ```
//! A file without a name goes on as before while programs have it open, and is forgotten with its last user. The kernel counts
//! as one until it forgets the file: a program that has found the name may still open it. The file's volume stays in the log
//! until the directory durably lacks the name ([`crate::orphans`]).
//!
//! Relies on the caller for the inode's lock, and for the lock of the table of inodes where an event may end the file's life.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::volume_table::VolumeAttachment;

/// Where the newest bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// In the directory's file: the file was not written since it was opened, or what was written through was flushed.
    Uncached,
    /// In the directory's file, written there by the mount and not flushed since: it is small and new.
    WriteThrough {
        /// When the oldest of these bytes were written.
        since: Instant,
    },
    /// In its volume of the cache.
    Cached(VolumeAttachment),
    /// The mount has let go of the file.
    Forgotten,
}

/// What happens to a file.
#[derive(Debug)]
pub enum FileEvent<'a> {
    /// A program or an operation of the mount begins to use it.
    Opened,
    /// One of them ends.
    Closed,
    /// Its last name was removed from this directory.
    Unlinked(&'a Arc<OwnedFd>),
    /// Bytes were written to the directory's file.
    WrittenThrough,
    /// A flush of the directory's file begins, or its volume takes over: both cover what was written through before.
    Flushed,
    /// It has become a volume.
    Attached(VolumeAttachment),
    /// No program has used it for a while and nothing of it is pending.
    Idle,
}

/// What is left to be done for a file that the mount forgets: the caller takes it out of the table of inodes.
#[derive(Clone, Debug)]
pub struct ForgottenInode {
    /// Its volume, if it has one.
    pub attachment: Option<VolumeAttachment>,
    /// The directory that had its last name, if it has none any more.
    pub unlinked_from: Option<Arc<OwnedFd>>,
}

/// A file's state, its users and its last name.
#[derive(Debug)]
pub struct InodeState {
    file: FileState,
    users: usize,
    unused_since: Instant,
    unlinked_from: Option<Arc<OwnedFd>>,
}

impl Default for InodeState {
    fn default() -> Self {
        Self { file: FileState::Uncached, users: 0, unused_since: Instant::now(), unlinked_from: None }
    }
}

impl InodeState {
    /// Takes an event in. The result says whether the mount forgets the file by it.
    pub fn transition(&mut self, event: FileEvent<'_>) -> Option<ForgottenInode> {
        match event {
            FileEvent::Opened => self.users += 1,
            FileEvent::Closed => {
                self.users -= 1;
                self.unused_since = Instant::now();
                let ends = self.unlinked_from.is_some() || self.file == FileState::Uncached;
                if self.users == 0 && ends {
                    return Some(self.forget());
                }
            }
            FileEvent::Unlinked(dir) => {
                self.unlinked_from = Some(Arc::clone(dir));
                if self.users == 0 {
                    return Some(self.forget());
                }
            }
            FileEvent::WrittenThrough if self.file == FileState::Uncached => {
                self.file = FileState::WriteThrough { since: Instant::now() };
            }
            FileEvent::Flushed if self.is_write_through() => self.file = FileState::Uncached,
            FileEvent::WrittenThrough | FileEvent::Flushed => {}
            FileEvent::Attached(attachment) => self.file = FileState::Cached(attachment),
            FileEvent::Idle => return Some(self.forget()),
        }
        None
    }

    fn forget(&mut self) -> ForgottenInode {
        let departure = ForgottenInode { attachment: self.attachment(), unlinked_from: self.unlinked_from.clone() };
        self.file = FileState::Forgotten;
        departure
    }

    /// Its volume, if it is in the cache.
    pub fn attachment(&self) -> Option<VolumeAttachment> {
        match self.file {
            FileState::Cached(attachment) => Some(attachment),
            FileState::Uncached | FileState::WriteThrough { .. } | FileState::Forgotten => None,
        }
    }

    /// Whether the directory's file has bytes that were written through and not flushed.
    pub fn is_write_through(&self) -> bool {
        matches!(self.file, FileState::WriteThrough { .. })
    }

    /// Whether such bytes have waited for a flush for `age`.
    pub fn has_waited(&self, age: Duration) -> bool {
        matches!(self.file, FileState::WriteThrough { since } if since.elapsed() >= age)
    }

    /// Whether a program or an operation of the mount uses it.
    pub fn is_used(&self) -> bool {
        self.users > 0
    }

    /// Whether it has been unused for `idle`.
    pub fn is_unused_for(&self, idle: Duration) -> bool {
        self.users == 0 && self.unused_since.elapsed() >= idle
    }

    /// Whether it has lost its last name.
    pub fn is_unlinked(&self) -> bool {
        self.unlinked_from.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_table::SlotIndex;
    use quire_writecache::VolumeId;

    fn directory() -> Arc<OwnedFd> {
        Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()))
    }

    fn attachment() -> VolumeAttachment {
        VolumeAttachment { volume: VolumeId(7), slot: SlotIndex::default() }
    }

    fn opened(events: Vec<FileEvent<'_>>) -> InodeState {
        let mut state = InodeState::default();
        assert!(state.transition(FileEvent::Opened).is_none());
        for event in events {
            assert!(state.transition(event).is_none());
        }
        state
    }

    #[test]
    fn a_file_of_which_nothing_is_pending_is_forgotten_with_its_last_user() {
        let mut state = opened(vec![FileEvent::Opened]);
        assert!(state.transition(FileEvent::Closed).is_none() && state.is_used());
        let departure = state.transition(FileEvent::Closed).unwrap();
        assert!(departure.attachment.is_none() && departure.unlinked_from.is_none());
        assert_eq!(state.file, FileState::Forgotten);
    }

    #[test]
    fn bytes_that_were_written_through_keep_a_file_until_they_are_flushed() {
        let mut state = opened(vec![FileEvent::WrittenThrough, FileEvent::WrittenThrough]);
        assert!(state.transition(FileEvent::Closed).is_none() && state.has_waited(Duration::ZERO));
        assert!(state.transition(FileEvent::Opened).is_none() && state.transition(FileEvent::Flushed).is_none());
        assert!(!state.is_write_through() && state.transition(FileEvent::Closed).is_some());
    }

    #[test]
    fn a_volume_stays_when_its_last_user_goes_and_ends_when_it_is_idle() {
        let mut state = opened(vec![FileEvent::WrittenThrough, FileEvent::Attached(attachment())]);
        // A flush that began before does not end the volume.
        assert!(state.transition(FileEvent::Flushed).is_none() && !state.is_write_through());
        assert!(state.transition(FileEvent::WrittenThrough).is_none() && !state.is_write_through());
        assert!(state.transition(FileEvent::Closed).is_none() && state.is_unused_for(Duration::ZERO));
        assert_eq!(state.transition(FileEvent::Idle).unwrap().attachment, Some(attachment()));
        assert_eq!(state.attachment(), None);
    }

    #[test]
    fn a_file_without_a_name_is_forgotten_with_its_last_user_whatever_is_pending() {
        let dir = directory();
        for events in [vec![], vec![FileEvent::WrittenThrough], vec![FileEvent::Attached(attachment())]] {
            let is_cached = events.iter().any(|event| matches!(event, FileEvent::Attached(_)));
            let mut state = opened(events);
            assert!(state.transition(FileEvent::Unlinked(&dir)).is_none() && state.is_unlinked());
            let departure = state.transition(FileEvent::Closed).unwrap();
            assert_eq!((departure.attachment.is_some(), departure.unlinked_from.is_some()), (is_cached, true));
        }
    }

    #[test]
    fn an_unused_file_that_loses_its_last_name_is_forgotten_at_once() {
        let mut state = opened(vec![FileEvent::Attached(attachment())]);
        assert!(state.transition(FileEvent::Closed).is_none());
        let departure = state.transition(FileEvent::Unlinked(&directory())).unwrap();
        assert!(departure.attachment == Some(attachment()) && departure.unlinked_from.is_some());
    }
}

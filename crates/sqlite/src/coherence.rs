//! How cached pages stay the file's when other processes write it.
//!
//! A page in the pool may be used as long as no other process has changed the file since the page was read. SQLite's locks say
//! when others can't write; what must be found is whether they have written before. Two witnesses tell, as they tell
//! SQLite itself:
//!
//! - **Rollback journal.** Every transaction changes the bytes 24 to 39 of the file (the change counter and what follows). They are
//!   compared when a connection gets a SHARED lock, which keeps all writers away. A connection that commits notes the new ones
//!   before it gives up its lock. With them goes the time of the file's last change: a program that copies a backup over a database
//!   that is not in use may leave these bytes as they were. Without the WAL index this witness is of no use for a database in WAL mode (an exclusive
//!   connection has none, nor one that may not map it): such a connection reads past the pool.
//! - **WAL.** Commits go to the WAL file, which is not cached here. Only a checkpoint writes the database file, and it says so in
//!   the WAL index, which is shared memory: it sets `nBackfillAttempted` before its first write, and `nBackfill` after its last.
//!   A reader takes a page from the file instead of the WAL only from the moment when it sees the new `nBackfill`, or the
//!   new salt of a WAL that has begun anew. All four words together are the stamp. Each read compares the stamp with that of the last
//!   one, and gives the cached pages up if they differ.
//!
//! What a connection of this process changes is changed in the pool, or discarded from it, at once, so it is no reason to give all pages up: the stamp is taken
//! anew when a connection of this process ends its checkpoint (it has the lock CKPT then), and when it has begun the WAL anew.
//!
//! Relies on the layout of the WAL index, which the SQLite project keeps stable for all versions that share a database.

use std::sync::atomic::{AtomicU32, Ordering};

/// Where the part of the file's header begins that [`HeaderBytes`] has.
pub(crate) const HEADER_OFFSET: i64 = 16;
/// The bytes 16 to 39 of the file: page size, journal mode, and what each transaction with a rollback journal changes.
pub(crate) type HeaderBytes = [u8; 24];

/// The size of the database's pages; 0 of a file that has none yet.
pub(crate) fn page_bytes(header: &HeaderBytes) -> u32 {
    match u16::from_be_bytes([header[0], header[1]]) {
        // 65,536 does not fit.
        1 => 1 << 16,
        bytes => bytes.into(),
    }
}

/// Whether the database has its journal in a WAL.
pub(crate) fn is_wal(header: &HeaderBytes) -> bool {
    header[2] == 2 || header[3] == 2
}

/// Words of the WAL index, counted from its start.
const MAX_FRAME: usize = 4;
const SALT_1: usize = 8;
const SALT_2: usize = 9;
const BACKFILLED: usize = 24;
const BACKFILL_ATTEMPTED: usize = 32;
/// Bytes of the first region that the words above lie in.
pub(crate) const INDEX_BYTES: usize = 4 * (BACKFILL_ATTEMPTED + 1);

/// The WAL index of a database: shared memory that processes write at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalIndex(*const AtomicU32);

/// What changes whenever a checkpoint has written pages to the database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalStamp {
    salt: [u32; 2],
    backfilled: u32,
    attempted: u32,
}

impl WalIndex {
    /// The index whose first region begins at `start`.
    ///
    /// # Safety
    /// `start` is aligned to 4 bytes, and [`INDEX_BYTES`] there stay mapped until the last use of the result.
    pub(crate) unsafe fn new(start: *const u8) -> Self {
        Self(start.cast())
    }

    fn word(&self, number: usize) -> u32 {
        // SAFETY: `number` is one of the constants above, so the word lies within INDEX_BYTES, which `new`'s caller keeps
        // mapped and aligned. Other processes change it, which is why it is an atomic.
        unsafe { &*self.0.add(number) }.load(Ordering::SeqCst)
    }

    /// The stamp now.
    pub(crate) fn stamp(&self) -> WalStamp {
        WalStamp {
            salt: [self.word(SALT_1), self.word(SALT_2)],
            backfilled: self.word(BACKFILLED),
            attempted: self.word(BACKFILL_ATTEMPTED),
        }
    }

    /// Whether every frame of the WAL was in the database file already when `stamp` was taken. For a connection that has the lock WRITE:
    /// no other one makes the WAL longer.
    pub(crate) fn is_backfilled(&self, stamp: &WalStamp) -> bool {
        stamp.backfilled == self.word(MAX_FRAME)
    }
}

impl WalStamp {
    /// Whether `self`, taken by a connection that had the lock WRITE all along since `before`, comes from its own new start of the
    /// WAL, and no checkpoint has written since. `was_backfilled`: nothing was left to be written at `before`.
    pub(crate) fn is_own_restart(&self, before: &Self, was_backfilled: bool) -> bool {
        self.salt != before.salt && was_backfilled && self.backfilled == 0 && self.attempted == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(words: &[u32; 33]) -> WalIndex {
        // SAFETY: the words are aligned, there are 33 of them, and tests use them while they live.
        unsafe { WalIndex::new(words.as_ptr().cast()) }
    }

    #[test]
    fn a_checkpoint_and_a_new_start_of_the_wal_change_the_stamp() {
        let mut words = [0; 33];
        words[MAX_FRAME] = 7;
        let before = index(&words).stamp();
        for word in [SALT_1, SALT_2, BACKFILLED, BACKFILL_ATTEMPTED] {
            let mut after = words;
            after[word] += 1;
            assert_ne!(index(&after).stamp(), before, "word {word}");
        }
        assert!(!index(&words).is_backfilled(&before));
        words[BACKFILLED] = 7;
        assert!(index(&words).is_backfilled(&index(&words).stamp()));
        assert!(!index(&words).is_backfilled(&before), "a checkpoint has ended since the stamp was taken");
    }

    #[test]
    fn only_a_new_start_with_nothing_left_to_write_keeps_the_pages() {
        let before = WalStamp { salt: [1, 1], backfilled: 9, attempted: 9 };
        let restarted = WalStamp { salt: [2, 5], backfilled: 0, attempted: 0 };
        assert!(restarted.is_own_restart(&before, true));
        assert!(!restarted.is_own_restart(&before, false), "a checkpoint of another process may have come between");
        assert!(!WalStamp { attempted: 3, ..restarted }.is_own_restart(&before, true));
        assert!(!before.is_own_restart(&before, true));
    }
}

//! What the store keeps for whoever logs its changes: which dataset it is, how much of the log is in the data, and which keys
//! have gone because their time had come. Relies on nothing of the store but its names.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::db::DbId;

/// Set apart from what the same key hashes elsewhere.
const DATASET: &[u8] = b"quire dataset";

/// A key that has gone.
pub type ExpiredKey = (DbId, Box<[u8]>);

/// What concerns the log.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    pub(crate) dataset: u64,
    /// The last record whose effect is in the data.
    pub(crate) position: u64,
    pub(crate) noting: bool,
    pub(crate) expired: Vec<ExpiredKey>,
}

impl Logged {
    /// `seed` is the dataset's secret; its name must not tell it.
    pub(crate) fn new(seed: [u64; 2], position: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(seed[0], seed[1]);
        hasher.write(DATASET);
        Self { dataset: hasher.finish(), position, ..Self::default() }
    }

    #[inline]
    pub(crate) fn notes_expired(&self) -> bool {
        self.noting
    }

    #[inline]
    pub(crate) fn note_expired(&mut self, db: DbId, key: &[u8]) {
        if self.noting {
            self.expired.push((db, key.into()));
        }
    }
}

//! What must be logged and replicated beside the commands that came: the keys that have gone because their time had come, or because
//! memory was short, and the fields of hashes whose time had come.
//!
//! A log of commands brings the same data back only if keys expire in it exactly where they did before, whatever the clock
//! says then, and are evicted in it only where they were: so each one that goes is noted, to be logged as deleted. What a command did otherwise than its words say
//! (random members, relative times) is for its handler to say, which has the words.

use crate::db::DbId;

/// A key that has gone, or fields of the hash that it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpiredKey {
    /// The database.
    pub db: DbId,
    /// The key.
    pub key: Box<[u8]>,
    /// The fields that have gone; none if the key has.
    pub fields: Vec<Box<[u8]>>,
}

/// What the log's writer has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    noting: bool,
    expired: Vec<ExpiredKey>,
}

impl Effects {
    /// Says whether keys that expire are noted; what was noted so far is forgotten.
    pub(crate) fn set_noting(&mut self, noting: bool) {
        self.noting = noting;
        self.expired.clear();
    }

    #[inline]
    pub(crate) fn notes_expired(&self) -> bool {
        self.noting
    }

    #[inline]
    pub(crate) fn note_expired(&mut self, db: DbId, key: &[u8]) {
        if self.noting {
            self.expired.push(ExpiredKey { db, key: key.into(), fields: Vec::new() });
        }
    }

    /// Parts of a value have expired: at least one.
    pub(crate) fn note_expired_subkeys(&mut self, db: DbId, key: &[u8], fields: Vec<Box<[u8]>>) {
        if self.noting {
            self.expired.push(ExpiredKey { db, key: key.into(), fields });
        }
    }

    #[inline]
    pub(crate) fn has_expired(&self) -> bool {
        !self.expired.is_empty()
    }

    /// The keys that have expired since the last call, in that order.
    pub(crate) fn take_expired(&mut self) -> Vec<ExpiredKey> {
        std::mem::take(&mut self.expired)
    }
}

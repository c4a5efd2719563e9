//! What must be logged and replicated beside the commands that came: the keys that have gone because their time had come, or because
//! memory was short.
//!
//! A log of commands brings the same data back only if keys expire in it exactly where they did before, whatever the clock
//! says then, and are evicted in it only where they were: so each one that goes is noted, to be logged as deleted. What a command did otherwise than its words say
//! (random members, relative times) is for its handler to say, which has the words.

use crate::db::DbId;

/// A key that has gone.
pub type ExpiredKey = (DbId, Box<[u8]>);

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
            self.expired.push((db, key.into()));
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

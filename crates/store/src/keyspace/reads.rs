//! Look-ups of keys that change no value: what each of them counts, which access it notes, and which miss it tells.
//!
//! A command that reads counts its look-up, and a key that is not there is noted for those who want to be told of misses. One that
//! looks at a value only to change it does neither, as in Redis. Relies on `access` for the stamps and on `events` for what is noted.

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::Result;
use crate::keyspace::entry::Entry;
use crate::keyspace::value::ValueRef;
use crate::keyspace::{Keyspace, access, check_kind};

impl Keyspace {
    /// The entry of a key, to be looked at. Deletes it if its time has come, unless such keys are held.
    #[inline]
    pub(crate) fn look_up(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        match self.find_any(db, key, self.hash(key))? {
            Some(entry) if self.has_expired(&entry)? => {
                if !self.clock.holding_expired {
                    self.expire_entry(db, key, entry)?;
                }
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// As [`Keyspace::look_up`], and notes an access.
    #[inline]
    fn look_up_used(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        let found = self.look_up(db, key)?;
        if self.clock.touching
            && let Some(entry) = &found
        {
            access::note_access(self, entry);
        }
        Ok(found)
    }

    /// The entry of a key, to be read: counts, and notes an access, or that there is none.
    #[inline]
    pub(crate) fn find_to_read(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        let found = self.look_up_used(db, key)?;
        self.note_read(db, key, found.is_some());
        Ok(found)
    }

    /// A key's value of one type, for a command that looks at it to change it: an access, but no read that counts.
    pub(crate) fn open_to_change(&mut self, db: DbId, key: &[u8], kind: ValueType) -> Result<Option<ValueRef<'_>>> {
        let found = check_kind(self.look_up_used(db, key)?, kind)?;
        Ok(found.map(|entry| ValueRef::new(self, entry)))
    }

    /// Counts a hit or a miss and notes a miss, for look-ups that don't do so themselves.
    #[inline]
    pub fn note_read(&mut self, db: DbId, key: &[u8], hit: bool) {
        self.count_read(hit);
        if !hit {
            self.events.note_miss(db, key);
        }
    }

    /// Counts a hit or a miss of a look-up whose misses are told to no client.
    #[inline]
    pub fn count_read(&mut self, hit: bool) {
        if hit {
            self.counters.hits += 1;
        } else {
            self.counters.misses += 1;
        }
    }

    /// Says whether reads of keys that are not there are noted for [`Keyspace::take_key_events`], as long as other events are.
    pub fn set_noting_misses(&mut self, noting: bool) {
        self.events.set_noting_misses(noting);
    }
}

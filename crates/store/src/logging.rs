//! What the store tells whoever keeps a log of its changes.
//!
//! Relies on `logged` for what is told, and on the root for keeping the place in the log. A log of commands brings the same data
//! back only if keys expire in it exactly where they did before, whatever the clock says then: so each one that goes is noted,
//! to be logged as deleted.

use crate::logged::ExpiredKey;
use crate::store::Store;

impl Store {
    /// A number that this dataset and its images have, and no other.
    pub fn dataset(&self) -> u64 {
        self.logged.dataset
    }

    /// The last record of the log whose effect is in the data.
    pub fn log_position(&self) -> u64 {
        self.logged.position
    }

    /// Sets the place in the log, which the next image will hold.
    pub fn set_log_position(&mut self, position: u64) {
        self.logged.position = position;
    }

    /// The number of the last image in its history; 0 if there is none.
    pub fn image_epoch(&self) -> u64 {
        self.saves.epoch
    }

    /// Says whether keys that expire are noted for [`Store::take_expired`].
    pub fn set_noting_expired(&mut self, noting: bool) {
        self.logged.noting = noting;
        self.logged.expired.clear();
    }

    /// Whether keys have expired that nobody has taken.
    #[inline]
    pub fn has_expired_keys(&self) -> bool {
        !self.logged.expired.is_empty()
    }

    /// The keys that have expired since the last call, in that order.
    pub fn take_expired(&mut self) -> Vec<ExpiredKey> {
        std::mem::take(&mut self.logged.expired)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::StoreConfig;
    use crate::db::{DbId, Expiry};
    use crate::store::Store;

    #[test]
    fn keys_that_expire_are_noted_however_they_are_found() {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let mut store = Store::create(config).unwrap();
        store.set_now_ms(1000);
        for key in [b"a", b"b"] {
            store.set(DbId(3), key, b"value", Expiry::At(2000)).unwrap();
        }
        store.set_noting_expired(true);
        store.set_now_ms(2000);
        assert_eq!(store.get(DbId(3), b"a").unwrap(), None);
        store.expire_step(100).unwrap();
        let expired = store.take_expired();
        assert_eq!(expired, [(DbId(3), b"a"[..].into()), (DbId(3), b"b"[..].into())]);
        assert!(!store.has_expired_keys());
    }

    #[test]
    fn datasets_have_names_of_their_own() {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let names: Vec<_> = (0..2).map(|_| Store::create(config.clone()).unwrap().dataset()).collect();
        assert_ne!(names[0], names[1]);
    }
}

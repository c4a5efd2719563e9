//! Digests of the data, equal whatever the order of insertion, and the same that Redis' DEBUG DIGEST gives.
//!
//! Two operations on a 20-byte digest: `toggle` xors SHA-1 of some bytes into it, so that order doesn't matter; `mix`
//! does the same and then replaces the digest by its own SHA-1, so that it does. A key's digest mixes name, type and
//! value and toggles a mark if it expires; a hash toggles one digest per field; databases toggle the digests of keys.
//! Keys count until they are deleted, so a digest doesn't depend on the clock.

use sha1::{Digest as _, Sha1};

use crate::db::DbId;
use crate::entry::{EXPIRES, Entry, Form};
use crate::error::Result;
use crate::store::Store;

/// The numbers by which Redis knows the types.
const TYPE_STRING: u32 = 0;
const TYPE_HASH: u32 = 4;

#[derive(Clone, Copy, Default)]
struct Digest([u8; 20]);

impl Digest {
    fn toggle(&mut self, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().zip(Sha1::digest(bytes)) {
            *to ^= from;
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.toggle(bytes);
        self.0 = Sha1::digest(self.0).into();
    }
}

impl Store {
    /// The digest of all databases. Walks through all data.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`].
    pub fn digest(&self) -> Result<[u8; 20]> {
        let mut all = Digest::default();
        for (index, roots) in self.dbs.iter().enumerate() {
            if roots.keys.count == 0 {
                continue;
            }
            all.mix(&(index as u32).to_be_bytes());
            roots.keys.for_each(&self.arena, |item| {
                let entry = Entry::read(&self.arena, item)?;
                let mut digest = Digest::default();
                digest.mix(entry.key(&self.arena)?);
                self.mix_value(&mut digest, &entry)?;
                all.toggle(&digest.0);
                Ok(())
            })?;
        }
        Ok(all.0)
    }

    /// The digest of one key's value and of whether it expires.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn digest_value(&self, db: DbId, key: &[u8]) -> Result<Option<[u8; 20]>> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(None) };
        let mut digest = Digest::default();
        self.mix_value(&mut digest, &entry)?;
        Ok(Some(digest.0))
    }

    fn mix_value(&self, digest: &mut Digest, entry: &Entry) -> Result<()> {
        match entry.form()? {
            Form::String => {
                digest.mix(&TYPE_STRING.to_be_bytes());
                digest.mix(entry.value(&self.arena)?);
            }
            Form::PackedHash | Form::TableHash => {
                digest.mix(&TYPE_HASH.to_be_bytes());
                self.for_each_field(entry, &mut |field, value| {
                    let mut pair = Digest::default();
                    pair.mix(field);
                    pair.mix(value);
                    digest.toggle(&pair.0);
                })?;
            }
        }
        if entry.has(EXPIRES) {
            digest.toggle(b"!!expire!!");
        }
        Ok(())
    }
}

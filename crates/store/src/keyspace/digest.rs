//! Digests of the data, equal whatever the order of insertion, and the same that Redis' DEBUG DIGEST gives.
//!
//! Two operations on a 20-byte digest: `toggle` xors SHA-1 of some bytes into it, so that order doesn't matter; `mix`
//! does the same and then replaces the digest by its own SHA-1, so that it does. A key's digest mixes name, type and
//! value (`ops`) and toggles a mark if it expires; databases toggle the digests of keys.
//! Keys count until they are deleted, so a digest doesn't depend on the clock.

use sha1::{Digest as _, Sha1};

/// What was mixed and toggled so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(pub(crate) [u8; 20]);

impl Digest {
    pub(crate) fn toggle(&mut self, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().zip(Sha1::digest(bytes)) {
            *to ^= from;
        }
    }

    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        self.toggle(bytes);
        self.0 = Sha1::digest(self.0).into();
    }
}

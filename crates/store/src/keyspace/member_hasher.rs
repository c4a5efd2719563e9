//! The hash of keys and of members: one that a client cannot predict, so that no client can choose colliding ones.
//!
//! Relies on the seed that the root keeps: the tables of an image lie in the order of these hashes.

use siphasher::sip::SipHasher13;

use crate::table::Hash;

/// Hashes keys, and members of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberHasher(SipHasher13);

impl MemberHasher {
    /// Hashes that follow from the root's seed.
    pub(crate) fn with_keys(first: u64, second: u64) -> Self {
        Self(SipHasher13::new_with_keys(first, second))
    }

    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> Hash {
        Hash::from(self.0.hash(bytes))
    }
}

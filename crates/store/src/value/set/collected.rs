//! Members that were collected to become a set: what SUNIONSTORE and its relatives have found.

use crate::db::DbId;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::table::sample::next_random;

use super::open_mut;
use super::view::Member;

/// What the key of a set that is being built begins with; clients never meet it, because no command runs meanwhile.
const ASIDE: &[u8] = b"\0quire: a set that is being built\0";

/// Members one after the other.
#[derive(Debug, Default)]
pub struct Collected {
    bytes: Vec<u8>,
    /// Where each member ends.
    ends: Vec<usize>,
}

impl Collected {
    /// Adds a member.
    pub fn push(&mut self, member: Member<'_>) {
        self.bytes.extend_from_slice(member.text(&mut itoa::Buffer::new()));
        self.ends.push(self.bytes.len());
    }

    /// Members collected.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no member was collected.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The members, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Gives a key a set of these members, whatever it held before; without members the key is deleted.
///
/// # Errors
/// As [`open_mut`]; the key holds what it held then.
pub fn replace(keyspace: &mut Keyspace, db: DbId, key: &[u8], members: &Collected) -> Result<()> {
    if members.is_empty() {
        return keyspace.remove(db, key).map(drop);
    }
    // Built aside, so that nothing has changed if there is not enough memory.
    let aside = [ASIDE, &next_random(&mut keyspace.random).to_ne_bytes()].concat();
    let built = open_mut(keyspace, db, &aside).and_then(|mut set| {
        for member in members.iter() {
            set.add(member)?;
        }
        Ok(())
    });
    match built.and_then(|()| keyspace.rename(db, &aside, key)) {
        Ok(_) => Ok(()),
        Err(error) => {
            keyspace.remove(db, &aside)?;
            Err(error)
        }
    }
}

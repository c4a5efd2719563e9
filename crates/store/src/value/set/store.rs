//! Keeping a combination of sets: SUNIONSTORE and its relatives.
//!
//! The result is built in the arena, under a key that no command knows, and gets its key when it is complete: if there is not
//! enough memory, nothing has changed. Ordinary memory holds some of its members at a time.

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;

use super::SetMut;
use super::algebra::{CombinationPosition, SetOperation, combine_on};
use super::view::{SetMember, look_up, views_of};

/// What the key of a set that is being built begins with; clients never meet it, because no command runs meanwhile.
const ASIDE: &[u8] = b"\0quire: a set that is being built\0";
/// So many bytes of members are taken from the sets at a time.
const AT_ONCE_BYTES: usize = 16 << 10;

/// Members one after the other.
#[derive(Debug, Default)]
pub struct MemberBuffer {
    bytes: Vec<u8>,
    /// Where each member ends.
    ends: Vec<usize>,
}

impl MemberBuffer {
    /// Adds a member.
    pub fn push(&mut self, member: SetMember<'_>) {
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

    fn is_full(&self) -> bool {
        self.bytes.len() + self.ends.len() * size_of::<usize>() >= AT_ONCE_BYTES
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Gives a key the combination of the sets under other keys, or its own, whatever it held before; without members it is deleted.
/// Returns how many members it has.
///
/// # Errors
/// As [`super::open_mut`]; the key holds what it held then.
pub fn store_combination<'k>(
    keyspace: &mut Keyspace,
    db: DbId,
    to: &[u8],
    how: SetOperation,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<usize> {
    let sources = look_up(keyspace, db, keys)?;
    let aside = [ASIDE, &keyspace.rng.next_u64().to_ne_bytes()].concat();
    let built = build(keyspace, db, &aside, how, &sources);
    if matches!(built, Ok(0)) {
        return keyspace.remove(db, to).map(|_| 0);
    }
    let mut set = keyspace.open_mut(db, &aside, ValueType::Set)?;
    set.set_aside();
    match built {
        Ok(stored) => set.rename(to).map(|()| stored),
        Err(error) => set.delete().and(Err(error)),
    }
}

/// Adds the combination to a set; returns how many members it has.
fn build(
    keyspace: &mut Keyspace,
    db: DbId,
    aside: &[u8],
    how: SetOperation,
    sources: &[Option<Entry>],
) -> Result<usize> {
    let (mut place, mut ended) = (CombinationPosition::default(), false);
    let (mut some, mut stored) = (MemberBuffer::default(), 0);
    while !ended {
        some.clear();
        let sets = views_of(keyspace, sources)?;
        ended = combine_on(how, &sets, &mut place, |member| {
            some.push(member);
            !some.is_full()
        })?;
        let mut set = SetMut { value: keyspace.open_mut(db, aside, ValueType::Set)? };
        set.value.set_aside();
        for member in some.iter() {
            set.add(member)?;
        }
        stored += some.len();
    }
    Ok(stored)
}

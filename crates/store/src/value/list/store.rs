//! Keeping elements as a list: what SORT stores.
//!
//! The list is built in the arena, under a key that no command knows, and gets its key when it is complete: if there is not enough
//! memory, nothing has changed.

use crate::db::DbId;
use crate::error::Result;
use crate::keyspace::Keyspace;

use super::change::{ListMut, open_mut};
use super::view::End;

/// What the key of a list that is being built begins with; clients never meet it, because no command runs meanwhile.
const ASIDE: &[u8] = b"\0quire: a list that is being built\0";

/// Gives a key the list of these elements, whatever it held before; without elements it is deleted. Returns how many they are.
///
/// # Errors
/// As [`open_mut`]; the key holds what it held then.
pub fn store_elements<'e>(
    keyspace: &mut Keyspace,
    db: DbId,
    to: &[u8],
    elements: impl Iterator<Item = &'e [u8]> + Clone,
) -> Result<u64> {
    if elements.clone().next().is_none() {
        return keyspace.remove(db, to).map(|_| 0);
    }
    let aside = [ASIDE, &keyspace.rng.next_u64().to_ne_bytes()].concat();
    let mut list = open_mut(keyspace, db, &aside)?;
    list.value.set_aside();
    match fill(&mut list, elements) {
        Ok(stored) => list.value.rename(to).map(|()| stored),
        Err(error) => list.value.delete().and(Err(error)),
    }
}

fn fill<'e>(list: &mut ListMut<'_>, elements: impl Iterator<Item = &'e [u8]> + Clone) -> Result<u64> {
    list.make_room(elements.clone())?;
    let mut stored = 0;
    for element in elements {
        list.push(End::Back, element)?;
        stored += 1;
    }
    Ok(stored)
}

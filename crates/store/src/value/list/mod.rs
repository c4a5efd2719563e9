//! Lists: elements in the order in which they were put, with two ends. Short ones are packed into their entry, long ones are chains
//! of nodes of bounded size.
//!
//! Relies on `packed` for the elements, on `whole` and `chain` for the two layouts; a list is packed again when only one node
//! is left, half as large as it might be, as in Redis. A list without elements doesn't exist.

mod chain;
mod change;
pub(super) mod limits;
mod nodes;
mod packed;
mod pops;
mod store;
mod view;

use quire_arena::Arena;

use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, copy_table_step, no_copy_step, no_memory, no_table, table_memory, table_of};
use crate::table::check::check_items;

use nodes::{ANCHOR, Node};
use view::ListValue;

pub use change::{ListMut, move_element, open_mut};
pub use limits::MAX_NODE;
pub use packed::Element;
pub use store::store_elements;
pub use view::{End, ListView, view};

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 1;

/// What the keyspace asks of packed lists.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("listpack"),
    check: check_packed,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of lists that are chains of nodes.
pub(crate) static NODES_OPS: Ops = Ops {
    name: |_, _| Ok("quicklist"),
    check: check_nodes,
    table: table_of,
    copy_step: copy_table_step,
    has_movable_items: true,
    digest,
    memory: table_memory,
};

fn check_packed(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let (count, elements) = whole::parts(entry.value(keyspace.arena())?)?;
    if count == 0 {
        return Err(StoreError::damaged("a packed list without elements"));
    }
    packed::check(elements, count)
}

fn check_nodes(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = keyspace.arena();
    let head = entry.table(arena)?;
    check_items(arena, &head, |item| Ok(nodes::hash_of(*arena.get::<u32>(item)?)))?;
    let anchor = nodes::anchor(arena, &head)?;
    let (mut previous, mut number, mut elements) = (ANCHOR, anchor.first, 0);
    for _ in 1..head.count {
        let node = Node::read(arena, &head, number)?;
        let fits = nodes::HEADER_BYTES + node.used() <= arena.usable_size(node.handle)?;
        if node.header.previous != previous || node.count() == 0 || !fits {
            return Err(StoreError::damaged("a list's node that does not fit its neighbours"));
        }
        packed::check(node.elements(arena)?, node.count())?;
        elements += node.count() as u64;
        (previous, number) = (number, node.header.next);
    }
    match number == ANCHOR && previous == anchor.last && elements == anchor.elements && elements > 0 {
        true => Ok(()),
        false => Err(StoreError::damaged("a list with other elements than it says")),
    }
}

/// Mixes the elements, as their order matters.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    ListValue::read(arena, entry)?.walk(arena, End::Front, 0, &mut |element| {
        digest.mix(element.text(&mut itoa::Buffer::new()));
        Ok(true)
    })
}

/// A short list as one run of bytes: a count (u16, little endian), then its elements (see `packed`).
mod whole {
    use crate::error::Result;
    use crate::value::varint::damaged;

    /// Bytes of the count.
    pub(super) const COUNT_BYTES: usize = 2;
    /// Elements that the count can tell: more than fit into the largest packed list.
    pub(super) const MAX_COUNT: usize = u16::MAX as usize;

    /// How many elements a packed list says it has, and their bytes.
    pub(super) fn parts(bytes: &[u8]) -> Result<(usize, &[u8])> {
        match bytes.split_first_chunk::<COUNT_BYTES>() {
            Some((count, elements)) => Ok((u16::from_le_bytes(*count) as usize, elements)),
            None => Err(damaged()),
        }
    }

    /// Says how many elements there are, at most [`MAX_COUNT`].
    pub(super) fn set_count(bytes: &mut [u8], count: usize) {
        bytes[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
    }
}

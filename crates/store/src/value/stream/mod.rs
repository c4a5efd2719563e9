//! Streams: entries of fields with values in the order of their IDs, and groups of consumers that read them and acknowledge them. Small ones are
//! packed into their entry, large ones and those with groups are a table of blocks, groups and consumers, with an index of all that
//! has an order.
//!
//! Relies on `block` for entries, on `packed` and on `items`, `index`, `parts` and `groups` for the two layouts. A stream becomes large when it
//! outgrows one block or gets a group, and is never packed again. It stays when it has no entries any more, as in Redis.

mod block;
mod change;
mod check;
mod groups;
mod id;
mod index;
mod items;
pub(super) mod limits;
mod nodes;
mod packed;
mod parts;
mod view;

use quire_arena::Arena;

use crate::error::Result;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, copy_table_step, no_copy_step, no_memory, no_table, table_memory, table_of};

use view::StreamValue;

pub use block::StreamFields;
pub use change::{StreamMut, open_mut};
pub use groups::{PendingEntry, StreamConsumer, StreamGroup};
pub use id::StreamId;
pub use index::StreamOrder;
pub use limits::{MAX_BLOCK_BYTES, MAX_BLOCK_ENTRIES};
pub use parts::{StreamCut, StreamTrim};
pub use view::{StreamSummary, StreamView, view};

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 6;

/// What the keyspace asks of packed streams.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("stream"),
    check: |keyspace, entry| packed::check(entry.value(keyspace.arena())?),
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of streams that are tables.
pub(crate) static TREE_OPS: Ops = Ops {
    name: |_, _| Ok("stream"),
    check: check::check,
    table: table_of,
    copy_step: copy_table_step,
    has_movable_items: true,
    digest,
    memory: table_memory,
};

/// Mixes the entries with their IDs, as their order matters; groups don't count, as in Redis.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    let all = (StreamId::MIN, StreamId::MAX);
    StreamValue::read(arena, entry, None)?.range(arena, all, StreamOrder::Up, &mut |id, fields| {
        digest.mix(format!("{}.{}", id.ms, id.seq).as_bytes());
        for (field, value) in fields {
            digest.mix(field.text(&mut itoa::Buffer::new()));
            digest.mix(value.text(&mut itoa::Buffer::new()));
        }
        true
    })
}

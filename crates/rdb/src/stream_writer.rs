//! Streams, written: entries are packed into nodes as they come, and what else belongs to the stream follows.
//!
//! Relies on `listpack` and `encoder`. The number of nodes stands before them, so they are kept until all entries have come.

use std::io::Write;

use crate::encoder::Encoder;
use crate::listpack::ListpackWriter;
use crate::stream::{StreamId, StreamState};

/// A node gets no more entries when it is so long, as in Redis.
const NODE_BYTES: usize = 4096;
/// A node has no more entries, as in Redis; their count fits into one byte.
const NODE_ENTRIES: u8 = 100;
/// Where a node says how many entries it has: behind the listpack's header.
const COUNT_OFFSET: usize = 6;
/// Of an entry that has the fields of the first one.
const SAME_FIELDS: i64 = 2;

/// Packs the entries of a stream.
#[derive(Debug, Default)]
pub struct StreamPacker {
    /// Nodes that are whole, behind the names of their first entries.
    nodes: Vec<(StreamId, Vec<u8>)>,
    node: Option<OpenNode>,
}

#[derive(Debug)]
struct OpenNode {
    first: StreamId,
    fields: Vec<Vec<u8>>,
    entries: u8,
    words: ListpackWriter,
}

impl StreamPacker {
    /// Adds an entry, whose name is higher than those before.
    pub fn push(&mut self, id: StreamId, pairs: &[(&[u8], &[u8])]) {
        if self.node.as_ref().is_some_and(|node| node.entries == NODE_ENTRIES || node.words.len() >= NODE_BYTES) {
            self.close_node();
        }
        self.node.get_or_insert_with(|| OpenNode::new(id, pairs)).push(id, pairs);
    }

    fn close_node(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.words.set_small(COUNT_OFFSET, node.entries);
            self.nodes.push((node.first, node.words.finish()));
        }
    }

    /// Writes the whole value.
    pub fn write<W: Write>(mut self, state: &StreamState, out: &mut Encoder<W>) {
        self.close_node();
        out.length(self.nodes.len() as u64);
        for (first, node) in &self.nodes {
            out.string(&first.to_bytes());
            out.string(node);
        }
        out.length(state.length);
        let first_id = state.first_id.or(self.nodes.first().map(|node| node.0)).unwrap_or_default();
        for id in [state.last_id, first_id, state.max_deleted_id] {
            out.length(id.ms);
            out.length(id.seq);
        }
        out.length(state.entries_added);
        write_groups(state, out);
    }
}

impl OpenNode {
    fn new(first: StreamId, pairs: &[(&[u8], &[u8])]) -> Self {
        let mut words = ListpackWriter::default();
        // How many entries there are, which is written over at the end, and how many deleted ones.
        words.push_int(0);
        words.push_int(0);
        words.push_int(pairs.len() as i64);
        pairs.iter().for_each(|(field, _)| words.push(field));
        words.push_int(0);
        Self { first, fields: pairs.iter().map(|(field, _)| field.to_vec()).collect(), entries: 0, words }
    }

    fn push(&mut self, id: StreamId, pairs: &[(&[u8], &[u8])]) {
        let same =
            pairs.len() == self.fields.len() && pairs.iter().zip(&self.fields).all(|(pair, field)| pair.0 == field);
        let before = self.words.words();
        self.words.push_int(if same { SAME_FIELDS } else { 0 });
        self.words.push_int(id.ms.wrapping_sub(self.first.ms) as i64);
        self.words.push_int(id.seq.wrapping_sub(self.first.seq) as i64);
        if !same {
            self.words.push_int(pairs.len() as i64);
        }
        for (field, value) in pairs {
            if !same {
                self.words.push(field);
            }
            self.words.push(value);
        }
        self.words.push_int(i64::from(self.words.words() - before));
        self.entries += 1;
    }
}

fn write_groups<W: Write>(state: &StreamState, out: &mut Encoder<W>) {
    out.length(state.groups.len() as u64);
    for group in &state.groups {
        out.string(&group.name);
        out.length(group.last_id.ms);
        out.length(group.last_id.seq);
        out.length(group.entries_read.unwrap_or(u64::MAX));
        out.length(group.pending.len() as u64);
        for entry in &group.pending {
            out.raw(&entry.id.to_bytes());
            out.raw(&entry.delivered_ms.to_le_bytes());
            out.length(entry.deliveries);
        }
        out.length(group.consumers.len() as u64);
        for (number, consumer) in group.consumers.iter().enumerate() {
            out.string(&consumer.name);
            out.raw(&consumer.seen_ms.to_le_bytes());
            let own = || group.pending.iter().filter(|entry| entry.consumer == number);
            out.length(own().count() as u64);
            own().for_each(|entry| out.raw(&entry.id.to_bytes()));
        }
    }
}

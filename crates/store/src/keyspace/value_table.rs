//! The table that a key's value is, read and changed: a large hash, set, list, sorted set or stream. Its head lies in the entry, maybe before
//! more bytes, and is written back at once.
//!
//! Relies on `value` for the entry, and for telling what is changed here.

use crate::encoding::Encoding;
use crate::error::Result;
use crate::heap::Heap;
use crate::keyspace::value::ValueMut;
use crate::keyspace::{Keyspace, MemberHasher};
use crate::table::{TableHead, reclaim};

impl ValueMut<'_> {
    /// The head of the table that the value is.
    #[inline]
    pub(crate) fn table(&self) -> Result<TableHead> {
        self.entry()?.table(self.arena())
    }

    /// Changes the table that the value is, whose head was just read, and writes the head back, also if the change fails: a
    /// bucket may have been split all the same, which is no change of the value.
    #[inline]
    pub(crate) fn change_table<R>(
        &mut self,
        mut head: TableHead,
        change: impl FnOnce(&mut Heap, &mut TableHead) -> Result<R>,
    ) -> Result<R> {
        let (entry, count) = (self.entry()?, head.count);
        let done = change(&mut self.keyspace.heap, &mut head);
        self.changed |= done.is_ok() || head.count != count;
        entry.set_table(&mut self.keyspace.heap.arena, &head)?;
        done
    }

    /// As [`ValueMut::change_table`], of what is a change of the value only if `change` says so.
    pub(crate) fn change_table_if<R>(
        &mut self,
        head: TableHead,
        change: impl FnOnce(&mut Heap, &mut TableHead) -> Result<(R, bool)>,
    ) -> Result<R> {
        let before = self.changed;
        let (result, changed) = self.change_table(head, change)?;
        self.changed = before || changed;
        Ok(result)
    }

    /// Makes the value a table that `fill` fills, in place of bytes or of none. Nothing has changed if this fails.
    pub(crate) fn make_table(
        &mut self,
        encoding: Encoding,
        fill: impl FnOnce(&mut Heap, &MemberHasher, &mut TableHead) -> Result<()>,
    ) -> Result<()> {
        self.make_table_before(encoding, &[], fill)
    }

    /// As [`ValueMut::make_table`], with `tail` behind the table's head.
    pub(crate) fn make_table_before(
        &mut self,
        encoding: Encoding,
        tail: &[u8],
        fill: impl FnOnce(&mut Heap, &MemberHasher, &mut TableHead) -> Result<()>,
    ) -> Result<()> {
        let mut head = TableHead::default();
        let Keyspace { heap, hasher, .. } = &mut *self.keyspace;
        let filled = fill(heap, &hasher.members, &mut head);
        if let Err(error) = filled.and_then(|()| self.set_len(encoding, TableHead::BYTES + tail.len(), 0)) {
            reclaim::destroy(&mut self.keyspace.heap, head)?;
            return Err(error);
        }
        self.entry()?.set_table(&mut self.keyspace.heap.arena, &head)?;
        self.write_tail(tail)
    }

    /// Writes what lies behind the head of the table that the value is.
    fn write_tail(&mut self, tail: &[u8]) -> Result<()> {
        if !tail.is_empty() {
            self.part_mut(TableHead::BYTES, tail.len())?.copy_from_slice(tail);
        }
        Ok(())
    }

    /// As [`ValueMut::make_table`], of members that stay what they are, which is no change of the value: a write for which there
    /// is no memory after this has changed nothing, and must not be told or logged.
    pub(crate) fn convert_to_table(
        &mut self,
        encoding: Encoding,
        fill: impl FnOnce(&mut Heap, &MemberHasher, &mut TableHead) -> Result<()>,
    ) -> Result<()> {
        self.without_change(|value| value.make_table(encoding, fill))
    }

    /// Does to the value what is no change of it.
    pub(crate) fn without_change<R>(&mut self, rewrite: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let changed = self.changed;
        let done = rewrite(self);
        self.changed = changed;
        done
    }

    /// Gives a table another encoding of its type, whose values have `tail` behind the table's head. That alone is no change.
    pub(crate) fn relabel_table(&mut self, encoding: Encoding, tail: &[u8]) -> Result<()> {
        self.without_change(|value| {
            value.set_len(encoding, TableHead::BYTES + tail.len(), TableHead::BYTES)?;
            value.write_tail(tail)
        })
    }
}

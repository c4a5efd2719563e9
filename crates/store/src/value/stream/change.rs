//! Changing a stream: entries that are added, deleted and trimmed, groups, consumers and what is pending.
//!
//! Relies on `ValueMut` for writing back what is changed here, and for telling it.

use quire_arena::Handle;

use crate::db::DbId;
use crate::encoding::{Encoding, StreamEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entries::check_len;
use crate::keyspace::value::ValueMut;
use crate::limits::PACKED_MAX_BYTES;

use super::block::{self, BlockHeader, NewEntry};
use super::groups::{StreamConsumer, StreamGroup};
use super::id::StreamId;
use super::items::{self, Anchor};
use super::limits::{MAX_BLOCK_BYTES, MAX_BLOCK_ENTRIES};
use super::nodes::FIRST_PENDING;
use super::packed::{self, HEADER_BYTES, PackedHeader};
use super::parts::{BlockLimit, Parts, StreamCut, StreamTrim};
use super::view::StreamView;

/// A stream to be changed, or made. It stays if it has no entries any more.
#[derive(Debug)]
pub struct StreamMut<'a> {
    value: ValueMut<'a>,
    /// The anchor of what was a large stream when it was looked up: it stays one, and the anchor where it is.
    anchor: Option<Handle>,
}

/// Looks a stream up to change it.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that write
/// also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
#[inline]
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8]) -> Result<StreamMut<'a>> {
    let value = keyspace.open_mut(db, key, ValueType::Stream)?;
    let anchor = match value.encoding()?.map(Encoding::of_stream).transpose()? {
        Some(StreamEncoding::Tree) => Some(items::anchor_object(value.arena(), &value.table()?)?),
        Some(StreamEncoding::Packed) | None => None,
    };
    Ok(StreamMut { value, anchor })
}

impl StreamMut<'_> {
    /// Says that it is made aside, under a [`Keyspace::aside_key`]: what becomes of it is no change.
    pub fn made_aside(mut self) -> Self {
        self.value.set_aside();
        self
    }

    /// What is changed is told to no client that watches the key or waits for it, and noted for no notification: what is pending is no
    /// part of the value that these have seen.
    pub fn tell_no_watcher(&mut self) {
        self.value.tell_no_watcher();
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.value.get().is_some()
    }

    /// The stream as it is now.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn view(&self) -> Result<StreamView<'_>> {
        let entry = self.value.get().map(|stream| *stream.entry());
        StreamView::of(self.value.arena(), self.value.hasher(), entry, self.anchor)
    }

    fn encoding(&self) -> Result<Option<StreamEncoding>> {
        self.value.encoding()?.map(Encoding::of_stream).transpose()
    }

    fn packed(&self) -> Result<(PackedHeader, &[u8])> {
        PackedHeader::split(self.value.bytes()?)
    }

    fn limit(&self) -> BlockLimit {
        BlockLimit { bytes: self.value.limit(&MAX_BLOCK_BYTES), entries: self.value.limit(&MAX_BLOCK_ENTRIES) }
    }

    /// Does something to what a large stream consists of.
    fn change<R>(&mut self, change: impl FnOnce(&mut Parts<'_>) -> Result<R>) -> Result<R> {
        let (hasher, head) = (self.value.hasher(), self.value.table()?);
        self.value.change_table(head, |heap, head| change(&mut Parts { heap, head, hasher: &hasher }))
    }

    /// Makes the value a packed stream.
    fn write_packed(&mut self, header: PackedHeader, block: &[u8]) -> Result<()> {
        self.value.set_len(Encoding::PackedStream, HEADER_BYTES + block.len(), 0)?;
        let bytes = self.value.bytes_mut()?;
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        bytes[HEADER_BYTES..].copy_from_slice(block);
        Ok(())
    }

    /// Makes a stream without entries, if there is none.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn create(&mut self) -> Result<()> {
        if self.exists() { Ok(()) } else { self.write_packed(PackedHeader::default(), &[]) }
    }

    /// Adds an entry of these fields and values, one after the other, behind all others: its ID is above the last one.
    ///
    /// # Errors
    /// As [`open_mut`]; the stream holds what it held then.
    pub fn add(&mut self, id: StreamId, words: &[&[u8]]) -> Result<()> {
        let entry = NewEntry { id, words };
        check_len(entry.bytes())?;
        match self.encoding()? {
            None => self.begin(PackedHeader::default(), &entry)?,
            Some(StreamEncoding::Packed) => self.add_packed(&entry)?,
            Some(StreamEncoding::Tree) => self.append(&entry)?,
        }
        self.value.count_member();
        Ok(())
    }

    /// Adds an entry to a large stream.
    fn append(&mut self, entry: &NewEntry<'_>) -> Result<()> {
        let (anchor, limit) = (self.anchor, self.limit());
        let mut bytes = self.value.take_scratch();
        bytes.clear();
        let added = self.change(|parts| parts.append(anchor, entry, limit, &mut bytes));
        self.value.give_scratch(bytes);
        added
    }

    /// Gives a stream without entries its first one.
    fn begin(&mut self, header: PackedHeader, entry: &NewEntry<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        block::begin(&mut bytes, entry);
        let header = PackedHeader { last_id: entry.id, added: header.added.saturating_add(1), ..header };
        if bytes.len() <= PACKED_MAX_BYTES {
            return self.write_packed(header, &bytes);
        }
        let anchor = anchor_of(&header, 1);
        self.value.make_table(Encoding::TreeStream, |heap, hasher, head| {
            items::begin(heap, head, anchor, FIRST_PENDING)?;
            Parts { heap, head, hasher }.add_block(entry.id, &bytes)
        })
    }

    fn add_packed(&mut self, entry: &NewEntry<'_>) -> Result<()> {
        let (header, block) = self.packed()?;
        if block.is_empty() {
            return self.begin(header, entry);
        }
        if !self.limit().allows(block, entry)? {
            self.unpack()?;
            return self.append(entry);
        }
        let mut tail = self.value.take_scratch();
        tail.clear();
        let appended = self.packed().and_then(|(_, block)| block::appended(&mut tail, block, entry));
        let written = appended.and_then(|own| {
            let start = self.value.bytes()?.len();
            self.value.grow(Encoding::PackedStream, start + tail.len(), 0)?;
            let bytes = self.value.bytes_mut()?;
            bytes[start..].copy_from_slice(&tail);
            let header = PackedHeader { last_id: entry.id, added: header.added.saturating_add(1), ..header };
            bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
            bytes[HEADER_BYTES..][..block::HEADER_BYTES].copy_from_slice(&own.to_bytes());
            Ok(())
        });
        self.value.give_scratch(tail);
        written
    }

    /// Makes a packed stream a large one, which alone is no change of it.
    fn unpack(&mut self) -> Result<()> {
        let (header, block) = self.packed()?;
        let (anchor, block) = (anchor_of(&header, packed::count(block)?), block.to_vec());
        self.value.convert_to_table(Encoding::TreeStream, |heap, hasher, head| {
            items::begin(heap, head, anchor, FIRST_PENDING)?;
            if block.is_empty() {
                return Ok(());
            }
            Parts { heap, head, hasher }.add_block(BlockHeader::read(&block)?.first, &block)
        })
    }

    /// Makes it a large stream that has or gets groups; it exists.
    fn as_tree<R>(&mut self, change: impl FnOnce(&mut Parts<'_>) -> Result<R>) -> Result<R> {
        match self.encoding()? {
            Some(StreamEncoding::Packed) => self.unpack()?,
            Some(StreamEncoding::Tree) | None => {}
        }
        self.change(change)
    }

    /// Deletes an entry; returns whether it was there.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn delete(&mut self, id: StreamId) -> Result<bool> {
        if self.view()?.entry(id)?.is_none() {
            return Ok(false);
        }
        match self.encoding()? {
            None => return Ok(false),
            Some(StreamEncoding::Tree) => {
                self.change(|parts| parts.delete(id))?;
            }
            Some(StreamEncoding::Packed) => {
                let (header, block) = self.packed()?;
                let Some(range) = block::find(block, id)? else { return Ok(false) };
                let header = PackedHeader { max_deleted_id: header.max_deleted_id.max(id), ..header };
                self.cut_packed(header, range, 1)?;
            }
        }
        self.value.count_member();
        Ok(true)
    }

    /// Takes the bytes of so many entries out of a packed stream.
    fn cut_packed(&mut self, header: PackedHeader, range: std::ops::Range<usize>, entries: u32) -> Result<()> {
        let (_, block) = self.packed()?;
        let mut own = BlockHeader::read(block)?;
        if own.count <= entries {
            self.value.set_len(Encoding::PackedStream, HEADER_BYTES, HEADER_BYTES)?;
        } else {
            (own.count, own.deleted) = (own.count - entries, own.deleted.saturating_add(entries));
            let len = HEADER_BYTES + block.len() - range.len();
            let bytes = self.value.bytes_mut()?;
            bytes.copy_within(HEADER_BYTES + range.end.., HEADER_BYTES + range.start);
            bytes[HEADER_BYTES..][..block::HEADER_BYTES].copy_from_slice(&own.to_bytes());
            self.value.set_len(Encoding::PackedStream, len, len)?;
        }
        self.value.part_mut(0, HEADER_BYTES)?.copy_from_slice(&header.to_bytes());
        Ok(())
    }

    /// Takes the first entries out; returns how many.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn trim(&mut self, trim: &StreamTrim) -> Result<u64> {
        let removed = match self.encoding()? {
            None => 0,
            Some(StreamEncoding::Packed) => self.trim_packed(trim)?,
            Some(StreamEncoding::Tree) => {
                if !self.view()?.has_more_than(trim.cut)? {
                    return Ok(0);
                }
                let (hasher, head) = (self.value.hasher(), self.value.table()?);
                self.value.change_table_if(head, |heap, head| {
                    let removed = Parts { heap, head, hasher: &hasher }.trim(trim)?;
                    Ok((removed, removed > 0))
                })?
            }
        };
        self.value.count_members(removed);
        Ok(removed)
    }

    fn trim_packed(&mut self, trim: &StreamTrim) -> Result<u64> {
        let (header, block) = self.packed()?;
        let count = packed::count(block)?;
        let is_small = matches!(trim.cut, StreamCut::MaxLen(most) if count <= most);
        if count == 0 || is_small || trim.limit > 0 && count > trim.limit {
            return Ok(0);
        }
        if trim.drops(count, count, || block::last_id(block))? {
            self.cut_packed(header, 0..0, u32::MAX)?;
            return Ok(count);
        }
        if trim.whole_blocks {
            return Ok(0);
        }
        let (range, gone) = block::front(block, |number, id| trim.keeps(count - number, id))?;
        if gone > 0 {
            self.cut_packed(header, range, gone)?;
        }
        Ok(gone.into())
    }

    /// Says which ID was the last one, and maybe how many entries were added and which was the highest one deleted. The stream exists.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn set_ids(&mut self, last_id: StreamId, added: Option<u64>, max_deleted_id: Option<StreamId>) -> Result<()> {
        match self.encoding()? {
            Some(StreamEncoding::Tree) => self.change(|parts| {
                items::change_anchor(parts.heap, parts.head, |anchor| {
                    anchor.set_last_id(last_id);
                    anchor.added = added.unwrap_or(anchor.added);
                    anchor.set_max_deleted_id(max_deleted_id.unwrap_or(anchor.max_deleted_id()));
                })
            }),
            Some(StreamEncoding::Packed) | None => {
                let (old, _) = self.packed()?;
                let header = PackedHeader {
                    last_id,
                    added: added.unwrap_or(old.added),
                    max_deleted_id: max_deleted_id.unwrap_or(old.max_deleted_id),
                };
                self.value.part_mut(0, HEADER_BYTES)?.copy_from_slice(&header.to_bytes());
                Ok(())
            }
        }
    }

    /// Adds a group that the stream, which exists, has not.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<i64>) -> Result<()> {
        check_len(name.len())?;
        self.as_tree(|parts| parts.create_group(name, last_id, entries_read))
    }

    /// Frees a group with all that it has.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn destroy_group(&mut self, group: &StreamGroup) -> Result<()> {
        self.change(|parts| parts.destroy_group(group))
    }

    /// Says which entry a group has delivered last, and how many up to that.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn set_group(&mut self, group: &StreamGroup, last_id: StreamId, entries_read: Option<i64>) -> Result<()> {
        self.change(|parts| parts.set_group(group, last_id, entries_read))
    }

    /// Adds a consumer that the group has not, and returns it.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn create_consumer(&mut self, group: &StreamGroup, name: &[u8], seen_ms: i64) -> Result<StreamConsumer> {
        check_len(name.len())?;
        self.change(|parts| parts.create_consumer(group, name, seen_ms))?;
        self.view()?.consumer(group, name)?.ok_or_else(|| StoreError::damaged("a consumer that was made is not there"))
    }

    /// Frees a consumer, and forgets what is pending for it.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn delete_consumer(&mut self, group: &StreamGroup, consumer: &StreamConsumer) -> Result<()> {
        self.change(|parts| parts.delete_consumer(group, consumer))
    }

    /// Notes when a consumer has asked for something, which is no change.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn touch_consumer(&mut self, consumer: &StreamConsumer, seen_ms: i64) -> Result<()> {
        let (hasher, head) = (self.value.hasher(), self.value.table()?);
        self.value.change_table_if(head, |heap, head| {
            Parts { heap, head, hasher: &hasher }.touch_consumer(consumer, seen_ms).map(|()| ((), false))
        })
    }

    /// Notes when a consumer was given an entry, which is no change. It is the last that is done with a consumer that was looked up: one
    /// of an older program's image moves for it, and keeps its one time if there is no memory for that.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn note_activity(&mut self, consumer: StreamConsumer, active_ms: i64) -> Result<()> {
        let (hasher, head) = (self.value.hasher(), self.value.table()?);
        self.value.change_table_if(head, |heap, head| {
            Parts { heap, head, hasher: &hasher }.note_activity(&consumer, active_ms).map(|()| ((), false))
        })
    }

    /// Has an entry be pending for a consumer from now on: its ID, when it was delivered last, and how often.
    ///
    /// # Errors
    /// As [`open_mut`]; nothing has changed then.
    pub fn set_pending(
        &mut self,
        group: &StreamGroup,
        consumer: &StreamConsumer,
        entry: (StreamId, i64, u64),
    ) -> Result<()> {
        self.change(|parts| parts.set_pending(group, consumer, entry))
    }

    /// An entry is not pending any more; returns whether it was.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn remove_pending(&mut self, group: &StreamGroup, id: StreamId) -> Result<bool> {
        if self.view()?.pending_entry(group, id)?.is_none() {
            return Ok(false);
        }
        self.value.count_member();
        self.change(|parts| parts.remove_pending(group, id))
    }
}

fn anchor_of(header: &PackedHeader, entries: u64) -> Anchor {
    let mut anchor = Anchor { entries, added: header.added, ..Anchor::default() };
    anchor.set_last_id(header.last_id);
    anchor.set_max_deleted_id(header.max_deleted_id);
    anchor
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use crate::config::StoreConfig;
    use crate::db::DbId;
    use crate::heap::Heap;
    use crate::table::TableHead;

    use super::super::items::{self, ConsumerFields, HEADER_BYTES, ItemHeader, ItemKind};
    use super::*;

    /// Does something to what a large stream consists of, which is no change.
    fn with_parts(stream: &mut StreamMut<'_>, change: impl FnOnce(&mut Heap, &mut TableHead) -> Result<()>) {
        let head = stream.value.table().unwrap();
        stream.value.change_table_if(head, |heap, head| change(heap, head).map(|()| ((), false))).unwrap();
    }

    /// The consumer of a group that both have these names.
    fn look(stream: &StreamMut<'_>) -> Result<StreamConsumer> {
        let view = stream.view()?;
        Ok(view.consumer(&view.group(b"g")?.unwrap(), b"name")?.unwrap())
    }

    /// A stream with that consumer, as an older program made it: it wrote neither the mark nor what follows the name.
    fn with_old_consumer(store: &mut Store) -> StreamMut<'_> {
        let mut stream = open_mut(store, DbId(0), b"s").unwrap();
        stream.create().unwrap();
        stream.create_group(b"g", StreamId::MIN, None).unwrap();
        let group = stream.view().unwrap().group(b"g").unwrap().unwrap();
        let consumer = stream.create_consumer(&group, b"name", 5).unwrap();
        assert_eq!(consumer.active_ms, None);
        let bytes = HEADER_BYTES + size_of::<ConsumerFields>() + 4;
        with_parts(&mut stream, |heap, head| {
            heap.arena.get_mut::<ItemHeader>(consumer.item)?.kind = ItemKind::Consumer as u32;
            items::resize(heap, head, consumer.item, bytes, bytes).map(drop)
        });
        stream
    }

    #[test]
    fn a_consumer_of_an_older_program_has_one_time_until_it_is_given_something() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut stream = with_old_consumer(&mut store);
        let old = look(&stream).unwrap();
        assert_eq!((old.seen_ms, old.active_ms, &*old.name), (5, Some(5), &b"name"[..]));
        stream.touch_consumer(&old, 7).unwrap();
        let old = look(&stream).unwrap();
        stream.note_activity(old, 8).unwrap();
        let timed = look(&stream).unwrap();
        stream.touch_consumer(&timed, 9).unwrap();
        let timed = look(&stream).unwrap();
        assert_eq!((timed.seen_ms, timed.active_ms, &*timed.name), (9, Some(8), &b"name"[..]));
        drop(stream);
        store.check_value(DbId(0), b"s").unwrap();
    }

    #[test]
    fn a_consumer_of_an_older_program_is_given_something_though_there_is_no_memory_for_a_time() {
        let mut store = Store::create(StoreConfig { max_memory_bytes: 8 << 20, ..StoreConfig::default() }).unwrap();
        let mut stream = with_old_consumer(&mut store);
        with_parts(&mut stream, |heap, _| {
            loop {
                match heap.alloc(HEADER_BYTES + size_of::<ConsumerFields>() + 4 + 8) {
                    Ok(_) => {}
                    Err(StoreError::OutOfMemory { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        });
        let old = look(&stream).unwrap();
        stream.note_activity(old, 8).unwrap();
        let still_old = look(&stream).unwrap();
        assert_eq!((still_old.seen_ms, still_old.active_ms, &*still_old.name), (5, Some(5), &b"name"[..]));
    }

    #[test]
    fn a_consumer_whose_mark_is_wrong_writes_no_time_into_another_object() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        let mut stream = with_old_consumer(&mut store);
        let old = look(&stream).unwrap();
        with_parts(&mut stream, |heap, _| {
            // There is no room for a time behind the name.
            assert!(heap.arena.usable_size(old.item)? < HEADER_BYTES + size_of::<ConsumerFields>() + 4 + 8);
            heap.arena.get_mut::<ItemHeader>(old.item)?.kind |= items::TIMED;
            Ok(())
        });
        let damaged = |found: Result<()>| assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
        damaged(look(&stream).map(drop));
        damaged(stream.note_activity(old, 8));
        drop(stream);
        damaged(store.check_value(DbId(0), b"s").map(drop));
    }
}

//! Changing a list: adding, replacing and taking away elements.
//!
//! Relies on `ValueMut` for writing back what is changed here, and for telling it.

use std::ops::Range;

use crate::db::{DbId, ExpiryChange};
use crate::encoding::{Encoding, ListEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::Keyspace;
use crate::keyspace::copying::{Making, Purpose};
use crate::keyspace::entries::check_len;
use crate::keyspace::value::ValueMut;
use crate::keyspace::value_copy::{MadeValue, ValueCopy};
use crate::limits::PACKED_MAX_BYTES;

use super::chain::{Chain, keeps_at_once, without};
use super::limits::{MAX_NODE, NodeLimit};
use super::nodes::{self, Node};
use super::packed::{self, SoughtElement};
use super::view::{End, ListValue, view_to_change};
use super::whole::{self, COUNT_BYTES};

/// Bytes of a listpack of Redis besides its elements, which count where it is decided how a list is stored.
const LISTPACK_BYTES: usize = 7;
/// Items in the table of a chain of one node: that and the anchor.
pub(super) const SMALLEST_CHAIN: u64 = 2;

/// A list to be changed, or made by the first element that is added. The key goes with the last element.
#[derive(Debug)]
pub struct ListMut<'a> {
    pub(super) value: ValueMut<'a>,
    /// The list doesn't exist yet, and what is going to be added is too much for a packed one.
    long: bool,
}

/// How a list is made shorter.
pub(super) enum Cut {
    /// Nothing was prepared.
    AtOnce,
    /// Its nodes were divided in steps.
    Divided(Box<MadeValue>),
    /// Its nodes are being divided, or the work on another key must end first.
    NotYet,
}

/// Looks a list up to change it.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that write
/// also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
#[inline]
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8]) -> Result<ListMut<'a>> {
    Ok(ListMut { value: keyspace.open_mut(db, key, ValueType::List)?, long: false })
}

/// Moves an element from an end of one list to an end of another one, which may be the same, and returns it; `None` if the
/// first one doesn't exist.
///
/// # Errors
/// As [`open_mut`]; nothing has changed then.
pub fn move_element(
    keyspace: &mut Keyspace,
    db: DbId,
    (from, from_end): (&[u8], End),
    (to, to_end): (&[u8], End),
) -> Result<Option<Vec<u8>>> {
    let source = view_to_change(keyspace, db, from)?;
    let len = source.len()?;
    let index = if from_end == End::Front { 0 } else { len.saturating_sub(1) };
    let Some(element) = source.get(index)? else { return Ok(None) };
    let moved = element.text(&mut itoa::Buffer::new()).to_vec();
    let mut target = open_mut(keyspace, db, to)?;
    if from != to {
        target.make_room([moved.as_slice()])?;
    }
    // Added first: if there is no memory for that, nothing has changed. In the same list the element that is there twice then goes
    // once, at whichever end; the list does not get longer, so it keeps its encoding.
    target.push(to_end, &moved)?;
    target.value.count_elsewhere();
    drop(target);
    open_mut(keyspace, db, from)?.pop(from_end, 1, &mut |_| true)?;
    Ok(Some(moved))
}

impl ListMut<'_> {
    /// Says that it is made aside, under a [`Keyspace::aside_key`]: what becomes of it is no change.
    pub fn made_aside(mut self) -> Self {
        self.value.set_aside();
        self
    }

    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.value.get().is_some()
    }

    /// Elements of the list.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn len(&self) -> Result<u64> {
        self.body()?.map_or(Ok(0), |body| body.len(self.value.arena()))
    }

    /// Whether the list has no elements, so that the key does not exist.
    pub fn is_empty(&self) -> bool {
        !self.exists()
    }

    pub(super) fn body(&self) -> Result<Option<ListValue<'_>>> {
        self.value.get().map(|list| ListValue::read(self.value.arena(), list.entry())).transpose()
    }

    pub(super) fn encoding(&self) -> Result<Option<ListEncoding>> {
        self.value.encoding()?.map(Encoding::of_list).transpose()
    }

    pub(super) fn limit(&self) -> NodeLimit {
        NodeLimit::of(self.value.number(&MAX_NODE))
    }

    /// Says which elements are going to be added by one command, so that a list which they make too large for its encoding
    /// changes it once.
    ///
    /// # Errors
    /// As [`open_mut`]; the list holds what it held then.
    pub fn make_room<'e>(&mut self, elements: impl IntoIterator<Item = &'e [u8]>) -> Result<()> {
        let (mut bytes, mut count) = (0usize, 0);
        for element in elements {
            check_len(element.len())?;
            (bytes, count) = (bytes.saturating_add(element.len()), count + 1);
        }
        let (old_count, old) = match self.encoding()? {
            Some(ListEncoding::Nodes) => return Ok(()),
            Some(ListEncoding::Packed) => whole::parts(self.value.bytes()?)?,
            None => (0, &[][..]),
        };
        let (bytes, count) = (bytes.saturating_add(LISTPACK_BYTES + old.len()), old_count + count);
        if self.limit().allows(bytes, count) && count <= whole::MAX_COUNT {
            return Ok(());
        }
        if self.exists() {
            return self.unpack();
        }
        self.long = true;
        Ok(())
    }

    /// Makes a packed list a chain of nodes, which alone is no change of it.
    fn unpack(&mut self) -> Result<()> {
        let limit = self.limit();
        let (count, elements) = whole::parts(self.value.bytes()?)?;
        let elements = elements.to_vec();
        self.value.convert_to_table(Encoding::NodeList, |heap, hasher, head| {
            Chain { heap, head, hasher, limit }.fill(&elements, count)
        })
    }

    /// Does something to the chain of nodes that the list is.
    fn change<R>(&mut self, change: impl FnOnce(&mut Chain<'_>) -> Result<R>) -> Result<R> {
        let (limit, hasher, head) = (self.limit(), self.value.hasher(), self.value.table()?);
        self.value.change_table(head, |heap, head| change(&mut Chain { heap, head, hasher: &hasher, limit }))
    }

    /// Adds an element at one end; returns how many there are then. [`ListMut::make_room`] comes first; without it a list stays packed up
    /// to what one may hold at most.
    ///
    /// # Errors
    /// As [`open_mut`]; the list holds what it held then.
    pub fn push(&mut self, end: End, element: &[u8]) -> Result<u64> {
        check_len(element.len())?;
        let mut encoded = self.value.take_scratch();
        encoded.clear();
        packed::push(&mut encoded, element);
        let pushed = self.push_encoded(end, &encoded);
        self.value.give_scratch(encoded);
        pushed
    }

    fn push_encoded(&mut self, end: End, encoded: &[u8]) -> Result<u64> {
        let len = match self.encoding()? {
            Some(ListEncoding::Nodes) => self.change(|chain| chain.push(end, encoded))?,
            Some(ListEncoding::Packed) => {
                let (count, elements) = whole::parts(self.value.bytes()?)?;
                let at = if end == End::Front { 0 } else { elements.len() };
                if count >= whole::MAX_COUNT || elements.len() + encoded.len() > PACKED_MAX_BYTES {
                    self.unpack()?;
                    self.change(|chain| chain.push(end, encoded))?
                } else {
                    self.splice(at, 0, encoded, count + 1)?;
                    count as u64 + 1
                }
            }
            None => {
                self.create(encoded)?;
                1
            }
        };
        self.value.count_member();
        Ok(len)
    }

    fn create(&mut self, encoded: &[u8]) -> Result<()> {
        let limit = self.limit();
        if !self.long {
            return self.splice(0, 0, encoded, 1);
        }
        self.value
            .make_table(Encoding::NodeList, |heap, hasher, head| Chain { heap, head, hasher, limit }.fill(encoded, 1))
    }

    /// Puts bytes of elements in the place of others in a packed list, or makes one.
    fn splice(&mut self, at: usize, removed: usize, inserted: &[u8], count: usize) -> Result<()> {
        let old_len = self.value.get().map_or(COUNT_BYTES, |list| list.len());
        let (from, to) = (COUNT_BYTES + at + removed, COUNT_BYTES + at + inserted.len());
        let new_len = (old_len + inserted.len()).checked_sub(removed).filter(|_| from <= old_len);
        let new_len = new_len.ok_or_else(|| StoreError::damaged("a packed list cut short"))?;
        if new_len < old_len {
            self.value.bytes_mut()?.copy_within(from.., to);
        }
        let keep = if self.exists() { old_len.min(new_len) } else { 0 };
        if new_len != old_len || keep == 0 {
            self.value.set_len(Encoding::PackedList, new_len, keep)?;
        }
        let bytes = self.value.bytes_mut()?;
        if new_len > old_len {
            bytes.copy_within(from..old_len, to);
        }
        bytes[COUNT_BYTES + at..to].copy_from_slice(inserted);
        whole::set_count(bytes, count);
        Ok(())
    }

    /// Keeps only the elements of a range that lies in the list; deletes the key if there are none.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn keep(&mut self, range: Range<u64>) -> Result<()> {
        self.cut(range, Cut::AtOnce)
    }

    /// As [`ListMut::keep`], in steps as [`ListMut::pop_in_steps`]: false as long as these are under way.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn keep_in_steps(&mut self, owner: u64, range: Range<u64>) -> Result<bool> {
        match self.cut_for(Some(owner), &range)? {
            Cut::NotYet => Ok(false),
            cut => self.cut(range, cut).map(|()| true),
        }
    }

    /// Has the nodes divided in steps, if there is an owner and many of them go.
    pub(super) fn cut_for(&mut self, owner: Option<u64>, kept: &Range<u64>) -> Result<Cut> {
        let Some(owner) = owner else { return Ok(Cut::AtOnce) };
        let stays = kept.end.saturating_sub(kept.start);
        let head = match self.encoding()? {
            Some(ListEncoding::Nodes) if stays > 0 && stays < self.len()? => Some(self.value.table()?),
            Some(ListEncoding::Nodes | ListEncoding::Packed) | None => None,
        };
        let Some(head) = head else { return self.value.cancel_steps(owner).map(|()| Cut::AtOnce) };
        if keeps_at_once(self.value.arena(), &head, kept)? {
            return self.value.cancel_steps(owner).map(|()| Cut::AtOnce);
        }
        let begin = |heap: &mut Heap| nodes::begin_split(heap, head, kept.clone()).map(ValueCopy::Split);
        match self.value.make_in_steps(owner, Purpose::Split(kept.clone()), begin) {
            Ok(Making::Made(made)) => Ok(Cut::Divided(made)),
            Ok(Making::UnderWay | Making::Busy) => Ok(Cut::NotYet),
            // What makes a list shorter needs no memory.
            Err(StoreError::OutOfMemory { .. }) => Ok(Cut::AtOnce),
            Err(error) => Err(error),
        }
    }

    pub(super) fn cut(&mut self, kept: Range<u64>, cut: Cut) -> Result<()> {
        let len = self.len()?;
        let gone = len.saturating_sub(kept.end.saturating_sub(kept.start));
        if gone == 0 {
            return Ok(());
        }
        self.value.count_members(gone);
        if gone == len {
            return self.value.delete();
        }
        match (self.encoding()?, cut) {
            (Some(ListEncoding::Nodes), Cut::Divided(made)) => self.keep_divided(*made)?,
            (Some(ListEncoding::Nodes), Cut::AtOnce | Cut::NotYet) => self.change(|chain| chain.keep(kept))?,
            (Some(ListEncoding::Packed), _) => return self.keep_packed(kept),
            (None, _) => return Ok(()),
        }
        self.shrink()
    }

    fn keep_divided(&mut self, made: MadeValue) -> Result<()> {
        let (ValueCopy::Split(split), Ok(nodes)) = (made.value, made.nodes.try_into()) else {
            return Err(StoreError::damaged("a copy where a divided list was asked for"));
        };
        self.change(|chain| chain.keep_split(split, nodes))
    }

    fn keep_packed(&mut self, range: Range<u64>) -> Result<()> {
        let (count, elements) = whole::parts(self.value.bytes()?)?;
        let kept = packed::offset_of(elements, range.start as usize, count)?
            ..packed::offset_of(elements, range.end as usize, count)?;
        let (behind, left) = (elements.len() - kept.end, (range.end - range.start) as usize);
        if behind > 0 {
            self.splice(kept.end, behind, &[], left)?;
        }
        if kept.start > 0 { self.splice(0, kept.start, &[], left) } else { Ok(()) }
    }

    /// Packs a chain again of which only a small node is left. If there is no memory for that it stays a chain.
    pub(super) fn shrink(&mut self) -> Result<()> {
        match self.encoding()? {
            Some(ListEncoding::Nodes) => {}
            Some(ListEncoding::Packed) | None => return Ok(()),
        }
        let (arena, head, limit) = (self.value.arena(), self.value.table()?, self.limit().half());
        if head.count != SMALLEST_CHAIN {
            return Ok(());
        }
        let node = Node::read(arena, &head, nodes::anchor(arena, &head)?.first)?;
        if !limit.allows(LISTPACK_BYTES + node.used(), node.count()) || node.count() > whole::MAX_COUNT {
            return Ok(());
        }
        let mut bytes = vec![0; COUNT_BYTES];
        whole::set_count(&mut bytes, node.count());
        bytes.extend_from_slice(node.elements(arena)?);
        match self.value.replace(Encoding::PackedList, &bytes, ExpiryChange::Keep) {
            Err(StoreError::OutOfMemory { .. }) => Ok(()),
            done => done,
        }
    }

    /// Puts another element in the place of the one at `index`; false if there is none. [`ListMut::make_room`] comes first.
    ///
    /// # Errors
    /// As [`open_mut`]; the list holds what it held then.
    pub fn set(&mut self, index: u64, element: &[u8]) -> Result<bool> {
        check_len(element.len())?;
        if index >= self.len()? {
            return Ok(false);
        }
        let encoded = packed::encoded(element);
        match self.encoding()? {
            Some(ListEncoding::Nodes) => {
                self.change(|chain| chain.set(index, &encoded))?;
                self.shrink()?;
            }
            Some(ListEncoding::Packed) => {
                let (count, elements) = whole::parts(self.value.bytes()?)?;
                let at = packed::offset_of(elements, index as usize, count)?;
                let span = packed::item_at(elements, at)?.span;
                self.splice(at, span.len(), &encoded, count)?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Adds an element before or behind the first one that equals `pivot`; false if there is none.
    ///
    /// # Errors
    /// As [`open_mut`]; the list holds what it held then.
    pub fn insert(&mut self, pivot: &[u8], behind: bool, element: &[u8]) -> Result<bool> {
        check_len(element.len())?;
        let Some(body) = self.body()? else { return Ok(false) };
        let (wanted, mut index, mut found) = (SoughtElement::new(pivot), 0, false);
        body.walk(self.value.arena(), End::Front, 0, &mut |element| {
            found = wanted.is(&element);
            index += u64::from(!found);
            Ok(!found)
        })?;
        if !found {
            return Ok(false);
        }
        self.make_room([element])?;
        let (index, encoded) = (index + u64::from(behind), packed::encoded(element));
        match self.encoding()? {
            Some(ListEncoding::Nodes) => self.change(|chain| chain.insert(index, &encoded))?,
            Some(ListEncoding::Packed) => {
                let (count, elements) = whole::parts(self.value.bytes()?)?;
                let at = packed::offset_of(elements, index as usize, count)?;
                self.splice(at, 0, &encoded, count + 1)?;
            }
            None => return Ok(false),
        }
        self.value.count_member();
        Ok(true)
    }

    /// Whether an element equals `wanted`. To look does not change the list, as it might if nothing were found.
    fn contains(&self, wanted: &SoughtElement<'_>) -> Result<bool> {
        let Some(body) = self.body()? else { return Ok(false) };
        let mut found = false;
        body.walk(self.value.arena(), End::Front, 0, &mut |element| {
            found = wanted.is(&element);
            Ok(!found)
        })?;
        Ok(found)
    }

    /// Takes up to `most` elements that equal `element` away, from one end on; returns how many.
    ///
    /// # Errors
    /// As [`open_mut`].
    pub fn remove(&mut self, from: End, element: &[u8], most: u64) -> Result<u64> {
        let wanted = SoughtElement::new(element);
        if !self.contains(&wanted)? {
            return Ok(0);
        }
        let (removed, left) = match self.encoding()? {
            None => return Ok(0),
            Some(ListEncoding::Nodes) => {
                let removed = self.change(|chain| chain.remove_equal(from, &wanted, most))?;
                (removed, self.len()?)
            }
            Some(ListEncoding::Packed) => {
                let (count, elements) = whole::parts(self.value.bytes()?)?;
                let Some((kept, left)) = without(elements, count, from, &wanted, most)? else { return Ok(0) };
                let old = elements.len();
                if left > 0 {
                    self.splice(0, old, &kept, left)?;
                }
                ((count - left) as u64, left as u64)
            }
        };
        self.value.count_members(removed);
        if left == 0 {
            self.value.delete()?;
        } else if removed > 0 {
            self.shrink()?;
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::store::Store;

    #[test]
    fn the_memory_that_a_long_element_took_to_be_added_is_not_kept() {
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let mut store = Store::create(config).unwrap();
        for (len, elements) in [(10, 1), (4 << 20, 2), (10, 3)] {
            let mut list = open_mut(&mut store, DbId(0), b"list").unwrap();
            list.make_room([&vec![b'x'; len][..]]).unwrap();
            assert_eq!(list.push(End::Front, &vec![b'x'; len]).unwrap(), elements);
            drop(list);
            assert!(store.scratch.capacity() < 2 << 20, "after {len} bytes");
        }
    }
}

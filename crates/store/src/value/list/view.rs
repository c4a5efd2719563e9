//! Lists that were looked up once and are then read. A look-up counts as one access.

use std::ops::Range;

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{ListEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::table::TableHead;

use super::nodes::{self, ANCHOR, Node, WalkBudget};
use super::packed::{self, Element, SoughtElement};
use super::whole;

/// One of the two ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first element: LEFT.
    Front,
    /// The last element: RIGHT.
    Back,
}

/// A list's value, by its encoding.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListValue<'a> {
    /// The elements, and how many there are.
    Packed(&'a [u8], usize),
    Nodes(TableHead),
}

/// Calls `f` with some elements that lie one after the other, until it returns false; returns whether it did not.
#[inline]
fn walk_bytes<'a>(
    bytes: &'a [u8],
    count: usize,
    from: End,
    skip: usize,
    f: &mut impl FnMut(Element<'a>) -> Result<bool>,
) -> Result<bool> {
    let mut at = match from {
        End::Front => packed::offset_of(bytes, skip, count)?,
        End::Back => packed::offset_of(bytes, count.saturating_sub(skip), count)?,
    };
    for _ in skip..count {
        if from == End::Front
            && let Some((string, next)) = packed::short_string_at(bytes, at)
        {
            at = next;
            if !f(Element::Bytes(string))? {
                return Ok(false);
            }
            continue;
        }
        let item = match from {
            End::Front => packed::item_at(bytes, at)?,
            End::Back => packed::item_before(bytes, at)?,
        };
        at = if from == End::Front { item.span.end } else { item.span.start };
        if !f(item.element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The node that holds the element at `index`, looked for from the nearer end, and the elements before that one in it.
pub(super) fn locate(arena: &Arena, head: &TableHead, index: u64) -> Result<(Node, usize)> {
    let anchor = nodes::anchor(arena, head)?;
    let from = if index < anchor.elements / 2 { End::Front } else { End::Back };
    let (mut number, mut skip) = match from {
        End::Front => (anchor.first, index),
        End::Back => (anchor.last, anchor.elements.saturating_sub(index.saturating_add(1))),
    };
    let mut budget = WalkBudget::new(arena);
    for _ in 0..head.count {
        let node = Node::read(arena, head, number)?;
        budget.pass(&node)?;
        let count = node.count() as u64;
        if skip < count {
            return Ok((node, if from == End::Front { skip } else { count - 1 - skip } as usize));
        }
        skip -= count;
        number = if from == End::Front { node.header.next } else { node.header.previous };
    }
    Err(fewer_elements())
}

fn fewer_elements() -> StoreError {
    StoreError::damaged("a list with fewer elements than it says")
}

impl<'a> ListValue<'a> {
    pub(super) fn read(arena: &'a Arena, entry: &Entry) -> Result<ListValue<'a>> {
        match entry.encoding()?.of_list()? {
            ListEncoding::Packed => {
                let (count, elements) = whole::parts(entry.value(arena)?)?;
                Ok(ListValue::Packed(elements, count))
            }
            ListEncoding::Nodes => Ok(ListValue::Nodes(entry.table(arena)?)),
        }
    }

    pub(super) fn len(&self, arena: &Arena) -> Result<u64> {
        match self {
            ListValue::Packed(_, count) => Ok(*count as u64),
            ListValue::Nodes(head) => Ok(nodes::anchor(arena, head)?.elements),
        }
    }

    /// Calls `f` with the elements from the one at `index` towards the other end, until it returns false.
    pub(super) fn walk(
        &self,
        arena: &'a Arena,
        from: End,
        index: u64,
        f: &mut impl FnMut(Element<'a>) -> Result<bool>,
    ) -> Result<()> {
        let len = self.len(arena)?;
        if index >= len {
            return Ok(());
        }
        let head = match self {
            ListValue::Packed(bytes, count) => {
                let skip = if from == End::Front { index } else { len - 1 - index };
                return walk_bytes(bytes, *count, from, skip as usize, f).map(drop);
            }
            ListValue::Nodes(head) => head,
        };
        let (mut node, within) = locate(arena, head, index)?;
        let mut skip = if from == End::Front { within } else { node.count() - 1 - within };
        let mut left = if from == End::Front { len - index } else { index + 1 };
        // Both bound the walk through an image whose nodes are a ring of their own.
        let mut budget = WalkBudget::new(arena);
        for _ in 0..head.count {
            budget.pass(&node)?;
            if !walk_bytes(node.elements(arena)?, node.count(), from, skip, f)? {
                return Ok(());
            }
            left = left.saturating_sub((node.count() - skip) as u64);
            let number = if from == End::Front { node.header.next } else { node.header.previous };
            if number == ANCHOR {
                // A reply has said how many elements follow, so fewer must not pass for all.
                return if left == 0 { Ok(()) } else { Err(fewer_elements()) };
            }
            (node, skip) = (Node::read(arena, head, number)?, 0);
        }
        Err(StoreError::damaged("a list's nodes have no end"))
    }
}

/// A list to be read. One that doesn't exist has no elements.
#[derive(Clone, Copy, Debug)]
pub struct ListView<'a> {
    keyspace: &'a Keyspace,
    body: Option<ListValue<'a>>,
}

/// Looks a list up.
///
/// # Errors
/// As [`super::open_mut`].
pub fn view<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<ListView<'a>> {
    let entry = keyspace.open(db, key, ValueType::List)?.map(|value| *value.entry());
    let body = entry.map(|entry| ListValue::read(keyspace.arena(), &entry)).transpose()?;
    Ok(ListView { keyspace, body })
}

/// As [`view`], for a command that looks at the list to change it: no read that counts.
pub(super) fn view_to_change<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<ListView<'a>> {
    let entry = keyspace.open_to_change(db, key, ValueType::List)?.map(|value| *value.entry());
    let body = entry.map(|entry| ListValue::read(keyspace.arena(), &entry)).transpose()?;
    Ok(ListView { keyspace, body })
}

impl<'a> ListView<'a> {
    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.body.is_some()
    }

    /// Elements of the list.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], as all operations here.
    pub fn len(&self) -> Result<u64> {
        self.body.map_or(Ok(0), |body| body.len(self.keyspace.arena()))
    }

    /// Whether the list has no elements, so that the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    /// The element at an index.
    ///
    /// # Errors
    /// As [`ListView::len`].
    pub fn get(&self, index: u64) -> Result<Option<Element<'a>>> {
        let mut found = None;
        self.walk(End::Front, index, |element| {
            found = Some(element);
            false
        })?;
        Ok(found)
    }

    /// Calls `f` with the elements of a range that lies in the list.
    ///
    /// # Errors
    /// As [`ListView::len`].
    pub fn range(&self, range: Range<u64>, mut f: impl FnMut(Element<'a>)) -> Result<()> {
        let mut left = range.end.saturating_sub(range.start);
        if left == 0 {
            return Ok(());
        }
        self.walk(End::Front, range.start, |element| {
            f(element);
            left -= 1;
            left > 0
        })
    }

    /// Calls `f` with the elements from an index towards the end opposite to `from`, until it returns false.
    ///
    /// # Errors
    /// As [`ListView::len`].
    pub fn walk(&self, from: End, index: u64, mut f: impl FnMut(Element<'a>) -> bool) -> Result<()> {
        let Some(body) = &self.body else { return Ok(()) };
        body.walk(self.keyspace.arena(), from, index, &mut |element| Ok(f(element)))
    }

    /// Calls `f` with the index of every element that equals `wanted`, from one end on, until it returns false; looks at
    /// `most` elements.
    ///
    /// # Errors
    /// As [`ListView::len`].
    pub fn positions(&self, from: End, wanted: &[u8], most: u64, mut f: impl FnMut(u64) -> bool) -> Result<()> {
        let (wanted, len) = (SoughtElement::new(wanted), self.len()?);
        if most == 0 || len == 0 {
            return Ok(());
        }
        let mut seen = 0;
        self.walk(from, if from == End::Front { 0 } else { len - 1 }, |element| {
            let index = if from == End::Front { seen } else { len.saturating_sub(1 + seen) };
            seen += 1;
            (!wanted.is(&element) || f(index)) && seen < most
        })
    }
}

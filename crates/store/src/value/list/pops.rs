//! Taking elements off the ends of a list.
//!
//! Relies on `change` for cutting a list, at once or in steps.

use crate::encoding::ListEncoding;
use crate::error::{Result, StoreError};

use super::chain::Chain;
use super::change::{Cut, ListMut, SMALLEST_CHAIN};
use super::packed::Element;
use super::view::End;

impl ListMut<'_> {
    /// Calls `f` with up to `count` elements from one end on, and takes them away, unless it returns false. The last one takes the key with
    /// it. Returns how many were taken.
    ///
    /// # Errors
    /// As `open_mut`.
    pub fn pop(&mut self, end: End, count: u64, f: &mut dyn FnMut(Element<'_>) -> bool) -> Result<u64> {
        Ok(self.pop_for(None, end, count, f)?.unwrap_or_default())
    }

    /// As [`ListMut::pop`]; what would free many nodes divides them in steps before, by `Keyspace::copy_step`. `None` as long as that
    /// is under way: nothing has changed and `f` was not called, and `owner` is to ask for the same again when a step has
    /// ended, or to call `Keyspace::cancel_copy`.
    ///
    /// # Errors
    /// As `open_mut`.
    pub fn pop_in_steps(
        &mut self,
        owner: u64,
        end: End,
        count: u64,
        f: &mut dyn FnMut(Element<'_>) -> bool,
    ) -> Result<Option<u64>> {
        self.pop_for(Some(owner), end, count, f)
    }

    fn pop_for(
        &mut self,
        owner: Option<u64>,
        end: End,
        count: u64,
        f: &mut dyn FnMut(Element<'_>) -> bool,
    ) -> Result<Option<u64>> {
        if !self.exists() || count == 0 {
            owner.map_or(Ok(()), |owner| self.value.cancel_steps(owner))?;
            return Ok(Some(0));
        }
        let is_chain = match self.encoding()? {
            Some(ListEncoding::Nodes) => true,
            Some(ListEncoding::Packed) | None => false,
        };
        if is_chain && count == 1 {
            owner.map_or(Ok(()), |owner| self.value.cancel_steps(owner))?;
            if let Some(popped) = self.pop_of_chain(end, f)? {
                return Ok(Some(popped));
            }
        }
        let len = self.len()?;
        if len == 0 {
            // The reply to a pop from a list that exists is an element.
            return Err(StoreError::damaged("a list without elements"));
        }
        let count = count.min(len);
        let kept = if end == End::Front { count..len } else { 0..len - count };
        let cut = self.cut_for(owner, &kept)?;
        if matches!(cut, Cut::NotYet) {
            return Ok(None);
        }
        match (self.tell_popped(end, len, count, f), cut) {
            (Ok(true), cut) => self.cut(kept, cut).map(|()| Some(count)),
            (told, Cut::Divided(made)) => {
                // Nothing but this knows of the tables.
                made.retire(self.value.heap())?;
                told.map(|_| Some(0))
            }
            (told, Cut::AtOnce | Cut::NotYet) => told.map(|_| Some(0)),
        }
    }

    /// As [`ListMut::pop`], of one element of a chain of nodes, the common case, which looks at one node. `None`, and nothing is done, if
    /// it has no more than that one.
    fn pop_of_chain(&mut self, end: End, f: &mut dyn FnMut(Element<'_>) -> bool) -> Result<Option<u64>> {
        let (limit, hasher, head) = (self.limit(), self.value.hasher(), self.value.table()?);
        let (popped, items) = self.value.change_table_if(head, |heap, head| {
            let popped = Chain { heap, head, hasher: &hasher, limit }.pop(end, f)?;
            Ok(((popped, head.count), popped == Some(true)))
        })?;
        if popped == Some(true) {
            self.value.count_member();
            if items == SMALLEST_CHAIN {
                self.shrink()?;
            }
        }
        Ok(popped.map(u64::from))
    }

    /// Calls `f` with so many elements from one end; false if the list has none, or `f` has returned false.
    fn tell_popped(&self, end: End, len: u64, count: u64, f: &mut dyn FnMut(Element<'_>) -> bool) -> Result<bool> {
        let Some(body) = self.body()? else { return Ok(false) };
        let (mut left, mut takes) = (count, true);
        body.walk(self.value.arena(), end, if end == End::Front { 0 } else { len - 1 }, &mut |element| {
            takes = f(element);
            left -= 1;
            Ok(takes && left > 0)
        })?;
        Ok(takes)
    }
}

//! Freeing big tables little by little.
//!
//! A table that is deleted or flushed becomes a node of a list in the arena, so that neither the command that deletes
//! it nor a restart in between pays for its size. Relies on `resize` to take tables apart bucket by bucket.

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::entry::{Entry, Form};
use crate::error::{Result, StoreError};
use crate::root::ReclaimRoot;
use crate::table::TableHead;

/// A table of so many items and buckets or fewer is freed at once.
const SMALL_ITEMS: u64 = 64;

/// What the items of a table that goes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Items {
    /// Entries that belong to another table.
    Borrowed = 0,
    /// Entries with keys and values.
    Entries = 1,
    /// Fields of a hash.
    Fields = 2,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Node {
    next: Handle,
    items: u32,
    head: TableHead,
}

/// The list of tables that are on their way out. The owner writes `root` through after each call.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    pub(crate) root: ReclaimRoot,
    /// The last bucket's items; kept for its capacity.
    batch: Vec<Handle>,
}

impl Reclaim {
    pub(crate) fn new(root: ReclaimRoot) -> Reclaim {
        Reclaim { root, batch: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.first.is_null()
    }

    /// Takes over a table that nothing points to any more.
    pub(crate) fn retire(&mut self, arena: &mut Arena, mut head: TableHead, items: Items) -> Result<()> {
        if items == Items::Fields && head.count.max(u64::from(head.buckets())) <= SMALL_ITEMS {
            return self.destroy(arena, head, items);
        }
        while !head.directory.is_null() {
            match self.push(arena, &head, items) {
                // A node is small: what the table itself frees makes room for it.
                Err(StoreError::OutOfMemory { .. }) => self.drop_bucket(arena, &mut head, items).map(drop)?,
                other => return other,
            }
        }
        Ok(())
    }

    /// Frees a whole table at once.
    pub(crate) fn destroy(&mut self, arena: &mut Arena, mut head: TableHead, items: Items) -> Result<()> {
        while !head.directory.is_null() {
            self.drop_bucket(arena, &mut head, items)?;
        }
        Ok(())
    }

    /// Frees an entry that is in no table any more, and all that belongs to it.
    pub(crate) fn free_entry(&mut self, arena: &mut Arena, entry: Entry) -> Result<()> {
        if let Some(key) = entry.key_object(arena)? {
            arena.free(key.object)?;
        }
        if let Some(value) = entry.value_object(arena)? {
            arena.free(value.object)?;
        }
        if entry.form()? == Form::TableHash {
            let head = entry.table(arena)?;
            self.retire(arena, head, Items::Fields)?;
        }
        Ok(arena.free(entry.handle)?)
    }

    /// Frees about `budget` objects; returns how many buckets and items were looked at, 0 if nothing is left.
    pub(crate) fn step(&mut self, arena: &mut Arena, budget: usize) -> Result<usize> {
        let mut done = 0;
        while done < budget && !self.root.first.is_null() {
            let handle = self.root.first;
            let node = *arena.get::<Node>(handle)?;
            // Off the list while it is worked on: its entries may bring new nodes, and a damaged one shall not return.
            self.root = ReclaimRoot { first: node.next, nodes: self.root.nodes.saturating_sub(1) };
            let items = match node.items {
                0 => Items::Borrowed,
                1 => Items::Entries,
                2 => Items::Fields,
                other => return Err(StoreError::damaged(format!("a reclaim node of unknown items {other}"))),
            };
            let mut head = node.head;
            head.check(arena)?;
            while done < budget && !head.directory.is_null() {
                done += 1 + self.drop_bucket(arena, &mut head, items)?;
            }
            if head.directory.is_null() {
                arena.free(handle)?;
                done += 1;
            } else {
                self.link(arena, handle, &head, items)?;
            }
        }
        Ok(done)
    }

    fn push(&mut self, arena: &mut Arena, head: &TableHead, items: Items) -> Result<()> {
        let handle = arena.alloc(size_of::<Node>())?;
        self.link(arena, handle, head, items)
    }

    fn link(&mut self, arena: &mut Arena, handle: Handle, head: &TableHead, items: Items) -> Result<()> {
        *arena.get_mut::<Node>(handle)? = Node { next: self.root.first, items: items as u32, head: *head };
        self.root = ReclaimRoot { first: handle, nodes: self.root.nodes.saturating_add(1) };
        Ok(())
    }

    /// Frees the last bucket's items; returns how many.
    fn drop_bucket(&mut self, arena: &mut Arena, head: &mut TableHead, items: Items) -> Result<usize> {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        head.drop_last_bucket(arena, &mut batch)?;
        for &item in &batch {
            match items {
                Items::Borrowed => {}
                Items::Fields => arena.free(item)?,
                Items::Entries => {
                    let entry = Entry::read(arena, item)?;
                    self.free_entry(arena, entry)?;
                }
            }
        }
        let freed = batch.len();
        self.batch = batch;
        Ok(freed)
    }
}

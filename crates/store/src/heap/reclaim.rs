//! Freeing big structures little by little.
//!
//! A structure that is deleted or flushed becomes a node of a list in the arena, so that neither the command that deletes
//! it nor a restart in between pays for its size. What its bytes mean is known to the [`FreeStep`] alone.

use quire_arena::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::Heap;

/// What is left of a structure that is being freed: 40 bytes of its owner's.
pub(crate) type ReclaimState = [u64; 5];

/// Frees some 1 to `budget` objects of a structure of the kind `what`. Returns how many were looked at, and whether nothing
/// is left of it.
pub(crate) type FreeStep =
    fn(heap: &mut Heap, what: u32, remains: &mut ReclaimState, budget: usize) -> Result<(usize, bool)>;

/// The list of what is being freed little by little, as the root object has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ReclaimRoot {
    first_low: u32,
    /// Nodes in the list: 28 bits. Above them, what the first node's handle has above 32.
    nodes_and_high: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Node {
    next_low: u32,
    /// What kind of structure it is: 28 bits. Above them, what the next node's handle has above 32.
    what_and_high: u32,
    remains: ReclaimState,
}

/// Where the upper bits of a handle begin in a word that has something else below.
const HIGH_SHIFT: u32 = 28;
const BELOW_HIGH: u32 = (1 << HIGH_SHIFT) - 1;

/// A handle's lower bits, and the word of its upper bits and something else, which counts no further than they leave room for.
fn split(handle: Handle, below: u32) -> (u32, u32) {
    (handle.low(), u32::from(handle.high()) << HIGH_SHIFT | below.min(BELOW_HIGH))
}

fn joined(low: u32, word: u32) -> Handle {
    Handle::from_parts(low, (word >> HIGH_SHIFT) as u8)
}

impl ReclaimRoot {
    fn new(first: Handle, nodes: u32) -> ReclaimRoot {
        let (first_low, nodes_and_high) = split(first, nodes);
        ReclaimRoot { first_low, nodes_and_high }
    }

    /// First node of the list.
    fn first(&self) -> Handle {
        joined(self.first_low, self.nodes_and_high)
    }

    /// Nodes in it.
    fn nodes(&self) -> u32 {
        self.nodes_and_high & BELOW_HIGH
    }
}

impl Node {
    fn new(next: Handle, what: u32, remains: ReclaimState) -> Node {
        let (next_low, what_and_high) = split(next, what);
        Node { next_low, what_and_high, remains }
    }

    fn next(&self) -> Handle {
        joined(self.next_low, self.what_and_high)
    }

    fn what(&self) -> u32 {
        self.what_and_high & BELOW_HIGH
    }
}

/// The list of structures that are on their way out.
#[derive(Debug)]
pub(crate) struct Reclaim {
    root: ReclaimRoot,
    /// Where the root object keeps `root`: object and offset.
    root_at: (Handle, usize),
    free_step: FreeStep,
    /// The last bucket's items; kept for its capacity.
    pub(crate) batch: Vec<Handle>,
    /// Values that were freed so since the start, or since this was set to 0.
    pub(crate) freed_values: u64,
}

impl Reclaim {
    pub(crate) fn new(root: ReclaimRoot, root_at: (Handle, usize), free_step: FreeStep) -> Reclaim {
        Reclaim { root, root_at, free_step, batch: Vec::new(), freed_values: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.first().is_null()
    }

    /// Structures that wait to be freed.
    pub(crate) fn nodes(&self) -> u32 {
        self.root.nodes()
    }
}

impl Heap {
    /// Takes over a structure that nothing points to any more.
    pub(crate) fn retire(&mut self, what: u32, mut remains: ReclaimState) -> Result<()> {
        loop {
            match self.arena.alloc(size_of::<Node>()).map_err(StoreError::from) {
                Ok(node) => return self.enlist(node, what, remains),
                // A node is small: what the structure itself frees makes room for it.
                Err(StoreError::OutOfMemory { .. }) => {
                    if (self.reclaim.free_step)(self, what, &mut remains, 1)?.1 {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A node for [`Heap::retire_as`], so that taking over can't fail for lack of memory.
    pub(crate) fn reserve_node(&mut self) -> Result<Handle> {
        self.alloc(size_of::<Node>())
    }

    /// As [`Heap::retire`], with a node that was reserved.
    pub(crate) fn retire_as(&mut self, node: Handle, what: u32, remains: ReclaimState) -> Result<()> {
        self.enlist(node, what, remains)
    }

    /// Puts into the list what is still in use here, for an image that is cut before [`Heap::set_list`] is given what this
    /// returns: the list as it was.
    pub(crate) fn list_for_image(&mut self, node: Handle, what: u32, remains: ReclaimState) -> Result<ReclaimRoot> {
        let before = self.reclaim.root;
        self.enlist(node, what, remains)?;
        Ok(before)
    }

    /// Makes the list what it was before [`Heap::list_for_image`].
    pub(crate) fn set_list(&mut self, root: ReclaimRoot) -> Result<()> {
        self.set_reclaim_root(root.first(), root.nodes())
    }

    fn enlist(&mut self, node: Handle, what: u32, remains: ReclaimState) -> Result<()> {
        let listed = self.reclaim.root;
        *self.arena.get_mut::<Node>(node)? = Node::new(listed.first(), what, remains);
        self.set_reclaim_root(node, listed.nodes().saturating_add(1))
    }

    /// Written through at once: an allocation anywhere in a command may free.
    fn set_reclaim_root(&mut self, first: Handle, nodes: u32) -> Result<()> {
        self.reclaim.root = ReclaimRoot::new(first, nodes);
        let (object, offset) = self.reclaim.root_at;
        let bytes = self.arena.bytes_mut(object, offset, size_of::<ReclaimRoot>())?;
        bytes.copy_from_slice(self.reclaim.root.as_bytes());
        Ok(())
    }

    /// Frees about `budget` objects; returns how many objects and nodes were looked at, 0 if nothing is left.
    pub(crate) fn free_step(&mut self, budget: usize) -> Result<usize> {
        let mut done = 0;
        while done < budget && !self.reclaim.is_empty() {
            let handle = self.reclaim.root.first();
            let node = *self.arena.get::<Node>(handle)?;
            let (what, mut remains) = (node.what(), node.remains);
            // Off the list while it is worked on: its items may bring new nodes, and a damaged one shall not return.
            self.set_reclaim_root(node.next(), self.reclaim.root.nodes().saturating_sub(1))?;
            let mut finished = false;
            while done < budget && !finished {
                let (freed, last) = (self.reclaim.free_step)(self, what, &mut remains, budget - done)?;
                (done, finished) = (done + freed.max(1), last);
            }
            if finished {
                self.arena.free(handle)?;
                done += 1;
            } else {
                self.enlist(handle, what, remains)?;
            }
        }
        Ok(done)
    }
}

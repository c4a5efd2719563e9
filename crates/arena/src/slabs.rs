//! Slabs: pages cut into slots of one size class.
//!
//! Relies on runs of pages. A slab with free slots is in the list of its class; a slab without is in none; a slab
//! that becomes empty goes back to the runs, unless it is the last of its class with free slots.

use quire_snapshot::PAGE_SIZE;

use crate::arena::Arena;
use crate::classes::{CLASSES, SizeClass};
use crate::descriptor::{PageDescriptor, SLAB_BODY, SLAB_HEAD};
use crate::error::ArenaError;
use crate::handle::Handle;

/// A freed slot holds the number of the next one, plus one.
const LINK_BYTES: usize = size_of::<u16>();

#[cold]
fn beyond(page: u32) -> ArenaError {
    ArenaError::Damaged { page, what: "a slot beyond its slab" }
}

impl Arena {
    /// A slot of `class`.
    pub(crate) fn take_slot(&mut self, class: SizeClass) -> Result<Handle, ArenaError> {
        let listed = self.superblock().partial[class.0 as usize];
        let page = if listed != 0 { listed } else { self.new_slab(class)? };
        self.take_slot_in(page, class)
    }

    /// A slot of the slab at `page`, which is in the list of `class`.
    #[inline]
    pub(crate) fn take_slot_in(&mut self, page: u32, class: SizeClass) -> Result<Handle, ArenaError> {
        let mut slab = self.slab(page)?;
        if slab.class != class.0 {
            return Err(ArenaError::Damaged { page, what: "a slab in the list of another class" });
        }
        let (free_head, bump) = (slab.free_head(), slab.bump());
        let slot = if free_head != 0 {
            let slot = free_head - 1;
            let place = self.located(slot_offset(page, class, slot)?, LINK_BYTES).ok_or_else(|| beyond(page))?;
            let link = u16::from_le_bytes(self.raw_bytes(place).try_into().unwrap_or_default());
            slab.set_slots(link, bump);
            slot
        } else if usize::from(bump) < class.slots() {
            slab.set_slots(0, bump + 1);
            bump
        } else {
            return Err(ArenaError::Damaged { page, what: "a full slab in a list of slabs with free slots" });
        };
        slab.used = slab.used.saturating_add(1);
        *self.descriptor_mut(page)? = slab;
        if slab.free_head() == 0 && usize::from(slab.bump()) >= class.slots() {
            self.unlist_slab(page, &slab)?;
        }
        slot_offset(page, class, slot).map(Handle::at)
    }

    /// Frees the slot at `offset` of the slab that starts at `page` and has this checked descriptor; returns its bytes.
    pub(crate) fn give_slot(
        &mut self,
        page: u32,
        mut slab: PageDescriptor,
        offset: usize,
    ) -> Result<usize, ArenaError> {
        let class = SizeClass(slab.class);
        let within = offset - page as usize * PAGE_SIZE;
        let (slot, rest) = (within / class.size(), within % class.size());
        if rest != 0 || slot >= usize::from(slab.bump()) || slab.used == 0 {
            let handle = Handle::at(offset);
            return Err(ArenaError::BadHandle { handle, offset: 0, len: class.size() });
        }
        let was_full = slab.free_head() == 0 && usize::from(slab.bump()) >= class.slots();
        let link = slab.free_head().to_le_bytes();
        let place = self.located(offset, LINK_BYTES).ok_or_else(|| beyond(page))?;
        self.raw_bytes_mut(place).copy_from_slice(&link);
        slab.used -= 1;
        slab.set_slots(slot as u16 + 1, slab.bump());
        *self.descriptor_mut(page)? = slab;
        if was_full {
            self.list_slab(page)?;
        } else if slab.used == 0 && (slab.prev != 0 || slab.next != 0) {
            self.unlist_slab(page, &slab)?;
            self.give_run(page, class.pages() as u32)?;
        }
        Ok(class.size())
    }

    /// The descriptor of a slab's first page, checked.
    #[inline]
    pub(crate) fn slab(&self, page: u32) -> Result<PageDescriptor, ArenaError> {
        let slab = *self.descriptor(page)?;
        let sound = slab.kind == SLAB_HEAD && usize::from(slab.class) < CLASSES;
        let class = SizeClass(slab.class);
        let end = (page as usize + class_pages(class)) * PAGE_SIZE;
        if !sound || end > self.limit {
            return Err(ArenaError::Damaged { page, what: "not a slab where one is expected" });
        }
        let slots = class.slots();
        if usize::from(slab.bump()) > slots || usize::from(slab.free_head()) > slots {
            return Err(ArenaError::Damaged { page, what: "a slab with more slots than fit" });
        }
        Ok(slab)
    }

    fn new_slab(&mut self, class: SizeClass) -> Result<u32, ArenaError> {
        let pages = class.pages() as u32;
        let page = self.take_run(pages)?;
        *self.descriptor_mut(page)? = PageDescriptor { kind: SLAB_HEAD, class: class.0, ..PageDescriptor::default() };
        for distance in 1..pages {
            *self.descriptor_mut(page + distance)? =
                PageDescriptor { kind: SLAB_BODY, class: class.0, used: distance as u16, ..PageDescriptor::default() };
        }
        self.list_slab(page)?;
        Ok(page)
    }

    fn list_slab(&mut self, page: u32) -> Result<(), ArenaError> {
        let class = self.descriptor(page)?.class as usize;
        let next = self.superblock().partial[class];
        let slab = self.descriptor_mut(page)?;
        slab.prev = 0;
        slab.next = next;
        if next != 0 {
            self.descriptor_mut(next)?.prev = page;
        }
        self.superblock_mut().partial[class] = page;
        Ok(())
    }

    fn unlist_slab(&mut self, page: u32, slab: &PageDescriptor) -> Result<(), ArenaError> {
        if slab.next != 0 {
            self.descriptor_mut(slab.next)?.prev = slab.prev;
        }
        if slab.prev != 0 {
            self.descriptor_mut(slab.prev)?.next = slab.next;
        } else {
            self.superblock_mut().partial[slab.class as usize] = slab.next;
        }
        let slab = self.descriptor_mut(page)?;
        slab.prev = 0;
        slab.next = 0;
        Ok(())
    }
}

fn class_pages(class: SizeClass) -> usize {
    if usize::from(class.0) < CLASSES { class.pages() } else { 1 }
}

fn slot_offset(page: u32, class: SizeClass, slot: u16) -> Result<usize, ArenaError> {
    if usize::from(slot) >= class.slots() {
        return Err(beyond(page));
    }
    Ok(page as usize * PAGE_SIZE + usize::from(slot) * class.size())
}

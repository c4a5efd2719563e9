//! Defragmentation of slabs: objects of mostly empty slabs go to others of their class.
//!
//! Relies on the plan for which slabs those are, and on the owner to move its objects: only the owner knows what leads to them.

use quire_snapshot::PAGE_SIZE;

use crate::arena::Arena;
use crate::classes::{SLAB_MAX, SizeClass};
use crate::defrag_plan::DefragPlan;
use crate::descriptor::{CHUNK_PAGES, FREE_HEAD, LARGE, META_PAGES, PageDescriptor, SLAB_HEAD};
use crate::error::ArenaError;
use crate::handle::Handle;

/// How many slabs are looked at for one with a free slot.
const LOOKS: usize = 64;

impl Arena {
    /// Goes on with the plan of what [`Arena::evacuate`] moves, for at most so many looks at what begins at a page. Returns whether the plan
    /// is made, and how many looks it took. A plan that is made stays until [`Arena::forget_defrag`].
    pub fn plan_defrag(&mut self, looks: usize) -> (bool, usize) {
        let mut taken = 0;
        while taken < looks && !self.defrag.is_made() {
            let page = self.defrag.cursor;
            if page >= self.superblock().page_count {
                self.defrag.make();
                break;
            }
            let (found, next) = self.extent_at(page);
            self.defrag.cursor = next;
            if let Some(slab) = found.filter(|found| found.kind == SLAB_HEAD) {
                self.defrag.note_slab(page, &slab);
            }
            taken += 1;
        }
        (self.defrag.is_made(), taken)
    }

    /// Whether the plan has anything move, as far as it is made.
    pub fn has_defrag(&self) -> bool {
        self.defrag.is_made() && self.defrag.has_slabs()
    }

    /// The plan has served its turn; the next one begins with a new survey.
    pub fn forget_defrag(&mut self) {
        self.defrag = DefragPlan::default();
    }

    /// Whether an object lies in a slab that is to be emptied. A large object never does.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if no object lies there.
    pub fn is_sparse(&self, handle: Handle) -> Result<bool, ArenaError> {
        let (page, slab) = self.owner(handle)?;
        if slab.kind == LARGE {
            return Ok(false);
        }
        let size = SizeClass(slab.class).size();
        let within = handle.offset() - page as usize * PAGE_SIZE;
        if !within.is_multiple_of(size) || within / size >= usize::from(slab.bump()) {
            return Err(ArenaError::BadHandle { handle, offset: 0, len: size });
        }
        Ok(self.defrag.empties(page, &slab))
    }

    /// A copy of an object in a slab that is to be filled, if the object lies in one that is to be emptied and there is room for
    /// it. The copy has the same size. The object is the caller's to free, when nothing leads to it any more.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if no object lies there, [`ArenaError::Damaged`].
    pub fn evacuate(&mut self, handle: Handle) -> Result<Option<Handle>, ArenaError> {
        if !self.is_sparse(handle)? {
            return Ok(None);
        }
        let bytes = self.usable_size(handle)?;
        let Some(copy) = self.alloc_dense(bytes)? else { return Ok(None) };
        self.copy(handle, 0, copy, 0, bytes)?;
        Ok(Some(copy))
    }

    /// A slot for so many bytes in a slab that is to be filled, if there is one.
    fn alloc_dense(&mut self, bytes: usize) -> Result<Option<Handle>, ArenaError> {
        if bytes > SLAB_MAX {
            return Ok(None);
        }
        let class = SizeClass::of(bytes);
        let Some(page) = self.slab_to_fill(class) else { return Ok(None) };
        let handle = self.take_slot_in(page, class)?;
        self.count_taken(class.size());
        Ok(Some(handle))
    }

    /// The next slab of the plan that has a free slot.
    fn slab_to_fill(&mut self, class: SizeClass) -> Option<u32> {
        for _ in 0..LOOKS {
            let page = self.defrag.filled(class)?;
            // What was a slab may be anything now, and what damage says may be anything.
            let first_listed = self.superblock().partial[usize::from(class.0)];
            if self.slab(page).is_ok_and(|slab| {
                let has_room = slab.free_head() != 0 || usize::from(slab.bump()) < class.slots();
                slab.class == class.0 && has_room && (slab.prev != 0 || first_listed == page)
            }) {
                return Some(page);
            }
            self.defrag.pass_filled(class);
        }
        None
    }

    /// What begins at `page`, if the allocator says so, and the page behind it.
    pub(crate) fn extent_at(&self, page: u32) -> (Option<PageDescriptor>, u32) {
        if page % CHUNK_PAGES < META_PAGES {
            return (None, page / CHUNK_PAGES * CHUNK_PAGES + META_PAGES);
        }
        let Ok(&descriptor) = self.descriptor(page) else { return (None, page + 1) };
        let len = match descriptor.kind {
            SLAB_HEAD => self.slab(page).map_or(0, |slab| SizeClass(slab.class).pages() as u32),
            FREE_HEAD => self.free_run(page).map_or(0, |run| run.len),
            LARGE => descriptor.len,
            _ => 0,
        };
        // Otherwise nothing begins here, or damage says so.
        if (1..=CHUNK_PAGES - page % CHUNK_PAGES).contains(&len) {
            (Some(descriptor), page + len)
        } else {
            (None, page + 1)
        }
    }
}

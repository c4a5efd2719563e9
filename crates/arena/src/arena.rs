//! The arena: allocation by size, the root, statistics, snapshots.
//!
//! Relies on the barrier for every write and on slabs and runs for space. A new arena and one from an image are the same
//! bytes; nothing that matters is kept outside them.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use quire_snapshot::{PAGE_SIZE, REGION_SIZE, Snapshot, WriteBarrier, WriteBarrierConfig, WriteBarrierStats};
use quire_sys::mem::Reservation;
use zerocopy::{FromBytes, FromZeros};

use crate::classes::{SLAB_MAX, SizeClass};
use crate::defrag_plan::DefragPlan;
use crate::descriptor::{
    CHUNK_PAGES, LARGE, META_PAGES, NONE, PageDescriptor, RUN_MAX_PAGES, SLAB_BODY, SLAB_HEAD, descriptor_offset,
};
use crate::error::ArenaError;
use crate::free_regions::FreeRegions;
use crate::handle::{Handle, MAX_BYTES, NARROW_BYTES};
use crate::prefaulter::Prefaulter;
use crate::stats::ArenaStats;
use crate::superblock::{MAGIC, Superblock, VERSION, VERSION_WIDE};

/// Bytes at the start of each chunk that hold its descriptors; in the first chunk the superblock lies there, too.
const META_BYTES: usize = META_PAGES as usize * PAGE_SIZE;

/// Settings of a new arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaConfig {
    /// Most bytes to span, at most 1 TiB. Only addresses are claimed at once, and tables of less than a thousandth of that.
    pub max_bytes: u64,
    /// Most memory for pre-images of a snapshot, in bytes.
    pub budget_bytes: usize,
}

impl Default for ArenaConfig {
    fn default() -> Self {
        Self { max_bytes: NARROW_BYTES, budget_bytes: WriteBarrierConfig::default().budget_bytes }
    }
}

/// Bytes that were found to lie below the `limit` of an arena. Only the checks in this file make one, so code that takes one
/// needs no check of its own. It goes to the arena that made it; its bytes stay mapped, as the limit of an arena never falls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundsChecked {
    start: usize,
    len: usize,
}

impl BoundsChecked {
    #[inline]
    pub(crate) fn start(self) -> usize {
        self.start
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }
}

/// Position-independent memory with one owner.
#[derive(Debug)]
pub struct Arena {
    pub(crate) barrier: WriteBarrier,
    pub(crate) base: NonNull<u8>,
    /// Bytes from the base that are mapped readable and writable; it never falls.
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
    /// Pages of free runs that aren't backed: never used, given back to the system, or absent from the image.
    pub(crate) released_pages: u64,
    /// Regions that can be given back to the system.
    pub(crate) free_regions: FreeRegions,
    /// An image's free runs have not been looked through for such regions yet.
    pub(crate) unsurveyed: bool,
    /// Which slabs are to be filled and emptied.
    pub(crate) defrag: DefragPlan,
    pub(crate) warmer: Prefaulter,
}

// SAFETY: `base` points into the reservation that `barrier` keeps alive. Apart from the arena only the reader of a snapshot uses
// it, which keeps to the barrier's protocol from any thread.
unsafe impl Send for Arena {}

impl Arena {
    /// An empty arena.
    ///
    /// # Errors
    /// The system has no memory or no addresses.
    pub fn create(config: ArenaConfig) -> Result<Self, ArenaError> {
        let max_bytes = config.max_bytes.clamp(4 * REGION_SIZE as u64, MAX_BYTES) as usize;
        let memory = Arc::new(Reservation::new(max_bytes)?);
        let barrier = WriteBarrier::new(memory, WriteBarrierConfig { budget_bytes: config.budget_bytes })?;
        barrier.memory().commit(0..META_BYTES)?;
        let mut arena = Self::over(barrier, META_BYTES)?;
        arena.barrier.mark_present(0..1);
        let mut superblock = Superblock::new_zeroed();
        superblock.magic = MAGIC;
        superblock.version = VERSION;
        superblock.page_count = META_PAGES;
        *arena.superblock_mut() = superblock;
        Ok(arena)
    }

    /// The arena that a restore has put behind `barrier`, of which `committed_bytes` are mapped.
    ///
    /// # Errors
    /// [`ArenaError::BadSuperblock`] if the memory holds no arena of this version or one that reaches further than the
    /// memory does.
    pub fn open(barrier: WriteBarrier, committed_bytes: usize) -> Result<Self, ArenaError> {
        let mut arena = Self::over(barrier, committed_bytes)?;
        let bad = |what: String| Err(ArenaError::BadSuperblock { what });
        let superblock = *arena.superblock();
        if superblock.magic != MAGIC {
            return bad("its first bytes are not an arena's".into());
        }
        if !(VERSION..=VERSION_WIDE).contains(&superblock.version) {
            return bad(format!(
                "layout version {}, this program reads {VERSION} to {VERSION_WIDE}",
                superblock.version
            ));
        }
        let reach = superblock.page_count as usize * PAGE_SIZE;
        if superblock.page_count < META_PAGES || reach > committed_bytes {
            return bad(format!("it spans {} pages but {committed_bytes} bytes are there", superblock.page_count));
        }
        arena.released_pages = arena.count_released();
        arena.unsurveyed = true;
        Ok(arena)
    }

    /// Over the memory behind `barrier`, of which the first `limit` bytes are mapped. They hold the superblock at least.
    fn over(barrier: WriteBarrier, limit: usize) -> Result<Self, ArenaError> {
        let base =
            NonNull::new(barrier.memory().base()).ok_or(ArenaError::BadSuperblock { what: "no memory".into() })?;
        let max_bytes = barrier.memory().len().min(MAX_BYTES as usize);
        if !(META_BYTES..=max_bytes).contains(&limit) {
            return Err(ArenaError::BadSuperblock { what: format!("{limit} bytes of memory") });
        }
        let warmer = Prefaulter::start(barrier.memory());
        let free_regions = FreeRegions::none(max_bytes / PAGE_SIZE);
        let (released_pages, unsurveyed, defrag) = (0, false, DefragPlan::default());
        Ok(Self { barrier, base, limit, max_bytes, released_pages, free_regions, unsurveyed, defrag, warmer })
    }

    /// The `len` bytes from `start` on, if they lie in the arena.
    #[inline]
    pub(crate) fn located(&self, start: usize, len: usize) -> Option<BoundsChecked> {
        let end = start.checked_add(len)?;
        (end <= self.limit).then_some(BoundsChecked { start, len })
    }

    /// The bytes of the superblock, which every arena has: `Arena::over` makes none with a smaller limit.
    #[inline]
    pub(crate) fn superblock_place(&self) -> BoundsChecked {
        debug_assert!(size_of::<Superblock>() <= self.limit);
        BoundsChecked { start: 0, len: size_of::<Superblock>() }
    }

    /// The `len` bytes from `offset` on of the object at `handle`, if all of them lie in the arena.
    #[inline]
    pub(crate) fn locate(&self, handle: Handle, offset: usize, len: usize) -> Result<BoundsChecked, ArenaError> {
        let start = handle.offset().wrapping_add(offset);
        if handle.is_null() || offset > self.limit || len > self.limit || start + len > self.limit {
            return Err(ArenaError::BadHandle { handle, offset, len });
        }
        Ok(BoundsChecked { start, len })
    }

    /// Free pages of an image that weren't in it, so aren't backed.
    fn count_released(&self) -> u64 {
        let pages = self.superblock().page_count;
        let absent_in = |chunk: u32| {
            let start = (chunk * CHUNK_PAGES).saturating_add(META_PAGES).min(pages);
            let end = (chunk + 1).saturating_mul(CHUNK_PAGES).min(pages);
            u64::from(end - start) - u64::from(self.barrier.present_in(start..end))
        };
        (0..pages.div_ceil(CHUNK_PAGES)).map(absent_in).sum()
    }

    /// Space for `bytes` bytes (at least 1), of unspecified content.
    ///
    /// Aligned to 16 bytes, or to 64 if `bytes` is a multiple of 64 up to 4096.
    ///
    /// # Errors
    /// [`ArenaError::OutOfMemory`], or [`ArenaError::Damaged`] if the allocator's data is.
    pub fn alloc(&mut self, bytes: usize) -> Result<Handle, ArenaError> {
        let (handle, taken) = if bytes <= SLAB_MAX {
            let class = SizeClass::of(bytes);
            (self.take_slot(class)?, class.size())
        } else {
            self.alloc_large(bytes)?
        };
        self.count_taken(taken);
        Ok(handle)
    }

    /// An object of so many bytes was allocated.
    #[inline]
    pub(crate) fn count_taken(&mut self, bytes: usize) {
        let superblock = self.superblock_mut();
        superblock.allocated_bytes = superblock.allocated_bytes.wrapping_add(bytes as u64);
        superblock.objects = superblock.objects.wrapping_add(1);
    }

    fn alloc_large(&mut self, bytes: usize) -> Result<(Handle, usize), ArenaError> {
        if bytes > RUN_MAX_PAGES as usize * PAGE_SIZE {
            return Err(self.out_of_memory(bytes as u64));
        }
        let pages = bytes.div_ceil(PAGE_SIZE) as u32;
        let page = self.take_run(pages)?;
        // Neighbours look at the last page when they are freed: it must not be taken for a free run's.
        self.descriptor_mut(page + pages - 1)?.kind = NONE;
        *self.descriptor_mut(page)? = PageDescriptor { kind: LARGE, len: pages, ..PageDescriptor::default() };
        Ok((Handle::at(page as usize * PAGE_SIZE), pages as usize * PAGE_SIZE))
    }

    /// As [`Arena::alloc`], with every byte zero.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    pub fn alloc_zeroed(&mut self, bytes: usize) -> Result<Handle, ArenaError> {
        let handle = self.alloc(bytes)?;
        self.bytes_mut(handle, 0, bytes)?.fill(0);
        Ok(handle)
    }

    /// Gives an object's space back.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if no object starts there, as far as can be told.
    pub fn free(&mut self, handle: Handle) -> Result<(), ArenaError> {
        let offset = handle.offset();
        let freed = match self.owner(handle)? {
            (page, descriptor) if descriptor.kind == LARGE => {
                self.descriptor_mut(page)?.kind = NONE;
                self.give_run(page, descriptor.len)?;
                descriptor.len as usize * PAGE_SIZE
            }
            (page, slab) => self.give_slot(page, slab, offset)?,
        };
        let superblock = self.superblock_mut();
        superblock.allocated_bytes = superblock.allocated_bytes.saturating_sub(freed as u64);
        superblock.objects = superblock.objects.saturating_sub(1);
        Ok(())
    }

    /// First page and descriptor, checked, of the slab or large object that `handle` lies in.
    pub(crate) fn owner(&self, handle: Handle) -> Result<(u32, PageDescriptor), ArenaError> {
        let bad = ArenaError::BadHandle { handle, offset: 0, len: 1 };
        let page = (handle.offset() / PAGE_SIZE) as u32;
        if page % CHUNK_PAGES < META_PAGES || page >= self.superblock().page_count {
            return Err(bad);
        }
        let descriptor = *self.descriptor(page)?;
        match descriptor.kind {
            LARGE => {
                let end = u64::from(page % CHUNK_PAGES) + u64::from(descriptor.len);
                let sound =
                    handle.offset().is_multiple_of(PAGE_SIZE) && descriptor.len > 0 && end <= u64::from(CHUNK_PAGES);
                if sound { Ok((page, descriptor)) } else { Err(bad) }
            }
            SLAB_HEAD => Ok((page, self.slab(page)?)),
            SLAB_BODY if u32::from(descriptor.used) <= page % CHUNK_PAGES => {
                let head = page - u32::from(descriptor.used);
                Ok((head, self.slab(head)?))
            }
            _ => Err(bad),
        }
    }

    /// Bytes that the object at `handle` may use, at least what was asked for.
    ///
    /// # Errors
    /// [`ArenaError::BadHandle`] if no object lies there.
    pub fn usable_size(&self, handle: Handle) -> Result<usize, ArenaError> {
        let (_, descriptor) = self.owner(handle)?;
        if descriptor.kind == LARGE {
            return Ok(descriptor.len as usize * PAGE_SIZE);
        }
        Ok(SizeClass(descriptor.class).size())
    }

    /// Bytes that [`Arena::alloc`] of `bytes` takes.
    pub fn class_size(bytes: usize) -> usize {
        if bytes <= SLAB_MAX { SizeClass::of(bytes).size() } else { bytes.next_multiple_of(PAGE_SIZE) }
    }

    #[inline]
    pub(crate) fn descriptor(&self, page: u32) -> Result<&PageDescriptor, ArenaError> {
        let place = self.descriptor_place(page)?;
        PageDescriptor::ref_from_bytes(self.raw_bytes(place))
            .map_err(|_| ArenaError::Damaged { page, what: "misplaced" })
    }

    #[inline]
    pub(crate) fn descriptor_mut(&mut self, page: u32) -> Result<&mut PageDescriptor, ArenaError> {
        let place = self.descriptor_place(page)?;
        PageDescriptor::mut_from_bytes(self.raw_bytes_mut(place))
            .map_err(|_| ArenaError::Damaged { page, what: "misplaced" })
    }

    #[inline]
    fn descriptor_place(&self, page: u32) -> Result<BoundsChecked, ArenaError> {
        match self.located(descriptor_offset(page), size_of::<PageDescriptor>()) {
            Some(place) if page % CHUNK_PAGES >= META_PAGES => Ok(place),
            _ => Err(ArenaError::Damaged { page, what: "a page number beyond the arena" }),
        }
    }

    #[inline]
    pub(crate) fn superblock(&self) -> &Superblock {
        Superblock::ref_from_bytes(self.raw_bytes(self.superblock_place()))
            .expect("the first page is mapped and aligned")
    }

    #[inline]
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        Superblock::mut_from_bytes(self.raw_bytes_mut(self.superblock_place()))
            .expect("the first page is mapped and aligned")
    }

    /// The owner's root object; null in a new arena.
    pub fn root(&self) -> Handle {
        self.superblock().root()
    }

    /// Sets the owner's root object.
    pub fn set_root(&mut self, root: Handle) {
        self.superblock_mut().set_root(root);
    }

    /// Fixes the arena's content as it is now; see [`WriteBarrier::cut`]. Constant time.
    ///
    /// # Errors
    /// While another snapshot is open.
    pub fn cut(&mut self) -> Result<Snapshot, ArenaError> {
        let pages = self.superblock().page_count;
        Ok(self.barrier.cut(pages)?)
    }

    /// As [`Arena::cut`], of the pages that have changed; see [`WriteBarrier::cut_changes`].
    ///
    /// # Errors
    /// While another snapshot is open, and if changes are not tracked.
    pub fn cut_changes(&mut self) -> Result<Snapshot, ArenaError> {
        let pages = self.superblock().page_count;
        Ok(self.barrier.cut_changes(pages)?)
    }

    /// Whether objects may get handles of more than 32 bits. That doesn't change for as long as the arena is open; an arena that
    /// has such objects is only opened as one that may.
    #[inline]
    pub fn may_be_wide(&self) -> bool {
        self.max_bytes as u64 > NARROW_BYTES
    }

    /// Whether regions are still going to be migrated.
    pub fn is_restoring(&self) -> bool {
        self.barrier.is_restoring()
    }

    /// Whether memory stays mapped from a file, as that of a clone.
    pub fn is_file_backed(&self) -> bool {
        self.barrier.is_file_backed()
    }

    /// Notes from now on which pages change, or doesn't any more; see [`WriteBarrier::track_changes`].
    ///
    /// # Errors
    /// While a snapshot is open.
    pub fn track_changes(&mut self, track: bool) -> Result<(), ArenaError> {
        Ok(self.barrier.track_changes(track)?)
    }

    /// Pages that have changed since the last snapshot that was kept, if that is tracked.
    pub fn changed_pages(&self) -> Option<u64> {
        self.barrier.changed_pages()
    }

    /// Says whether what was read from the last snapshot is kept; see [`WriteBarrier::settle`].
    pub fn settle(&mut self, kept: bool) {
        self.barrier.settle(kept);
    }

    /// Closes the snapshot if its reader is done; returns whether none is open.
    pub fn try_finish(&mut self) -> bool {
        self.barrier.try_finish()
    }

    /// Work waits for the reader of the open snapshot, which is not to run behind everything else any more.
    pub fn hurry_snapshot(&mut self) {
        self.barrier.hurry_reader();
    }

    /// Whether a snapshot is open.
    pub fn snapshot_open(&self) -> bool {
        self.barrier.is_open()
    }

    /// Gives memory of unused pre-image buffers back to the system, a little at a time; returns the bytes.
    pub fn trim_buffers(&mut self) -> usize {
        self.barrier.trim()
    }

    /// Exchanges regions that are mapped from an image for the same in memory; see [`WriteBarrier::migrate_regions`].
    ///
    /// # Errors
    /// If there are no such regions or the system refuses.
    pub fn migrate_regions(&mut self, regions: Range<u32>, staging: &Reservation) -> Result<u32, ArenaError> {
        Ok(self.barrier.migrate_regions(regions, staging)?)
    }

    /// Says whether regions are still going to be migrated.
    pub fn set_restoring(&mut self, restoring: bool) {
        self.barrier.set_restoring(restoring);
    }

    /// Figures of the barrier.
    pub fn barrier_stats(&self) -> WriteBarrierStats {
        self.barrier.stats()
    }

    /// Changes the most memory for pre-images, in bytes, from the next snapshot on.
    ///
    /// # Errors
    /// While a snapshot is open.
    pub fn set_budget(&mut self, budget_bytes: usize) -> Result<(), ArenaError> {
        Ok(self.barrier.set_budget(budget_bytes)?)
    }

    /// How the memory is used.
    pub fn stats(&self) -> ArenaStats {
        let superblock = self.superblock();
        let chunks = superblock.page_count.div_ceil(CHUNK_PAGES);
        let data_pages = superblock.page_count.saturating_sub(chunks * META_PAGES);
        let page = PAGE_SIZE as u64;
        ArenaStats {
            allocated_bytes: superblock.allocated_bytes,
            objects: superblock.objects,
            used_bytes: u64::from(data_pages.saturating_sub(superblock.free_pages)) * page,
            free_bytes: u64::from(superblock.free_pages) * page,
            committed_bytes: u64::from(superblock.page_count) * page,
            max_bytes: self.max_bytes as u64,
            released_bytes: self.released_pages * page,
        }
    }
}

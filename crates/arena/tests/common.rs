//! Arenas for tests: objects with content, moves, and images of all pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_arena::{Arena, ArenaConfig, ArenaError, Handle};
use quire_snapshot::{PAGE_SIZE, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::Reservation;

pub fn arena() -> Arena {
    Arena::create(ArenaConfig { max_bytes: 512 << 20, budget_bytes: 1 << 20 }).unwrap()
}

pub fn fill(arena: &mut Arena, handle: Handle, len: usize, value: u8) {
    arena.bytes_mut(handle, 0, len).unwrap().fill(value);
}

pub fn holds(arena: &Arena, handle: Handle, len: usize, value: u8) -> bool {
    arena.bytes(handle, 0, len).unwrap().iter().all(|&byte| byte == value)
}

/// Has an object move if it is to; returns where it is then.
pub fn move_object(arena: &mut Arena, handle: Handle) -> Result<Option<Handle>, ArenaError> {
    let Some(copy) = arena.evacuate(handle)? else { return Ok(None) };
    arena.free(handle)?;
    Ok(Some(copy))
}

/// Bytes of an arena by offset, as a snapshot gives them.
pub struct Image {
    pub pages: BTreeMap<u32, Vec<u8>>,
    pub page_count: u32,
}

impl Image {
    pub fn insert(&mut self, at: usize, value: u8) {
        if let Some(page) = self.pages.get_mut(&((at / PAGE_SIZE) as u32)) {
            page[at % PAGE_SIZE] = value;
        }
    }
}

pub fn image(arena: &mut Arena) -> Image {
    let mut snapshot = arena.cut().unwrap();
    let mut pages = BTreeMap::new();
    for number in 0..snapshot.page_count() {
        let mut page = vec![0; PAGE_SIZE];
        if snapshot.take(number, &mut page) == TakeOutcome::Copied {
            pages.insert(number, page);
        }
    }
    let page_count = snapshot.page_count();
    drop(snapshot);
    assert!(arena.try_finish());
    Image { pages, page_count }
}

pub fn reopen(image: &Image) -> Result<Arena, ArenaError> {
    reopen_within(image, 512 << 20)
}

pub fn reopen_within(image: &Image, max_bytes: usize) -> Result<Arena, ArenaError> {
    let memory = Arc::new(Reservation::new(max_bytes)?);
    let committed = image.page_count as usize * PAGE_SIZE;
    memory.commit(0..committed)?;
    let mut barrier = WriteBarrier::new(Arc::clone(&memory), WriteBarrierConfig::default())?;
    for (number, page) in &image.pages {
        // SAFETY: committed above, not shared yet.
        unsafe { std::ptr::copy(page.as_ptr(), memory.base().add(*number as usize * PAGE_SIZE), PAGE_SIZE) };
        barrier.mark_present(*number..*number + 1);
    }
    Arena::open(barrier, committed)
}

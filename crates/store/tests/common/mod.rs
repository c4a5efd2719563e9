//! Images of stores for tests: the pages of a snapshot, as a file, and back.

pub mod copy_steps;
pub mod defrag;
pub mod saves;
pub mod streams;
pub mod zsets;

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use quire_arena::Arena;
use quire_snapshot::{PAGE_SIZE, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_store::{Result, Store, StoreConfig};
use quire_sys::mem::Reservation;

/// Hashes and draws go alike each time.
pub const SEED: u64 = 2026;

/// Settings for small stores.
pub fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(SEED), ..StoreConfig::default() }
}

/// The pages that a store consists of.
#[derive(Clone)]
pub struct Image {
    pub page_count: u32,
    pub pages: Vec<(u32, Vec<u8>)>,
}

/// Cuts a store and takes all pages.
pub fn image_of(store: &mut Store) -> Image {
    let mut snapshot = store.arena_mut().cut().unwrap();
    let page_count = snapshot.page_count();
    let mut pages = Vec::new();
    let mut buffer = vec![0; PAGE_SIZE];
    for page in 0..page_count {
        if snapshot.take(page, &mut buffer) == TakeOutcome::Copied {
            pages.push((page, buffer.clone()));
        }
    }
    drop(snapshot);
    assert!(store.arena_mut().try_finish());
    Image { page_count, pages }
}

/// Opens a store over an image.
pub fn open(image: &Image) -> Result<Store> {
    let mut file = tempfile::tempfile().unwrap();
    let bytes = image.page_count as usize * PAGE_SIZE;
    file.set_len(bytes as u64).unwrap();
    for (page, content) in &image.pages {
        file.seek(SeekFrom::Start(u64::from(*page) * PAGE_SIZE as u64)).unwrap();
        file.write_all(content).unwrap();
    }
    let memory = Arc::new(Reservation::new(64 << 20).unwrap());
    memory.map_file_private(0..bytes, &file, 0).unwrap();
    let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig { budget_bytes: 1 << 20 }).unwrap();
    for (page, _) in &image.pages {
        barrier.mark_present(*page..*page + 1);
    }
    Store::from_arena(Arena::open(barrier, bytes)?, config())
}

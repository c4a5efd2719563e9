//! What the tests of images share: memory with a model beside it, saves of it, and what an image holds.
//!
//! Relies on `WriteBarrier::write` and on snapshots to look into memory, so no test needs to touch it directly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_checkpoint::{
    BackgroundRestore, Codec, DumpError, DumpOptions, DumpProgress, DumpSummary, Image, ImageChain, ImageError,
    ImageMeta, LinkId, RestoreOptions, dump, dump_delta, load,
};
use quire_device::{Directory, MemoryDirectory};
use quire_snapshot::{PAGE_SIZE, Snapshot, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::Reservation;

pub const NAME: &str = "a.qimg";
pub const MAX_BYTES: u64 = 128 << 20;

/// Pages by number. Pages of zeros are the same as none, since a page may be there without ever having been written.
pub type Pages = BTreeMap<u32, Vec<u8>>;

/// A page whose every byte depends on the page and on `value`.
pub fn pattern(page: u32, value: u8) -> Vec<u8> {
    (0..PAGE_SIZE).map(|at| (at as u8).wrapping_mul(31) ^ (page as u8).wrapping_mul(7) ^ value).collect()
}

/// Memory behind a barrier, and what it should hold.
pub struct World {
    pub barrier: WriteBarrier,
    pub model: Pages,
    pub page_count: u32,
    /// How it is saved.
    pub compression: Option<Codec>,
}

impl World {
    pub fn new(page_count: u32, budget_pages: usize) -> Self {
        let memory = Arc::new(Reservation::new(page_count as usize * PAGE_SIZE).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let config = WriteBarrierConfig { budget_bytes: budget_pages * PAGE_SIZE };
        Self { barrier: WriteBarrier::new(memory, config).unwrap(), model: Pages::new(), page_count, compression: None }
    }

    /// Of restored memory, which should hold `model`.
    pub fn of(barrier: WriteBarrier, page_count: u32, model: Pages) -> Self {
        Self { barrier, model, page_count, compression: None }
    }

    /// With some pages of every kind of neighbourhood written.
    pub fn varied(page_count: u32) -> Self {
        let mut world = Self::new(page_count, 4096);
        for page in (0..page_count).filter(|page| page % 7 < 3 || page % 64 > 60) {
            world.write(page, page as u8 | 1);
        }
        world
    }

    pub fn write(&mut self, page: u32, value: u8) {
        self.write_bytes(page, pattern(page, value));
    }

    pub fn write_bytes(&mut self, page: u32, bytes: Vec<u8>) {
        self.barrier.mark_present(page..page + 1);
        self.barrier.write(page as usize * PAGE_SIZE, &bytes).unwrap();
        self.model.insert(page, bytes);
    }

    pub fn cut(&mut self) -> Snapshot {
        self.barrier.cut(self.page_count).unwrap()
    }

    /// Saves the memory as it is.
    pub fn save(&mut self, directory: &dyn Directory, epoch: u64) -> Result<DumpSummary, DumpError> {
        let snapshot = self.cut();
        let result = dump(snapshot, &meta(epoch), directory, NAME, &DumpProgress::new(), &self.dump_options());
        assert!(self.barrier.try_finish(), "the save is over, so the writer must be free");
        result
    }

    /// Notes changes from now on.
    pub fn track(&mut self) {
        self.barrier.track_changes(true).unwrap();
    }

    /// Takes the content of `page` away.
    pub fn empty(&mut self, page: u32) {
        assert!(self.barrier.release_pages(page..page + 1));
        self.model.remove(&page);
    }

    /// Saves the memory as it is to an image, and notes whether it is kept. Returns the chain that begins with it.
    pub fn begin_chain(&mut self, directory: &dyn Directory, epoch: u64) -> Result<Vec<LinkId>, DumpError> {
        let result = self.save(directory, epoch);
        self.barrier.settle(result.is_ok());
        result.map(|summary| vec![summary.id])
    }

    /// Saves what has changed to a delta over `links`, and notes whether it is kept.
    pub fn save_delta(
        &mut self,
        directory: &dyn Directory,
        links: &mut Vec<LinkId>,
        epoch: u64,
    ) -> Result<DumpSummary, DumpError> {
        let snapshot = self.barrier.cut_changes(self.page_count).unwrap();
        let progress = DumpProgress::new();
        let options = self.dump_options();
        let result = dump_delta(snapshot, links, &meta(epoch), directory, NAME, &progress, &options);
        self.barrier.settle(result.is_ok());
        assert!(self.barrier.try_finish(), "the save is over, so the writer must be free");
        result.inspect(|summary| links.push(summary.id))
    }

    pub fn dump_options(&self) -> DumpOptions {
        DumpOptions { compression: self.compression, ..small_writes() }
    }

    /// Checks that the memory holds what it should.
    pub fn check(&mut self) {
        let mut snapshot = self.cut();
        assert_same(&taken(&mut snapshot), &self.model);
        drop(snapshot);
        assert!(self.barrier.try_finish());
    }
}

/// Small writes, so that there are many of them.
pub fn small_writes() -> DumpOptions {
    DumpOptions { write_bytes: 16 * PAGE_SIZE, buffers: 4, ..DumpOptions::default() }
}

pub fn meta(epoch: u64) -> ImageMeta {
    let mut note = [0; 64];
    note[..4].copy_from_slice(b"test");
    ImageMeta { epoch, created_unix_ms: 1_700_000_000_000 + epoch, root: 77, note, history: 9, chained: true }
}

pub fn save(snapshot: Snapshot, directory: &dyn Directory, epoch: u64) -> Result<DumpSummary, DumpError> {
    let progress = DumpProgress::new();
    dump(snapshot, &meta(epoch), directory, NAME, &progress, &small_writes())
}

/// All pages of a snapshot.
pub fn taken(snapshot: &mut Snapshot) -> Pages {
    let mut page = vec![0; PAGE_SIZE];
    let mut pages = Pages::new();
    for number in 0..snapshot.page_count() {
        if snapshot.take(number, &mut page) == TakeOutcome::Copied {
            pages.insert(number, page.clone());
        }
    }
    pages
}

/// What memory behind `barrier` holds.
pub fn held(barrier: &mut WriteBarrier, page_count: u32) -> Pages {
    let mut snapshot = barrier.cut(page_count).unwrap();
    taken(&mut snapshot)
}

pub fn assert_same(found: &Pages, expected: &Pages) {
    let zeros = vec![0; PAGE_SIZE];
    for page in found.keys().chain(expected.keys()) {
        let (found, expected) = (found.get(page).unwrap_or(&zeros), expected.get(page).unwrap_or(&zeros));
        if let Some(at) = (0..PAGE_SIZE).find(|&at| found[at] != expected[at]) {
            panic!("page {page}, byte {at}: {} instead of {}", found[at], expected[at]);
        }
    }
}

pub fn options() -> RestoreOptions {
    let barrier = WriteBarrierConfig { budget_bytes: 4096 * PAGE_SIZE };
    RestoreOptions { max_bytes: MAX_BYTES, barrier, accept_damaged: false }
}

/// Epoch and pages of the image, which must be whole.
pub fn image(directory: &dyn Directory) -> (u64, Pages) {
    let image = Image::open(directory, NAME).unwrap();
    let info = image.info();
    assert!(image.verify(|_, _| {}).unwrap().damage.is_empty());
    let mut loaded = load(&image, &options(), |_, _| {}).unwrap();
    (info.epoch, held(&mut loaded.barrier, info.page_count))
}

/// Epoch and pages of the chain, all links of which must be whole.
pub fn chain(directory: &dyn Directory) -> (u64, Pages) {
    let chain = ImageChain::open(directory, NAME).unwrap();
    let info = chain.info();
    assert!(chain.verify(|_, _| {}).unwrap().damage.is_empty());
    let mut loaded = chain.load(&options(), |_, _| {}).unwrap();
    (info.epoch, held(&mut loaded.barrier, info.page_count))
}

/// A directory in memory with a whole image of [`World::varied`], and its bytes.
pub fn saved(page_count: u32) -> (MemoryDirectory, Vec<u8>, Pages) {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(page_count);
    world.save(&memory, 1).unwrap();
    let bytes = memory.bytes(NAME).unwrap();
    (memory, bytes, world.model)
}

/// Names of the files in a directory, sorted.
pub fn names(directory: &dyn Directory) -> Vec<String> {
    let mut names = directory.list().unwrap();
    names.sort();
    names
}

/// Long enough for any machine; reached only if something never comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Exchanges up to `most` regions that are ready; returns whether there were any.
pub fn adopt(barrier: &mut WriteBarrier, restore: &mut BackgroundRestore, most: u32) -> bool {
    let Some(regions) = restore.next_ready(most) else { return false };
    barrier.migrate_regions(regions.clone(), restore.staging()).unwrap();
    restore.adopted(regions);
    true
}

/// Exchanges everything, or until it fails.
pub fn adopt_all(barrier: &mut WriteBarrier, restore: &mut BackgroundRestore) -> Result<(), ImageError> {
    let start = Instant::now();
    while !restore.status().done {
        if !adopt(barrier, restore, 3) {
            if let Some(error) = restore.status().failed {
                return Err(error);
            }
            std::thread::yield_now();
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", restore.status());
    }
    Ok(())
}

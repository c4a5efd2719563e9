//! Serving from an image that another process made, for as long as this one lives: the file stays mapped, privately.
//!
//! ```text
//! file ──map, privately──▶ memory        pages that are only read are the page cache's, those written are this process's
//!   └───read through the page cache──▶ check
//! ```
//! Relies on images being replaced by rename, never changed in place: what was opened stays what it was, whatever becomes of its
//! name. All clones of an image, and the check, share its pages in the page cache. The check reads the file and never the
//! memory, so it makes no page of it private. A file that is cut short by another program ends this process when it touches
//! what is lost ([`FaultNotice`] says why).
//!
//! The page cache may read a page again after the check, from a file that another program has written to or a disk that returns something else
//! by then. So what the check has found of each page is kept, and every page of a file is compared with it when it is saved and
//! before it is written ([`FilePages`]): no image of this process has what the check did not see.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_device::Buffer;
use quire_snapshot::{FilePages, PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE, WriteBarrier};
use quire_sys::mapped_file::FaultNotice;
use quire_sys::thread;

use crate::error::{ImageError, ImagePart, no_buffers};
use crate::format::DATA_OFFSET;
use crate::page_sums::PageSums;
use crate::region_loader::RegionLoader;
use crate::source::{RestoreSource, first_page};

/// The nice value of the thread that checks: clients of this server, and of the one whose image it is, come first.
const NICE: i32 = 19;

/// Memory that an image stays mapped to.
pub struct ClonedImage {
    /// The memory, behind its barrier.
    pub barrier: WriteBarrier,
    /// Bytes of it that are mapped.
    pub committed_bytes: usize,
    /// What goes on in the background.
    pub check: BackgroundCheck,
    /// Regions that were read and verified first, as they could not be mapped.
    pub regions_loaded: u32,
}

/// A check of a mapped image that goes on in the background. Dropping it ends that. It is to live as long as the memory: it says
/// what happened if the file is cut short, and tells of pages that were found damaged later.
pub struct BackgroundCheck {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pages: Arc<FilePages>,
    file: String,
    /// What messages call it with its deltas.
    files: String,
    regions_total: u32,
    _notice: Option<FaultNotice>,
}

/// How far a check has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckStatus {
    /// Regions to be checked.
    pub regions_total: u32,
    /// Regions that hold what was written.
    pub checked: u32,
    /// What ended it early.
    pub failed: Option<ImageError>,
}

impl CheckStatus {
    /// Whether all regions held what was written, and no page of them has been found to be something else since.
    pub fn is_done(&self) -> bool {
        self.checked == self.regions_total && self.failed.is_none()
    }
}

#[derive(Default)]
struct Shared {
    checked: AtomicU32,
    stop: AtomicBool,
    failed: Mutex<Option<ImageError>>,
}

impl std::fmt::Debug for BackgroundCheck {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("BackgroundCheck").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl BackgroundCheck {
    /// Begins to check `regions` of `source`, which are mapped as `barrier`'s memory. From now on the barrier compares their pages with
    /// what the check finds.
    pub(crate) fn start(
        source: RestoreSource,
        regions: Vec<u32>,
        barrier: &mut WriteBarrier,
    ) -> Result<Self, ImageError> {
        let regions_total = regions.len() as u32;
        let (file, files) = (source.image.device().name().to_owned(), source.files());
        let notice = lost_pages_notice(barrier, &files);
        let page_count = source.data_bytes() / PAGE_SIZE;
        let sums = Arc::new(PageSums::new(page_count.div_ceil(PAGES_PER_REGION)));
        let of_barrier = Arc::clone(&sums);
        let pages = Arc::new(FilePages::new(page_count, move |page, bytes| of_barrier.agree(page, bytes)));
        regions.iter().flat_map(|&region| source.present_runs_in(region)).for_each(|run| pages.insert(run));
        barrier.set_file_pages(Arc::clone(&pages));
        let shared = Arc::new(Shared::default());
        let refused =
            |error: std::io::Error| ImageError::Memory { file: file.clone(), why: format!("no thread: {error}") };
        let of_thread = Arc::clone(&shared);
        let check = move || of_thread.run(&source, &regions, &sums);
        let thread = thread::spawn_unsignalled("quire-check", check).map_err(refused)?;
        Ok(Self { shared, thread: Some(thread), pages, file, files, regions_total, _notice: notice })
    }

    /// How far it has come.
    pub fn status(&self) -> CheckStatus {
        // Looked at first: what the thread did before it ended is seen below.
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let checked = self.shared.checked.load(Ordering::Acquire);
        let mut failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if ended && failed.is_none() && checked < self.regions_total {
            failed = Some(ImageError::Crashed { file: self.file.clone() });
        }
        let failed = failed.or_else(|| self.pages.damaged_page().map(|page| changed_since(&self.files, page)));
        CheckStatus { regions_total: self.regions_total, checked, failed }
    }
}

impl Drop for BackgroundCheck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and the regions that it leaves are noticed by their absence.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, source: &RestoreSource, regions: &[u32], sums: &PageSums) {
        // A wish: where it is refused the check goes as fast as everything else.
        thread::set_nice(thread::current(), NICE);
        if let Err(error) = self.check_all(source, regions, sums) {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    /// One region at a time: at such a priority several in flight would only take memory.
    fn check_all(&self, source: &RestoreSource, regions: &[u32], sums: &PageSums) -> Result<(), ImageError> {
        let mut loader = RegionLoader::new(source, 1)?;
        let no_buffer = || no_buffers(source.image.device().name());
        let mut buffer = Buffer::new(REGION_SIZE).map_err(|_| no_buffer())?;
        for &region in regions {
            if self.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            loader.submit(region, buffer);
            let loaded = loader.next().ok_or_else(no_buffer)??;
            if let Some(damage) = loaded.damage.into_iter().next() {
                return Err(damage);
            }
            buffer = loaded.buffer;
            let start_of = |page: u32| (page - first_page(region)) as usize * PAGE_SIZE;
            let agrees = |page: &u32| sums.agree(*page, &buffer[start_of(*page)..][..PAGE_SIZE]);
            // What a command has written to meanwhile may have been something else when the command came.
            if let Some(page) = source.present_runs_in(region).flatten().find(|page| !agrees(page)) {
                return Err(changed_since(&source.files(), page));
            }
            self.checked.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}

/// A page was found to be one thing first, and then another.
fn changed_since(files: &str, page: u32) -> ImageError {
    let part = ImagePart::Region(page / PAGES_PER_REGION as u32);
    let offset = DATA_OFFSET + u64::from(page) * PAGE_SIZE as u64;
    let what =
        "its bytes have changed since it was opened: another program has written to it, or its disk fails".into();
    ImageError::Damaged { file: files.to_owned(), part, offset, what }
}

/// Has the cause told if a page of the mapped `file` is lost. Without it the process ends all the same, only without a word.
pub(crate) fn lost_pages_notice(barrier: &WriteBarrier, file: &str) -> Option<FaultNotice> {
    let memory = barrier.memory();
    let start = memory.base() as usize;
    let text = format!(
        "quire: a page of {file} is lost, which data is read from: another program has cut the file short, or its disk fails. The \
         process ends. An image must only be replaced by a rename, as saves do, never be written to or truncated in place.\n"
    );
    match FaultNotice::new(start..start + memory.len(), &text) {
        Ok(notice) => Some(notice),
        Err(error) => {
            tracing::warn!(%error, file, "if this file is cut short, the process will end without saying why");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DumpOptions, DumpProgress, Image, ImageMeta, RestoreOptions, dump};
    use quire_device::MemoryDirectory;
    use quire_snapshot::WriteBarrierConfig;
    use quire_sys::mem::Reservation;

    /// An image of 700 pages, of which every third has content.
    fn source() -> RestoreSource {
        let memory = Arc::new(Reservation::new(700 * PAGE_SIZE).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig::default()).unwrap();
        for page in (0..700).step_by(3) {
            barrier.mark_present(page..page + 1);
            barrier.write(page as usize * PAGE_SIZE, &page.to_le_bytes()).unwrap();
        }
        let meta = ImageMeta { epoch: 1, created_unix_ms: 0, root: 0, note: [0; 64], history: 0, chained: false };
        let (directory, progress) = (MemoryDirectory::new(), DumpProgress::new());
        dump(barrier.cut(700).unwrap(), &meta, &directory, "a", &progress, &DumpOptions::default()).unwrap();
        let barrier = WriteBarrierConfig::default();
        let options = RestoreOptions { max_bytes: 64 << 20, barrier, accept_damaged: false };
        RestoreSource::new(Image::open(&directory, "a").unwrap(), Vec::new(), &options).unwrap()
    }

    #[test]
    fn a_page_that_was_written_before_the_check_came_by_must_have_been_what_the_check_finds() {
        let (source, mut bytes) = (source(), vec![0; PAGE_SIZE]);
        bytes[..4].copy_from_slice(&600_u32.to_le_bytes());
        let sums = PageSums::new(2);
        assert!(sums.agree(600, &bytes), "a writer comes first");
        Shared::default().check_all(&source, &[0, 1], &sums).unwrap();
        assert!(sums.agree(600, &bytes) && !sums.agree(603, &bytes), "the check has noted the others");
        bytes[100] = 1;
        let sums = PageSums::new(2);
        assert!(sums.agree(600, &bytes), "a writer comes first, to something else");
        let error = Shared::default().check_all(&source, &[0, 1], &sums).unwrap_err();
        let offset = DATA_OFFSET + 600 * PAGE_SIZE as u64;
        assert!(matches!(&error, ImageError::Damaged { offset: at, .. } if *at == offset), "{error}");
    }
}

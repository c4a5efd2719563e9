//! What the worker works with from one child to the next, and leaves to the next worker.
//!
//! Relies on one worker at a time having it.

use std::io;

use quire_sys::area::AnonymousMap;
use quire_sys::mem::PAGE_SIZE;
use quire_sys::pagemap::{Pagemap, PagemapEntry};

use crate::copy::{self, SpareHugePage};
use crate::epoch_stats::EpochStats;
use crate::host_monitor::HostMonitor;
use crate::regions::Regions;
use crate::settings::PreloadSettings;
use crate::stats_page::StatsPage;

/// Over that share of unneeded pages, in thousandths, the threshold is raised; under half of it, lowered again.
const MOST_UNNEEDED_PERMILLE: u16 = 200;
const THRESHOLD_STEP_PERMILLE: u16 = 25;
const HIGHEST_THRESHOLD_PERMILLE: u16 = 950;

/// What a worker needs for its work.
#[derive(Debug)]
pub struct WorkerContext {
    /// The settings.
    pub settings: PreloadSettings,
    /// The page shared with the children.
    pub stats_page: &'static StatsPage,
    /// The program, as long as it is there.
    pub host_monitor: HostMonitor,
    /// The program's page map, which is the worker's, too.
    pub pagemap: Pagemap,
    /// What is known of memory.
    pub regions: Regions,
    /// A huge page of the worker's own.
    pub spare: SpareHugePage,
    /// Whether regions may be copied whole into huge pages.
    pub huge: bool,
    /// The least coverage for which to copy ahead, as it is now.
    pub threshold_permille: u16,
}

/// What is missing, and why.
pub type MissingFeature = (&'static str, io::Error);

impl WorkerContext {
    /// Gets everything that is needed.
    ///
    /// # Errors
    /// When the kernel, or a sandbox around the program, does not allow it.
    pub fn new(
        settings: PreloadSettings,
        stats_page: &'static StatsPage,
        host_monitor: HostMonitor,
    ) -> Result<Self, MissingFeature> {
        let missing = |what: &'static str| move |why: io::Error| (what, why);
        let page = AnonymousMap::private(PAGE_SIZE).map_err(missing("no memory"))?;
        copy::populate(page.base() as usize, PAGE_SIZE)
            .map_err(missing("the kernel has no MADV_POPULATE_WRITE (Linux 5.14)"))?;
        let pagemap = Pagemap::open(None).map_err(missing("/proc/self/pagemap can't be opened"))?;
        let mut word = [0];
        pagemap.read_words(page.base() as usize, &mut word).map_err(missing("/proc/self/pagemap can't be read"))?;
        if !PagemapEntry::is_exclusive(word[0]) {
            return Err(("/proc/self/pagemap doesn't tell who maps a page", io::ErrorKind::Unsupported.into()));
        }
        let regions =
            Regions::new(settings.region_bytes).map_err(missing("no address space for the list of regions"))?;
        let spare = SpareHugePage::new().map_err(missing("no address space"))?;
        let threshold_permille = settings.threshold_permille;
        Ok(Self { settings, stats_page, host_monitor, pagemap, regions, spare, huge: false, threshold_permille })
    }

    /// Takes them over from a worker that has ended.
    ///
    /// # Errors
    /// When the page map can't be opened any more.
    pub fn take_up(&mut self, host_monitor: HostMonitor) -> Result<(), MissingFeature> {
        let pagemap = Pagemap::open(None).map_err(|why| ("/proc/self/pagemap can't be opened", why))?;
        // The other's table of descriptors is gone; its number may be one of this table's by now.
        std::mem::forget(std::mem::replace(&mut self.pagemap, pagemap));
        self.host_monitor = host_monitor;
        Ok(())
    }

    /// Raises the threshold while too much of what was copied ahead is not needed, and lowers it to what was set again.
    pub fn adapt(&mut self, epoch_stats: &EpochStats) {
        let Some(unneeded) = epoch_stats.unneeded_permille() else { return };
        let set = self.settings.threshold_permille;
        let now = self.threshold_permille;
        self.threshold_permille = if unneeded > MOST_UNNEEDED_PERMILLE {
            (now + THRESHOLD_STEP_PERMILLE).min(HIGHEST_THRESHOLD_PERMILLE.max(set))
        } else if unneeded < MOST_UNNEEDED_PERMILLE / 2 {
            now.saturating_sub(THRESHOLD_STEP_PERMILLE).max(set)
        } else {
            now
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_what_was_needed() {
        let page = AnonymousMap::shared(PAGE_SIZE).unwrap();
        // SAFETY: a page of zeros is a valid `StatsPage`, and the mapping is leaked in the next statement.
        let stats_page = unsafe { &*page.base().cast::<StatsPage>() };
        std::mem::forget(page);
        let host_monitor = || HostMonitor::new(quire_sys::helper::HostProcess::of_caller().unwrap());
        let mut context = WorkerContext::new(PreloadSettings::default(), stats_page, host_monitor()).unwrap();
        let with = |needed| EpochStats { precopied: 1000, needed, ..EpochStats::default() };
        context.adapt(&with(700));
        assert_eq!(context.threshold_permille, 825);
        context.adapt(&with(850));
        assert_eq!(context.threshold_permille, 825);
        (0..3).for_each(|_| context.adapt(&with(1000)));
        assert_eq!(context.threshold_permille, 800);
        (0..50).for_each(|_| context.adapt(&with(0)));
        assert_eq!(context.threshold_permille, 950);
        context.adapt(&EpochStats::default());
        assert_eq!(context.threshold_permille, 950);
        context.take_up(host_monitor()).unwrap();
        assert_eq!(context.threshold_permille, 950, "what was learned stays");
    }
}

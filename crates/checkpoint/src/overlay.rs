//! What the deltas of a chain put over its image: of every page that they name, where the content lies that counts.
//!
//! Relies on the entries of each delta being in rising order, which its reader has checked.

use std::ops::Range;

use quire_snapshot::PAGES_PER_REGION;

use crate::delta::Delta;

/// Most runs of a region that is mapped. Mapping one run takes about 2.4 µs, and the exchange of the region gives its mapping
/// back while no command runs; reading a whole region takes 600 µs on a disk of 3.4 GB/s.
const MAX_RUNS_PER_REGION: usize = 64;
/// Most runs that are mapped in all, however many mappings the system allows: they take about 160 ms.
const MAX_RUNS: usize = 65_536;

/// Neighbouring pages of one region whose content that counts lies one behind the other in one delta, or that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverlayRun {
    /// The first page.
    pub(crate) page: u32,
    /// How many there are.
    pub(crate) pages: u32,
    /// Where their content lies; `None` if they have none any more.
    pub(crate) place: Option<DeltaPlace>,
}

/// Where the first page of a run lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaPlace {
    /// Which delta, the oldest is 0.
    pub(crate) delta: u32,
    /// The page's rank in it.
    pub(crate) rank: u32,
}

impl OverlayRun {
    /// Its pages.
    pub(crate) fn range(&self) -> Range<u32> {
        self.page..self.page + self.pages
    }

    fn region(&self) -> u32 {
        self.page / PAGES_PER_REGION as u32
    }

    /// Takes `page` in, if it goes on where the run ends.
    fn extend(&mut self, page: u32, place: Option<DeltaPlace>) -> bool {
        let goes_on = match (self.place, place) {
            (None, None) => true,
            (Some(first), Some(next)) => first.delta == next.delta && first.rank + self.pages == next.rank,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let is_neighbour = self.range().end == page && self.region() == page / PAGES_PER_REGION as u32;
        if goes_on && is_neighbour {
            self.pages += 1;
        }
        goes_on && is_neighbour
    }
}

/// The deltas over an image.
#[derive(Default)]
pub(crate) struct Overlay {
    deltas: Vec<Delta>,
    /// In rising order.
    runs: Vec<OverlayRun>,
}

impl Overlay {
    /// What `deltas`, the oldest first, put over an image. Takes 18 bytes an entry of theirs while it works, and 20 a run afterwards.
    pub(crate) fn new(deltas: Vec<Delta>) -> Self {
        // Page, age of the delta and rank: the newest delta that names a page comes first.
        let mut named: Vec<(u32, u32, u32)> = Vec::with_capacity(deltas.iter().map(|delta| delta.entries.len()).sum());
        for (age, delta) in (0..).zip(deltas.iter().rev()) {
            named.extend((0..).zip(&delta.entries).map(|(rank, entry)| (entry.page.get(), age, rank)));
        }
        // The stable sort finds the rows that are sorted already, one a delta.
        named.sort();
        named.dedup_by_key(|(page, ..)| *page);
        let mut runs: Vec<OverlayRun> = Vec::new();
        for (page, age, rank) in named {
            let place = DeltaPlace { delta: deltas.len() as u32 - 1 - age, rank };
            let has_content = deltas[place.delta as usize].entries[rank as usize].present.get() != 0;
            let place = has_content.then_some(place);
            if !runs.last_mut().is_some_and(|last| last.extend(page, place)) {
                runs.push(OverlayRun { page, pages: 1, place });
            }
        }
        Self { deltas, runs }
    }

    /// Forgets pages without content in regions that are none of `regions`: memory has none there anyway.
    pub(crate) fn forget_empty_outside(&mut self, regions: impl Fn(u32) -> bool) {
        self.runs.retain(|run| run.place.is_some() || regions(run.region()));
    }

    pub(crate) fn deltas(&self) -> &[Delta] {
        &self.deltas
    }

    /// All runs, in rising order.
    pub(crate) fn runs(&self) -> &[OverlayRun] {
        &self.runs
    }

    /// The runs in `region`, in rising order.
    pub(crate) fn runs_in(&self, region: u32) -> &[OverlayRun] {
        let start = self.runs.partition_point(|run| run.region() < region);
        let end = start + self.runs[start..].partition_point(|run| run.region() == region);
        &self.runs[start..end]
    }

    /// Regions with pages that the deltas have content for, in rising order.
    pub(crate) fn regions(&self) -> Vec<u32> {
        let mut regions: Vec<u32> =
            self.runs.iter().filter(|run| run.place.is_some()).map(OverlayRun::region).collect();
        regions.dedup();
        regions
    }

    /// Whether a delta has pages of `region` compressed.
    pub(crate) fn is_packed(&self, region: u32) -> bool {
        self.deltas.iter().any(|delta| !delta.stored_in(region).is_plain())
    }

    /// Divides `regions` into those that are to be mapped and those that are to be read first, both in rising order. The mapped
    /// ones have few runs, of which all together need at most half of the `max_mappings` that the system allows, and are none of those
    /// of which `is_read` says that they can't be.
    pub(crate) fn divide(
        &self,
        regions: &[u32],
        is_read: impl Fn(u32) -> bool,
        max_mappings: usize,
    ) -> (Vec<u32>, Vec<u32>) {
        // A run that is mapped within a mapping makes two more of it.
        let mut left = (max_mappings / 4).min(MAX_RUNS);
        let mut by_runs: Vec<(usize, u32)> = regions
            .iter()
            .map(|&region| (if is_read(region) { usize::MAX } else { self.cost(region) }, region))
            .collect();
        by_runs.sort_unstable();
        let mapped = by_runs.iter().take_while(|(runs, _)| {
            let fits = *runs <= left.min(MAX_RUNS_PER_REGION);
            left -= if fits { *runs } else { 0 };
            fits
        });
        let split = mapped.count();
        let sorted = |part: &[(usize, u32)]| {
            let mut part: Vec<u32> = part.iter().map(|(_, region)| *region).collect();
            part.sort_unstable();
            part
        };
        (sorted(&by_runs[..split]), sorted(&by_runs[split..]))
    }

    /// Runs of a region; too many if pages that the image has there have lost their content, or are compressed in a delta, since no file
    /// can be mapped for those.
    fn cost(&self, region: u32) -> usize {
        let runs = self.runs_in(region);
        let can_be_mapped = |run: &OverlayRun| {
            run.place.is_some_and(|place| self.deltas[place.delta as usize].stored_in(region).is_plain())
        };
        if runs.iter().all(can_be_mapped) { runs.len() } else { usize::MAX }
    }
}

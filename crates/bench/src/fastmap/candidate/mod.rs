//! The ways to the pages of a file that are set beside each other.
//!
//! Relies on [`Pages`] hiding all differences, so that every workload is written once.

pub mod direct;
mod mmap;
mod pool;
mod vmcache;
mod write_batch;

use anyhow::bail;
use quire_sys::shared_map::AccessPattern;
use serde::{Deserialize, Serialize};

use super::pages::Pages;
use super::testbed::Testbed;

pub use mmap::MmapPages;
pub use pool::{GuardedPages, TransparentPages};
pub use vmcache::Vmcache;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Candidate {
    /// Linux mmap as it is.
    Mmap,
    /// Linux mmap with `MADV_RANDOM`.
    MmapRandom,
    /// Linux mmap with `MADV_RANDOM`, future pages asked for with `MADV_WILLNEED`.
    MmapAhead,
    /// vmcache's approach.
    Vmcache,
    /// Direct `pread` without a cache.
    Direct,
    /// The pool, by guards.
    Guards,
    /// The pool, by guards, future pages asked for by `prefetch`.
    GuardsAhead,
    /// The pool, as plain memory.
    Transparent,
    /// LMDB, which maps its file; for key-value loads only.
    Lmdb,
}

impl Candidate {
    /// Those of [`with_pages`] that work wherever direct transfers do.
    #[cfg(test)]
    pub const PAGED: &[Self] =
        &[Self::Mmap, Self::MmapRandom, Self::MmapAhead, Self::Vmcache, Self::Guards, Self::GuardsAhead];
    /// Linux's own, of which the better one counts.
    pub const PEERS: [Self; 2] = [Self::Mmap, Self::MmapRandom];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::MmapRandom => "mmap_random",
            Self::MmapAhead => "mmap_ahead",
            Self::Vmcache => "vmcache",
            Self::Direct => "direct",
            Self::Guards => "guards",
            Self::GuardsAhead => "guards_ahead",
            Self::Transparent => "transparent",
            Self::Lmdb => "lmdb",
        }
    }

    /// Whether it is told pages before they are needed.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::MmapAhead | Self::GuardsAhead)
    }
}

/// Work that can be done on any [`Pages`].
pub trait PagesWorkload {
    /// What comes of it.
    type Out;

    /// Whether some pages are used in the order of their numbers, so that looking for streams may pay.
    fn has_streams(&self) -> bool {
        false
    }

    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn run_on<P: Pages>(self, pages: &P) -> anyhow::Result<Self::Out>;
}

/// Opens `place` in the way of `candidate`, with `budget_bytes` for those that keep pages themselves, and does `work` on it.
///
/// # Errors
/// When it can't be opened so, or the work's own.
pub fn with_pages<W: PagesWorkload>(
    candidate: Candidate,
    testbed: &Testbed,
    budget_bytes: u64,
    work: W,
) -> anyhow::Result<W::Out> {
    match candidate {
        Candidate::Mmap => work.run_on(&MmapPages::<false>::new(testbed, AccessPattern::Normal)?),
        Candidate::MmapRandom => work.run_on(&MmapPages::<false>::new(testbed, AccessPattern::Random)?),
        Candidate::MmapAhead => work.run_on(&MmapPages::<true>::new(testbed, AccessPattern::Random)?),
        Candidate::Vmcache => work.run_on(&Vmcache::new(testbed, budget_bytes)?),
        Candidate::Guards => {
            let guarded = GuardedPages::<false>::new(testbed, budget_bytes, work.has_streams())?;
            work.run_on(&guarded)
        }
        Candidate::GuardsAhead => {
            let guarded = GuardedPages::<true>::new(testbed, budget_bytes, work.has_streams())?;
            work.run_on(&guarded)
        }
        Candidate::Transparent => {
            let transparent = TransparentPages::new(testbed, budget_bytes, work.has_streams())?;
            work.run_on(&transparent)
        }
        Candidate::Direct | Candidate::Lmdb => bail!("{} has no pages", candidate.name()),
    }
}

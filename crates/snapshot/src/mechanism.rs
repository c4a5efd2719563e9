//! The names of the six mechanisms, and what a mechanism may be told.
//!
//! Relies on nothing. [`crate::attach`] makes the mechanisms themselves.

use std::fmt;
use std::str::FromStr;

use crate::page::{PAGE_SIZE, REGION_SIZE};

/// A way to keep memory as it was at a cut while writers go on.
///
/// ```
/// use quire_snapshot::Mechanism;
///
/// assert_eq!("uffd".parse(), Ok(Mechanism::Uffd));
/// for mechanism in Mechanism::ALL {
///     println!("{mechanism}: {}", mechanism.about());
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// A second range of addresses in the same process that shares frames until one of the two is written. A child that the
    /// program forks meanwhile shares the range with the program instead of having its own: the child must not use it.
    Scoot,
    /// Write protection by userfaultfd; the faulting thread keeps the page.
    Uffd,
    /// The writer says before each write what it is going to change.
    Barrier,
    /// `memcpy`'s interface over private mappings of one file (Korb et al., SAC 2016).
    MmapCopy,
    /// A child process.
    Fork,
    /// A plain copy, made at the cut.
    Memcpy,
}

impl Mechanism {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; 6] = [Self::Scoot, Self::Uffd, Self::Barrier, Self::MmapCopy, Self::Fork, Self::Memcpy];

    /// As it is written on command lines and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scoot => "scoot",
            Self::Uffd => "uffd",
            Self::Barrier => "barrier",
            Self::MmapCopy => "mmapcopy",
            Self::Fork => "fork",
            Self::Memcpy => "memcpy",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Scoot => "a duplicate in the same process that shares frames until one side is written",
            Self::Uffd => "write protection by userfaultfd; the faulting thread keeps the page",
            Self::Barrier => "the writer announces each write",
            Self::MmapCopy => "memcpy's interface over private mappings of one file",
            Self::Fork => "a child process",
            Self::Memcpy => "a plain copy",
        }
    }

    /// Whether every write must be announced by [`crate::Origin::prepare_write`].
    pub const fn needs_announcement(self) -> bool {
        matches!(self, Self::Barrier)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// A word that names no mechanism.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mechanism is called {0:?}: there are scoot, uffd, barrier, mmapcopy, fork and memcpy")]
pub struct UnknownMechanism(String);

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == word).ok_or_else(|| UnknownMechanism(word.into()))
    }
}

/// Which regions are copied whole at (or before) their first write, after CCoW (Ha & Kim, 2022).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precopy {
    /// None: each page by itself.
    None,
    /// Those of whose pages at least this many percent were written in the last epoch.
    Threshold(u8),
    /// Every region that is written at all.
    All,
    /// As measured costs and memory suggest, changed from epoch to epoch.
    Adaptive,
}

/// What a mechanism may be told. Those that have no use for a setting ignore it.
///
/// ```
/// use quire_snapshot::{Mechanism, OriginOptions, PageRange, Precopy, attach};
///
/// let options = OriginOptions {
///     precopy: Precopy::Threshold(80),      // copy a region whole if 80 % of it was written in the last epoch
///     budget_bytes: Some(64 << 20),         // for what views keep
///     ..OriginOptions::default()
/// };
/// let origin = attach(Mechanism::Barrier, PageRange::allocate(1 << 20)?, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginOptions {
    /// Bytes of a region, the unit of coverage: a power of two from 32 KiB to 2 MiB.
    pub region_bytes: usize,
    /// Which regions are copied whole.
    pub precopy: Precopy,
    /// Whether a thread of the mechanism copies ahead of the writers and restores huge pages; without it everything
    /// happens in the threads that call or write.
    pub background: bool,
    /// Most bytes per second that the background thread copies right after a cut, when writers need the memory bus.
    pub precopy_bytes_per_second: u64,
    /// Most memory for pre-images, in bytes. A view for which there is none left fails to be read; the writer goes on. `None`: with
    /// [`Mechanism::Uffd`] and [`Mechanism::Barrier`] four times the range and 256 MiB, enough for views of several cuts (one view
    /// holds the range at most); with [`Mechanism::Scoot`] as much as the range.
    pub budget_bytes: Option<usize>,
    /// Memory for pre-images that is kept warm between snapshots, in bytes. As much as the last ones needed is kept for
    /// two seconds longer in case that another follows, unless this is 0.
    pub keep_bytes: usize,
    /// With [`Mechanism::Uffd`]: a thread of the mechanism serves the faults of writers, which takes 25 to 50 µs, instead of the
    /// writers in their SIGBUS handlers. For programs of which a thread writes with SIGBUS blocked, as a fault kills such a thread
    /// otherwise; where one blocks it when the mechanism is attached, that is done without being told.
    pub serve_faults: bool,
}

impl Default for OriginOptions {
    fn default() -> Self {
        Self {
            region_bytes: REGION_SIZE,
            precopy: Precopy::Adaptive,
            background: true,
            precopy_bytes_per_second: 2 << 30,
            budget_bytes: None,
            keep_bytes: 64 << 20,
            serve_faults: false,
        }
    }
}

impl OriginOptions {
    /// Pages of a region.
    pub const fn pages_per_region(&self) -> usize {
        self.region_bytes / PAGE_SIZE
    }

    /// Whether the region size is one that mechanisms take.
    pub const fn is_sound(&self) -> bool {
        self.region_bytes.is_power_of_two() && self.region_bytes >= 32 << 10 && self.region_bytes <= REGION_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
        assert!("spoon".parse::<Mechanism>().unwrap_err().to_string().contains("scoot"));
    }

    #[test]
    fn region_sizes_outside_the_papers_range_are_not_sound() {
        assert!(OriginOptions::default().is_sound());
        for region_bytes in [0, 4096, 16 << 10, 48 << 10, 4 << 20] {
            assert!(!OriginOptions { region_bytes, ..OriginOptions::default() }.is_sound(), "{region_bytes}");
        }
    }
}

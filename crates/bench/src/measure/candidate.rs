//! A range of memory under a mechanism: what everything here measures.
//!
//! Relies on `quire-snapshot`. Backing the range is never timed, so memory that the host of a virtual machine has to find
//! first is charged to no mechanism here; what copies will take is warmed by those who measure.

use std::sync::Arc;

use quire_snapshot::{Mechanism, MechanismError, Origin, OriginAccess, OriginOptions, PageRange, attach};
use quire_sys::map::{MapAdvice, advise};
use serde::Serialize;

/// What the range is made of before a mechanism gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageKind {
    /// Pages of 4 KiB (`MADV_NOHUGEPAGE`). `scoot` keeps its own file of huge pages all the same.
    Small,
    /// Huge pages, as far as the system has them (`MADV_HUGEPAGE`).
    Huge,
}

impl PageKind {
    /// In names of figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Huge => "huge",
        }
    }

    fn hint(self) -> MapAdvice {
        match self {
            Self::Small => MapAdvice::NoHuge,
            Self::Huge => MapAdvice::Huge,
        }
    }
}

/// A range under a mechanism.
#[derive(Debug)]
pub struct Candidate {
    access: OriginAccess,
}

impl Candidate {
    /// Fresh memory of `bytes`, all of it backed if `is_populated`, under `mechanism`.
    ///
    /// # Errors
    /// [`MechanismError`]: no memory, or the mechanism can't be had here.
    pub fn new(
        mechanism: Mechanism,
        bytes: usize,
        kind: PageKind,
        is_populated: bool,
        options: &OriginOptions,
    ) -> Result<Self, MechanismError> {
        let span = PageRange::allocate(bytes)?;
        // A system without huge pages refuses the wish; there is one kind of page then.
        let _ = advise(span.base(), span.len(), kind.hint());
        if is_populated {
            advise(span.base(), span.len(), MapAdvice::PopulateWrite).map_err(|source| MechanismError::System {
                mechanism,
                call: "madvise(MADV_POPULATE_WRITE)",
                source,
                suggestion: "Take a smaller range.",
            })?;
        }
        let origin: Arc<dyn Origin> = Arc::from(attach(mechanism, span, options)?);
        Ok(Self { access: OriginAccess::new(origin) })
    }

    /// Loads and stores.
    pub fn access(&self) -> &OriginAccess {
        &self.access
    }

    /// The origin.
    pub fn origin(&self) -> &Arc<dyn Origin> {
        self.access.origin()
    }
}

impl Drop for Candidate {
    /// Waits for upkeep, so that the next measurement has the machine, and the memory, to itself.
    fn drop(&mut self) {
        self.origin().settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_populated_candidate_can_be_written_and_cut() {
        let options = OriginOptions { background: false, ..OriginOptions::default() };
        for kind in [PageKind::Small, PageKind::Huge] {
            let candidate = Candidate::new(Mechanism::Barrier, 4 << 20, kind, true, &options).unwrap();
            let view = candidate.origin().cut().unwrap();
            candidate.access().store_u64(8192, 9);
            let mut word = [1; 8];
            view.read(8192, &mut word).unwrap();
            assert_eq!((word, candidate.access().load_u64(8192)), ([0; 8], 9));
        }
    }
}

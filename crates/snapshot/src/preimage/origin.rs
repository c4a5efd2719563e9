//! The origin of every mechanism that keeps pre-images. The mechanism adds how it notices first writes.
//!
//! Relies on [`super::engine`] for the copies, and on a [`WriteDetector`] for the moment of the first write.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::copier::{BackgroundWork, Copier};
use super::copy_on_write::CopyOnWrite;
use super::engine::PreimageEngine;
use super::epoch_chain::EpochChain;
use super::view::{CopierLease, EpochView};
use crate::copy_protocol::CopyProtocol;
use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, Origin, OriginStats, View};

/// How a mechanism notices the first write to a page after a cut.
pub(crate) trait WriteDetector: Send + Sync + 'static {
    /// The mechanism.
    const MECHANISM: Mechanism;

    /// The parts that it shares with other mechanisms.
    fn engine(&self) -> &PreimageEngine;

    /// Begins an epoch: every first write is noticed from now on. Writers hold still.
    ///
    /// # Errors
    /// No memory, or too many views. Then no epoch has begun.
    fn begin_epoch(self: &Arc<Self>) -> Result<EpochView, MechanismError>;

    /// [`Origin::prepare_write`] for a range inside the origin that isn't empty.
    fn prepare_write(&self, range: Range<usize>);

    /// As [`BackgroundWork::copy_ahead`].
    fn copy_ahead(&self, _region: usize, pages: Range<usize>) -> bool {
        self.engine().cow.copy_ahead(pages)
    }

    /// As [`BackgroundWork::collapse_one`].
    fn collapse_one(&self) -> bool {
        false
    }
}

impl<D: WriteDetector> BackgroundWork for D {
    fn cow(&self) -> &Arc<CopyOnWrite> {
        &self.engine().cow
    }

    fn chain(&self) -> &EpochChain {
        &self.engine().chain
    }

    fn copier(&self) -> &Copier {
        &self.engine().copier
    }

    fn copy_ahead(&self, region: usize, pages: Range<usize>) -> bool {
        WriteDetector::copy_ahead(self, region, pages)
    }

    fn collapse_one(&self) -> bool {
        WriteDetector::collapse_one(self)
    }
}

/// The origin.
pub(crate) struct PreimageOrigin<D> {
    pub(crate) detector: Arc<D>,
    #[expect(dead_code, reason = "held")]
    lease: CopierLease,
}

impl<D: WriteDetector> PreimageOrigin<D> {
    /// Starts the copier thread, if the options want one.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(crate) fn start(detector: Arc<D>) -> Result<Self, MechanismError> {
        detector.engine().copier.start(&detector).map_err(|source| MechanismError::System {
            mechanism: D::MECHANISM,
            call: "clone",
            source,
            suggestion: "Raise the limit of threads, or turn `background` off.",
        })?;
        let lease = CopierLease::new(Arc::clone(&detector) as Arc<dyn BackgroundWork>);
        Ok(Self { detector, lease })
    }
}

impl<D: WriteDetector> Origin for PreimageOrigin<D> {
    fn mechanism(&self) -> Mechanism {
        D::MECHANISM
    }

    fn base(&self) -> *mut u8 {
        self.detector.engine().cow.span.base()
    }

    fn len(&self) -> usize {
        self.detector.engine().cow.span.len()
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        let start = Instant::now();
        let engine = self.detector.engine();
        if engine.copier.is_forked() {
            return Err(MechanismError::forked(D::MECHANISM));
        }
        let view = self.detector.begin_epoch()?;
        engine.cow.figures.last_cut_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        engine.copier.note_cut(&*self.detector);
        Ok(Arc::new(view))
    }

    #[inline]
    fn prepare_write(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} lies outside {} bytes", self.len());
        if !range.is_empty() {
            self.detector.prepare_write(range);
        }
    }

    fn settle(&self) {
        self.detector.engine().copier.settle(&*self.detector);
    }

    fn stats(&self) -> OriginStats {
        self.detector.engine().cow.stats()
    }
}

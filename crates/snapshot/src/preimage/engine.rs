//! What every mechanism has that keeps pre-images: the copies, the epochs that views need, and the copier thread.
//!
//! Relies on the mechanism for one thing: that a thread which is about to change a page tells [`CopyOnWrite`] first.

use std::sync::Arc;

use super::copier::Copier;
use super::copy_on_write::CopyOnWrite;
use super::coverage::CopyCosts;
use super::epoch_chain::EpochChain;
use crate::mechanism::{Mechanism, OriginOptions};
use crate::origin::{MechanismError, PreimageConsumer};
use crate::span::PageRange;

/// The parts, for one origin.
pub(crate) struct PreimageEngine {
    pub(crate) cow: Arc<CopyOnWrite>,
    pub(crate) chain: EpochChain,
    pub(crate) copier: Arc<Copier>,
}

impl PreimageEngine {
    /// For `span`. The copier's thread is started by [`super::origin::PreimageOrigin::start`].
    pub(crate) fn new(
        span: PageRange,
        mechanism: Mechanism,
        options: &OriginOptions,
        costs: &CopyCosts,
        consumer: Option<Arc<dyn PreimageConsumer>>,
    ) -> Result<Self, MechanismError> {
        let cow = Arc::new(CopyOnWrite::new(span, mechanism, options, costs, consumer)?);
        let chain = EpochChain::new(Arc::clone(&cow));
        Ok(Self { cow, chain, copier: Arc::new(Copier::new(options.background)) })
    }
}

impl Drop for PreimageEngine {
    fn drop(&mut self) {
        self.copier.stop();
    }
}

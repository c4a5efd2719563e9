//! Views of an epoch.
//!
//! Relies on [`super::epoch_chain`] for the bytes.

use std::sync::Arc;

use super::copier::BackgroundWork;
use super::epoch_chain::Epoch;
use crate::origin::{MechanismError, View, ViewError, check};
use crate::page::PAGE_SIZE;

/// A hold on a mechanism, by its origin or by one of its epochs. When the last one is dropped, the copier thread has ended its
/// work: from then on the memory may be unmapped.
pub(crate) struct CopierLease(Arc<dyn BackgroundWork>);

impl CopierLease {
    pub(crate) fn new(mechanism: Arc<dyn BackgroundWork>) -> Self {
        mechanism.copier().enter();
        Self(mechanism)
    }
}

impl Drop for CopierLease {
    fn drop(&mut self) {
        self.0.copier().leave();
    }
}

/// What all views of an epoch share.
struct LiveEpoch {
    mechanism: CopierLease,
    epoch: Arc<Epoch>,
}

impl Drop for LiveEpoch {
    fn drop(&mut self) {
        self.epoch.end();
        let mechanism = &*self.mechanism.0;
        mechanism.copier().note_end(mechanism);
    }
}

/// The range as it was when an epoch began.
pub(crate) struct EpochView(Arc<LiveEpoch>);

impl EpochView {
    pub(crate) fn new<D: BackgroundWork + 'static>(mechanism: &Arc<D>, epoch: Arc<Epoch>) -> Self {
        let mechanism = Arc::clone(mechanism) as Arc<dyn BackgroundWork>;
        Self(Arc::new(LiveEpoch { mechanism: CopierLease::new(mechanism), epoch }))
    }
}

impl View for EpochView {
    fn len(&self) -> usize {
        self.0.mechanism.0.cow().span.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len())?;
        let chain = self.0.mechanism.0.chain();
        let is_forked = self.0.mechanism.0.copier().is_forked();
        let (mut offset, mut rest) = (offset, to);
        while !rest.is_empty() {
            let in_page = rest.len().min(PAGE_SIZE - offset % PAGE_SIZE);
            let (now, later) = rest.split_at_mut(in_page);
            // Page by page, so that no cut waits for a long read.
            if is_forked {
                chain.read_in_child(&self.0.epoch, offset, now)?;
            } else {
                chain.read_in_page(&self.0.epoch, offset, now)?;
            }
            offset += in_page;
            rest = later;
        }
        Ok(())
    }

    fn as_ptr(&self) -> Option<*mut u8> {
        None
    }

    fn cut(&self) -> Result<Arc<dyn View>, MechanismError> {
        // A view of this kind can't be written, so a snapshot of it is the view itself.
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn held_bytes(&self) -> usize {
        self.0.epoch.slot.held_bytes()
    }
}

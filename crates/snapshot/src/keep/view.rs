//! Views of an epoch.
//!
//! Relies on [`super::chain`] for the bytes.

use std::sync::Arc;

use super::chain::Epoch;
use super::keeper::{Chores, Keeper};
use crate::origin::{Refused, View, ViewError, check};
use crate::page::PAGE_SIZE;

/// A mechanism as its views see it. It lives as long as anything of it is in use.
pub(crate) trait Owner: Chores {
    /// Its upkeep.
    fn keeper(&self) -> &Arc<Keeper>;
}

/// A mechanism as its origin and its epochs hold it. With the last of them all upkeep is over: from then on the memory may
/// be unmapped.
pub(crate) struct Lease(Arc<dyn Owner>);

impl Lease {
    pub(crate) fn new(owner: Arc<dyn Owner>) -> Self {
        owner.keeper().enter();
        Self(owner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.keeper().leave();
    }
}

/// What all views of an epoch share.
struct Live {
    owner: Lease,
    epoch: Arc<Epoch>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.epoch.end();
        self.owner.0.keeper().note_end(&*self.owner.0);
    }
}

/// The range as it was when an epoch began.
pub(crate) struct KeptView(Arc<Live>);

impl KeptView {
    pub(crate) fn new(owner: Arc<dyn Owner>, epoch: Arc<Epoch>) -> Self {
        Self(Arc::new(Live { owner: Lease::new(owner), epoch }))
    }
}

impl View for KeptView {
    fn len(&self) -> usize {
        self.0.owner.0.core().span.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), ViewError> {
        check(offset, to.len(), self.len())?;
        let chain = self.0.owner.0.chain();
        let is_forked = self.0.owner.0.keeper().is_forked();
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

    fn cut(&self) -> Result<Arc<dyn View>, Refused> {
        // Nobody can write a view of this kind, so a snapshot of it is the view itself.
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }

    fn held_bytes(&self) -> usize {
        self.0.epoch.slot.held_bytes()
    }
}

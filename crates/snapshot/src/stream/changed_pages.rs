//! Which pages have changed since the last snapshot that is kept.
//!
//! ```text
//!            cut                       the snapshot is kept
//!   changed ─────▶ cut off (frozen) ──────────────────────▶ forgotten
//!      ▲                │ it is not kept
//!      └────────────────┘
//! ```
//! Relies on being told each page's first write after a cut: the writer's slow path, which is taken once a page and epoch. So
//! no write pays for it that does not pay for the epoch already. What was changed before a cut that led to nothing counts as
//! changed again, so a snapshot always holds everything since the last one that was kept.

use std::sync::Arc;

use crate::stream::page_set::PageSet;

/// The writer's notes of changed pages.
#[derive(Debug)]
pub(crate) struct ChangedPages {
    /// Changed since the last cut, and before it since the last snapshot that is kept, unless they are in `frozen`.
    changed: PageSet,
    /// Changed between the last snapshot that is kept and the cut of the one that isn't settled.
    frozen: Option<Arc<PageSet>>,
    /// The open snapshot consists of the frozen pages only: no other page's content at the cut is needed.
    only_frozen: bool,
    pages: usize,
}

impl ChangedPages {
    /// Of `pages` pages, none of them changed.
    pub(crate) fn none(pages: usize) -> Self {
        Self { changed: PageSet::new(pages), frozen: None, only_frozen: false, pages }
    }

    pub(crate) fn note(&mut self, page: usize) {
        self.changed.insert(page as u32);
    }

    /// Pages that have changed since the last snapshot that is kept.
    pub(crate) fn count(&self) -> u64 {
        self.changed.count() + self.frozen.as_ref().map_or(0, |frozen| frozen.count())
    }

    /// Sets the changes so far apart, for a snapshot of them or of everything.
    pub(crate) fn freeze(&mut self, only_changed: bool) -> Arc<PageSet> {
        self.settle(false);
        let frozen = Arc::new(std::mem::replace(&mut self.changed, PageSet::new(self.pages)));
        self.only_frozen = only_changed;
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// The snapshot of the last cut is kept, or is not.
    pub(crate) fn settle(&mut self, kept: bool) {
        self.only_frozen = false;
        if let Some(frozen) = self.frozen.take()
            && !kept
        {
            self.changed.unite(&frozen);
        }
    }

    /// Whether the open snapshot needs the content of `page`.
    pub(crate) fn needs(&self, page: usize) -> bool {
        !self.only_frozen || self.frozen.as_ref().is_some_and(|frozen| frozen.contains(page as u32))
    }
}

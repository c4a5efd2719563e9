//! Which image and deltas are known to be on the disk, and whether the next save may be a delta over them.
//!
//! Relies on the arena's notes of what has changed since the last of them: while there is a [`PublishedChain`], they hold
//! every change since. See `docs/design/incremental.md`.

use quire_arena::{Arena, ArenaError};
use quire_checkpoint::{DeltaInfo, DumpSummary, ImageChain, LinkId, MAX_WRITTEN_DELTA_PAGES};
use quire_snapshot::PAGE_SIZE;

use crate::store::location::ImageLocation;

/// Pages that the cut itself may change, after it was decided that the save is a delta.
const MARGIN_PAGES: u64 = 4096;

/// An image and the deltas over it that are whole.
#[derive(Clone, Debug)]
pub(crate) struct PublishedChain {
    /// Path of the image.
    place: String,
    links: Vec<LinkId>,
    /// Bytes of the image's pages as they are stored: what compression has saved does not count.
    image_bytes: u64,
    /// The same of all deltas, with their tables.
    delta_bytes: u64,
    last_delta_bytes: u64,
    /// Whether this process knows that they are durable. Links that another one left, or that were copied, may be in memory only.
    is_flushed: bool,
}

/// What a delta is to be over.
pub(crate) struct DeltaBase {
    pub(crate) links: Vec<LinkId>,
    /// Whether the links must be made durable first.
    pub(crate) flush_links: bool,
}

impl PublishedChain {
    /// The chain that the data was brought back from, if deltas may follow it.
    pub(crate) fn opened(chain: &ImageChain, place: &ImageLocation) -> Option<Self> {
        Some(Self {
            place: place.path(),
            links: chain.links()?,
            image_bytes: chain.image().info().compression.stored_bytes,
            delta_bytes: chain.deltas().iter().map(DeltaInfo::stored_bytes).sum(),
            last_delta_bytes: chain.deltas().last().map_or(0, DeltaInfo::stored_bytes),
            is_flushed: false,
        })
    }

    /// Deltas over the image.
    pub(crate) fn deltas(&self) -> u64 {
        self.links.len() as u64 - 1
    }

    /// Bytes that the deltas over the image take on the disk.
    pub(crate) fn delta_bytes(&self) -> u64 {
        self.delta_bytes
    }

    /// Bytes of the last of them.
    pub(crate) fn last_delta_bytes(&self) -> u64 {
        self.last_delta_bytes
    }

    /// Whether a delta of `changed` pages may follow: else the next save is a full image, which replaces the chain. What compression
    /// will make of the delta isn't known, so it counts as it is in memory: the chain never takes more than was promised.
    fn takes(&self, changed: u64, max_deltas: u32) -> bool {
        let bytes = self.delta_bytes + changed * PAGE_SIZE as u64;
        self.deltas() < u64::from(max_deltas)
            && changed + MARGIN_PAGES <= u64::from(MAX_WRITTEN_DELTA_PAGES)
            && bytes * 2 <= self.image_bytes
    }
}

/// What decides whether a save is a delta.
#[derive(Debug, Default)]
pub(crate) struct DeltaPolicy {
    /// Most deltas over an image; 0 if every save is to be an image.
    pub(crate) max_deltas: u32,
    /// What a delta may be over, if that is known.
    pub(crate) published: Option<PublishedChain>,
}

impl DeltaPolicy {
    /// What a save to `place` may be a delta over; `None` if it is to be a full image. Sees to it that changes are
    /// tracked if and only if deltas are wanted. No snapshot is open.
    ///
    /// A clone's saves are full: only they look at all pages that are still the file's. A delta would take over what was copied out of a page
    /// that is not what was checked any more, and not the page.
    pub(crate) fn plan(&mut self, arena: &mut Arena, place: &ImageLocation) -> Result<Option<DeltaBase>, ArenaError> {
        if arena.is_file_backed() {
            return Ok(None);
        }
        let changed = arena.changed_pages();
        if changed.is_some() != (self.max_deltas > 0) {
            arena.track_changes(self.max_deltas > 0)?;
            // What changed before isn't known.
            self.published = None;
        }
        let (Some(chain), Some(changed)) = (&self.published, changed) else { return Ok(None) };
        let fits = chain.place == place.path() && chain.takes(changed, self.max_deltas);
        Ok(fits.then(|| DeltaBase { links: chain.links.clone(), flush_links: !chain.is_flushed }))
    }

    /// A save to `place` is durable.
    pub(crate) fn note_saved(&mut self, arena: &mut Arena, place: String, summary: &DumpSummary) {
        arena.settle(true);
        match &mut self.published {
            Some(chain) if summary.is_delta => {
                chain.links.push(summary.id);
                chain.delta_bytes += summary.stored_bytes();
                chain.last_delta_bytes = summary.stored_bytes();
                chain.is_flushed = true;
            }
            published => {
                let image_bytes = summary.stored_bytes();
                let links = vec![summary.id];
                let chain =
                    PublishedChain { place, links, image_bytes, delta_bytes: 0, last_delta_bytes: 0, is_flushed: true };
                *published = arena.changed_pages().map(|_| chain);
            }
        }
    }

    /// A save has failed; `is_certain` that what was on the disk before is there as it was.
    pub(crate) fn note_failed(&mut self, arena: &mut Arena, is_certain: bool) {
        arena.settle(false);
        if !is_certain {
            self.published = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_takes_deltas_until_they_are_too_many_or_half_as_large_as_the_image() {
        let page = PAGE_SIZE as u64;
        let link = LinkId { epoch: 1, checksum: 2 };
        let chain = PublishedChain {
            place: "a".into(),
            links: vec![link; 3],
            image_bytes: 100 * page,
            delta_bytes: 30 * page,
            last_delta_bytes: 0,
            is_flushed: true,
        };
        assert!(chain.takes(20, 3));
        assert!(!chain.takes(21, 3), "half of the image");
        assert!(!chain.takes(1, 2), "too many");
        let large = PublishedChain { image_bytes: 1 << 40, ..chain };
        assert!(
            large.takes(500_000, 3) && !large.takes(u64::from(MAX_WRITTEN_DELTA_PAGES), 3),
            "the table would be too large"
        );
    }
}

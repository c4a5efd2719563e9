//! How many bytes of a map are in the system's page cache, too.
//!
//! Relies on the cache saying how much of a range it holds (`cachestat`): parts of the file of which it holds nothing are passed over as
//! a whole, so the states of pages that were never touched aren't looked at.

use std::ops::Range;

use crate::mapped_file::MappedFile;
use crate::page::GROUP_PAGES;
use crate::page_state::PageStatus;

/// Bytes of those of `pages` that are in the pool which the page cache holds as well; `None` if it doesn't say.
pub(crate) fn bytes(map: &MappedFile, pages: Range<u64>) -> Option<u64> {
    let page_bytes = map.frames.page_bytes() as u64;
    let cached = |pages: &Range<u64>| {
        let len = (pages.end * page_bytes).min(map.len()).saturating_sub(pages.start * page_bytes);
        map.device.cached_bytes(pages.start * page_bytes, len)
    };
    if pages.is_empty() || cached(&pages)? == 0 {
        return Some(0);
    }
    if pages.end - pages.start > GROUP_PAGES {
        let middle = pages.start + (pages.end - pages.start) / 2;
        return Some(bytes(map, pages.start..middle)? + bytes(map, middle..pages.end)?);
    }
    let is_here = |page: &u64| {
        matches!(map.state(*page).load().status(), PageStatus::Clean | PageStatus::Dirty | PageStatus::Writing)
    };
    pages.filter(is_here).map(|page| cached(&(page..page + 1))).sum()
}

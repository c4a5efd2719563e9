//! Numbers of pages, and runs of them.

use std::fmt;

/// Number of a page in a file, counted in the pool's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNo(pub u64);

impl fmt::Display for PageNo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// Pages of a group: neighbours that one shard looks after, and one word of a dirty set describes.
pub(crate) const GROUP_PAGES: u64 = 64;

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRun {
    /// The first.
    pub(crate) start: u64,
    /// How many.
    pub(crate) pages: u64,
}

impl PageRun {
    /// The pages of the run, one by one.
    pub(crate) fn iter(self) -> std::ops::Range<u64> {
        self.start..self.start + self.pages
    }

    /// The run as one number, for the tag of a transfer.
    pub(crate) fn to_tag(self) -> u64 {
        self.start << RUN_BITS | self.pages
    }

    /// The run that a tag was made of.
    pub(crate) fn from_tag(tag: u64) -> Self {
        Self { start: tag >> RUN_BITS, pages: tag & ((1 << RUN_BITS) - 1) }
    }

    /// The parts of the run that lie in one group each.
    pub(crate) fn by_group(self) -> impl Iterator<Item = PageRun> {
        let end = self.start + self.pages;
        let mut at = self.start;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let stop = ((at / GROUP_PAGES + 1) * GROUP_PAGES).min(end);
                let part = PageRun { start: at, pages: stop - at };
                at = stop;
                part
            })
        })
    }
}

/// PageBitmap of a tag that hold the length of a run; a file's pages need no more than the others.
const RUN_BITS: u32 = 16;

/// Joins neighbours of a rising list of pages to runs of at most `most` pages.
pub(crate) fn runs(pages: &[u64], most: u64) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(last) if last.start + last.pages == page && last.pages < most => last.pages += 1,
            _ => runs.push(PageRun { start: page, pages: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_runs_that_fit_a_tag() {
        let all = runs(&[1, 2, 3, 4, 7, 9, 10], 3);
        let expected = [(1, 3), (4, 1), (7, 1), (9, 2)].map(|(start, pages)| PageRun { start, pages });
        assert_eq!(all, expected);
        for run in all {
            assert_eq!(PageRun::from_tag(run.to_tag()), run);
        }
        let far = PageRun { start: (1 << 47) + 5, pages: 1024 };
        assert_eq!(PageRun::from_tag(far.to_tag()), far);
    }

    #[test]
    fn a_run_is_cut_at_the_borders_of_groups() {
        let parts: Vec<(u64, u64)> =
            PageRun { start: 60, pages: 140 }.by_group().map(|part| (part.start, part.pages)).collect();
        assert_eq!(parts, [(60, 4), (64, 64), (128, 64), (192, 8)]);
    }
}

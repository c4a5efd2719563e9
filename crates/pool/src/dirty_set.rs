//! The dirty pages of one shard of a map, sorted by offset, and those of them that are being written.
//!
//! Relies on [`GROUP_PAGES`] neighbours having the same shard: a group is one word of bits, so neighbours cost nothing and a
//! run is found by looking at a number. Used under the shard's lock.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::page::GROUP_PAGES;

/// PageBitmap of groups.
#[derive(Debug, Default)]
struct PageBitmap(BTreeMap<u64, u64>);

impl PageBitmap {
    fn insert(&mut self, page: u64) -> bool {
        let bits = self.0.entry(page / GROUP_PAGES).or_default();
        let bit = 1 << (page % GROUP_PAGES);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    fn remove(&mut self, page: u64) -> bool {
        let Some(bits) = self.0.get_mut(&(page / GROUP_PAGES)) else { return false };
        let bit = 1 << (page % GROUP_PAGES);
        let was_there = *bits & bit != 0;
        *bits &= !bit;
        if *bits == 0 {
            self.0.remove(&(page / GROUP_PAGES));
        }
        was_there
    }

    /// Appends the pages inside `range`.
    fn list(&self, range: &Range<u64>, into: &mut Vec<u64>) {
        if range.is_empty() {
            return;
        }
        for (group, bits) in self.0.range(range.start / GROUP_PAGES..=(range.end - 1) / GROUP_PAGES) {
            into.extend(pages_of(*group, *bits).filter(|page| range.contains(page)));
        }
    }
}

/// The pages of a group whose bits are set.
fn pages_of(group: u64, mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let page = group * GROUP_PAGES + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            page
        })
    })
}

/// A group with dirty pages, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirtyGroup {
    /// Dirty pages of the group.
    pub(crate) pages: u32,
    /// Its number.
    pub(crate) number: u64,
}

/// Dirty pages and pages being written.
#[derive(Debug, Default)]
pub(crate) struct DirtySet {
    dirty: PageBitmap,
    writing: PageBitmap,
    count: usize,
}

impl DirtySet {
    /// `page` has become dirty.
    pub(crate) fn insert(&mut self, page: u64) {
        self.count += usize::from(self.dirty.insert(page));
    }

    /// Dirty pages, without those being written.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Takes out the dirty pages of `group` that `claim` agrees to: they are being written from now on.
    pub(crate) fn claim(&mut self, group: u64, into: &mut Vec<u64>, mut claim: impl FnMut(u64) -> bool) {
        let Some(&bits) = self.dirty.0.get(&group) else { return };
        for page in pages_of(group, bits).filter(|&page| claim(page)) {
            self.dirty.remove(page);
            self.count -= 1;
            self.writing.insert(page);
            into.push(page);
        }
    }

    /// `page` has been written, or (`failed`) stays dirty.
    pub(crate) fn written(&mut self, page: u64, failed: bool) {
        self.writing.remove(page);
        if failed {
            self.insert(page);
        }
    }

    /// Appends the dirty pages of `range` to one list and those being written to the other.
    pub(crate) fn list(&self, range: &Range<u64>, dirty: &mut Vec<u64>, writing: &mut Vec<u64>) {
        self.dirty.list(range, dirty);
        self.writing.list(range, writing);
    }

    /// Groups with dirty pages, from group `first` on, then those before it.
    pub(crate) fn groups(&self, first: u64) -> impl Iterator<Item = DirtyGroup> {
        let groups = self.dirty.0.range(first..).chain(self.dirty.0.range(..first));
        groups.map(|(&number, bits)| DirtyGroup { pages: bits.count_ones(), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_claimed_is_being_written_until_it_is_written() {
        let mut dirty = DirtySet::default();
        [3, 64, 5, 4, 5].into_iter().for_each(|page| dirty.insert(page));
        assert_eq!(dirty.len(), 4);
        let mut claimed = Vec::new();
        dirty.claim(0, &mut claimed, |page| page != 4);
        assert_eq!((claimed.as_slice(), dirty.len()), ([3, 5].as_slice(), 2));
        let lists = |dirty: &DirtySet| {
            let mut lists = (Vec::new(), Vec::new());
            dirty.list(&(0..100), &mut lists.0, &mut lists.1);
            lists
        };
        assert_eq!(lists(&dirty), (vec![4, 64], vec![3, 5]));
        dirty.written(3, false);
        dirty.written(5, true);
        assert_eq!(lists(&dirty), (vec![4, 5, 64], vec![]));
        assert_eq!(dirty.len(), 3);
    }

    proptest! {
        #[test]
        fn a_list_is_what_a_sorted_set_would_give(pages in prop::collection::vec(0..500u64, 0..100), from in 0..500u64, len in 0..300u64) {
            let mut dirty = DirtySet::default();
            pages.iter().for_each(|&page| dirty.insert(page));
            let model: BTreeSet<u64> = pages.into_iter().collect();
            let (mut list, mut writing) = (Vec::new(), Vec::new());
            dirty.list(&(from..from + len), &mut list, &mut writing);
            prop_assert_eq!(list, model.range(from..from + len).copied().collect::<Vec<_>>());
            prop_assert_eq!(dirty.len(), model.len());
            prop_assert_eq!(dirty.groups(from / 64).map(|group| group.pages as usize).sum::<usize>(), model.len());
        }
    }
}

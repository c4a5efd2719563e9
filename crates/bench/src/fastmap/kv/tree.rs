//! A key-value store over pages: B+-trees, one for each part of the keys' range, each behind a lock.
//!
//! Relies on keys being spread evenly over all 64 bits, as hashes are, so the parts are alike. Roots, heights and the
//! number of the next page are kept in memory: what is compared is the way to pages, not recovery. The locks are the same
//! for every candidate, and many, so that threads seldom meet in one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::node::{self, LEAF_ENTRIES, VALUE_BYTES};
use super::store::{AccessHint, KvStore};
use crate::fastmap::pages::Pages;

/// More levels than any tree here has.
const MOST_LEVELS: usize = 8;

/// Where a part begins.
#[derive(Clone, Copy, Debug)]
struct Root {
    page: u64,
    /// Branches above the leaves.
    height: usize,
}

/// Where all of a store is: what a process must know to open one that another has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLayout {
    /// The root page of each part, with the levels of branches above its leaves. Their number is a power of two.
    pub roots: Vec<(u64, usize)>,
    /// Pages in use.
    pub pages: u64,
}

/// A store in `pages`.
pub struct Tree<'a, P> {
    pages: &'a P,
    parts: Box<[RwLock<Root>]>,
    shift: u32,
    next_page: AtomicU64,
    limit: u64,
}

impl<'a, P: Pages> Tree<'a, P> {
    /// An empty store of `1 << part_bits` parts (at least two) in the first `limit` of `pages`.
    ///
    /// # Errors
    /// There are too few pages for as many parts, or the device failed.
    pub fn new(pages: &'a P, part_bits: u32, limit: u64) -> anyhow::Result<Self> {
        let count = 1_u64 << part_bits;
        ensure!(part_bits > 0 && count <= limit, "{limit} pages are too few for {count} trees");
        for page in 0..count {
            node::init_leaf(&mut pages.fresh(page)?, None);
        }
        let parts = (0..count).map(|page| RwLock::new(Root { page, height: 0 })).collect();
        Ok(Self { pages, parts, shift: u64::BITS - part_bits, next_page: AtomicU64::new(count), limit })
    }

    /// The store in `pages` that `layout` tells of, without room for more pages.
    ///
    /// # Errors
    /// The layout is of no tree.
    pub fn open(pages: &'a P, layout: &TreeLayout) -> anyhow::Result<Self> {
        let count = layout.roots.len();
        ensure!(count > 1 && count.is_power_of_two(), "{count} trees make no store");
        let parts = layout.roots.iter().map(|&(page, height)| RwLock::new(Root { page, height })).collect();
        let shift = u64::BITS - count.ilog2();
        Ok(Self { pages, parts, shift, next_page: AtomicU64::new(layout.pages), limit: layout.pages })
    }

    fn part(&self, key: u64) -> usize {
        (key >> self.shift) as usize
    }

    fn look(&self, part: usize) -> RwLockReadGuard<'_, Root> {
        self.parts[part].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, part: usize) -> RwLockWriteGuard<'_, Root> {
        self.parts[part].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh_page(&self) -> anyhow::Result<u64> {
        let page = self.next_page.fetch_add(1, Ordering::Relaxed);
        if page >= self.limit {
            bail!("the store is full: {} pages", self.limit);
        }
        Ok(page)
    }

    /// Pages in use.
    pub fn used_pages(&self) -> u64 {
        self.next_page.load(Ordering::Relaxed).min(self.limit)
    }

    fn leaf_of(&self, root: Root, key: u64) -> anyhow::Result<u64> {
        let mut page = root.page;
        for _ in 0..root.height {
            page = node::child(&self.pages.read(page)?, key);
        }
        Ok(page)
    }

    /// Leaves that a request to `hint` will need, as far as one branch knows them.
    fn leaves_of(&self, hint: AccessHint, into: &mut Vec<u64>) -> anyhow::Result<()> {
        let root = self.look(self.part(hint.key));
        let mut page = root.page;
        for _ in 1..root.height {
            page = node::child(&self.pages.read(page)?, hint.key);
        }
        if root.height == 0 {
            into.push(page);
        } else {
            // The first leaf may have none of the entries; the others are at least half full.
            let most = if hint.entries > 1 { 1 + hint.entries.div_ceil(LEAF_ENTRIES / 2) } else { 1 };
            node::children_from(&self.pages.read(page)?, hint.key, most, into);
        }
        Ok(())
    }

    /// Splits the full leaf at the end of `path`, and what is full above it.
    fn split(&self, root: &mut Root, path: &[u64], leaf: u64) -> anyhow::Result<()> {
        let mut high = self.fresh_page()?;
        let mut split = {
            let mut left = self.pages.write(leaf)?;
            let mut right = self.pages.fresh(high)?;
            node::init_leaf(&mut right, node::next(&left));
            node::set_next(&mut left, Some(high));
            node::split_leaf(&mut left, &mut right)
        };
        for &branch in path.iter().rev() {
            let mut left = self.pages.write(branch)?;
            if node::count(&left) < node::BRANCH_KEYS {
                node::add_child(&mut left, split, high);
                return Ok(());
            }
            let page = self.fresh_page()?;
            let mut right = self.pages.fresh(page)?;
            let middle = node::split_branch(&mut left, &mut right);
            if split < middle {
                node::add_child(&mut left, split, high);
            } else {
                node::add_child(&mut right, split, high);
            }
            (split, high) = (middle, page);
        }
        let page = self.fresh_page()?;
        node::init_branch(&mut self.pages.fresh(page)?, root.page, split, high);
        *root = Root { page, height: root.height + 1 };
        ensure!(root.height <= MOST_LEVELS, "a tree of {} levels is damaged", root.height);
        Ok(())
    }

    /// Puts the entry where there is room; `false` if its leaf was full and has been split.
    fn try_insert(&self, root: &mut Root, key: u64, value: &[u8]) -> anyhow::Result<bool> {
        let mut path = [0; MOST_LEVELS];
        let mut page = root.page;
        for step in &mut path[..root.height] {
            *step = page;
            page = node::child(&self.pages.read(page)?, key);
        }
        {
            let mut leaf = self.pages.write(page)?;
            if let Some(slot) = node::slot_of(&leaf, key) {
                node::set_value(&mut leaf, slot, value);
                return Ok(true);
            }
            if node::count(&leaf) < LEAF_ENTRIES {
                node::push(&mut leaf, key, value);
                return Ok(true);
            }
        }
        let height = root.height;
        self.split(root, &path[..height], page)?;
        Ok(false)
    }

    /// Trials entries of one part from `from` on, as long as `each` says so; whether it still does at the end.
    fn walk(&self, part: usize, from: u64, each: &mut impl FnMut(u64, &[u8]) -> bool) -> anyhow::Result<bool> {
        let root = self.look(part);
        let mut bytes = [0; VALUE_BYTES];
        let mut at = Some(self.leaf_of(*root, from)?);
        while let Some(page) = at {
            let leaf = self.pages.read(page)?;
            let (slots, entries) = node::sorted_slots(&leaf);
            for &slot in &slots[..entries] {
                let key = node::key(&leaf, slot);
                if key < from {
                    continue;
                }
                node::value(&leaf, slot, &mut bytes);
                if !each(key, &bytes) {
                    return Ok(false);
                }
            }
            at = node::next(&leaf);
        }
        Ok(true)
    }
}

impl<P: Pages> KvStore for Tree<'_, P> {
    fn insert(&self, key: u64, value: &[u8]) -> anyhow::Result<()> {
        let mut root = self.change(self.part(key));
        while !self.try_insert(&mut root, key, value)? {}
        Ok(())
    }

    fn read(&self, key: u64, into: &mut [u8]) -> anyhow::Result<bool> {
        let root = self.look(self.part(key));
        let leaf = self.pages.read(self.leaf_of(*root, key)?)?;
        let slot = node::slot_of(&leaf, key);
        if let Some(slot) = slot {
            node::value(&leaf, slot, into);
        }
        Ok(slot.is_some())
    }

    fn scan(&self, from: u64, most: usize, each: &mut dyn FnMut(u64, &[u8])) -> anyhow::Result<usize> {
        let mut seen = 0;
        if most == 0 {
            return Ok(0);
        }
        let mut trial = |key: u64, value: &[u8]| {
            each(key, value);
            seen += 1;
            seen < most
        };
        for part in self.part(from)..self.parts.len() {
            if !self.walk(part, from, &mut trial).with_context(|| format!("scanning part {part}"))? {
                break;
            }
        }
        Ok(seen)
    }

    fn expect(&self, hints: &[AccessHint]) -> anyhow::Result<()> {
        if !P::AHEAD {
            return Ok(());
        }
        let mut leaves = Vec::with_capacity(hints.len());
        for &hint in hints {
            self.leaves_of(hint, &mut leaves)?;
        }
        leaves.sort_unstable();
        leaves.dedup();
        self.pages.prefetch(&leaves)
    }

    fn bytes(&self) -> u64 {
        self.used_pages() * crate::fastmap::testbed::PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::traced_pages::TracedPages;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn value(key: u64, round: u64) -> Vec<u8> {
        (0..VALUE_BYTES / 8).flat_map(|index| (key ^ round ^ index as u64).to_le_bytes()).collect()
    }

    fn check(tree: &Tree<'_, TracedPages>, model: &BTreeMap<u64, u64>, from: u64, most: usize) {
        let mut bytes = vec![0; VALUE_BYTES];
        for (&key, &round) in model {
            assert!(tree.read(key, &mut bytes).unwrap(), "{key:#x} is missing");
            assert_eq!(bytes, value(key, round));
        }
        let mut results = Vec::new();
        let count = tree.scan(from, most, &mut |key, bytes| results.push((key, bytes.to_vec()))).unwrap();
        let expected: Vec<_> = model.range(from..).take(most).map(|(&key, &round)| (key, value(key, round))).collect();
        assert_eq!((count, results), (expected.len(), expected));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_tree_is_a_sorted_map(
            keys in prop::collection::vec(prop_oneof![any::<u64>(), (0..40_u64).prop_map(|key| key << 58 | key)], 1..400),
            from in any::<u64>(),
            most in 0..50_usize,
        ) {
            let pages = TracedPages::new(1000);
            let tree = Tree::new(&pages, 2, 1000).unwrap();
            let mut model = BTreeMap::new();
            for (round, &key) in keys.iter().enumerate() {
                tree.insert(key, &value(key, round as u64)).unwrap();
                model.insert(key, round as u64);
            }
            check(&tree, &model, from, most);
        }
    }

    #[test]
    fn branches_split_too_and_nothing_is_lost() {
        let pages = TracedPages::new(4000);
        let tree = Tree::new(&pages, 1, 4000).unwrap();
        let mut model = BTreeMap::new();
        // Neighbours in rising order leave every leaf half full, so the branches fill fast.
        for key in 0..2500 {
            tree.insert(key, &value(key, 0)).unwrap();
            model.insert(key, 0);
        }
        assert_eq!(tree.look(0).height, 2);
        check(&tree, &model, 1234, 100);
    }

    #[test]
    fn the_leaves_that_a_request_needs_are_known_before_it() {
        let pages = TracedPages::new(1000);
        let tree = Tree::new(&pages, 1, 1000).unwrap();
        (0..300).for_each(|key| tree.insert(key << 20, &value(key << 20, 0)).unwrap());
        let leaves = |key: u64, entries| {
            let mut leaves = Vec::new();
            tree.leaves_of(AccessHint { key: key << 20, entries }, &mut leaves).unwrap();
            leaves
        };
        let root = *tree.look(0);
        for key in 0..300 {
            assert_eq!(leaves(key, 1), [tree.leaf_of(root, key << 20).unwrap()]);
        }
        let ahead = leaves(100, 10);
        assert_eq!(ahead.len(), 6);
        assert!((100..110).all(|key| ahead.contains(&leaves(key, 1)[0])));
        assert_eq!(leaves(299, 10).len(), 1);
    }

    #[test]
    fn a_full_store_says_so() {
        let pages = TracedPages::new(8);
        let tree = Tree::new(&pages, 1, 8).unwrap();
        let full = (0..100).map(|key| tree.insert(key, &value(key, 0))).find_map(Result::err).unwrap();
        assert!(full.to_string().contains("full"), "{full}");
    }
}

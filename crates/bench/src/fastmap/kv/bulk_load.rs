//! A store made at once, from all its records in the order of their keys: each page is written once, and leaves are full.
//!
//! Relies on [`node`]'s layout and on nothing being in the pages before. What it makes is what [`Tree::open`](super::tree::Tree::open)
//! opens, in this process or in another.

use anyhow::ensure;

use super::node::{self, BRANCH_KEYS, LEAF_ENTRIES, VALUE_BYTES};
use super::tree::TreeLayout;
use super::ycsb::key_of;
use crate::fastmap::pages::Pages;

/// Pages that a store of `records` records in `1 << part_bits` parts takes at most.
pub fn most_pages(records: u64, part_bits: u32) -> u64 {
    let leaves = records / LEAF_ENTRIES as u64 + 2 * (1 << part_bits);
    // Two levels of branches at most, each at least half full, and a root for each part.
    leaves + leaves / (BRANCH_KEYS as u64 / 4) + (1 << part_bits)
}

/// Lays the records numbered from 0 to `records` out in `pages`, in `1 << part_bits` parts; `value` makes the value of a key.
///
/// # Errors
/// There are too few pages, or the device failed.
pub fn load<P: Pages>(
    pages: &P,
    part_bits: u32,
    records: u64,
    mut value: impl FnMut(u64, &mut [u8]),
) -> anyhow::Result<TreeLayout> {
    ensure!((1..=16).contains(&part_bits), "a store has from 2 to 65536 parts");
    let mut keys: Vec<u64> = (0..records).map(key_of).collect();
    keys.sort_unstable();
    let mut layout = TreeLayout::default();
    let mut rest = keys.as_slice();
    for part in 0..1_u64 << part_bits {
        let end = rest.partition_point(|key| key >> (u64::BITS - part_bits) == part);
        let (own, after) = rest.split_at(end);
        rest = after;
        let leaves = lay_leaves(pages, own, &mut layout.pages, &mut value)?;
        let root = lay_branches(pages, leaves, &mut layout.pages)?;
        layout.roots.push(root);
    }
    Ok(layout)
}

/// A page of a level, and the least key under it.
type Child = (u64, u64);

/// Writes the leaves of a part, at least one.
fn lay_leaves<P: Pages>(
    pages: &P,
    keys: &[u64],
    next_page: &mut u64,
    value: &mut impl FnMut(u64, &mut [u8]),
) -> anyhow::Result<Vec<Child>> {
    let mut bytes = [0; VALUE_BYTES];
    let count = keys.len().div_ceil(LEAF_ENTRIES).max(1);
    let mut leaves = Vec::with_capacity(count);
    for index in 0..count {
        let entries = &keys[index * LEAF_ENTRIES..keys.len().min((index + 1) * LEAF_ENTRIES)];
        let page = *next_page;
        *next_page += 1;
        let mut leaf = pages.fresh(page)?;
        node::init_leaf(&mut leaf, (index + 1 < count).then_some(page + 1));
        for &key in entries {
            value(key, &mut bytes);
            node::push(&mut leaf, key, &bytes);
        }
        leaves.push((page, entries.first().copied().unwrap_or(0)));
    }
    Ok(leaves)
}

/// Writes the branches over `level`; the root page and how many levels of branches there are.
fn lay_branches<P: Pages>(pages: &P, mut level: Vec<Child>, next_page: &mut u64) -> anyhow::Result<(u64, usize)> {
    let mut height = 0;
    while level.len() > 1 {
        // As many children in each branch as in the others: a branch of one child would be none.
        let branches = level.len().div_ceil(BRANCH_KEYS + 1);
        let mut above = Vec::with_capacity(branches);
        for children in level.chunks(level.len().div_ceil(branches)) {
            let [low, second, others @ ..] = children else { anyhow::bail!("a branch needs two children") };
            let page = *next_page;
            *next_page += 1;
            let mut branch = pages.fresh(page)?;
            node::init_branch(&mut branch, low.0, second.1, second.0);
            others.iter().for_each(|child| node::add_child(&mut branch, child.1, child.0));
            above.push((page, low.1));
        }
        level = above;
        height += 1;
    }
    Ok((level[0].0, height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::kv::store::KvStore;
    use crate::fastmap::kv::tree::Tree;
    use crate::fastmap::traced_pages::TracedPages;

    fn value(key: u64, bytes: &mut [u8]) {
        bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&key.to_le_bytes()));
    }

    #[test]
    fn all_records_are_found_in_order_and_can_be_changed() {
        // One level of branches, two levels, and parts that are nearly empty.
        for (records, part_bits) in [(3000, 3), (4000, 1), (7, 4)] {
            let pages = TracedPages::new(most_pages(records, part_bits));
            let layout = load(&pages, part_bits, records, value).unwrap();
            assert!(layout.pages <= most_pages(records, part_bits), "{layout:?}");
            let tree = Tree::open(&pages, &layout).unwrap();
            let mut keys: Vec<u64> = (0..records).map(key_of).collect();
            keys.sort_unstable();
            let (mut bytes, mut wanted) = ([0; VALUE_BYTES], [0; VALUE_BYTES]);
            for &key in &keys {
                value(key, &mut wanted);
                assert!(tree.read(key, &mut bytes).unwrap() && bytes == wanted, "{key:#x}");
            }
            assert!(!tree.read(keys[0] ^ 1, &mut bytes).unwrap());
            let mut seen = Vec::new();
            tree.scan(0, records as usize + 1, &mut |key, _| seen.push(key)).unwrap();
            assert_eq!(seen, keys);
            tree.insert(keys[3], &[9; VALUE_BYTES]).unwrap();
            assert!(tree.read(keys[3], &mut bytes).unwrap() && bytes == [9; VALUE_BYTES]);
        }
    }

    #[test]
    fn leaves_are_full_and_branches_are_few() {
        let pages = TracedPages::new(most_pages(4000, 1));
        let layout = load(&pages, 1, 4000, value).unwrap();
        assert!((1000..1020).contains(&layout.pages), "{}", layout.pages);
        assert!(layout.roots.iter().all(|&(_, height)| height == 2), "{:?}", layout.roots);
    }
}

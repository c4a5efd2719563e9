//! How a page of the tree is laid out, in words.
//!
//! Relies on values of one size, so that nothing ever moves but when a page is split.
//!
//! ```text
//! leaf    0: entries    1: next leaf + 1, or 0    2 … 5: keys, in no order    6 …: values, 125 words each
//! branch  0: keys       1: first child            2 … 255: keys, rising       256 … 509: child of each key and up
//! ```

use crate::fastmap::pages::{Page, PageMut};

/// Bytes of a value: the paper's 1000.
pub const VALUE_BYTES: usize = 1000;
/// Entries of a full leaf.
pub const LEAF_ENTRIES: usize = 4;
/// Keys of a full branch.
pub const BRANCH_KEYS: usize = 254;

const COUNT: usize = 0;
const LINK: usize = 1;
const KEYS: usize = 2;
const VALUES: usize = KEYS + LEAF_ENTRIES;
const VALUE_WORDS: usize = VALUE_BYTES / 8;
const CHILDREN: usize = KEYS + BRANCH_KEYS;

const _: () = assert!(VALUES + LEAF_ENTRIES * VALUE_WORDS <= crate::fastmap::testbed::PAGE_WORDS);
const _: () = assert!(CHILDREN + BRANCH_KEYS <= crate::fastmap::testbed::PAGE_WORDS);

/// Entries of a leaf, or keys of a branch.
pub fn count(page: &impl Page) -> usize {
    // A page that is none of ours must not lead outside itself.
    (page.word(COUNT) as usize).min(BRANCH_KEYS)
}

/// The key at `slot`.
pub fn key(page: &impl Page, slot: usize) -> u64 {
    page.word(KEYS + slot)
}

/// Makes `page` an empty leaf that `next` follows.
pub fn init_leaf(page: &mut impl PageMut, next: Option<u64>) {
    page.set_word(COUNT, 0);
    set_next(page, next);
}

/// The leaf after this one.
pub fn next(page: &impl Page) -> Option<u64> {
    page.word(LINK).checked_sub(1)
}

/// Puts `next` after this leaf.
pub fn set_next(page: &mut impl PageMut, next: Option<u64>) {
    page.set_word(LINK, next.map_or(0, |next| next + 1));
}

/// Where a leaf has `wanted`.
pub fn slot_of(page: &impl Page, wanted: u64) -> Option<usize> {
    (0..count(page).min(LEAF_ENTRIES)).find(|&slot| key(page, slot) == wanted)
}

/// Slots of a leaf in the order of their keys.
pub fn sorted_slots(page: &impl Page) -> ([usize; LEAF_ENTRIES], usize) {
    let entries = count(page).min(LEAF_ENTRIES);
    let mut slots = [0, 1, 2, 3];
    slots[..entries].sort_unstable_by_key(|&slot| key(page, slot));
    (slots, entries)
}

/// Copies the value at `slot` out.
pub fn value(page: &impl Page, slot: usize, into: &mut [u8]) {
    page.copy_out(VALUES + slot * VALUE_WORDS, &mut into[..VALUE_BYTES]);
}

/// Replaces the value at `slot`.
pub fn set_value(page: &mut impl PageMut, slot: usize, value: &[u8]) {
    page.copy_in(VALUES + slot * VALUE_WORDS, &value[..VALUE_BYTES]);
}

/// Adds an entry to a leaf that has room.
pub fn push(page: &mut impl PageMut, new_key: u64, value: &[u8]) {
    let slot = count(page);
    page.set_word(KEYS + slot, new_key);
    set_value(page, slot, value);
    page.set_word(COUNT, slot as u64 + 1);
}

/// Moves the upper half of a full leaf to `right`, which is empty; returns the first key that moved.
pub fn split_leaf(left: &mut impl PageMut, right: &mut impl PageMut) -> u64 {
    let (slots, entries) = sorted_slots(left);
    let (stay, go) = slots[..entries].split_at(entries / 2);
    let mut bytes = [0; VALUE_BYTES];
    let first = key(left, go[0]);
    for &slot in go {
        value(left, slot, &mut bytes);
        push(right, key(left, slot), &bytes);
    }
    let mut kept: Vec<usize> = stay.to_vec();
    kept.sort_unstable();
    for (to, from) in kept.into_iter().enumerate() {
        if to != from {
            value(left, from, &mut bytes);
            set_value(left, to, &bytes);
            let moved = key(left, from);
            left.set_word(KEYS + to, moved);
        }
    }
    left.set_word(COUNT, stay.len() as u64);
    first
}

/// Makes `page` a branch over two children; `split` is the first key of the second one.
pub fn init_branch(page: &mut impl PageMut, low: u64, split: u64, high: u64) {
    page.set_word(COUNT, 1);
    page.set_word(LINK, low);
    page.set_word(KEYS, split);
    page.set_word(CHILDREN, high);
}

/// Keys of a branch that are not above `wanted`.
fn rank(page: &impl Page, wanted: u64) -> usize {
    let (mut low, mut high) = (0, count(page));
    while low < high {
        let middle = low.midpoint(high);
        if key(page, middle) <= wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The child of a branch under which `wanted` is.
pub fn child(page: &impl Page, wanted: u64) -> u64 {
    match rank(page, wanted) {
        0 => page.word(LINK),
        rank => page.word(CHILDREN + rank - 1),
    }
}

/// The child of a branch under which `wanted` is, and those after it: at most `most`.
pub fn children_from(page: &impl Page, wanted: u64, most: usize, into: &mut Vec<u64>) {
    let first = rank(page, wanted);
    let child_at = |rank: usize| if rank == 0 { page.word(LINK) } else { page.word(CHILDREN + rank - 1) };
    into.extend((first..=count(page)).take(most).map(child_at));
}

/// Adds a key and its child to a branch that has room.
pub fn add_child(page: &mut impl PageMut, split: u64, high: u64) {
    let (at, keys) = (rank(page, split), count(page));
    for index in (at..keys).rev() {
        let (moved_key, moved_child) = (page.word(KEYS + index), page.word(CHILDREN + index));
        page.set_word(KEYS + index + 1, moved_key);
        page.set_word(CHILDREN + index + 1, moved_child);
    }
    page.set_word(KEYS + at, split);
    page.set_word(CHILDREN + at, high);
    page.set_word(COUNT, keys as u64 + 1);
}

/// Moves the upper half of a full branch to `right`; returns the key between them, which neither keeps.
pub fn split_branch(left: &mut impl PageMut, right: &mut impl PageMut) -> u64 {
    let keys = count(left);
    let middle = keys / 2;
    let split = key(left, middle);
    right.set_word(LINK, left.word(CHILDREN + middle));
    for index in middle + 1..keys {
        right.set_word(KEYS + index - middle - 1, left.word(KEYS + index));
        right.set_word(CHILDREN + index - middle - 1, left.word(CHILDREN + index));
    }
    right.set_word(COUNT, (keys - middle - 1) as u64);
    left.set_word(COUNT, middle as u64);
    split
}

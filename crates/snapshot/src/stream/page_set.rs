//! A set of pages, one bit a page.

use std::ops::Range;

/// A set of pages. Its words are backed by memory only where pages were put in.
///
/// ```
/// use quire_snapshot::PageSet;
///
/// let mut pages = PageSet::new(1000);
/// [7, 900, 7].map(|page| pages.insert(page));
/// assert_eq!((pages.count(), pages.contains(7), pages.contains(8)), (2, true, false));
/// assert_eq!(pages.pages_in(0..1000).collect::<Vec<_>>(), [7, 900]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet {
    words: Box<[u64]>,
    count: u64,
}

impl PageSet {
    /// An empty set that has room for `pages` pages.
    pub fn new(pages: usize) -> Self {
        Self { words: vec![0; pages.div_ceil(64)].into_boxed_slice(), count: 0 }
    }

    /// Puts `page` in.
    ///
    /// # Panics
    /// If there is no room for such a page.
    pub fn insert(&mut self, page: u32) {
        let (word, bit) = (&mut self.words[page as usize / 64], 1 << (page % 64));
        self.count += u64::from(*word & bit == 0);
        *word |= bit;
    }

    /// Whether `page` is in.
    pub fn contains(&self, page: u32) -> bool {
        self.words.get(page as usize / 64).is_some_and(|word| word & 1 << (page % 64) != 0)
    }

    /// Pages in the set.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Puts all pages of `other`, a set of the same room, in.
    pub(crate) fn unite(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.count = 0;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            // A word that stays as it is is not written, so that it takes no memory.
            if *other & !*word != 0 {
                *word |= other;
            }
            self.count += u64::from(word.count_ones());
        }
    }

    /// The pages of the set that are among `pages`, in rising order. A word of none costs one comparison.
    pub fn pages_in(&self, pages: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        let (mut next, end) = (pages.start, pages.end.min(self.words.len().saturating_mul(64) as u32));
        std::iter::from_fn(move || {
            while next < end {
                let bits = self.words[next as usize / 64] >> (next % 64);
                if bits != 0 {
                    let page = next + bits.trailing_zeros();
                    next = page + 1;
                    return (page < end).then_some(page);
                }
                next = (next / 64 + 1) * 64;
            }
            None
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_in_order_from_any_range() {
        let mut set = PageSet::new(300);
        for page in [299, 0, 63, 64, 65, 128, 64] {
            set.insert(page);
        }
        assert_eq!(set.count(), 6);
        assert_eq!(set.pages_in(0..300).collect::<Vec<_>>(), [0, 63, 64, 65, 128, 299]);
        assert_eq!(set.pages_in(64..128).collect::<Vec<_>>(), [64, 65]);
        assert_eq!(set.pages_in(66..128).count() + set.pages_in(300..u32::MAX).count(), 0);
        assert!(set.contains(63) && !set.contains(62) && !set.contains(100_000));
    }

    #[test]
    fn a_union_has_the_pages_of_both_once() {
        let (mut set, mut other) = (PageSet::new(200), PageSet::new(200));
        for page in [1, 70] {
            set.insert(page);
        }
        for page in [70, 199] {
            other.insert(page);
        }
        set.unite(&other);
        assert_eq!((set.count(), set.pages_in(0..200).collect::<Vec<_>>()), (3, vec![1, 70, 199]));
    }
}

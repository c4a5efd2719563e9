//! Which pages (and regions) are left out of the copying ahead, so that it can be told how many were needed.
//!
//! Relies on a page that the worker copied looking the same whether the program wrote it or not. So from every stratum of a
//! region one page, drawn anew for every child, is left to the program: the share of these that it writes is an
//! estimate for the pages that were copied. Where regions are copied whole, one region in [`REGIONS_PER_SAMPLE`] is left.

use quire_rng::mix;

/// Most strata of a region: one page of each is left.
pub const MOST_STRATA: usize = 16;
/// Least pages of a stratum, so that small regions lose no larger share.
const LEAST_STRATUM_PAGES: usize = 16;
/// Of that many regions that could be copied whole, one is left.
pub const REGIONS_PER_SAMPLE: u64 = 8;

/// What is left out for one child.
#[derive(Clone, Copy, Debug)]
pub struct WriteSampler(u64);

impl WriteSampler {
    /// The sampler for the child numbered `count`.
    pub fn new(count: u32) -> Self {
        Self(u64::from(count))
    }

    /// The pages of a region of `pages` pages at `address` that are left, in order.
    pub fn pages(self, address: usize, pages: usize) -> impl Iterator<Item = usize> {
        let strata = (pages / LEAST_STRATUM_PAGES).clamp(1, MOST_STRATA);
        (0..strata).map(move |stratum| {
            let (first, end) = (stratum * pages / strata, (stratum + 1) * pages / strata);
            let roll = mix(self.0 ^ mix((address + stratum) as u64));
            first + (roll % (end - first).max(1) as u64) as usize
        })
    }

    /// Whether the region at `address` is left as a whole.
    pub fn leaves(self, address: usize) -> bool {
        mix(self.0.rotate_left(32) ^ mix(address as u64)).is_multiple_of(REGIONS_PER_SAMPLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stratum_leaves_one_page_and_each_child_another() {
        let pages: Vec<usize> = WriteSampler::new(1).pages(0x20_0000, 512).collect();
        assert_eq!(pages.len(), 16);
        assert!(pages.iter().enumerate().all(|(stratum, page)| page / 32 == stratum));
        assert_ne!(pages, WriteSampler::new(2).pages(0x20_0000, 512).collect::<Vec<_>>());
        assert_ne!(pages, WriteSampler::new(1).pages(0x40_0000, 512).collect::<Vec<_>>());
        assert_eq!(WriteSampler::new(1).pages(0, 8).count(), 1);
        assert_eq!(WriteSampler::new(1).pages(0, 1).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn over_many_children_every_page_is_left_now_and_then() {
        let mut left = [0; 64];
        (0..2000).for_each(|count| WriteSampler::new(count).pages(4096, 64).for_each(|page| left[page] += 1));
        assert!(left.iter().all(|&times| (60..200).contains(&times)), "{left:?}");
    }

    #[test]
    fn one_region_in_eight_is_left() {
        let left = (0..8000).filter(|region| WriteSampler::new(3).leaves(region << 21)).count();
        assert!((800..1200).contains(&left), "{left}");
    }
}

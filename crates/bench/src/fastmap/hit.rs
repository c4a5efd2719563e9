//! What it costs to reach a page that is in memory: one thread, random order, one word of each page.
//!
//! Relies on a plain loop over plain memory, in pages of the same size and in the same order, to tell what the loads
//! themselves cost; the difference is what a way to pages adds. All ways take turns, pass by pass. Each goes over few pages,
//! whose words are in the processor's caches, and over many, whose words are not: there a plain loop has many loads under
//! way at once, which a locked instruction ends.

use std::time::Instant;

use anyhow::Context;
use quire_sys::shared_map::AccessPattern;
use quire_sys::word_range::WordRange;
use serde::{Deserialize, Serialize};

use super::candidate::{GuardedPages, MmapPages, Vmcache};
use super::pages::{Page, Pages, WordPage};
use super::phase_stats::PhaseStats;
use super::testbed::{PAGE_BYTES, PAGE_WORDS, Testbed};
use crate::stats::Spread;
use quire_rng::SplitMix64;

/// Pages whose words the processor keeps at hand.
const HOT_PAGES: usize = 256;
/// What stands behind the names of ways over many pages.
pub const COLD: &str = "_cold";

/// What is reached, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HitCost {
    /// Passes over all pages.
    pub passes: usize,
    /// Seed of the order.
    pub seed: u64,
}

/// Puts pages in random order.
fn shuffle(pages: &mut [u32], seed: u64) {
    let mut rng = SplitMix64::new(seed);
    for last in (1..pages.len()).rev() {
        pages.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

/// The word of a page that is looked at: not the same in all, or they would share a few sets of the caches.
fn word_of(page: u64) -> usize {
    (page as usize * 37) % PAGE_WORDS
}

fn pass(order: &[u32], mut word: impl FnMut(u64, usize) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let mut sum = 0_u64;
    for &page in order {
        let page = u64::from(page);
        sum = sum.wrapping_add(word(page, word_of(page))?);
    }
    Ok(sum)
}

type Way<'a> = (&'static str, Box<dyn Fn(&[u32]) -> anyhow::Result<u64> + 'a>);

fn by_pages<'a, P: Pages>(name: &'static str, pages: &'a P) -> Way<'a> {
    (name, Box::new(|order| pass(order, |page, word| Ok(pages.read(page)?.word(word)))))
}

/// Statistics for each way, of its median pass.
///
/// # Errors
/// The device failed, or ways disagree on what the pages hold.
pub fn run(hit: &HitCost, testbed: &Testbed, budget_bytes: u64) -> anyhow::Result<Vec<PhaseStats>> {
    let bytes = testbed.pages as usize * PAGE_BYTES;
    let plain = WordRange::new(bytes).context("memory for a plain loop")?;
    plain.read_from(&testbed.open_direct()?, 0, 0..bytes).context("reading all pages")?;
    let guarded = GuardedPages::<false>::new(testbed, budget_bytes, true)?;
    let mapped = MmapPages::<false>::new(testbed, AccessPattern::Normal)?;
    let vmcache = Vmcache::new(testbed, budget_bytes)?;
    let plain_page = |page: u64| {
        let start = page as usize * PAGE_WORDS;
        WordPage(&plain.words()[start..start + PAGE_WORDS])
    };
    let ways: [Way<'_>; 5] = [
        ("plain", Box::new(|order| pass(order, |page, word| Ok(plain_page(page).word(word))))),
        by_pages("guard", &guarded),
        ("optimistic", Box::new(|order| pass(order, |page, word| guarded.look(page, word)))),
        by_pages("mmap", &mapped),
        by_pages("vmcache", &vmcache),
    ];
    // Front to back first, which brings the pages in fastest.
    let mut order: Vec<u32> = (0..testbed.pages as u32).collect();
    let sum = ways[0].1(&order)?;
    for (name, way) in &ways {
        anyhow::ensure!(way(&order)? == sum, "{name} reads other words than the plain loop");
    }
    shuffle(&mut order, hit.seed);
    let hot: Vec<u32> = order.iter().map(|page| page % HOT_PAGES as u32).collect();
    let mut phases = Vec::new();
    for (suffix, order) in [("", &hot), (COLD, &order)] {
        phases.extend(median_passes(hit.passes, &ways, order, suffix)?);
    }
    Ok(phases)
}

fn median_passes(passes: usize, ways: &[Way<'_>], order: &[u32], suffix: &str) -> anyhow::Result<Vec<PhaseStats>> {
    let mut taken_s = vec![Vec::new(); ways.len()];
    for _ in 0..passes {
        for ((_, way), taken_s) in ways.iter().zip(&mut taken_s) {
            let began = Instant::now();
            std::hint::black_box(way(order)?);
            taken_s.push(began.elapsed().as_secs_f64());
        }
    }
    let stats = |(name, taken_s): (&str, &Vec<f64>)| {
        let elapsed_s = Spread::of(taken_s).map_or(f64::NAN, |spread| spread.median);
        PhaseStats { name: format!("{name}{suffix}"), ops: order.len() as u64, elapsed_s, ..PhaseStats::default() }
    };
    Ok(ways.iter().map(|way| way.0).zip(&taken_s).map(stats).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_page_once() {
        let mut pages: Vec<u32> = (0..1000).collect();
        shuffle(&mut pages, 5);
        assert_ne!(pages[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..1000));
    }

    #[test]
    fn every_way_reads_the_same_words() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 200).unwrap();
        let phases = run(&HitCost { passes: 3, seed: 1 }, &testbed, 1 << 21).unwrap();
        let names: Vec<&str> = phases.iter().map(|stats| stats.name.as_str()).collect();
        assert_eq!(names[..5], ["plain", "guard", "optimistic", "mmap", "vmcache"]);
        assert_eq!(names[5..7], ["plain_cold", "guard_cold"]);
        assert!(phases.iter().all(|stats| stats.elapsed_s > 0.0));
    }
}

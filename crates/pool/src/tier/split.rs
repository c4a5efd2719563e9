//! How one memory is divided between the two tiers: towards the one whose next bytes would save more time.
//!
//! Relies on counts of hits at the border: pages that came from the newest part of the second tier would have been hits of a larger
//! first one, and pages that the second tier has just let go would have been hits of a larger second one. A byte that goes from the
//! first tier to the second makes room for more pages only as far as they compress, so of pages that don't the first tier keeps all.
//! It knows no tier: it is told counts, and says a division.

/// Of the memory, the first tier has at least one part in so many.
const LEAST_FIRST_PART: usize = 8;
/// And the second: enough to see by what comes from there whether it pays again, and so little that data which fits the memory is in the first
/// tier nearly whole.
const LEAST_SECOND_PART: usize = 64;
/// Segments that the second tier has at least: one that is filled, and one that is full.
const LEAST_SEGMENTS: usize = 2;
/// The least and the largest step: one part in so many of the memory.
const STEP_PARTS: [usize; 2] = [128, 16];
/// What was seen loses a part in so many with each look.
const FORGOTTEN_PART: f64 = 4.0;
/// One side must save so many times as much as the other for memory to move.
const DEADBAND: f64 = 1.25;
/// Fewer pages at the border say nothing.
const ENOUGH_PAGES: f64 = 16.0;
/// Looks that follow a step before the next. What they see is of the move and of the division before it, and counts for nothing.
const SETTLING_LOOKS: u32 = 2;

/// What has been seen at the border between the tiers and at the end of the second, in as many bytes of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BorderHits {
    /// Pages that came from the newest part of the second tier.
    pub(crate) recent: u64,
    /// Pages that the second tier let go a short while before they were wanted.
    pub(crate) near_ghosts: u64,
    /// What a page costs that comes from the second tier and goes back there.
    pub(crate) tier_ns: u64,
    /// What a page costs more that comes from the device.
    pub(crate) device_ns: u64,
    /// Bytes that a page takes in the second tier over those that it takes in the first.
    pub(crate) stored_share: f64,
    /// Whether victims are stored as a rule: they are dropped while storing one takes longer than reading it from the device does.
    pub(crate) is_stored: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToFirst,
    ToSecond,
}

/// The division of a memory.
#[derive(Debug)]
pub(crate) struct MemorySplit {
    total_pages: usize,
    first_pages: usize,
    least_first: usize,
    most_first: usize,
    least_step: usize,
    step: usize,
    last: Option<Direction>,
    settling: u32,
    /// Time that the first tier would have saved with a part of the second's bytes, and the second with as many more; decayed.
    saved_ns: [f64; 2],
    pages: f64,
}

impl MemorySplit {
    /// Half of `total_pages` for each tier. The second has no use for more than `most_second`, and gets them in segments of
    /// `segment_pages`, of which two are the fewest that are filled in turn. If those are more than half, it gets none. Each of its `shards` is to have
    /// two: one that has none declines what it is to store.
    pub(crate) fn new(total_pages: usize, most_second: usize, segment_pages: usize, shards: usize) -> Self {
        let fewest = LEAST_SEGMENTS * segment_pages;
        let of_shards = (fewest * shards).min(total_pages / LEAST_FIRST_PART);
        let least_second = (total_pages / LEAST_SECOND_PART).max(of_shards).max(fewest);
        // Of a smaller memory the second tier would take more than the first.
        let most_second = if fewest > total_pages / 2 { 0 } else { most_second };
        let least_first = (total_pages / LEAST_FIRST_PART).max(total_pages - most_second.min(total_pages)).max(1);
        let least_step = (total_pages / STEP_PARTS[0]).max(segment_pages).max(1);
        Self {
            total_pages,
            first_pages: (total_pages / 2).max(least_first),
            least_first,
            most_first: total_pages.saturating_sub(least_second).max(least_first),
            least_step,
            step: (total_pages / STEP_PARTS[1]).max(least_step),
            last: None,
            settling: 0,
            saved_ns: [0.0; 2],
            pages: 0.0,
        }
    }

    /// Most bytes that the second tier is made for, of a memory of so many.
    pub(crate) fn most_second_bytes(total_bytes: usize) -> usize {
        total_bytes - total_bytes / LEAST_FIRST_PART
    }

    /// Pages of both tiers.
    pub(crate) fn total_pages(&self) -> usize {
        self.total_pages
    }

    /// Pages of the first tier.
    pub(crate) fn first_pages(&self) -> usize {
        self.first_pages
    }

    /// The first tier has as many pages now: it could not have what it was to.
    pub(crate) fn settle(&mut self, first_pages: usize) {
        self.first_pages = first_pages;
    }

    /// A thread waits for a page of the first tier, which gets a step more. Returns the pages that it is to have.
    pub(crate) fn yield_to_first(&mut self) -> usize {
        self.go(Direction::ToFirst);
        self.first_pages
    }

    /// Looks at what was seen since the last look, and returns the pages that the first tier is to have.
    pub(crate) fn observe(&mut self, seen: &BorderHits) -> usize {
        // Threads that waited, or a second tier that could have no memory, may have left it more or less than it is to have.
        self.first_pages = self.first_pages.clamp(self.least_first, self.most_first);
        if self.settling > 0 {
            self.settling -= 1;
            return self.first_pages;
        }
        if !seen.is_stored {
            return self.yield_to_first();
        }
        let share = seen.stored_share.clamp(0.0, 1.0);
        let first = seen.recent as f64 * share * seen.tier_ns as f64;
        let second = seen.near_ghosts as f64 * (1.0 - share) * seen.device_ns as f64;
        for (saved_ns, new) in self.saved_ns.iter_mut().zip([first, second]) {
            *saved_ns += new - *saved_ns / FORGOTTEN_PART;
        }
        self.pages += (seen.recent + seen.near_ghosts) as f64 - self.pages / FORGOTTEN_PART;
        if self.pages >= ENOUGH_PAGES
            && let Some(direction) = self.direction()
        {
            self.go(direction);
        }
        self.first_pages
    }

    fn direction(&self) -> Option<Direction> {
        let [first, second] = self.saved_ns;
        if first > second * DEADBAND {
            Some(Direction::ToFirst)
        } else if second > first * DEADBAND {
            Some(Direction::ToSecond)
        } else {
            None
        }
    }

    /// A step. Steps in one direction grow, and one back is smaller than those that led too far.
    fn go(&mut self, direction: Direction) {
        let most = (self.total_pages / STEP_PARTS[1]).max(self.least_step);
        if let Some(last) = self.last {
            self.step = if last == direction { self.step * 2 } else { self.step / 4 }.clamp(self.least_step, most);
        }
        self.last = Some(direction);
        self.first_pages = match direction {
            Direction::ToFirst => (self.first_pages + self.step).min(self.most_first).max(self.first_pages),
            Direction::ToSecond => self.first_pages.saturating_sub(self.step).max(self.least_first),
        };
        self.settling = SETTLING_LOOKS;
        self.saved_ns = [0.0; 2];
        self.pages = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_rng::SplitMix64;
    use quire_rng::zipf::{RankPermutation, Zipf};

    const TOTAL: usize = 1024;
    const TIER_NS: u64 = 6_000;
    const DEVICE_NS: u64 = 90_000;
    /// The second tier's part that counts as its newest, and the part that would be its next.
    const WINDOW: f64 = 224.0;
    const USES_PER_LOOK: usize = 1000;

    /// How many other pages were used since the last use of each; `usize::MAX` for a first use.
    fn distances(trace: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut recency: Vec<u64> = Vec::new();
        trace
            .map(|page| {
                let found = recency.iter().rev().position(|&other| other == page);
                if let Some(distance) = found {
                    recency.remove(recency.len() - 1 - distance);
                }
                recency.push(page);
                found.unwrap_or(usize::MAX)
            })
            .collect()
    }

    /// Pages that both tiers hold when each page is in one of them.
    fn held(first: usize, stored_share: f64) -> usize {
        first + ((TOTAL - first) as f64 / stored_share) as usize
    }

    fn cost_ns(distances: &[usize], first: usize, stored_share: f64) -> u64 {
        let of = |&distance: &usize| match distance {
            distance if distance < first => 0,
            distance if distance < held(first, stored_share) => TIER_NS,
            _ => TIER_NS + DEVICE_NS,
        };
        distances.iter().map(of).sum()
    }

    /// Sizes of the first tier, look for look.
    fn divided(distances: &[usize], stored_share: f64) -> Vec<usize> {
        let mut split = MemorySplit::new(TOTAL, TOTAL, 1, 1);
        let window = (WINDOW / stored_share) as usize;
        let look = |uses: &[usize]| {
            let first = split.first_pages();
            let end = held(first, stored_share);
            let within = |from: usize, to: usize| uses.iter().filter(|&&use_| from <= use_ && use_ < to).count() as u64;
            split.observe(&BorderHits {
                recent: within(first, (first + window).min(end)),
                near_ghosts: within(end, end + window),
                tier_ns: TIER_NS,
                device_ns: DEVICE_NS,
                stored_share,
                is_stored: true,
            })
        };
        distances.chunks(USES_PER_LOOK).map(look).collect()
    }

    /// The cost with the best of all divisions over that with the one that was found, and how far it went to and fro in the end.
    fn judged(distances: &[usize], stored_share: f64) -> (f64, usize) {
        let sizes = divided(distances, stored_share);
        let settled = &sizes[sizes.len() / 2..];
        let (least, most) = (settled.iter().min().unwrap(), settled.iter().max().unwrap());
        let swept = (TOTAL / 8..=TOTAL - TOTAL / 64).step_by(8);
        let best = swept.map(|first| cost_ns(distances, first, stored_share)).min().unwrap();
        let found = cost_ns(distances, *sizes.last().unwrap(), stored_share);
        (best as f64 / found.max(1) as f64, most - least)
    }

    fn zipf() -> Vec<usize> {
        let pages = 4096;
        let (zipf, scatter, mut rng) = (Zipf::new(pages, 0.9), RankPermutation::new(pages, 1), SplitMix64::new(1));
        distances((0..100_000).map(|_| scatter.key(zipf.sample(&mut rng))))
    }

    #[test]
    fn pages_that_compress_draw_memory_to_the_second_tier_and_it_stays_there() {
        let distances = zipf();
        let sizes = divided(&distances, 0.3);
        assert!(*sizes.last().unwrap() < TOTAL / 2, "{sizes:?}");
        let (of_best, to_and_fro) = judged(&distances, 0.3);
        assert!(of_best > 0.9 && to_and_fro <= TOTAL / 8, "{of_best} {to_and_fro} {sizes:?}");
    }

    #[test]
    fn pages_that_do_not_compress_leave_the_first_tier_all_that_it_may_have() {
        let distances = zipf();
        let sizes = divided(&distances, 1.0);
        assert_eq!(*sizes.last().unwrap(), TOTAL - TOTAL / 64, "{sizes:?}");
        let (of_best, to_and_fro) = judged(&distances, 1.0);
        assert!(of_best > 0.99 && to_and_fro == 0, "{of_best} {to_and_fro}");
    }

    #[test]
    fn a_loop_that_only_a_larger_second_tier_holds_gets_it_and_keeps_it() {
        let distances = distances((0..100_000).map(|use_| use_ % 2200));
        let sizes = divided(&distances, 0.4);
        assert!(held(sizes[0], 0.4) < 2200 && held(*sizes.last().unwrap(), 0.4) >= 2200, "{sizes:?}");
        let (of_best, to_and_fro) = judged(&distances, 0.4);
        assert!(of_best > 0.99 && to_and_fro == 0, "{of_best} {to_and_fro} {sizes:?}");
    }

    /// Hits of pages that are stored in half of their bytes.
    fn seen(recent: u64, near_ghosts: u64) -> BorderHits {
        BorderHits { recent, near_ghosts, tier_ns: TIER_NS, device_ns: DEVICE_NS, stored_share: 0.5, is_stored: true }
    }

    #[test]
    fn what_is_seen_while_a_move_settles_moves_nothing() {
        let mut split = MemorySplit::new(TOTAL, TOTAL, 1, 1);
        let moved = split.observe(&seen(0, 1000));
        assert!(moved < TOTAL / 2);
        for recent in [100_000, 100_000, 0, 0] {
            assert_eq!(split.observe(&seen(recent, 0)), moved);
        }
        assert!(split.observe(&seen(100_000, 0)) > moved);
    }

    #[test]
    fn a_second_tier_that_stores_nothing_gives_what_it_has() {
        let mut split = MemorySplit::new(TOTAL, TOTAL, 1, 1);
        let sizes: Vec<usize> =
            (0..100).map(|_| split.observe(&BorderHits { is_stored: false, ..seen(0, 1000) })).collect();
        assert!(sizes.is_sorted() && *sizes.last().unwrap() == TOTAL - TOTAL / 64, "{sizes:?}");
        assert!((0..4).map(|_| split.observe(&seen(0, 1000))).any(|first| first < TOTAL - TOTAL / 64), "it pays again");
    }

    #[test]
    fn a_scan_moves_nothing() {
        let sizes = divided(&distances(0..20_000), 0.3);
        assert!(sizes.iter().all(|&first| first == TOTAL / 2), "{sizes:?}");
    }

    #[test]
    fn a_second_tier_that_can_have_little_leaves_the_rest_to_the_first() {
        assert_eq!(MemorySplit::new(1000, 200, 1, 1).first_pages(), 800);
        assert_eq!(MemorySplit::new(1000, 1000, 1, 1).first_pages(), 500);
        assert_eq!(MemorySplit::new(1000, 1000, 250, 1).first_pages(), 500);
        let mut without = MemorySplit::new(1000, 1000, 251, 1);
        assert_eq!(
            (without.first_pages(), without.observe(&seen(0, 100_000))),
            (1000, 1000),
            "two segments are more than half"
        );
    }

    #[test]
    fn each_shard_keeps_two_segments_unless_they_are_more_than_an_eighth() {
        let most_first = |shards: usize| {
            let mut split = MemorySplit::new(6400, 6400, 10, shards);
            let declining = BorderHits { is_stored: false, ..seen(0, 0) };
            (0..1000).map(|_| split.observe(&declining)).max().unwrap()
        };
        assert_eq!([1, 16, 64].map(most_first), [6300, 6080, 5600]);
    }
}

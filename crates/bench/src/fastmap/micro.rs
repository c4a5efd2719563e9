//! The paper's microbenchmark: threads that load or store one word of a random page, as fast as they can.
//!
//! Relies on a dataset that is several times the budget, so that most touches of a uniform draw are misses. The budget is
//! filled by touches of the same kind, from many threads, before anything counts; a phase then lasts a fixed time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::pages::{ThreadAccess, WordAccess};
use super::phase_stats::{PhaseStats, PhaseTimer, histogram};
use super::testbed::{CHANGED_WORD, Testbed, stamp};
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Threads that fill the budget before the phase that counts.
const WARM_THREADS: usize = 16;
/// Pages known to be needed next, and how many of them are asked for at a time, where a candidate prefetches.
const WINDOW: usize = 64;
const STEP: usize = 16;

/// What is touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Microbenchmark {
    /// Threads.
    pub threads: usize,
    /// Whether they store.
    pub stores: bool,
    /// Zipf exponent of the draw; 0 for a uniform one.
    pub skew: f64,
    /// Whether each thread keeps [`WINDOW`] future pages in flight (shared among the threads).
    pub ahead: bool,
    /// Touches before those that count, and how long they may take.
    pub warm_ops: u64,
    /// As above.
    pub warm_ms: u64,
    /// How long touches count.
    pub measure_ms: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Number of the trial, to tell its stores by; from 1.
    pub trial: u16,
}

/// Pages in the order in which one thread touches them.
struct AccessSequence {
    rng: SplitMix64,
    zipf: Option<Zipf>,
    scatter: RankPermutation,
    pages: u64,
    coming: VecDeque<u64>,
}

impl AccessSequence {
    fn new(micro: &Microbenchmark, testbed: &Testbed, seed: u64) -> Self {
        let zipf = (micro.skew > 0.0).then(|| Zipf::new(testbed.pages, micro.skew));
        // Which pages are popular is the same for all threads, or there would be several sets of them.
        let scatter = RankPermutation::new(testbed.pages, micro.seed);
        Self { rng: SplitMix64::new(seed), zipf, scatter, pages: testbed.pages, coming: VecDeque::new() }
    }

    fn draw(&mut self) -> u64 {
        match self.zipf {
            Some(zipf) => self.scatter.key(zipf.sample(&mut self.rng)),
            None => self.rng.below(self.pages),
        }
    }

    /// The next page; has `window` pages after it in flight by then.
    fn next(&mut self, thread_access: &mut impl ThreadAccess, window: usize) -> anyhow::Result<u64> {
        if window == 0 {
            return Ok(self.draw());
        }
        let step = STEP.min(window.div_ceil(2));
        if self.coming.len() + step <= window + 1 {
            let mut fresh = [0; WINDOW];
            let count = window + 1 - self.coming.len();
            fresh[..count.min(WINDOW)].iter_mut().for_each(|page| *page = self.draw());
            let fresh = &fresh[..count.min(WINDOW)];
            thread_access.prefetch(fresh)?;
            self.coming.extend(fresh);
        }
        Ok(self.coming.pop_front().unwrap_or_default())
    }
}

/// What touches are for. The two draw different pages, or what has just been brought in would be drawn again.
#[derive(Clone, Copy)]
enum Phase {
    Warm,
    Measured,
}

/// When a thread is to stop.
enum StopCondition<'a> {
    /// All threads together have done as much, or the flag is up.
    Left(&'a AtomicU64, &'a AtomicBool),
    /// The flag is up.
    Told(&'a AtomicBool),
}

impl StopCondition<'_> {
    /// Whether a thread that did `ops` touches goes on. Where touches are measured it does one at least: on a busy machine the
    /// time may be over before the thread has run.
    fn goes_on(&self, ops: u64) -> bool {
        match self {
            Self::Left(left, flag) => {
                !flag.load(Ordering::Relaxed)
                    && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            }
            Self::Told(flag) => ops == 0 || !flag.load(Ordering::Relaxed),
        }
    }
}

/// Fills the budget, then measures.
///
/// # Errors
/// The device failed, or a page is not what it should be.
pub fn run<T: WordAccess>(candidate: &T, micro: &Microbenchmark, testbed: &Testbed) -> anyhow::Result<PhaseStats> {
    let left = AtomicU64::new(micro.warm_ops);
    let flag = AtomicBool::new(false);
    let limit = Duration::from_millis(micro.warm_ms);
    let warm = Microbenchmark { threads: WARM_THREADS, ahead: false, ..micro.clone() };
    crew(candidate, &warm, testbed, Phase::Warm, &StopCondition::Left(&left, &flag), || {
        let began = Instant::now();
        while began.elapsed() < limit && left.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        flag.store(true, Ordering::Relaxed);
    })?;
    flag.store(false, Ordering::Relaxed);
    let timer = PhaseTimer::begin(testbed, candidate.counters());
    let (ops, latencies) = crew(candidate, micro, testbed, Phase::Measured, &StopCondition::Told(&flag), || {
        std::thread::sleep(Duration::from_millis(micro.measure_ms));
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok(timer.end(if micro.stores { "write" } else { "read" }, ops, &latencies, candidate.counters()))
}

/// Has all threads touch pages while `meanwhile` runs, which must see to their end.
fn crew<T: WordAccess>(
    candidate: &T,
    micro: &Microbenchmark,
    testbed: &Testbed,
    phase: Phase,
    until: &StopCondition<'_>,
    meanwhile: impl FnOnce(),
) -> anyhow::Result<(u64, Histogram<u64>)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..micro.threads as u64)
            .map(|thread| {
                let seed = micro.seed.wrapping_mul(1009).wrapping_add(thread)
                    ^ (micro.threads as u64) << 32
                    ^ (phase as u64) << 48;
                scope.spawn(move || touch_all(candidate, micro, testbed, until, seed))
            })
            .collect();
        meanwhile();
        let mut all = (0, histogram());
        for thread in threads {
            let (ops, latencies) = thread.join().expect("a touching thread does not panic")?;
            all.0 += ops;
            all.1.add(latencies)?;
        }
        Ok(all)
    })
}

fn touch_all<T: WordAccess>(
    candidate: &T,
    micro: &Microbenchmark,
    testbed: &Testbed,
    until: &StopCondition<'_>,
    seed: u64,
) -> anyhow::Result<(u64, Histogram<u64>)> {
    let mut thread_access = candidate.thread_access()?;
    let mut course = AccessSequence::new(micro, testbed, seed);
    let window = if micro.ahead { (WINDOW / micro.threads).max(4) } else { 0 };
    let mut latencies = histogram();
    let mut ops = 0;
    let mut before = Instant::now();
    while until.goes_on(ops) {
        let page = course.next(&mut thread_access, window)?;
        if micro.stores {
            thread_access.store(page, CHANGED_WORD, testbed.changed_word(page, micro.trial, ops))?;
        } else {
            let word = thread_access.load(page, 0)?;
            ensure!(word == stamp(page), "page {page} begins with {word:#x}, which is not its stamp");
        }
        ops += 1;
        let now = Instant::now();
        latencies.saturating_record((now - before).as_nanos() as u64);
        before = now;
    }
    Ok((ops, latencies))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::candidate::{Candidate, PagesWorkload, with_pages};

    fn micro(stores: bool, ahead: bool) -> Microbenchmark {
        let skew = if ahead { 0.99 } else { 0.0 };
        Microbenchmark {
            threads: 3,
            stores,
            skew,
            ahead,
            warm_ops: 300,
            warm_ms: 1000,
            measure_ms: 20,
            seed: 5,
            trial: 1,
        }
    }

    struct Run<'a>(&'a Microbenchmark, &'a Testbed);

    impl PagesWorkload for Run<'_> {
        type Out = PhaseStats;

        fn run_on<P: crate::fastmap::pages::Pages>(self, pages: &P) -> anyhow::Result<PhaseStats> {
            run(pages, self.0, self.1)
        }
    }

    #[test]
    fn every_candidate_reads_the_stamps_and_keeps_them_when_it_writes() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 200).unwrap();
        for stores in [true, false] {
            for &candidate in Candidate::PAGED {
                let micro = micro(stores, candidate.is_ahead());
                let stats = with_pages(candidate, &testbed, 64 * 4096, Run(&micro, &testbed)).unwrap();
                assert!(stats.ops > 0 && stats.latency_ns[0] > 0, "{candidate:?}");
            }
            let direct = crate::fastmap::candidate::direct::DirectPages::new(&testbed).unwrap();
            assert!(run(&direct, &micro(stores, false), &testbed).unwrap().ops > 0);
        }
    }

    #[test]
    fn a_wrong_page_is_told() {
        let pages = crate::fastmap::traced_pages::TracedPages::new(10);
        let testbed = Testbed { kind: crate::fastmap::testbed::DeviceKind::Disk, path: "nowhere".into(), pages: 10 };
        let error = run(&pages, &micro(false, false), &testbed).unwrap_err().to_string();
        assert!(error.contains("stamp"), "{error}");
    }

    #[test]
    fn a_course_that_looks_ahead_is_the_same_course() {
        let pages = crate::fastmap::traced_pages::TracedPages::new(100);
        let testbed = Testbed { kind: crate::fastmap::testbed::DeviceKind::Disk, path: "nowhere".into(), pages: 100 };
        let follow = |window| -> Vec<u64> {
            let mut course = AccessSequence::new(&micro(false, true), &testbed, 9);
            (0..500).map(|_| course.next(&mut &pages, window).unwrap()).collect()
        };
        assert!(follow(0) == follow(64) && follow(0) == follow(4));
    }
}

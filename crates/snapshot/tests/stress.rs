//! Random use of every mechanism for as long as one likes: writers that never pause but for cuts; random cuts, cuts of cuts,
//! reads, drops; two mechanisms at a time, so that their signal handlers, threads and children meet.
//!
//! Relies on content that describes itself (`common/cells.rs`). `QUIRE_STRESS_SECONDS` says for how long (20), and
//! `QUIRE_STRESS_SEED` where to begin: a round that fails has printed its seed. What threads do when is not in the seed, so
//! a failure may take several tries to come back. `QUIRE_STRESS_WITHOUT` names a mechanism that is left out. `cargo xtask stress` runs it for long.

#[path = "common/mod.rs"]
#[allow(dead_code, reason = "the suite uses other parts of it")]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::cells::{Cells, Cut};
use common::memory::{KINDS, Memory};
use common::{all_options, attach_or_skip};
use quire_rng::SplitMix64;
use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE};

const WRITERS: usize = 2;
/// Views alive at once in each of the two.
const MOST_VIEWS: usize = 6;
const MOST_PAGES: u64 = 3000;
/// More memory than that in use between rounds is a leak.
const MOST_RESIDENT_BYTES: u64 = 1 << 30;

/// Tells when to stop, also when a check has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_found_by_random_use_of_all_mechanisms() {
    let seconds = number("QUIRE_STRESS_SECONDS").unwrap_or(20);
    let mut seed = number("QUIRE_STRESS_SEED").unwrap_or_else(clock);
    let works = |mechanism: &Mechanism| {
        attach_or_skip(*mechanism, Memory::new(KINDS[0], 1).span(), &OriginOptions::default()).is_some()
    };
    let without = std::env::var("QUIRE_STRESS_WITHOUT").ok().map(|name| name.parse::<Mechanism>().unwrap());
    let wanted = |mechanism: &Mechanism| Some(*mechanism) != without;
    let mechanisms: Vec<_> = Mechanism::ALL.into_iter().filter(wanted).filter(works).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    // Long runs have longer rounds; every mechanism has its turn twice at least.
    let round = Duration::from_secs_f64((seconds as f64 / mechanisms.len() as f64 / 2.0).clamp(0.05, 5.0));
    let mut most_resident_bytes = 0;
    for (number, &mechanism) in mechanisms.iter().cycle().enumerate() {
        if Instant::now() >= end && number >= mechanisms.len() {
            break;
        }
        let mut rng = SplitMix64::new(seed);
        let other = mechanisms[rng.index(mechanisms.len())];
        println!("round {number}: QUIRE_STRESS_SEED={seed} {mechanism} beside {other}");
        let (one, two) = (rng.next_u64(), rng.next_u64());
        std::thread::scope(|scope| {
            scope.spawn(move || play(mechanism, one, round));
            scope.spawn(move || play(other, two, round));
        });
        most_resident_bytes = most_resident_bytes.max(quire_sys::proc::resident_bytes(None).unwrap_or(0));
        assert!(most_resident_bytes < MOST_RESIDENT_BYTES, "{most_resident_bytes} bytes in use between rounds");
        seed = rng.next_u64();
    }
    println!("at most {} MiB were in use between rounds", most_resident_bytes >> 20);
    nothing_is_left();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
}

/// Descriptors, mappings, threads and children of mechanisms that are gone are gone too, if not at once.
fn nothing_is_left() {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let left = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        [count("/proc/self/fd"), maps.lines().count(), count("/proc/self/task"), children.split_whitespace().count()]
    };
    // Thousands of lives that left anything behind would exceed this by far; the sanitizers have some hundred of their own.
    let allowed = [40, 1500, 12, 0];
    let patience = Instant::now() + Duration::from_secs(10);
    while left().iter().zip(allowed).any(|(&left, allowed)| left > allowed) {
        assert!(Instant::now() < patience, "descriptors, mappings, threads, children: {:?} left", left());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A few lives of one mechanism, within `time`.
fn play(mechanism: Mechanism, seed: u64, time: Duration) {
    let mut rng = SplitMix64::new(seed);
    let end = Instant::now() + time;
    loop {
        let lives = 1 + rng.below(12);
        let now = Instant::now();
        live(mechanism, rng.next_u64(), now + (end.max(now) - now) / lives as u32);
        if Instant::now() >= end {
            return;
        }
    }
}

/// One life: memory, an origin, writers, and random things done to views until `end`.
fn live(mechanism: Mechanism, seed: u64, end: Instant) {
    let mut rng = SplitMix64::new(seed);
    let mut any = |below: u64| rng.below(below);
    let kind = KINDS[any(3) as usize];
    let pages = 1 + any(MOST_PAGES) as usize;
    let mut options = all_options().swap_remove(any(16) as usize);
    options.precopy_bytes_per_second = 1 << (20 + any(14));
    options.keep_bytes = (any(2) * (8 << 20)) as usize;
    println!("  {mechanism} seed {seed}: {pages} pages, {kind:?}, {options:?}");
    let memory = Memory::new(kind, pages);
    let origin = attach_or_skip(mechanism, memory.span(), &options).expect("it worked at the start");
    let cells = Cells::new(origin);
    let stopped = AtomicBool::new(false);
    let stop = || stopped.load(Ordering::Relaxed);
    let mut cuts = Vec::new();
    std::thread::scope(|scope| {
        let guard = Stop(&stopped);
        for writer in 0..WRITERS {
            let (cells, stop) = (&cells, &stop);
            scope.spawn(move || cells.write_until(writer, WRITERS, seed, stop));
        }
        while Instant::now() < end {
            act(&cells, &mut cuts, &mut rng);
        }
        drop(guard);
    });
    cells.check();
    let first_out = rng.next_u64();
    drop(first_out.is_multiple_of(2).then_some(cells));
    while !cuts.is_empty() {
        let cut = cuts.swap_remove(rng.index(cuts.len()));
        cut.check(0, 1);
    }
    assert_eq!(memory.span.len(), pages * PAGE_SIZE);
}

/// One random thing.
fn act(cells: &Cells, cuts: &mut Vec<Cut>, rng: &mut SplitMix64) {
    let chosen = rng.index(cuts.len());
    let cell = rng.index(cells.count());
    match (rng.below(20), cuts.get_mut(chosen)) {
        (0..=5, _) | (_, None) => {
            cuts.push(cells.cut());
            if cuts.len() > MOST_VIEWS {
                cuts.remove(0);
            }
        }
        (6..=7, Some(cut)) => {
            let again = cut.again();
            cuts.push(again);
            if cuts.len() > MOST_VIEWS {
                cuts.swap_remove(chosen);
            }
        }
        (8..=10, Some(cut)) => cut.check(cell, 1 + cells.count() / 50),
        (11, Some(cut)) => cut.check(0, 1),
        (12..=13, Some(cut)) => cut.glance(cell),
        (14..=15, Some(cut)) => cut.scribble(cell),
        (16..=17, _) => drop(cuts.swap_remove(chosen)),
        (18, _) => cells.origin().settle(),
        _ => drop(cells.origin().stats()),
    }
}

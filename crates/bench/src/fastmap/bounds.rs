//! What bounds every way to pages on this machine: the device by itself, at several depths, and the steps that ways are made
//! of (a system call, a fault, a copy, the pool's own work).
//!
//! Relies on a ring with nothing around it for the device, and on a device that does nothing for the pool's own work. It
//! runs under the same memory limit as every candidate.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_sys::buffer::Buffer;
use quire_sys::futex::{self, FutexScope};
use quire_sys::rw::RwFlags;
use quire_sys::shared_map::{AccessPattern, SharedMap};
use quire_sys::transfer::{Direction, Extent, Transfer};
use quire_sys::uring::Ring;
use quire_sys::word_range::WordRange;
use serde::{Deserialize, Serialize};

use super::candidate::{GuardedPages, TransparentPages};
use super::pages::{Counters, Page, Pages};
use super::phase_stats::{PhaseStats, PhaseTimer, histogram};
use super::testbed::{PAGE_BYTES, PAGE_WORDS, Testbed, stamp};
use quire_rng::SplitMix64;

/// What is found out, and how long each measurement of the device lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceBounds {
    /// How long.
    pub measure_ms: u64,
    /// Seed of the pages' order.
    pub seed: u64,
}

/// Requests to the device: name, requests in flight, and how many of a hundred are writes.
pub const REQUESTS: [(&str, usize, u64); 8] = [
    ("read_depth_1", 1, 0),
    ("read_depth_4", 4, 0),
    ("read_depth_16", 16, 0),
    ("read_depth_64", 64, 0),
    ("write_depth_1", 1, 100),
    ("write_depth_16", 16, 100),
    ("write_depth_64", 64, 100),
    ("mixed_depth_64", 64, 50),
];
/// Steps, in nanoseconds each.
pub const STEPS: [&str; 9] = [
    "system_call",
    "anonymous_fault",
    "mapped_fault",
    "discard",
    "copy",
    "cached_read",
    "pool_miss",
    "pool_miss_ahead",
    "transparent_miss",
];

/// Pages that the steps work on: 8 MiB, with other 64 MiB of addresses for misses.
const STEP_PAGES: u64 = 2048;
const MISS_PAGES: u64 = 8 * STEP_PAGES;
/// Misses that are timed.
const MISSES: u64 = 2 * MISS_PAGES;
/// Pages that the kernel maps together where they are cached.
const AROUND: u64 = 16;

/// Statistics for each of [`REQUESTS`] and [`STEPS`].
///
/// # Errors
/// The device failed, or there is no ring or no memory.
pub fn run(bounds: &DeviceBounds, testbed: &Testbed) -> anyhow::Result<Vec<PhaseStats>> {
    let measure = Duration::from_millis(bounds.measure_ms);
    let mut phases = Vec::new();
    for (name, depth, writes_percent) in REQUESTS {
        let rng = SplitMix64::new(bounds.seed ^ depth as u64 ^ writes_percent << 32);
        let requests = Requests { testbed, file: Arc::new(testbed.open_direct()?), rng, writes_percent };
        phases.push(requests.run(name, depth, measure)?);
    }
    phases.extend(memory_steps()?);
    phases.extend(file_steps(testbed)?);
    phases.extend(pool_steps()?);
    Ok(phases)
}

/// Requests for single pages, in random order.
struct Requests<'a> {
    testbed: &'a Testbed,
    file: Arc<File>,
    rng: SplitMix64,
    writes_percent: u64,
}

impl Requests<'_> {
    fn run(mut self, name: &str, depth: usize, measure: Duration) -> anyhow::Result<PhaseStats> {
        let mut ring = Ring::new().context("a ring, to see what the device can do")?;
        let buffers = Buffer::several(depth, PAGE_BYTES).context("memory for requests")?;
        let timer = PhaseTimer::begin(self.testbed, Counters::new());
        let began = Instant::now();
        let mut next: Vec<Transfer> = buffers.into_iter().map(|buffer| self.request(buffer)).collect();
        let mut ops = 0;
        loop {
            ring.submit_all(&self.file, RwFlags::NONE, next.drain(..));
            let Some(first) = ring.wait() else { break };
            let goes_on = began.elapsed() < measure;
            let mut ended = Some(first);
            while let Some(one) = ended {
                one.result.context("a request to the device")?;
                self.check(&one.transfer)?;
                ops += 1;
                if goes_on {
                    next.push(self.request(one.transfer.buffer));
                }
                ended = ring.poll();
            }
        }
        Ok(timer.end(name, ops, &histogram(), Counters::new()))
    }

    fn request(&mut self, mut buffer: Buffer) -> Transfer {
        let page = self.rng.below(self.testbed.pages);
        let mut direction = Direction::Read;
        if self.rng.below(100) < self.writes_percent {
            direction = Direction::Write;
            self.testbed.fill(page, &mut buffer);
        }
        let extents = vec![Extent { offset: page * PAGE_BYTES as u64, start: 0, len: PAGE_BYTES }];
        Transfer { direction, buffer, extents, tag: page }
    }

    fn check(&self, transfer: &Transfer) -> anyhow::Result<()> {
        let is_right = transfer.buffer[..8] == stamp(transfer.tag).to_le_bytes();
        anyhow::ensure!(is_right, "the device gives another page than {}", transfer.tag);
        Ok(())
    }
}

/// Runs `work`, which does `ops` steps.
fn timed(name: &str, ops: u64, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<PhaseStats> {
    let began = Instant::now();
    work().with_context(|| format!("timing {name}"))?;
    Ok(PhaseStats { name: name.to_owned(), ops, elapsed_s: began.elapsed().as_secs_f64(), ..PhaseStats::default() })
}

/// Touches every page of `memory`.
fn touch(memory: &WordRange) {
    for page in memory.words().chunks_exact(PAGE_WORDS) {
        page[0].store(1, Ordering::Relaxed);
    }
}

fn memory_steps() -> anyhow::Result<Vec<PhaseStats>> {
    let unawaited = AtomicU32::new(0);
    let call = timed("system_call", 100_000, || {
        (0..100_000).for_each(|_| futex::wake_all(&unawaited, FutexScope::Process));
        Ok(())
    })?;
    let bytes = STEP_PAGES as usize * PAGE_BYTES;
    let memory = WordRange::new(bytes).context("memory to fault in")?;
    // The first time the machine itself may be short of memory.
    touch(&memory);
    memory.discard(0..bytes)?;
    let fault = timed("anonymous_fault", STEP_PAGES, || {
        touch(&memory);
        Ok(())
    })?;
    let discard = timed("discard", STEP_PAGES, || {
        for start in (0..bytes).step_by(PAGE_BYTES) {
            memory.discard(start..start + PAGE_BYTES)?;
        }
        Ok(())
    })?;
    let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
    let mut rng = SplitMix64::new(1);
    let copy = timed("copy", STEP_PAGES, || {
        for page in to.chunks_exact_mut(PAGE_BYTES) {
            let start = rng.below(STEP_PAGES) as usize * PAGE_BYTES;
            page.copy_from_slice(&from[start..start + PAGE_BYTES]);
        }
        Ok(())
    })?;
    black_box(&to);
    Ok(vec![call, fault, discard, copy])
}

/// Steps of who uses the page cache, on pages that are in it.
fn file_steps(testbed: &Testbed) -> anyhow::Result<Vec<PhaseStats>> {
    let pages = STEP_PAGES.min(testbed.pages / AROUND * AROUND);
    let bytes = pages as usize * PAGE_BYTES;
    let file = testbed.open()?;
    let mut buffer = vec![0_u8; 1 << 20];
    for start in (0..bytes).step_by(buffer.len()) {
        let part = buffer.len().min(bytes - start);
        file.read_exact_at(&mut buffer[..part], start as u64).context("reading pages into the cache")?;
    }
    let cached = timed("cached_read", pages, || {
        for start in (0..bytes).step_by(PAGE_BYTES) {
            file.read_exact_at(&mut buffer[..PAGE_BYTES], start as u64)?;
        }
        Ok(())
    })?;
    let map = SharedMap::new(&file, bytes).context("mapping pages")?;
    map.advise(0..bytes, AccessPattern::Random).context("madvise")?;
    let fault = timed("mapped_fault", pages / AROUND, || {
        let firsts = map.words().chunks_exact(PAGE_WORDS * AROUND as usize).map(|pages| &pages[0]);
        black_box(firsts.map(|word| word.load(Ordering::Relaxed)).fold(0, u64::wrapping_add));
        Ok(())
    })?;
    Ok(vec![cached, fault])
}

/// What the pool itself adds to a miss: random pages, memory for an eighth of them, a device that takes no time.
fn pool_steps() -> anyhow::Result<Vec<PhaseStats>> {
    let budget_bytes = STEP_PAGES * PAGE_BYTES as u64;
    let guarded = GuardedPages::<true>::over_nothing(MISS_PAGES, budget_bytes)?;
    let transparent = TransparentPages::over_nothing(MISS_PAGES, budget_bytes);
    let mut rng = SplitMix64::new(2);
    let mut pages = || rng.below(MISS_PAGES);
    let mut phases = Vec::new();
    for is_timed in [false, true] {
        let miss = timed("pool_miss", MISSES, || read_all(&guarded, (0..MISSES).map(|_| pages())))?;
        let ahead = timed("pool_miss_ahead", MISSES, || {
            for _ in 0..MISSES / 64 {
                let batch: Vec<u64> = (0..64).map(|_| pages()).collect();
                guarded.prefetch(&batch)?;
                read_all(&guarded, batch.iter().copied())?;
            }
            Ok(())
        })?;
        if is_timed {
            phases = vec![miss, ahead];
        }
    }
    // Where userfaultfd is forbidden the other steps are still of interest.
    if let Ok(transparent) = &transparent {
        read_all(transparent, (0..MISSES).map(|_| pages()))?;
        phases.push(timed("transparent_miss", MISSES, || read_all(transparent, (0..MISSES).map(|_| pages())))?);
    }
    Ok(phases)
}

fn read_all<P: Pages>(candidate: &P, pages: impl Iterator<Item = u64>) -> anyhow::Result<()> {
    for page in pages {
        black_box(candidate.read(page)?.word(0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_and_steps_are_measured_and_leave_the_pages_as_they_were() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 256).unwrap();
        let before = std::fs::read(&testbed.path).unwrap();
        let phases = run(&DeviceBounds { measure_ms: 2, seed: 1 }, &testbed).unwrap();
        for name in REQUESTS.map(|request| request.0).iter().chain(&STEPS) {
            let stats = phases.iter().find(|stats| stats.name == *name);
            // Userfaultfd may be forbidden.
            assert!(*name == "transparent_miss" || stats.is_some_and(|stats| stats.ops > 0), "{name}");
        }
        testbed.drop_cache().unwrap();
        assert!(std::fs::read(&testbed.path).unwrap() == before);
    }
}

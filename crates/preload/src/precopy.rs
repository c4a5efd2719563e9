//! Copying ahead: which regions, in which order, how, and when to stop.
//!
//! Relies on what was learned in earlier epochs. A region is looked at again at its turn, so what the program has copied
//! meanwhile is skipped, and a region of which little is left is left to it. Two things can make copying into huge pages
//! a bad bargain (none free, or slow to get); it is then given up for this child. Copying pages one by one costs more
//! processor time in all than the program's own faults would, so it is for times when processors are idle.

use std::time::{Duration, Instant};

use quire_sys::bare_thread;
use quire_sys::mem::{HUGE_PAGE_SIZE, PAGE_SIZE};
use quire_sys::pressure::{self, MemoryInfo};
use quire_sys::thread::{self, CpuSet, ThreadId};

use crate::context::WorkerContext;
use crate::copy;
use crate::log;
use crate::rate_limiter::RateLimiter;
use crate::regions::{CopyMethod, MappedRegion};
use crate::sampler::WriteSampler;

/// Time that tasks may have waited for memory lately, in percent, before the worker stops.
const MOST_STALLED_PERCENT: f32 = 10.0;
/// Of the machine's memory one part in that many has to be left.
const LEAST_LEFT_PART: u64 = 20;
/// Memory is looked at anew after copying that much.
const LOOK_AT_MEMORY_BYTES: u64 = 64 << 20;
/// If less than one page in that many is shared, the program is left to copy the rest of a region.
const LEAST_SHARED_PART: u16 = 16;
/// If less than one page in that many is shared, copying the region whole costs more than copying those pages.
const LEAST_WHOLE_PART: u16 = 4;
/// A huge page may cost that much processor time to get, and copying a region into one that much on average; in small
/// pages a region costs 0.8 ms.
const MOST_WHOLE_NS: u64 = 1_000_000;
/// After so many regions it is judged.
const WHOLE_TRIED: u32 = 4;
/// Between two pieces copied page by page.
const BREATH: Duration = Duration::from_micros(60);

/// One child's copying ahead.
#[derive(Debug)]
pub struct Precopy<'a> {
    context: &'a mut WorkerContext,
    sampler: WriteSampler,
    forker: Option<ThreadId>,
    budget_bytes: u64,
    unlooked_bytes: u64,
    huge: bool,
    /// Whether pages may be copied one by one.
    singly: bool,
    whole_tried: u32,
    whole_failed: u32,
    whole_ns: u64,
}

impl<'a> Precopy<'a> {
    /// Copying ahead of `forker`.
    pub fn new(context: &'a mut WorkerContext, sampler: WriteSampler, forker: Option<ThreadId>) -> Self {
        let (huge, most_busy) = (context.huge, f32::from(context.settings.busy_permille) / 10.0);
        let singly = pressure::processor_stalled_percent().is_none_or(|percent| percent <= most_busy);
        Self {
            context,
            sampler,
            forker,
            budget_bytes: 0,
            unlooked_bytes: 0,
            huge,
            singly,
            whole_tried: 0,
            whole_failed: 0,
            whole_ns: 0,
        }
    }

    /// Copies until all is done or `pause`, which sleeps, says to stop; the highest coverage first. Returns why it ended
    /// early, if that is worth telling.
    pub fn run(mut self, mut pause: impl FnMut(&WorkerContext, Duration) -> bool) -> Option<&'static str> {
        let threshold = self.context.threshold_permille.max(1);
        if !self.context.regions.all().iter().any(|region| region.coverage_permille >= Some(threshold)) {
            return None;
        }
        self.budget_bytes = match budget(self.context.settings.memory_bytes) {
            Ok(bytes) => bytes,
            Err(reason) => return Some(reason),
        };
        let (began, before_ns) = (Instant::now(), thread::cpu_time_ns());
        self.huge &= self.context.spare.fetch_ns() < MOST_WHOLE_NS;
        let everywhere = CpuSet::allowed();
        let ended = if self.huge || self.singly {
            self.copy_all(threshold, &mut pause)
        } else {
            Some("processors are busy and no huge pages at hand")
        };
        log::at(
            2,
            format_args!(
                "copied ahead for {} ms, {} ms of processor time; {} regions whole in {} us each, {} of them in vain",
                began.elapsed().as_millis(),
                (thread::cpu_time_ns() - before_ns) / 1_000_000,
                self.whole_tried,
                self.whole_ns / 1000 / u64::from(self.whole_tried.max(1)),
                self.whole_failed,
            ),
        );
        if let Some(everywhere) = everywhere {
            everywhere.apply();
        }
        ended
    }

    fn copy_all(
        &mut self,
        threshold: u16,
        pause: &mut impl FnMut(&WorkerContext, Duration) -> bool,
    ) -> Option<&'static str> {
        let mut rate_limiter = RateLimiter::new(self.context.settings.rate_bytes_per_s);
        let began = Instant::now();
        for (least, most) in [(950, 1000), (900, 949), (850, 899), (800, 849), (600, 799), (1, 599)] {
            // Downwards: programs that write through their memory do it upwards, and are met only once.
            for index in (0..self.context.regions.all().len()).rev() {
                let coverage = self.context.regions.all()[index].coverage_permille.unwrap_or(0);
                if coverage < threshold || !(least..=most).contains(&coverage) {
                    continue;
                }
                let copied_bytes = self.region(index);
                rate_limiter.count(copied_bytes);
                if let Err(reason) = self.spend(copied_bytes) {
                    return Some(reason);
                }
                if !pause(self.context, rate_limiter.sleep(began.elapsed()).unwrap_or(Duration::ZERO)) {
                    return None;
                }
            }
        }
        None
    }

    fn spend(&mut self, bytes: u64) -> Result<(), &'static str> {
        self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
        self.unlooked_bytes += bytes;
        if self.budget_bytes < PAGE_SIZE as u64 {
            return Err("the limit of memory is reached");
        }
        if self.unlooked_bytes >= LOOK_AT_MEMORY_BYTES {
            self.unlooked_bytes = 0;
            budget(self.context.settings.memory_bytes)?;
        }
        Ok(())
    }

    /// Copies what is still shared of a region; returns how many bytes.
    fn region(&mut self, index: usize) -> u64 {
        // A region that can't be looked at any more is left to the program.
        let Ok((region, words)) = self.context.regions.words(&self.context.pagemap, index) else { return 0 };
        let (own, shared) = MappedRegion::count(words);
        if shared == 0 || shared < region.pages / LEAST_SHARED_PART {
            return 0;
        }
        (region.own_before, region.shared_before) = (own, shared);
        let whole = region.range().len() == HUGE_PAGE_SIZE
            && region.is_dense(own + shared)
            && shared >= region.pages / LEAST_WHOLE_PART
            && HUGE_PAGE_SIZE as u64 <= self.budget_bytes;
        if self.huge && whole {
            if self.sampler.leaves(region.address) {
                region.method = CopyMethod::Left;
                return 0;
            }
            let before_ns = thread::cpu_time_ns();
            let done = copy::whole(region.address, words);
            self.whole_ns += thread::cpu_time_ns() - before_ns;
            self.whole_tried += 1;
            self.whole_failed += u32::from(done.is_err());
            self.huge = self.whole_tried < WHOLE_TRIED
                || (self.whole_failed * 2 < self.whole_tried
                    && self.whole_ns < MOST_WHOLE_NS * u64::from(self.whole_tried));
            if done.is_ok() {
                (region.method, region.precopied) = (CopyMethod::Whole, shared);
                return HUGE_PAGE_SIZE as u64;
            }
        }
        if !self.singly {
            return 0;
        }
        follow(self.forker);
        let leave = self.sampler.pages(region.address, words.len());
        let done = copy::all_but(region.address, words, leave, self.budget_bytes, || bare_thread::sleep(BREATH));
        (region.method, region.precopied, region.sample) = (CopyMethod::Sampled, done.copied, done.left);
        u64::from(done.copied) * PAGE_SIZE as u64
    }
}

/// Goes to the processor where the program's thread runs: from another one, each page copied interrupts it.
fn follow(forker: Option<ThreadId>) {
    if let Some(processor) = forker.and_then(thread::processor_of) {
        // Where it isn't allowed, copying from elsewhere is the next best.
        thread::pin_to(processor);
    }
}

/// Bytes that may be copied ahead, or why none.
fn budget(set_bytes: Option<u64>) -> Result<u64, &'static str> {
    let memory = MemoryInfo::now();
    if memory.stalled_percent.is_some_and(|percent| percent > MOST_STALLED_PERCENT) {
        return Err("memory is short: tasks wait for it (PSI)");
    }
    let Some(left_bytes) = memory.obtainable_bytes() else {
        return set_bytes.ok_or("MemAvailable is not known, and QUIRE_PRELOAD_MEMORY is not set");
    };
    let short = |bytes: u64| memory.total_bytes.is_some_and(|total| bytes < total / LEAST_LEFT_PART);
    if memory.available_bytes.is_some_and(short) {
        return Err("memory is short: less than 5 % is available");
    }
    // Even if nothing of it is needed, half of what is left stays.
    match set_bytes.unwrap_or(left_bytes / 4).min(left_bytes / 2) / PAGE_SIZE as u64 {
        0 => Err("memory is short: the limit leaves nothing"),
        pages => Ok(pages * PAGE_SIZE as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_set_holds_and_none_is_refused() {
        // The machine that runs tests may be short of memory; then there is a reason.
        if let Ok(bytes) = budget(Some(8 << 20)) {
            assert!(bytes <= 8 << 20);
            assert!(budget(Some(0)).is_err());
        }
    }
}

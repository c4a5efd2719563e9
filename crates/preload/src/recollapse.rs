//! After a child's end: makes huge pages again of regions that the copying has torn into small ones.
//!
//! Relies on asking for each region whether an older child still shares it, as in a server that forks workers: such a region
//! is left as it is. What it costs is a copy of the region, at half of a processor at most;
//! what it brings is that the next fork copies one entry a region instead of 512, that huge pages which are half given
//! up don't hold memory, and that the program's addresses are translated faster. It stops at once for the next fork.

use std::time::{Duration, Instant};

use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::pressure::MemoryInfo;

use crate::context::WorkerContext;
use crate::copy;
use crate::regions::MappedRegion;
use crate::state::{self, ForkRecord};

/// For every unit of time spent that many are slept.
const REST: u32 = 1;
/// Longest sleep between two regions.
const LONGEST_REST: Duration = Duration::from_millis(20);
/// Time that tasks may have waited for memory lately, in percent.
const MOST_STALLED_PERCENT: f32 = 5.0;
/// Unless that much memory is available, huge pages are not asked for.
const LEAST_AVAILABLE_BYTES: u64 = 256 << 20;
/// After so many failures in a row there are no huge pages to be had.
const MOST_FAILURES: u32 = 16;

/// Makes huge pages of dense regions until done or until a fork after `fork`; returns how many regions were made.
pub fn recollapse(context: &mut WorkerContext, fork: ForkRecord) -> u64 {
    let memory = MemoryInfo::now();
    let waited_for = memory.stalled_percent.is_some_and(|percent| percent > MOST_STALLED_PERCENT);
    if waited_for || memory.obtainable_bytes().is_some_and(|bytes| bytes < LEAST_AVAILABLE_BYTES) {
        return 0;
    }
    let (mut made, mut failures) = (0, 0);
    for index in 0..context.regions.all().len() {
        let region = context.regions.all()[index];
        if !can_be_recollapsed(&region) {
            continue;
        }
        if state::latest_fork() != Some(fork) || failures == MOST_FAILURES || !context.host_monitor.is_unchanged() {
            break;
        }
        if !is_alone(context, index) {
            continue;
        }
        let began = Instant::now();
        context.spare.fetch_ns();
        // One that can't be made (the kernel has a page in use) stays small until the next child.
        let done = copy::collapse(region.address, HUGE_PAGE_SIZE).is_ok();
        context.regions.all_mut()[index].huge = done;
        made += u64::from(done);
        failures = if done { 0 } else { failures + 1 };
        let rest = (began.elapsed() * REST).min(LONGEST_REST);
        context.stats_page.wait(context.stats_page.events(), Some(rest));
    }
    made
}

/// Whether no older child shares a page of the region. A huge page made of shared ones would be memory had twice, and more
/// than the program's writes will ever need.
fn is_alone(context: &mut WorkerContext, index: usize) -> bool {
    context.regions.words(&context.pagemap, index).is_ok_and(|(_, words)| MappedRegion::count(words).1 == 0)
}

fn can_be_recollapsed(region: &MappedRegion) -> bool {
    !region.huge && region.range().len() == HUGE_PAGE_SIZE && region.is_dense(region.present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_whole_torn_regions_can_be_mended() {
        let region = MappedRegion { address: HUGE_PAGE_SIZE, pages: 512, present: 512, ..MappedRegion::default() };
        assert!(can_be_recollapsed(&region));
        assert!(!can_be_recollapsed(&MappedRegion { huge: true, ..region }));
        assert!(!can_be_recollapsed(&MappedRegion { present: 300, ..region }));
        assert!(!can_be_recollapsed(&MappedRegion { pages: 256, present: 256, ..region }));
    }
}

//! After a child's end: makes huge pages again of regions that the copying has torn into small ones.
//!
//! Relies on nobody sharing the memory any more. What it costs is a copy of the region, at a small share of a processor;
//! what it brings is that the next fork copies one entry a region instead of 512, that huge pages which are half given
//! up don't hold memory, and that the program's addresses are translated faster. It stops at once for the next fork.

use std::time::{Duration, Instant};

use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::pressure::Memory;

use crate::copy;
use crate::regions::Region;
use crate::state::{self, Fork};
use crate::tools::Tools;

/// Regions that are asked for in one call: each call makes all processors put their lists of new pages in order.
const RUN_REGIONS: usize = 4;
/// For every unit of time spent that many are slept.
const REST: u32 = 3;
/// Longest sleep between two calls.
const LONGEST_REST: Duration = Duration::from_millis(50);
/// Unless that much memory is available, huge pages are not asked for.
const LEAST_AVAILABLE_BYTES: u64 = 256 << 20;

/// Makes huge pages of dense regions until done or until a fork after `fork`; returns how many regions were asked for.
pub fn mend(tools: &Tools, fork: Fork) -> u64 {
    let memory = Memory::now();
    if memory.obtainable_bytes().is_some_and(|bytes| bytes < LEAST_AVAILABLE_BYTES) {
        return 0;
    }
    let (mut asked, mut from) = (0, 0);
    let regions = tools.regions.all();
    while let Some(run) = next_run(regions, &mut from) {
        if state::latest() != Some(fork) {
            break;
        }
        let began = Instant::now();
        let bytes = run.len() * HUGE_PAGE_SIZE;
        if copy::collapse(run[0].address, bytes).is_err() && run.len() > 1 {
            // One that can't be made (pages in use by the kernel) ends the call; the others are still wanted.
            for region in run {
                // What can't be a huge page stays small.
                let _ = copy::collapse(region.address, HUGE_PAGE_SIZE);
            }
        }
        asked += run.len() as u64;
        let rest = (began.elapsed() * REST).min(LONGEST_REST);
        tools.board.wait(tools.board.events(), Some(rest));
    }
    asked
}

/// The next regions, neighbours of each other, that can be huge pages.
fn next_run<'a>(regions: &'a [Region], from: &mut usize) -> Option<&'a [Region]> {
    let first = *from + regions[*from..].iter().position(can_be_huge)?;
    let neighbours = regions[first..].windows(2).take(RUN_REGIONS - 1);
    let more = neighbours.take_while(|pair| pair[0].range().end == pair[1].address && can_be_huge(&pair[1])).count();
    *from = first + more + 1;
    Some(&regions[first..*from])
}

fn can_be_huge(region: &Region) -> bool {
    region.range().len() == HUGE_PAGE_SIZE && region.is_dense(region.present)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(number: usize, present: u16) -> Region {
        Region { address: number * HUGE_PAGE_SIZE, pages: 512, present, ..Region::default() }
    }

    #[test]
    fn dense_neighbours_are_asked_for_together() {
        let regions: Vec<Region> =
            [(1, 512), (2, 500), (3, 100), (4, 512), (6, 512), (7, 512), (8, 512), (9, 512), (10, 512)]
                .map(|(number, present)| region(number, present))
                .to_vec();
        let mut from = 0;
        let mut runs = Vec::new();
        while let Some(run) = next_run(&regions, &mut from) {
            runs.push(run.iter().map(|region| region.address / HUGE_PAGE_SIZE).collect::<Vec<_>>());
        }
        assert_eq!(runs, [vec![1, 2], vec![4], vec![6, 7, 8, 9], vec![10]]);
    }
}

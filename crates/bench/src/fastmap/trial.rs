//! One trial: one candidate, one workload, one number of threads, in a process of its own that a memory limit holds.
//!
//! Relies on the parent ([`super::runner`]) having put this process under the limit before it sends the line that says what
//! to do; until then nothing is touched. The answer is one line of JSON on standard output.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::bfs::{self, Bfs};
use super::bounds::{self, DeviceBounds};
use super::candidate::direct::DirectPages;
use super::candidate::{Candidate, PagesWorkload, with_pages};
use super::hit::{self, HitCost};
use super::kv::lmdb::Lmdb;
use super::kv::tree::Tree;
use super::kv::ycsb::{self, Ycsb};
use super::micro::{self, Microbenchmark};
use super::pages::{Counters, Pages};
use super::phase_stats::PhaseStats;
use super::testbed::{PAGE_BYTES, Testbed};

/// What every process takes beside pages: code, stacks, buffers, the kernel's account of them.
pub const OVERHEAD_BYTES: u64 = 6 << 20;
/// Page tables and words of state take a small part of the dataset.
const PER_DATASET: u64 = 200;
/// Trees that the key-value store consists of: 256.
const PART_BITS: u32 = 8;

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Touches of words.
    Microbenchmark(Microbenchmark),
    /// Key-value loads.
    Ycsb(Ycsb),
    /// A search through a graph.
    Bfs(Bfs),
    /// The cost of reaching pages in memory, by all ways.
    HitCost(HitCost),
    /// What the machine can do.
    DeviceBounds(DeviceBounds),
}

/// What a trial is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// What is tried.
    pub candidate: Candidate,
    /// Where the pages are.
    pub testbed: Testbed,
    /// Memory for pages.
    pub budget_bytes: u64,
    /// What is done.
    pub work: Workload,
}

impl TrialSpec {
    /// The limit of all memory of the trial; it doesn't depend on the candidate.
    pub fn limit_bytes(&self) -> u64 {
        let dataset = self.testbed.pages * PAGE_BYTES as u64;
        let overhead = OVERHEAD_BYTES + dataset / PER_DATASET;
        match &self.work {
            Workload::Microbenchmark(_) | Workload::Ycsb(_) | Workload::DeviceBounds(_) => self.budget_bytes + overhead,
            Workload::Bfs(bfs) => self.budget_bytes + overhead + bfs.memory_bytes(),
            // Four copies of all pages: plain, mapped, and two caches.
            Workload::HitCost(_) => 2 * dataset + 2 * self.budget_bytes + overhead,
        }
    }

    /// Does what is told, in this process.
    ///
    /// # Errors
    /// The candidate can't do it, or doesn't do it right.
    pub fn carry_out(&self) -> anyhow::Result<Vec<PhaseStats>> {
        match &self.work {
            Workload::Microbenchmark(micro) if self.candidate == Candidate::Direct => {
                Ok(vec![micro::run(&DirectPages::new(&self.testbed)?, micro, &self.testbed)?])
            }
            Workload::Ycsb(ycsb) if self.candidate == Candidate::Lmdb => {
                let most_bytes = self.testbed.pages * PAGE_BYTES as u64;
                ycsb::run(&Lmdb::create(&self.testbed.path, most_bytes)?, ycsb, &self.testbed, &Counters::new)
            }
            Workload::HitCost(hit) => hit::run(hit, &self.testbed, self.budget_bytes),
            Workload::DeviceBounds(bounds) => bounds::run(bounds, &self.testbed),
            Workload::Microbenchmark(_) | Workload::Ycsb(_) | Workload::Bfs(_) => {
                with_pages(self.candidate, &self.testbed, self.budget_bytes, OnPages(self))
            }
        }
    }
}

struct OnPages<'a>(&'a TrialSpec);

impl PagesWorkload for OnPages<'_> {
    type Out = Vec<PhaseStats>;

    fn has_streams(&self) -> bool {
        // The edges of popular vertices fill many pages.
        matches!(self.0.work, Workload::Bfs(_))
    }

    fn run_on<P: Pages>(self, pages: &P) -> anyhow::Result<Vec<PhaseStats>> {
        let testbed = &self.0.testbed;
        match &self.0.work {
            Workload::Microbenchmark(micro) => Ok(vec![micro::run(pages, micro, testbed)?]),
            Workload::Ycsb(ycsb) => {
                let tree = Tree::new(pages, PART_BITS, testbed.pages)?;
                ycsb::run(&tree, ycsb, testbed, &|| pages.counters())
            }
            Workload::Bfs(bfs) => Ok(vec![bfs::run(pages, bfs, testbed)?]),
            Workload::HitCost(_) | Workload::DeviceBounds(_) => bail!("this isn't done on pages of one candidate"),
        }
    }
}

/// The child process of a trial: waits for a `TrialSpec` on standard input, carries it out, and prints the statistics.
///
/// # Errors
/// The line is no spec, or the trial fails.
pub fn serve() -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("waiting for what to do")?;
    let spec: TrialSpec =
        serde_json::from_str(&line).context("this experiment is started by `quire bench fastmap` only")?;
    quire_sys::outln!("{}", serde_json::to_string(&spec.carry_out()?)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::testbed::DeviceKind;

    fn spec(work: Workload) -> TrialSpec {
        let testbed = Testbed { kind: DeviceKind::Disk, path: "nowhere".into(), pages: 512 << 8 };
        TrialSpec { candidate: Candidate::Guards, testbed, budget_bytes: 128 << 20, work }
    }

    #[test]
    fn a_spec_survives_the_way_to_its_process() {
        let spec = spec(Workload::Ycsb(Ycsb { records: 7, threads: 4, run_ms: 10, seed: 1 }));
        let line = serde_json::to_string(&spec).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<TrialSpec>(&line).unwrap(), spec);
    }

    #[test]
    fn the_limit_is_the_budget_and_little_more() {
        let limit = spec(Workload::Ycsb(Ycsb { records: 7, threads: 4, run_ms: 10, seed: 1 })).limit_bytes();
        assert!(limit > 134 << 20 && limit < 139 << 20, "{}", limit >> 20);
        assert!(spec(Workload::HitCost(HitCost { passes: 1, seed: 1 })).limit_bytes() > 1280 << 20);
    }
}

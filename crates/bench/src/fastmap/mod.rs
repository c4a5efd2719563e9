//! The experiment `fastmap`: the pool beside Linux mmap, vmcache's approach and direct reads, data several times as large as
//! memory (Papagiannis et al., *Optimizing Memory-mapped I/O for Fast Storage Devices*, USENIX ATC 2020).
//!
//! Relies on cgroup v1 to limit memory, page cache included: each trial is a process of its own under the same limit
//! (`runner`). Devices are the real disk under `--dir`, and `/dev/zram0` as the fastest there is (`testbed`).

mod bfs;
mod bounds;
pub(crate) mod candidate;
mod charts;
mod figures;
mod graph;
mod hit;
pub(crate) mod kv;
pub(crate) mod memory_limit;
mod micro;
pub(crate) mod pages;
pub(crate) mod phase_stats;
mod policies;
pub(crate) mod runner;
mod scale;
mod schedule;
pub(crate) mod testbed;
mod traced_pages;
mod trial;
mod trial_results;

use anyhow::Context;
use serde_json::json;

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment};
use crate::progress::Progress;
use crate::report::{Figure, Report};
use runner::TrialRunner;
use scale::FastmapScale;
use schedule::Schedule;
use testbed::{Testbed, Zram};
use trial_results::TrialResults;

pub use runner::CHILD;
pub use trial::serve;

const PARTS: [&str; 7] = ["micro", "bounds", "kv", "bfs", "hit", "contention", "policies"];

/// The arguments of `quire bench fastmap`.
#[derive(Debug, Clone, clap::Args)]
pub struct FastmapArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated [default: all]
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    /// Memory for pages in MiB [default: 128, quick: 32]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    sizes: Vec<u64>,
    #[command(flatten)]
    binary: BinaryArgs,
}

/// The results of a run.
#[derive(Debug)]
pub struct FastmapResults {
    results: TrialResults,
    /// What the fastest device was, or why there was none; nothing when no part asked for one.
    fast_device: Option<String>,
    /// Eviction policies on the traces of this experiment.
    policies: Vec<Figure>,
}

impl Experiment for FastmapArgs {
    type Results = FastmapResults;

    const NAME: &'static str = "fastmap";
    const ABOUT: &'static str = "Pages of files larger than memory: the pool beside mmap, vmcache and direct reads";
    const DRAWS: Option<&'static str> = Some("operations a second over the number of threads");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<FastmapResults> {
        let scale = FastmapScale::new(self);
        let runner = TrialRunner::new(self.binary.path()?)?;
        let dir = self.common.make_dir()?;
        let mut schedule =
            Schedule { scale: &scale, runner: &runner, progress: Progress::begin(), results: TrialResults::default() };
        if scale.wants("hit") {
            schedule.hit(dir.path())?;
        }
        let mut fast_device = None;
        if ["micro", "contention", "bounds"].iter().any(|part| scale.wants(part)) {
            fast_device = Some(on_zram(&mut schedule)?);
        }
        if scale.wants("micro") || scale.wants("bounds") {
            let path = dir.path().join("pages");
            schedule.progress.say("laying out pages on the disk");
            let testbed = Testbed::stamped_file(&path, scale.micro_pages())?;
            schedule.micro(&testbed)?;
            std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        if scale.wants("kv") {
            schedule.key_values(dir.path(), false)?;
            if !scale.quick {
                schedule.key_values(dir.path(), true)?;
            }
        }
        if scale.wants("bfs") {
            schedule.search(dir.path())?;
        }
        let mut policies = Vec::new();
        if scale.wants("policies") {
            schedule.progress.say("replaying traces");
            policies = policies::compare(dir.path(), scale.quick)?;
        }
        Ok(FastmapResults { results: schedule.results, fast_device, policies })
    }

    fn figures(&self, results: &FastmapResults, report: &mut Report) {
        let scale = FastmapScale::new(self);
        report.scale.extend(scale.facts());
        if let Some(device) = &results.fast_device {
            report.scale.insert("device_zram".into(), json!(device));
        }
        figures::add(&results.results, &scale, report);
        report.info.extend(results.policies.iter().cloned());
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let scale = FastmapScale::new(self);
        let overhead = trial::OVERHEAD_BYTES;
        // The limit of a process holds its code and stacks, too, which mapped files can use when they don't. At five times as
        // much, reads were up to a half off what a full run finds.
        let is_too_little = |budget: u64| budget < 6 * overhead;
        let reason = |budget: u64| {
            let [kib, beside] = [budget, overhead].map(|bytes| bytes >> 10);
            format!("a budget of {kib} KiB says little beside the {beside} KiB that a process takes for itself")
        };
        let budgets =
            [("ycsb_", scale.kv_budget_bytes()), ("bfs_", scale.graph_budget_bytes()), ("rand_", scale.budget_bytes())];
        budgets
            .into_iter()
            .filter(|(_, budget)| is_too_little(*budget))
            .map(|(name, budget)| (name, reason(budget)))
            .collect()
    }

    fn plots(&self, results: &FastmapResults) -> Vec<Chart> {
        charts::of(&results.results, FastmapScale::new(self).missing_share())
    }
}

/// The microbenchmark on the fastest device; what the device was, or why there is none.
fn on_zram(schedule: &mut Schedule<'_>) -> anyhow::Result<String> {
    match Zram::claim(schedule.scale.micro_pages()) {
        Ok(zram) => {
            schedule.micro(zram.testbed())?;
            Ok("/dev/zram0, pages of one repeated word".into())
        }
        Err(error) => {
            schedule.progress.say(&format!("no fast device: {error:#}"));
            Ok(format!("none: {error:#}"))
        }
    }
}

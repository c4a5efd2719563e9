//! The part `sweep`: the saves of the program that forks by size of data, by share of updates and by number of programs, as in the figures
//! 5.2 to 5.8 of the MDC paper.
//!
//! Relies on one rate of operations for all points, as the paper's clients have it, found by a save of the largest data without updates.
//! Entries are drawn by a Zipf law. Programs of one size live together and take turns.

mod charts;
mod figures;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::program::{self, SaveMethod, SaverBinary, SaverProcess};
use super::trial::{self, SaveResult};
use super::{ALLOCATOR_BYTES, CheckpointArgs, FIRST_SEED, UpdateLoad, UpdateRate};
use crate::memory;

pub use charts::charts;
pub use figures::add;

/// Exponent of the law, that of YCSB.
const SKEW: f64 = 0.99;
/// Updates for each page of the largest data in the time of a save without updates, where half of the operations are updates.
const UPDATES_PER_PAGE: f64 = 4.0;
/// The share of updates where sizes and numbers of programs are compared.
const USUAL_SHARE: f64 = 0.5;

/// The arguments of the part.
#[derive(Debug, Clone, clap::Args)]
pub struct SweepArgs {
    /// Sizes of data of the part sweep in MiB, comma separated [default: 512,1024,1536,2048, quick: 64,192]
    #[arg(long, value_name = "MIB", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65_536))]
    sizes: Vec<u64>,
    /// Shares of updates among the operations of the part sweep
    #[arg(long, value_name = "SHARE", value_delimiter = ',', default_values_t = [0.25, 0.5, 0.75, 1.0], value_parser = share_of)]
    shares: Vec<f64>,
    /// Programs at once in the part sweep, which share the largest data
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [1, 2], value_parser = clap::value_parser!(u64).range(1..=16))]
    instances: Vec<u64>,
}

fn share_of(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share: write a number from 0 to 1"))
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SweepPoint {
    /// Data of all programs together.
    mib: u64,
    /// Updates among the operations.
    share: f64,
    instances: u64,
}

/// One save at a point, of all programs that save in this way.
#[derive(Debug, Clone)]
struct PointResult {
    point: SweepPoint,
    method: SaveMethod,
    /// Sum of the programs' peaks of extra memory, over their data.
    growth: f64,
    /// Of the slowest program.
    save_s: f64,
    /// Of all programs.
    ops_per_s: f64,
    file_bytes: u64,
    /// Of the first program, where sizes are compared.
    restore_s: Option<f64>,
}

/// All rounds.
#[derive(Debug, Default)]
pub struct SweepResults {
    results: Vec<PointResult>,
    /// Operations that each program was asked for in a second.
    ops_per_s: f64,
}

impl SweepArgs {
    /// All points; those of the same programs follow each other, the largest data first.
    fn points(&self, is_quick: bool) -> Vec<SweepPoint> {
        let defaults: &[u64] = if is_quick { &[64, 192] } else { &[512, 1024, 1536, 2048] };
        let mut sizes = if self.sizes.is_empty() { defaults.to_vec() } else { self.sizes.clone() };
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let largest = sizes[0];
        let shares = self.shares.iter().map(|&share| SweepPoint { mib: largest, share, instances: 1 });
        let by_size = sizes.iter().map(|&mib| SweepPoint { mib, share: USUAL_SHARE, instances: 1 });
        let together =
            self.instances.iter().map(|&instances| SweepPoint { mib: largest, share: USUAL_SHARE, instances });
        let mut points = Vec::new();
        for point in shares.chain(by_size).chain(together) {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }
}

/// The facts of its scale.
pub fn facts(results: &SweepResults) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("sweep_ops_per_s".into(), json!(results.ops_per_s.round()));
    facts
}

/// Measures.
///
/// # Errors
/// When a program can't be compiled or started, or a save fails.
pub fn run(args: &CheckpointArgs, dir: &Path, say: &dyn Fn(&str)) -> anyhow::Result<SweepResults> {
    let place = dir.join("sweep");
    std::fs::create_dir_all(&place)?;
    let sweep = Sweep { args, dir: &place, binaries: program::compile(&place)?, say };
    let points = args.sweep.points(args.common.quick);
    say("warming memory");
    memory::warm((points[0].mib << 20) * 4);
    let mut results = SweepResults::default();
    for group in points.chunk_by(|one, other| (one.mib, one.instances) == (other.mib, other.instances)) {
        sweep.measure(group, &mut results)?;
    }
    Ok(results)
}

struct Sweep<'a> {
    args: &'a CheckpointArgs,
    dir: &'a Path,
    binaries: [SaverBinary; 2],
    say: &'a dyn Fn(&str),
}

impl Sweep<'_> {
    /// Bytes of the data of each program.
    fn bytes_of_each(point: SweepPoint) -> u64 {
        ((point.mib << 20) / point.instances).max(1)
    }

    fn entries(&self, point: SweepPoint) -> u64 {
        (Self::bytes_of_each(point) / (self.args.value_bytes + ALLOCATOR_BYTES)).max(2)
    }

    /// Programs of both kinds, each with a directory of its own.
    fn start(&self, point: SweepPoint) -> anyhow::Result<[Vec<SaverProcess>; 2]> {
        let start = |binary: &SaverBinary| -> anyhow::Result<Vec<SaverProcess>> {
            let one = |number: u64| {
                let dir = self.dir.join(format!("{number}"));
                std::fs::create_dir_all(&dir)?;
                let (entries, seed) = (self.entries(point), FIRST_SEED + number);
                SaverProcess::start(binary.clone(), &dir, entries, self.args.value_bytes, seed)
            };
            (0..point.instances).map(one).collect()
        };
        let [stdio, mdc] = &self.binaries;
        Ok([start(stdio)?, start(mdc)?])
    }

    /// Measures points that have the same programs.
    fn measure(&self, points: &[SweepPoint], results: &mut SweepResults) -> anyhow::Result<()> {
        let first = points[0];
        (self.say)(&format!("{} MiB in {} programs: filling", first.mib, first.instances));
        let mut savers = self.start(first)?;
        for of_method in &mut savers {
            // Not counted: the first save of a program makes its file.
            let still = SweepPoint { share: 0.0, ..first };
            let result = save_together(of_method, still, 0.0)?;
            if results.ops_per_s == 0.0 && result.method == SaveMethod::Stdio {
                let pages = (first.mib << 20) as f64 / quire_sys::mem::PAGE_SIZE as f64;
                results.ops_per_s = UPDATES_PER_PAGE * pages / result.save_s / USUAL_SHARE;
            }
        }
        let rounds = self.args.common.rounds(3, 1);
        for (round, &point) in (0..rounds).flat_map(|round| points.iter().map(move |point| (round, point))) {
            // Who goes first changes, so that neither always finds the other's leftovers.
            let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
            for of_method in order {
                let savers = &mut savers[of_method];
                let (name, share) = (savers[0].method().name(), point.share);
                let what = format!("{} MiB in {} programs, {share} updates", point.mib, point.instances);
                (self.say)(&format!("{what}, round {} of {rounds}: {name}", round + 1));
                let mut result = save_together(savers, point, results.ops_per_s)?;
                if point.share == USUAL_SHARE && point.instances == 1 {
                    result.restore_s = Some(trial::restored_s(&savers[0])?);
                }
                results.results.push(result);
            }
        }
        Ok(())
    }
}

/// Has all programs save at once, each under `ops_per_s`.
fn save_together(savers: &mut [SaverProcess], point: SweepPoint, ops_per_s: f64) -> anyhow::Result<PointResult> {
    let load = UpdateLoad { name: "sweep", pace: UpdateRate::UpdatesPerPage(0.0), skew: SKEW, share: point.share };
    let (method, bytes) = (savers[0].method(), Sweep::bytes_of_each(point));
    let saved: Vec<anyhow::Result<SaveResult>> = std::thread::scope(|scope| {
        let one = |saver| scope.spawn(move || trial::save(saver, load, 0, ops_per_s, bytes));
        let saving: Vec<_> = savers.iter_mut().map(one).collect();
        saving.into_iter().map(|saving| saving.join().expect("a saving thread does not panic")).collect()
    });
    let saved = saved.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(PointResult::of(point, method, &saved))
}

impl PointResult {
    fn of(point: SweepPoint, method: SaveMethod, saved: &[SaveResult]) -> Self {
        let sum = |value: fn(&SaveResult) -> f64| saved.iter().map(value).sum::<f64>();
        Self {
            point,
            method,
            growth: sum(|save| save.growth) / saved.len() as f64,
            save_s: saved.iter().map(|save| save.save_s).fold(0.0, f64::max),
            ops_per_s: sum(|save| save.ops as f64 / save.save_s),
            file_bytes: saved.iter().map(|save| save.file_bytes).sum(),
            restore_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::parse;

    fn points(words: &str) -> Vec<(u64, f64, u64)> {
        let args = parse::<CheckpointArgs>(words);
        args.sweep
            .points(args.common.quick)
            .into_iter()
            .map(|point| (point.mib, point.share, point.instances))
            .collect()
    }

    #[test]
    fn each_point_is_there_once_and_points_of_the_same_programs_follow_each_other() {
        let found = points("");
        let expected = [
            (2048, 0.25, 1),
            (2048, 0.5, 1),
            (2048, 0.75, 1),
            (2048, 1.0, 1),
            (1536, 0.5, 1),
            (1024, 0.5, 1),
            (512, 0.5, 1),
            (2048, 0.5, 2),
        ];
        assert_eq!(found, expected);
        assert_eq!(points("--sizes 16,32 --shares 1 --instances 1"), [(32, 1.0, 1), (32, 0.5, 1), (16, 0.5, 1)]);
        assert_eq!(points("--quick").iter().map(|point| point.0).max(), Some(192));
    }

    #[test]
    fn programs_that_save_at_once_count_together() {
        let save = |growth, save_s, ops| SaveResult {
            method: SaveMethod::Mdc,
            load: "sweep",
            round: 0,
            growth,
            curve: Vec::new(),
            save_s,
            fork_ms: 1.0,
            longest_update_ms: 1.0,
            ops,
            updates: ops / 2,
            file_bytes: 100,
            sum: 1,
        };
        let point = SweepPoint { mib: 8, share: 0.5, instances: 2 };
        let result = PointResult::of(point, SaveMethod::Mdc, &[save(0.25, 2.0, 400), save(0.75, 4.0, 400)]);
        assert_eq!((result.growth, result.save_s, result.ops_per_s, result.file_bytes), (0.5, 4.0, 300.0, 200));
    }
}

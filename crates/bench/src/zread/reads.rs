//! The parts `sizes`, `threads` and `mixed`: `read` against z-READ over sizes, threads, what is touched and what is written (figures 4.2 to 4.4 of
//! the dissertation), as fio's threads make the reads.
//!
//! Relies on all of it being in the page cache, on processes that take turns ([`super::workers`]), and on bounds that the same threads reach.

use std::path::Path;

use super::scale::ReadScale;
use super::spec::{BoundKind, Change, LoadKind, TrialCounts};
use super::workers::{ReadMode, TrialPair, Workers};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// What z-READ must keep of the throughput of `read`, whatever else is written meanwhile.
pub const GOAL_OF_MIXED: f64 = 0.98;

/// Which of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// Over sizes and what is touched.
    Sizes,
    /// Over threads.
    Threads,
    /// Reads with writes between.
    Mixed,
}

impl ReadPart {
    /// Their names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("sizes", Self::Sizes), ("threads", Self::Threads), ("mixed", Self::Mixed)];
}

/// What is measured at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCell {
    /// Of which part it is.
    pub part: ReadPart,
    /// Bytes of a read.
    pub block_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// What they do.
    pub kind: LoadKind,
    /// With which settings of the library.
    pub mode: ReadMode,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct ReadResults {
    /// What was measured.
    pub cells: Vec<(ReadCell, TrialPair)>,
    /// Bounds by one thread: size of a block, what bounds it, and how often a second.
    pub bounds: Vec<(usize, BoundKind, f64)>,
}

const KIB: usize = 1 << 10;
const BOUNDS: [BoundKind; 4] = [BoundKind::Memcpy, BoundKind::EmptyCall, BoundKind::Sum, BoundKind::MapTouch];
/// The share of operations that change something, in percent: from 95:5 to 50:50.
const MIXES: [u32; 5] = [5, 10, 20, 35, 50];

/// A size in a figure's name.
pub fn size_name(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{}m", bytes >> 20) } else { format!("{}k", bytes >> 10) }
}

fn plain_reads(is_random: bool, touched_percent: u32) -> LoadKind {
    LoadKind::Blocks { is_random, touched_percent, change: Change::None, change_percent: 0 }
}

/// What a part measures.
fn cells(part: ReadPart, is_full: bool) -> Vec<ReadCell> {
    let cell = |block_bytes, threads, kind, mode| ReadCell { part, block_bytes, threads, kind, mode };
    let mut cells = Vec::new();
    match part {
        ReadPart::Sizes => {
            let sizes: &[usize] = if is_full { &[4, 16, 64, 128, 256, 1024, 4096] } else { &[128, 1024, 4096] };
            let touched: &[u32] = if is_full { &[0, 25, 50, 100] } else { &[0, 100] };
            let orders: &[bool] = if is_full { &[true, false] } else { &[true] };
            for &is_random in orders {
                for (&size, &touched) in sizes.iter().flat_map(|size| touched.iter().map(move |part| (size, part))) {
                    cells.push(cell(size * KIB, 1, plain_reads(is_random, touched), ReadMode::Zread));
                }
            }
        }
        ReadPart::Threads => {
            let threads: &[usize] = if is_full { &[1, 2, 4, 8, 16, 24] } else { &[1, 24] };
            for mode in [ReadMode::Eager, ReadMode::Zread] {
                let sizes: &[usize] = if mode == ReadMode::Eager { &[4, 16] } else { &[1024] };
                for (&size, &threads) in
                    sizes.iter().flat_map(|size| threads.iter().map(move |threads| (size, threads)))
                {
                    cells.push(cell(size * KIB, threads, plain_reads(true, 0), mode));
                }
            }
        }
        ReadPart::Mixed => {
            let sizes: &[usize] = if is_full { &[4, 16, 64, 128, 1024, 4096] } else { &[16, 128, 1024] };
            let mixes: &[u32] = if is_full { &MIXES } else { &[5, 50] };
            for change in [Change::WriteFile, Change::StoreBuffer] {
                for (&size, &change_percent) in sizes.iter().flat_map(|size| mixes.iter().map(move |mix| (size, mix))) {
                    let kind = LoadKind::Blocks { is_random: true, touched_percent: 0, change, change_percent };
                    cells.push(cell(size * KIB, 1, kind, ReadMode::Zread));
                }
            }
        }
    }
    cells
}

/// Measures the parts that were asked for.
///
/// # Errors
/// A trial fails.
pub fn measure(
    parts: &[ReadPart],
    scale: &ReadScale,
    dir: &Path,
    workers: &mut Workers,
    progress: Progress,
) -> anyhow::Result<ReadResults> {
    let mut results = ReadResults::default();
    for &part in parts {
        for cell in cells(part, scale.is_full) {
            progress.say(&format!("{}: {} by {} threads", part_name(part), size_name(cell.block_bytes), cell.threads));
            let spec = scale.blocks(dir, cell.kind, cell.block_bytes, cell.threads);
            results.cells.push((cell, workers.alternate(&spec, scale.rounds, cell.mode)?));
        }
    }
    if parts.contains(&ReadPart::Sizes) {
        for (block_bytes, kind) in [1024, 4096].into_iter().flat_map(|size| BOUNDS.map(|kind| (size * KIB, kind))) {
            progress.say("bounds");
            let spec = scale.blocks(dir, LoadKind::Bound(kind), block_bytes, 1);
            let rounds: Vec<f64> = (0..scale.rounds)
                .map(|_| workers.of(ReadMode::Read).run(&spec).map(|counts| counts.per_s()))
                .collect::<anyhow::Result<_>>()?;
            results.bounds.push((block_bytes, kind, Spread::or_nan(&rounds).median));
        }
    }
    Ok(results)
}

fn part_name(part: ReadPart) -> &'static str {
    ReadPart::NAMES.iter().find(|(_, named)| *named == part).map_or("", |(name, _)| name)
}

impl ReadResults {
    /// What was measured of `size` bytes by `threads` threads that do `kind`.
    pub fn pair(&self, part: ReadPart, block_bytes: usize, threads: usize, kind: LoadKind) -> Option<&TrialPair> {
        let is_it = |cell: &ReadCell| {
            (cell.part, cell.block_bytes, cell.threads, cell.kind) == (part, block_bytes, threads, kind)
        };
        self.cells.iter().find(|(cell, _)| is_it(cell)).map(|(_, pair)| pair)
    }

    pub(super) fn bound(&self, block_bytes: usize, kind: BoundKind) -> f64 {
        let found = self.bounds.iter().find(|(size, bound, _)| (*size, *bound) == (block_bytes, kind));
        found.map_or(f64::NAN, |(_, _, per_s)| *per_s)
    }
}

fn ratio_figure(name: String, pair: &TrialPair) -> Figure {
    let (read, zread) = pair.mib_per_s();
    let spread = pair.gain();
    Figure::new(name, spread.median, "x", BetterDirection::Higher)
        .peer("read_mib_per_s", read)
        .peer("zread_mib_per_s", zread)
        .spread(spread)
}

/// Adds the figures with goals to the results, and the others for information.
pub fn add_figures(results: &ReadResults, parts: &[ReadPart], report: &mut Report) {
    if parts.contains(&ReadPart::Threads)
        && let Some(pair) = results.pair(ReadPart::Threads, 16 * KIB, 24, plain_reads(true, 0))
    {
        let note = "16 KiB, 24 threads, untouched; remapped from 4 KiB on and without the loss model, which would copy";
        report.results.push(ratio_figure("zread_16k_t24".into(), pair).note(note));
    }
    if parts.contains(&ReadPart::Sizes) {
        add_goals_of_sizes(results, report);
    }
    if parts.contains(&ReadPart::Mixed) {
        add_worst_mix(results, report);
    }
    for (cell, pair) in &results.cells {
        report.info.push(ratio_figure(cell_name(cell), pair));
    }
    for (block_bytes, kind, per_s) in &results.bounds {
        let (name, ns) = (format!("bound_{}_{}", bound_name(*kind), size_name(*block_bytes)), 1e9 / per_s);
        report.info.push(Figure::new(name, ns, "ns", BetterDirection::Lower));
    }
}

/// A goal of reads by one thread in random order.
pub(super) struct SizeGoal {
    name: &'static str,
    /// The size of a read.
    pub block_bytes: usize,
    /// The share that is touched.
    pub touched_percent: u32,
    /// Times the throughput of `read`.
    pub goal: f64,
    /// What bounds it.
    pub bound: BoundKind,
    bound_name: &'static str,
}

const fn goal_of_touched(name: &'static str, block_bytes: usize, goal: f64) -> SizeGoal {
    let bound_name = "plain memory, summed in the same order";
    SizeGoal { name, block_bytes, touched_percent: 100, goal, bound: BoundKind::Sum, bound_name }
}

/// The goals among the reads of all sizes.
pub(super) const GOALS_OF_SIZES: [SizeGoal; 3] = [
    SizeGoal {
        name: "zread_1m_untouched",
        block_bytes: 1024 * KIB,
        touched_percent: 0,
        goal: 10.0,
        bound: BoundKind::EmptyCall,
        bound_name: "a pread of no bytes",
    },
    goal_of_touched("zread_1m_touched", 1024 * KIB, 1.3),
    goal_of_touched("zread_4m_touched", 4096 * KIB, 1.5),
];

fn add_goals_of_sizes(results: &ReadResults, report: &mut Report) {
    let per_s = |pair: &TrialPair| Spread::or_nan(&pair.read.iter().map(TrialCounts::per_s).collect::<Vec<_>>()).median;
    for SizeGoal { name, block_bytes, touched_percent, goal, bound, bound_name } in GOALS_OF_SIZES {
        let load = plain_reads(true, touched_percent);
        let Some(pair) = results.pair(ReadPart::Sizes, block_bytes, 1, load) else { continue };
        let bound_per_s = results.bound(block_bytes, bound);
        let figure = ratio_figure(name.into(), pair).goal(goal).bound(bound_name, bound_per_s / per_s(pair));
        report.results.push(figure.note("one thread, random order, all in memory"));
    }
}

fn add_worst_mix(results: &ReadResults, report: &mut Report) {
    let mixes = results.cells.iter().filter(|(cell, _)| cell.part == ReadPart::Mixed);
    let worst = mixes.min_by(|left, right| left.1.gain().median.total_cmp(&right.1.gain().median));
    if let Some((cell, pair)) = worst {
        let note =
            format!("{}; the least of all sizes and mixes, of which noise alone makes one the least", cell_name(cell));
        report.results.push(ratio_figure("mixed_worst_case".into(), pair).goal(GOAL_OF_MIXED).note(note));
    }
}

fn bound_name(kind: BoundKind) -> &'static str {
    match kind {
        BoundKind::Memcpy => "memcpy",
        BoundKind::EmptyCall => "empty_call",
        BoundKind::Sum => "sum",
        BoundKind::MapTouch => "mmap_touch",
    }
}

fn cell_name(cell: &ReadCell) -> String {
    let LoadKind::Blocks { is_random, touched_percent, change, change_percent } = cell.kind else {
        return String::new();
    };
    let size = size_name(cell.block_bytes);
    match cell.part {
        ReadPart::Sizes => {
            let order = if is_random { "random" } else { "sequential" };
            format!("sizes_{size}_{order}_touched_{touched_percent}")
        }
        ReadPart::Threads => format!("threads_{size}_t{}", cell.threads),
        ReadPart::Mixed => {
            let what = if change == Change::WriteFile { "written" } else { "stored" };
            format!("mixed_{size}_{}_{change_percent}_{what}", 100 - change_percent)
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Results of all parts in which the library reads `gain` times as much.
    pub fn results_of(gain: u64) -> ReadResults {
        let counts = |operations| vec![TrialCounts { operations, bytes: operations << 20, seconds: 1.0 }; 3];
        let pair = TrialPair { read: counts(100), zread: counts(100 * gain) };
        let all = ReadPart::NAMES.iter().flat_map(|(_, part)| cells(*part, true));
        let bounds = BOUNDS.iter().flat_map(|&kind| [(1024 * KIB, kind, 300.0), (4096 * KIB, kind, 300.0)]).collect();
        ReadResults { cells: all.map(|cell| (cell, pair.clone())).collect(), bounds }
    }

    #[test]
    fn figures_with_goals_are_of_the_cells_that_they_name_and_small_runs_have_these_cells() {
        let parts = ReadPart::NAMES.map(|(_, part)| part);
        let mut report = crate::experiment::tests::report::<super::super::ZreadArgs>();
        let mut results = results_of(11);
        let worst = results.cells.iter_mut().find(|(cell, _)| cell_name(cell) == "mixed_16k_80_20_stored").unwrap();
        worst.1.zread.clone_from(&worst.1.read);
        add_figures(&results, &parts, &mut report);
        let goals: Vec<_> =
            report.results.iter().map(|figure| (figure.name.as_str(), figure.value, figure.goal)).collect();
        assert_eq!(
            goals,
            [
                ("zread_16k_t24", 11.0, None),
                ("zread_1m_untouched", 11.0, Some(10.0)),
                ("zread_1m_touched", 11.0, Some(1.3)),
                ("zread_4m_touched", 11.0, Some(1.5)),
                ("mixed_worst_case", 1.0, Some(0.98)),
            ]
        );
        assert!(report.results[4].note.contains("mixed_16k_80_20_stored"));
        assert_eq!(report.results[1].bound.as_ref().map(|bound| bound.value), Some(3.0));
        let small: Vec<String> =
            parts.iter().flat_map(|&part| cells(part, false)).map(|cell| cell_name(&cell)).collect();
        let full: Vec<String> = parts.iter().flat_map(|&part| cells(part, true)).map(|cell| cell_name(&cell)).collect();
        assert!(small.iter().all(|name| full.contains(name)), "{small:?}");
        for needed in ["threads_16k_t24", "sizes_1m_random_touched_0", "sizes_4m_random_touched_100"] {
            assert!(small.contains(&needed.to_owned()));
        }
        let mut names = full.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), full.len(), "no two have the same name");
    }
}

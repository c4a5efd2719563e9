//! The parts `video` and `web` (filebench's workloads, figure 4.6 of the dissertation), and `neighbours`: what a program that waits for
//! memory loses beside one that reads (figure 4.5).
//!
//! Relies on [`super::file_sets`] and [`super::neighbour_loads`] for what the threads do. Neighbour and reader have a processor each.

use std::path::Path;
use std::time::Instant;

use quire_sys::thread::CpuSet;

use super::reads::size_name;
use super::scale::{ReadScale, make_files};
use super::spec::{Change, LoadKind, TrialSpec};
use super::workers::{ReadMode, TrialPair, WorkerProcess, Workers};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

const KIB: usize = 1 << 10;
/// Threads of both servers: the video server has one more, which replaces files.
const SERVER_THREADS: usize = 8;
/// Reads of the video server: filebench's own size has the goal.
const VIDEO_READS: [usize; 4] = [128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];
pub(super) const VIDEO_GOAL_READ: usize = 256 * KIB;
/// Times the throughput of `read` there.
pub(super) const VIDEO_GOAL: f64 = 4.0;
/// Sizes of the web server's files, of which the last has the goal; each is read by one call of a mebibyte.
const WEB_FILES: [usize; 4] = [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB];
pub(super) const WEB_GOAL_FILE: usize = 128 * KIB;
/// Times the throughput of `read` there.
pub(super) const WEB_GOAL: f64 = 1.5;
const WEB_READ: usize = 1 << 20;
/// What the reader beside the neighbours reads at a time.
const NEIGHBOUR_READ: usize = 1 << 20;
/// A server's trial is so many times as long as one of blocks.
const SERVER_FACTOR: u64 = 5;
/// How long the reader goes on after the neighbour has ended, at least.
const TAIL_MS: u64 = 200;

/// What the two servers gave, by size.
#[derive(Clone, Debug, Default)]
pub struct ServerResults {
    /// The video server, by the size of a read.
    pub video: Vec<(usize, TrialPair)>,
    /// The web server, by the size of a file.
    pub web: Vec<(usize, TrialPair)>,
}

/// Steps a second of a neighbour, one value a round.
#[derive(Clone, Debug, Default)]
pub struct NeighbourRates {
    /// By itself.
    pub alone: Vec<f64>,
    /// Beside a program that reads by `read`.
    pub read: Vec<f64>,
    /// Beside one with the library.
    pub zread: Vec<f64>,
}

/// What both neighbours did; empty where there is only one processor.
#[derive(Clone, Debug, Default)]
pub struct NeighbourResults {
    /// By name.
    pub neighbours: Vec<(&'static str, NeighbourRates)>,
}

/// Measures the video server.
///
/// # Errors
/// A trial fails, or files can't be written.
pub fn measure_video(
    scale: &ReadScale,
    parent: &Path,
    workers: &mut Workers,
    progress: Progress,
) -> anyhow::Result<Vec<(usize, TrialPair)>> {
    let (files, file_bytes) = scale.videos;
    let dir = make_files(parent, "videos", files, file_bytes)?;
    let sizes = VIDEO_READS.iter().filter(|&&size| scale.is_full || size == VIDEO_GOAL_READ);
    let measured = sizes.map(|&block_bytes| {
        progress.say(&format!("video server, reads of {}", size_name(block_bytes)));
        let mut spec = scale.blocks(&dir, LoadKind::Videos, block_bytes, SERVER_THREADS + 1);
        (spec.files, spec.file_bytes, spec.run_ms) = (files, file_bytes, spec.run_ms * SERVER_FACTOR);
        Ok((block_bytes, by_bytes(workers.alternate(&spec, scale.rounds, ReadMode::Zread)?)))
    });
    let measured = measured.collect();
    std::fs::remove_dir_all(dir)?;
    measured
}

/// Whole videos are few, so it is their bytes that count.
fn by_bytes(mut pair: TrialPair) -> TrialPair {
    pair.read.iter_mut().chain(&mut pair.zread).for_each(|counts| counts.operations = counts.bytes);
    pair
}

/// Measures the web server.
///
/// # Errors
/// As [`measure_video`].
pub fn measure_web(
    scale: &ReadScale,
    parent: &Path,
    workers: &mut Workers,
    progress: Progress,
) -> anyhow::Result<Vec<(usize, TrialPair)>> {
    let sizes = WEB_FILES.iter().filter(|&&size| scale.is_full || size == WEB_GOAL_FILE);
    let measured = sizes.map(|&file_bytes| {
        progress.say(&format!("web server, files of {}", size_name(file_bytes)));
        let dir = make_files(parent, "pages", scale.pages, file_bytes as u64)?;
        let mut spec = scale.blocks(&dir, LoadKind::Web, WEB_READ, SERVER_THREADS);
        (spec.files, spec.file_bytes) = (scale.pages, file_bytes as u64);
        spec.run_ms *= SERVER_FACTOR;
        let pair = workers.alternate(&spec, scale.rounds, ReadMode::Zread);
        std::fs::remove_dir_all(dir)?;
        Ok((file_bytes, pair?))
    });
    measured.collect()
}

/// Two processors that this process may use.
fn two_processors() -> Option<(usize, usize)> {
    let allowed = CpuSet::allowed()?;
    let mut processors = (0..1024).filter(|&processor| allowed.has(processor));
    Some((processors.next()?, processors.next()?))
}

/// Measures neighbours.
///
/// # Errors
/// A trial fails.
pub fn measure_neighbours(
    scale: &ReadScale,
    program: &Path,
    dir: &Path,
    workers: &mut Workers,
    progress: Progress,
) -> anyhow::Result<NeighbourResults> {
    let mut results = NeighbourResults::default();
    let Some((first, second)) = two_processors() else { return Ok(results) };
    let mut neighbour = WorkerProcess::start(program, dir, ReadMode::Read)?;
    let reads = LoadKind::Blocks { is_random: true, touched_percent: 0, change: Change::None, change_percent: 0 };
    for (name, kind) in [("chase", LoadKind::Chase), ("stream", LoadKind::Stream)] {
        let mut own = scale.blocks(dir, kind, NEIGHBOUR_READ, 1);
        (own.processor, own.run_ms) = (Some(first), own.run_ms * SERVER_FACTOR);
        let mut beside = scale.blocks(dir, reads, NEIGHBOUR_READ, 1);
        beside.processor = Some(second);
        let mut rates = NeighbourRates::default();
        for round in 0..scale.rounds {
            progress.say(&format!("neighbour {name}, round {} of {}", round + 1, scale.rounds));
            let begun = Instant::now();
            rates.alone.push(neighbour.run(&own)?.per_s());
            // The reader reads for as long as that, and then some: the neighbour makes its working set before it begins.
            beside.run_ms = begun.elapsed().as_millis() as u64 * 3 / 2 + TAIL_MS;
            for mode in [ReadMode::Read, ReadMode::Zread] {
                let rate = run_beside(&mut neighbour, &own, workers.of(mode), &beside)?;
                if mode == ReadMode::Read { &mut rates.read } else { &mut rates.zread }.push(rate);
            }
        }
        results.neighbours.push((name, rates));
    }
    Ok(results)
}

/// Steps a second of the neighbour while the reader reads.
fn run_beside(
    neighbour: &mut WorkerProcess,
    own: &TrialSpec,
    reader: &mut WorkerProcess,
    reads: &TrialSpec,
) -> anyhow::Result<f64> {
    reader.begin(reads)?;
    let counts = neighbour.run(own);
    reader.counts()?;
    Ok(counts?.per_s())
}

fn pair_figure(name: String, pair: &TrialPair) -> Figure {
    let (read, zread) = pair.mib_per_s();
    let spread = pair.gain();
    Figure::new(name, spread.median, "x", BetterDirection::Higher)
        .peer("read_mib_per_s", read)
        .peer("zread_mib_per_s", zread)
        .spread(spread)
}

/// Adds the figures of both servers.
pub fn add_server_figures(results: &ServerResults, report: &mut Report) {
    for (block_bytes, pair) in &results.video {
        let figure = pair_figure(format!("videoserver_reads_of_{}", size_name(*block_bytes)), pair);
        if *block_bytes == VIDEO_GOAL_READ {
            let note =
                "filebench's videoserver made anew: 8 readers of whole files by 256 KiB, one that replaces others";
            report.results.push(Figure { name: "videoserver_gain".into(), ..figure }.goal(VIDEO_GOAL).note(note));
        } else {
            report.info.push(figure);
        }
    }
    for (file_bytes, pair) in &results.web {
        let figure = pair_figure(format!("webserver_files_of_{}", size_name(*file_bytes)), pair);
        if *file_bytes == WEB_GOAL_FILE {
            let note = "filebench's webserver made anew: 8 threads open, read and close files of 128 KiB";
            report.results.push(Figure { name: "webserver_gain".into(), ..figure }.goal(WEB_GOAL).note(note));
        } else {
            report.info.push(figure);
        }
    }
}

/// The goal of z-READ beside neighbours: half of what `read` takes beyond nothing.
pub(super) fn neighbours_goal(read: f64) -> f64 {
    1.0 + (read - 1.0).max(0.0) / 2.0
}

/// Adds the figures of the neighbours: geometric means of both, and each for information.
pub fn add_neighbour_figures(results: &NeighbourResults, report: &mut Report) {
    let slowdowns = |beside: fn(&NeighbourRates) -> &Vec<f64>| {
        let rounds = results.neighbours.iter().map(|(_, rates)| rates.alone.len()).min().unwrap_or(0);
        let mean = |round: usize| {
            let logs = results.neighbours.iter().map(|(_, rates)| (rates.alone[round] / beside(rates)[round]).ln());
            (logs.sum::<f64>() / results.neighbours.len() as f64).exp()
        };
        Spread::or_nan(&(0..rounds).map(mean).collect::<Vec<_>>())
    };
    let (read, zread) = (slowdowns(|rates| &rates.read), slowdowns(|rates| &rates.zread));
    let figure = |name: &str, spread: Spread| {
        let note = "a chase of pointers and a stream, geometric mean, beside 1 MiB reads on the other processor";
        Figure::new(name, spread.median, "x", BetterDirection::Lower).spread(spread).note(note)
    };
    report.results.push(figure("neighbour_slowdown_read", read));
    report.results.push(figure("neighbour_slowdown_zread", zread).goal(neighbours_goal(read.median)));
    for (name, rates) in &results.neighbours {
        for (beside, values) in [("read", &rates.read), ("zread", &rates.zread)] {
            let spread = Spread::of_ratios(&rates.alone, values);
            let name = format!("neighbour_{name}_beside_{beside}");
            report.info.push(Figure::new(name, spread.median, "x", BetterDirection::Lower).spread(spread));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::spec::TrialCounts;
    use super::*;

    /// Results in which the library reads five times as much.
    pub fn results() -> ServerResults {
        let counts = |bytes| vec![TrialCounts { operations: bytes, bytes, seconds: 1.0 }; 3];
        let pair = TrialPair { read: counts(100 << 20), zread: counts(500 << 20) };
        ServerResults {
            video: VIDEO_READS.map(|size| (size, pair.clone())).into(),
            web: WEB_FILES.map(|size| (size, pair.clone())).into(),
        }
    }

    #[test]
    fn servers_have_goals_at_the_sizes_they_are_told_for() {
        let mut report = crate::experiment::tests::report::<super::super::ZreadArgs>();
        add_server_figures(&results(), &mut report);
        let goals: Vec<_> =
            report.results.iter().map(|figure| (figure.name.as_str(), figure.value, figure.goal)).collect();
        assert_eq!(goals, [("videoserver_gain", 5.0, Some(4.0)), ("webserver_gain", 5.0, Some(1.5))]);
        assert_eq!(report.info.len(), 6);
    }

    #[test]
    fn a_neighbour_may_lose_half_of_what_it_loses_beside_read() {
        let rates = |read: f64, zread: f64| NeighbourRates {
            alone: vec![100.0; 3],
            read: vec![100.0 / read; 3],
            zread: vec![100.0 / zread; 3],
        };
        let results = NeighbourResults { neighbours: vec![("chase", rates(2.0, 1.0)), ("stream", rates(0.5, 1.44))] };
        let mut report = crate::experiment::tests::report::<super::super::ZreadArgs>();
        add_neighbour_figures(&results, &mut report);
        assert_eq!((report.results[0].value, report.results[1].value), (1.0, 1.2));
        assert_eq!((report.results[1].goal, report.results[1].reached()), (Some(1.0), Some(false)));
        assert_eq!(report.info.len(), 4);
        let mut nothing = crate::experiment::tests::report::<super::super::ZreadArgs>();
        add_neighbour_figures(&NeighbourResults::default(), &mut nothing);
        assert!(nothing.results.iter().all(|figure| figure.value.is_nan()));
    }

    #[test]
    fn videos_count_by_their_bytes() {
        let counts = TrialCounts { operations: 1, bytes: 7, seconds: 1.0 };
        assert_eq!(by_bytes(TrialPair { read: vec![counts], zread: vec![] }).read[0].operations, 7);
    }
}

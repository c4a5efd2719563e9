//! The experiment `clone`: a scan of all data in a clone while the original takes writes, beside the same scan in the original.
//!
//! Relies on an open loop of writes at a fixed rate (see [`crate::load::open_loop`]): its 99.9th percentile without a scan, during a
//! scan of a clone, and during a scan of the original come from the same round. The scan is the same for both: one connection
//! that reads every key, in batches, again and again until the time is over.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use quire_sys::thread;
use serde_json::json;

use crate::experiment::{BinaryArgs, CommonArgs, Experiment};
use crate::info::ServerInfo;
use crate::load::closed_loop::{self, micros};
use crate::load::open_loop::{self, OpenLoop};
use crate::memory;
use crate::process::{Program, Server, ServerKind, background_save, empty_start_ms};
use crate::progress::Progress;
use crate::report::{BetterDirection, Figure, Report};
use crate::requests;
use crate::resp::Connection;
use crate::stats::{self, Spread};

/// Connections of the writes.
const CONNECTIONS: u32 = 8;
/// Keys that the scan asks for at once.
const BATCH: u64 = 64;
/// What the load needs to come to its rate, and is not counted.
const WARM_UP: Duration = Duration::from_millis(300);

/// The arguments of `quire bench clone`.
#[derive(Debug, Clone, clap::Args)]
pub struct CloneArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Keys in the data set [default: 3000000, quick: 100000]
    #[arg(long)]
    keys: Option<u64>,
    /// Bytes in each value
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=524_288))]
    value_bytes: u64,
    /// Writes a second that the original takes meanwhile
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..))]
    rate: u64,
    /// Seconds of each phase at least; a scan is always whole [default: 15, quick: 2]
    #[arg(long)]
    seconds: Option<u64>,
    /// By how many nice values the clone runs behind other programs (0..19), and in every phase the client that scans does
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=19))]
    clone_nice: u8,
    #[command(flatten)]
    binary: BinaryArgs,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_800)]
    port: u16,
}

/// Where the scan runs in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    Nowhere,
    InClone,
    InOriginal,
}

const PHASES: [Scan; 3] = [Scan::Nowhere, Scan::InClone, Scan::InOriginal];

/// What a clone held and how soon it served.
#[derive(Debug, Clone, Copy)]
struct CloneResult {
    first_read_ms: f64,
    private_bytes: f64,
    shared_bytes: f64,
    data_age_s: f64,
}

/// A phase of a round.
#[derive(Debug, Clone, Copy)]
struct PhaseResult {
    p999_us: f64,
    /// Of one whole scan; 0 without one.
    scan_s: f64,
}

/// All rounds.
#[derive(Debug, Default)]
pub struct CloneResults {
    rounds: Vec<[PhaseResult; 3]>,
    clones: Vec<CloneResult>,
    /// A start without data, up to the first answer.
    empty_start_ms: Vec<f64>,
}

impl CloneArgs {
    fn keys(&self) -> u64 {
        self.keys.unwrap_or(self.common.pick(3_000_000, 100_000)).max(1000)
    }

    fn phase(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(self.common.pick(15, 2)).max(1))
    }
}

impl Experiment for CloneArgs {
    type Results = CloneResults;

    const NAME: &'static str = "clone";
    const ABOUT: &'static str =
        "Quire's clones: a scan of all data there, beside the same scan in the server that takes the writes";

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<CloneResults> {
        let progress = Progress::begin();
        let dir = self.common.make_dir()?;
        let program = Program { name: "quire".into(), kind: ServerKind::Quire, binary: self.binary.path()? };
        progress.say("warming memory");
        memory::warm(self.keys() * (self.value_bytes + 16) * 2);
        let mut original = Server::start(&program, self.port, &dir.path().join("original"))?;
        let mut control = original.ready()?;
        progress.say("filling the original");
        closed_loop::fill(self.port, 0..self.keys(), self.value_bytes as usize, 2)?;
        let mut results = CloneResults::default();
        let rounds = self.common.rounds(3, 1);
        for round in 0..rounds {
            let mut phases = [PhaseResult { p999_us: 0.0, scan_s: 0.0 }; 3];
            for (phase, result) in PHASES.into_iter().zip(&mut phases) {
                progress.say(&format!("round {} of {rounds}: {}", round + 1, phase.described()));
                *result = match phase {
                    Scan::Nowhere => under_writes(self, None)?,
                    Scan::InOriginal => under_writes(self, Some(self.port))?,
                    Scan::InClone => {
                        background_save(&mut control, Duration::from_millis(10))?;
                        let empty = dir.path().join("empty");
                        results.empty_start_ms.push(empty_start_ms(&program, self.port + 1, &empty)?);
                        let place = dir.path().join(format!("clone-{round}"));
                        let (result, clone) = in_clone(self, &program, &original.saved_file()?, &place)?;
                        results.clones.push(clone);
                        result
                    }
                };
            }
            results.rounds.push(phases);
        }
        progress.clear();
        Ok(results)
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason =
            "its scans are too short, and its data too small, for a percentile of the original to be told from chance";
        vec![("clone_original_p999_ratio", reason.into()), ("scan_in_original_p999_ratio", reason.into())]
    }

    fn figures(&self, results: &CloneResults, report: &mut Report) {
        report.scale.insert("keys".into(), json!(self.keys()));
        report.scale.insert("value_bytes".into(), json!(self.value_bytes));
        report.scale.insert("writes_per_s".into(), json!(self.rate));
        report.scale.insert("clone_nice".into(), json!(self.clone_nice));
        add_figures(results, report);
    }
}

impl Scan {
    fn described(self) -> &'static str {
        match self {
            Self::Nowhere => "writes alone",
            Self::InClone => "writes, and a scan of a clone",
            Self::InOriginal => "writes, and a scan of the original",
        }
    }
}

/// Starts a clone of the image, and scans it while the original takes writes.
fn in_clone(
    args: &CloneArgs,
    program: &Program,
    image: &Path,
    dir: &Path,
) -> anyhow::Result<(PhaseResult, CloneResult)> {
    let image = image.display().to_string();
    let port = args.port + 1;
    let nice = args.clone_nice.to_string();
    let words = ["--clone", &image, "--read-only", "--clone-nice", &nice];
    let mut clone = Server::start_told(program, port, dir, &[], &words)?;
    let mut control = clone.ready()?;
    let mut request = Vec::new();
    requests::push_get(&mut request, args.keys() / 2);
    control.send(&request)?;
    control.skip(1)?;
    let first_read_ms = clone.started().elapsed().as_secs_f64() * 1000.0;
    let result = under_writes(args, Some(port))?;
    let info = ServerInfo::ask(&mut control, "persistence")?;
    let found = CloneResult {
        first_read_ms,
        private_bytes: info.number("clone_private_bytes")?,
        shared_bytes: info.number("clone_shared_bytes")?,
        data_age_s: info.number("clone_data_age_seconds")?,
    };
    clone.kill();
    Ok((result, found))
}

/// The original's latencies under its writes, while the server at `scanned` is scanned.
fn under_writes(args: &CloneArgs, scanned: Option<u16>) -> anyhow::Result<PhaseResult> {
    let plan = OpenLoop {
        port: args.port,
        keys: args.keys(),
        value_bytes: args.value_bytes as usize,
        rate: args.rate,
        connections: CONNECTIONS,
        only_sets: true,
    };
    let (origin, stop) = (Instant::now(), AtomicBool::new(false));
    let (samples, scanning, scan_s) = std::thread::scope(|scope| {
        let load = scope.spawn(|| open_loop::run(plan, origin, &stop));
        std::thread::sleep(WARM_UP);
        let began = Instant::now();
        let scans = match scanned {
            // In a thread of its own, whose priority goes with it.
            Some(port) => scope.spawn(move || scans(args, port)).join().expect("the scan does not panic"),
            None => {
                std::thread::sleep(args.phase());
                Ok(0.0)
            }
        };
        let scanning = micros(began - origin)..micros(origin.elapsed());
        stop.store(true, Ordering::Relaxed);
        let samples = load.join().expect("the load does not panic");
        anyhow::Ok((samples?, scanning, scans?))
    })?;
    let mut histogram = stats::latency_histogram();
    for (_, latency_us) in samples.into_iter().filter(|(due_us, _)| scanning.contains(due_us)) {
        histogram.saturating_record(u64::from(latency_us).max(1));
    }
    let Some(p999_us) = stats::p999_us(&histogram) else {
        bail!("too few writes for a 99.9th percentile; raise --rate or --seconds")
    };
    Ok(PhaseResult { p999_us, scan_s })
}

/// Reads every key again and again, as long as a phase is at least; returns the seconds of one scan.
fn scans(args: &CloneArgs, port: u16) -> anyhow::Result<f64> {
    let (own, keys, at_least) = (thread::current(), args.keys(), args.phase());
    if let Some(nice) = thread::nice_of(own).filter(|_| args.clone_nice > 0) {
        // Where it is refused, the scan competes with the original, which the figure then shows.
        thread::set_nice(own, nice + i32::from(args.clone_nice));
    }
    let mut connection = Connection::open(port)?;
    let mut request = Vec::new();
    let (began, mut done) = (Instant::now(), 0);
    while done == 0 || began.elapsed() < at_least {
        for first in (0..keys).step_by(BATCH as usize) {
            let batch = first..(first + BATCH).min(keys);
            request.clear();
            batch.clone().for_each(|key| requests::push_get(&mut request, key));
            connection.send(&request)?;
            if connection.skip((batch.end - batch.start) as usize)? > 0 {
                bail!("a read of the scan failed");
            }
        }
        done += 1;
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(done))
}

fn add_figures(CloneResults { rounds, clones, empty_start_ms }: &CloneResults, report: &mut Report) {
    let spread = |values: Vec<f64>| Spread::of(&values).expect("there is a round");
    let of_clones = |pick: fn(&CloneResult) -> f64| spread(clones.iter().map(pick).collect());
    let of_phase =
        |phase: usize, pick: fn(&PhaseResult) -> f64| spread(rounds.iter().map(|round| pick(&round[phase])).collect());
    let ratio =
        |phase: usize| spread(rounds.iter().map(|round| round[phase].p999_us / round[0].p999_us.max(1.0)).collect());
    let first = of_clones(|clone| clone.first_read_ms);
    report.results.push(
        Figure::new("clone_first_read_ms", first.median, "ms", BetterDirection::Lower)
            .goal(100.0)
            .spread(first)
            .bound("a start without data", spread(empty_start_ms.clone()).median)
            .note("from starting the process, right after the save; saves write past the page cache, so the image is read from the disk"),
    );
    let p999 = |phase| of_phase(phase, |result| result.p999_us);
    let (in_clone, in_original) = (ratio(1), ratio(2));
    report.results.push(
        Figure::new("clone_original_p999_ratio", in_clone.median, "x", BetterDirection::Lower)
            .goal(1.2)
            .spread(in_clone)
            .bound("the same without a scan", 1.0)
            .peer("scan in the original", in_original.median)
            .note("99.9th percentile of the original's writes while all of a clone is read, over the same without a scan; latencies count \
                   from when writes were due; clone and scanning client run behind other programs (`clone_nice`)"),
    );
    report.info.push(
        Figure::new("scan_in_original_p999_ratio", in_original.median, "x", BetterDirection::Lower).spread(in_original),
    );
    for (name, phase) in [("p999_undisturbed_us", 0), ("p999_scan_in_clone_us", 1), ("p999_scan_in_original_us", 2)] {
        let found = p999(phase);
        report.info.push(Figure::new(name, found.median, "us", BetterDirection::Lower).spread(found));
    }
    for (name, phase) in [("scan_of_clone_s", 1), ("scan_of_original_s", 2)] {
        let found = of_phase(phase, |result| result.scan_s);
        report.info.push(Figure::new(name, found.median, "s", BetterDirection::Lower).spread(found));
    }
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    report.info.push(Figure::new(
        "clone_private_mib",
        mib(of_clones(|clone| clone.private_bytes).median),
        "MiB",
        BetterDirection::Lower,
    ));
    report.info.push(Figure::new(
        "clone_shared_mib",
        mib(of_clones(|clone| clone.shared_bytes).median),
        "MiB",
        BetterDirection::Higher,
    ));
    report.info.push(Figure::new(
        "clone_data_age_s",
        of_clones(|clone| clone.data_age_s).median,
        "s",
        BetterDirection::Lower,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let phase = |p999_us| PhaseResult { p999_us, scan_s: 1.0 };
        let clone = CloneResult { first_read_ms: 30.0, private_bytes: 1e6, shared_bytes: 3e9, data_age_s: 2.0 };
        let rounds = vec![[100.0, 110.0, 300.0].map(phase), [400.0, 440.0, 1200.0].map(phase)];
        let mut report = Report::new("clone", Map::new());
        add_figures(&CloneResults { rounds, clones: vec![clone; 2], empty_start_ms: vec![20.0] }, &mut report);
        let values: Vec<(&str, f64, Option<bool>)> =
            report.results.iter().map(|figure| (figure.name.as_str(), figure.value, figure.reached())).collect();
        assert_eq!(values, [("clone_first_read_ms", 30.0, Some(true)), ("clone_original_p999_ratio", 1.1, Some(true))]);
    }
}

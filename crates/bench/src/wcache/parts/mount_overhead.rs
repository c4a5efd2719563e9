//! Part `mount`: the same synced writes in a plain directory and through the mount, where the slow device *is* the fast
//! one.
//!
//! Relies on directory, log and plain directory being on one disk without limits: what the mount costs then is all its
//! own. Turns are short and alternate.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quire_sys::ask::TerminationSignal;

use crate::disk;
use crate::report::{BetterDirection, Figure};
use crate::stats::Spread;
use crate::wcache::cache_policy::CachePolicy;
use crate::wcache::experiment_context::ExperimentContext;
use crate::wcache::pg::pgbench;
use crate::wcache::testbed::command::run;
use crate::wcache::testbed::daemon::{DaemonOptions, MountDaemon};
use crate::wcache::trials::database::DatabaseTemplate;

/// The figure's name and goal.
pub const NAME: &str = "mount_overhead";
/// At most this times the plain directory's time.
pub const GOAL: f64 = 1.3;
/// Bytes of one write: a page of a database's log.
const BLOCK_BYTES: usize = 8192;
/// Bytes of one line of a log that grows.
const LINE_BYTES: usize = 512;
/// Bytes of the file that is overwritten: a segment of PostgreSQL's log.
const SEGMENT_BYTES: u64 = 16 << 20;
const CAPACITY_MIB: u64 = 256;
/// No client waits for this program; here its writes count as awaited.
const RULES: &str = "critical comm=quire\n";

/// How a program writes durably.
#[derive(Clone, Copy, Debug)]
enum DurableWrite {
    /// Overwrites blocks of a file that is there, each followed by `fdatasync`.
    Overwrite,
    /// Appends lines to a file that grows, each followed by `fdatasync`.
    Append,
    /// Makes small files: write, `fsync`, rename.
    Replace,
}

impl DurableWrite {
    const EVERY: [Self; 3] = [Self::Overwrite, Self::Append, Self::Replace];

    fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Append => "append",
            Self::Replace => "replace",
        }
    }
}

/// Where a program writes.
struct Directory {
    dir: PathBuf,
    segment: File,
    growing: File,
    count: u64,
}

impl Directory {
    fn new(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let create = |name: &str| {
            let path = dir.join(name);
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
            file.with_context(|| format!("creating {}", path.display()))
        };
        let (segment, growing) = (create("segment")?, create("growing")?);
        let block = vec![0_u8; 1 << 20];
        for offset in (0..SEGMENT_BYTES).step_by(block.len()) {
            segment.write_all_at(&block, offset).context("laying out a segment")?;
        }
        segment.sync_all().context("laying out a segment")?;
        Ok(Self { dir: dir.to_owned(), segment, growing, count: 0 })
    }

    fn write(&mut self, write_kind: DurableWrite) -> std::io::Result<()> {
        self.count += 1;
        let block = [self.count as u8; BLOCK_BYTES];
        match write_kind {
            DurableWrite::Overwrite => {
                let blocks = SEGMENT_BYTES / BLOCK_BYTES as u64;
                self.segment.write_all_at(&block, self.count % blocks * BLOCK_BYTES as u64)?;
                self.segment.sync_data()
            }
            DurableWrite::Append => {
                self.growing.write_all(&block[..LINE_BYTES])?;
                self.growing.sync_data()
            }
            DurableWrite::Replace => {
                let (new, old) = (self.dir.join("new"), self.dir.join(format!("kept-{}", self.count % 16)));
                let mut file = File::create(&new)?;
                file.write_all(&block)?;
                file.sync_all()?;
                std::fs::rename(&new, &old)
            }
        }
    }

    /// Seconds of one write, over `time`.
    fn measure(&mut self, write_kind: DurableWrite, time: Duration) -> anyhow::Result<f64> {
        let began = Instant::now();
        let mut writes = 0_u32;
        while began.elapsed() < time {
            self.write(write_kind).with_context(|| format!("writing in {}", self.dir.display()))?;
            writes += 1;
        }
        Ok(began.elapsed().as_secs_f64() / f64::from(writes.max(1)))
    }
}

/// The figures: [`NAME`], and for information pgbench where `template` has a database for it.
///
/// # Errors
/// When the mount fails, or there was an interrupt.
pub fn measure(context: &ExperimentContext, template: Option<&DatabaseTemplate>) -> anyhow::Result<Vec<Figure>> {
    let rules = context.run_dir.dir().join("rules");
    std::fs::write(&rules, RULES).with_context(|| format!("writing {}", rules.display()))?;
    let mut figures = vec![mounted(context, "habits", Some(&rules), habits)?];
    if let Some(template) = template {
        figures.push(mounted(context, "tpcb", None, |context, plain, mount| tpcb(context, template, [plain, mount]))?);
    }
    Ok(figures)
}

/// Does `work` in a plain directory and in one that is served, both on the disk under `--dir`.
fn mounted(
    context: &ExperimentContext,
    name: &str,
    rules: Option<&Path>,
    work: impl FnOnce(&ExperimentContext, &Path, &Path) -> anyhow::Result<Figure>,
) -> anyhow::Result<Figure> {
    let base = context.run_dir.dir().join(name);
    let (backing, point, plain) = (base.join("backing"), base.join("mnt"), base.join("plain"));
    for dir in [&backing, &plain] {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let options = DaemonOptions {
        quire: &context.quire,
        backing: &backing,
        point: &point,
        log: &base.join("log"),
        capacity_mib: CAPACITY_MIB,
        policy: CachePolicy::CpPiIoi,
        rules,
        complaints: &context.run_dir.sockets().join("mount.log"),
    };
    let daemon = MountDaemon::start(&options, &context.interrupt)?;
    let figure = work(context, &plain.join("files"), &point.join("files"));
    let stopped = daemon.stop();
    let figure = figure?;
    stopped?;
    Ok(figure)
}

fn habits(context: &ExperimentContext, plain: &Path, mounted: &Path) -> anyhow::Result<Figure> {
    let (rounds, turn) = if context.scale.quick { (3, 100) } else { (9, 700) };
    let mut sides = [Directory::new(plain)?, Directory::new(mounted)?];
    // By kind of write, by directory, by round.
    let mut each_s: Vec<[Vec<f64>; 2]> = DurableWrite::EVERY.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..rounds {
        context.progress.say(&format!("what a mount costs, round {} of {rounds}", round + 1));
        for (write_kind, times) in DurableWrite::EVERY.into_iter().zip(&mut each_s) {
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                context.interrupt.check()?;
                times[side].push(sides[side].measure(write_kind, Duration::from_millis(turn))?);
            }
        }
    }
    let sum = |side: usize, round: usize| each_s.iter().map(|times| times[side][round]).sum::<f64>();
    let ratios: Vec<f64> = (0..rounds).map(|round| sum(1, round) / sum(0, round)).collect();
    let spread = Spread::of(&ratios).context("at least one round")?;
    let writes_per_s = disk::durable_writes_per_s(context.run_dir.dir(), 4096, Duration::from_millis(500))?;
    let plain =
        Spread::of(&(0..rounds).map(|round| sum(0, round)).collect::<Vec<f64>>()).context("at least one round")?;
    let mut figure = Figure::new(NAME, spread.median, "x", BetterDirection::Lower)
        .goal(GOAL)
        .spread(spread)
        .bound("a durable write of 4 KiB for each", each_s.len() as f64 / writes_per_s / plain.median);
    for (write_kind, times) in DurableWrite::EVERY.into_iter().zip(&each_s) {
        for (side, values) in ["plain", "mount"].into_iter().zip(times) {
            let median = Spread::of(values).map_or(f64::NAN, |spread| spread.median);
            figure = figure.peer(&format!("{}_{side}_ns", write_kind.name()), median * 1e9);
        }
    }
    Ok(figure.note("time of one synced write of each kind, together, over the same in a plain directory of that disk"))
}

/// TPC-B in both directories.
fn tpcb(context: &ExperimentContext, template: &DatabaseTemplate, copies: [&Path; 2]) -> anyhow::Result<Figure> {
    let ExperimentContext { scale, interrupt, progress, .. } = context;
    let (rounds, time) = if scale.quick { (1, Duration::from_secs(2)) } else { (3, scale.duration.count / 3) };
    let programs = template.programs();
    for copy in copies {
        std::fs::create_dir_all(copy).with_context(|| format!("creating {}", copy.display()))?;
        run(std::process::Command::new("cp").arg("-a").arg(template.dir().join(".")).arg(copy))?;
        programs.user.own(copy)?;
    }
    let mut per_s = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            progress.say(&format!("what a mount costs TPC-B, round {} of {rounds}", round + 1));
            let cluster = template.start(context, copies[side])?;
            pgbench::measure(programs, cluster.sockets(), scale.terminals, time / 4)?;
            per_s[side].push(pgbench::measure(programs, cluster.sockets(), scale.terminals, time)?.per_s);
            cluster.stop(TerminationSignal::Interrupt)?;
            interrupt.check()?;
        }
    }
    let ratios: Vec<f64> = per_s[0].iter().zip(&per_s[1]).map(|(plain, mounted)| plain / mounted).collect();
    let spread = Spread::of(&ratios).context("at least one round")?;
    let median = |side: usize| Spread::of(&per_s[side]).map_or(f64::NAN, |spread| spread.median);
    let figure = Figure::new("mount_overhead_tpcb", spread.median, "x", BetterDirection::Lower).spread(spread);
    Ok(figure
        .peer("plain/s", median(0))
        .peer("mount/s", median(1))
        .note("pgbench's TPC-B, time over the plain directory's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_habit_writes_and_is_timed() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let mut directory = Directory::new(dir.path()).unwrap();
        for write_kind in DurableWrite::EVERY {
            assert!(directory.measure(write_kind, Duration::from_millis(1)).unwrap() > 0.0);
        }
        assert!(dir.path().join("growing").metadata().unwrap().len() >= LINE_BYTES as u64);
        assert!(!dir.path().join("new").exists());
    }
}

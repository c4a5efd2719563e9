//! Trials of PostgreSQL: data and the log of writes behind the cache, on one slow file system.
//!
//! Relies on the template being a cluster that was shut down in order. Nothing of a trial is kept; before it ends, the
//! consistency conditions of TPC-C are checked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use quire_sys::ask::TerminationSignal;

use crate::wcache::cells::{Cell, Work};
use crate::wcache::context::Context;
use crate::wcache::lab::interrupt::Interrupt;
use crate::wcache::lab::stage::{Plan, Stage};
use crate::wcache::pg::cluster::{Cluster, Programs, filling_settings, measured_settings};
use crate::wcache::pg::pgbench;
use crate::wcache::scale::Scale;
use crate::wcache::tally::Tally;
use crate::wcache::tpcc::{self, check, drive, load};
use crate::wcache::watch::{StageWatch, Watch};

/// Shortest time between checkpoints that PostgreSQL takes. The paper's run of 30 minutes had one every five.
const CHECKPOINT_S: u64 = 30;
/// The cluster's directory in the template.
const DATA: &str = "pg";

/// A filled cluster that was shut down, from which others are copied.
#[derive(Debug)]
pub struct Template {
    programs: Programs,
    dir: PathBuf,
    bytes: u64,
}

impl Template {
    /// Makes one.
    ///
    /// # Errors
    /// When PostgreSQL is missing or fails, or there was an interrupt.
    pub fn make(context: &Context) -> anyhow::Result<Self> {
        let programs = Programs::find()?;
        let dir = context.testbed.dir().join("template-pg");
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        programs.user.own(&dir)?;
        programs.user.reaches(&dir)?;
        programs.user.own(context.testbed.sockets())?;
        programs.init(&dir.join(DATA))?;
        fill(&programs, &dir.join(DATA), context)?;
        let bytes = dir_bytes(&dir)?;
        Ok(Self { programs, dir, bytes })
    }

    /// Its programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the cluster that was copied to `copy`.
    ///
    /// # Errors
    /// When it doesn't start.
    pub fn start(&self, context: &Context, copy: &Path) -> anyhow::Result<Cluster> {
        let settings = measured_settings(context.scale.buffers_mib, context.scale.wal_mib, CHECKPOINT_S);
        Cluster::start(&self.programs, &copy.join(DATA), context.testbed.sockets(), &settings, &context.interrupt)
    }
}

fn fill(programs: &Programs, data: &Path, context: &Context) -> anyhow::Result<()> {
    let Context { scale, interrupt, progress, .. } = context;
    let sockets = context.testbed.sockets();
    let settings = filling_settings(scale.wal_mib);
    let cluster = Cluster::start(programs, data, sockets, &settings, interrupt)?;
    progress.say(&format!("filling {} warehouses", scale.size.warehouses));
    load::fill(sockets, scale.size, interrupt)?;
    progress.say("filling TPC-B");
    let create = format!("CREATE DATABASE {}", pgbench::DATABASE);
    cluster.connect("postgres")?.batch_execute(&create).context("making the database of TPC-B")?;
    pgbench::fill(programs, sockets, scale.tpcb_scale)?;
    cluster.stop(TerminationSignal::Interrupt)
}

/// Bytes of all files below `dir`.
fn dir_bytes(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        let facts = entry.metadata().with_context(|| format!("looking at {}", entry.path().display()))?;
        bytes += if facts.is_dir() { dir_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

/// Runs a trial.
///
/// # Errors
/// When anything fails; what a half-measured trial counted is worth nothing.
pub fn trial(template: &Template, cell: Cell, seed: u64, context: &Context) -> anyhow::Result<Tally> {
    let Context { scale, testbed, interrupt, .. } = context;
    let plan = Plan {
        quire: &context.quire,
        policy: cell.policy,
        capacity_mib: cell.capacity_mib,
        fast: cell.fast,
        template: &template.dir,
        // Sparse, so what isn't used costs nothing.
        disk_bytes: template.bytes * 2 + (4 << 30),
        slow_speed: scale.database_speed(),
        fast_speed: scale.congested_speed(),
        owner: Some(template.programs.user),
    };
    let mut stage = Stage::set(&plan, testbed, interrupt)?;
    stage.warm(interrupt)?;
    let cluster = template.start(context, stage.point())?;
    stage.slow_down()?;
    let mut watch = StageWatch::new(&mut stage);
    let tally = work(template, cell.work, seed, scale, &cluster, interrupt, &mut watch);
    let cache = watch.counted();
    let tally = tally.map(|tally| Tally { cache, ..tally });
    let checked = tally.and_then(|tally| consistent(cell.work, &cluster).map(|()| tally));
    let stopped = cluster.stop(TerminationSignal::Quit);
    let down = stage.take_down();
    let tally = checked?;
    stopped.and(down)?;
    Ok(tally)
}

fn work(
    template: &Template,
    work: Work,
    seed: u64,
    scale: &Scale,
    cluster: &Cluster,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> anyhow::Result<Tally> {
    let sockets = cluster.sockets();
    if work == Work::Tpcc {
        let drive = drive::Drive { sockets, size: scale.size, terminals: scale.terminals, span: scale.span, seed };
        return drive::run(drive, interrupt, watch);
    }
    // pgbench has no time to run in, so it is run for that first.
    pgbench::measure(&template.programs, sockets, scale.terminals, scale.span.run_in)?;
    watch.begins()?;
    let outcome = pgbench::measure(&template.programs, sockets, scale.terminals, scale.span.count);
    watch.ends()?;
    Ok(tpcb_tally(outcome?, scale.span.count.as_secs_f64()))
}

/// A tally of what pgbench found in `elapsed_s`.
pub fn tpcb_tally(outcome: pgbench::Outcome, elapsed_s: f64) -> Tally {
    let mut tally = Tally { ops: (outcome.per_s * elapsed_s).round() as u64, elapsed_s, ..Tally::default() };
    tally.latency.insert(crate::wcache::tally::EVERYTHING.to_owned(), outcome.latency);
    tally
}

fn consistent(work: Work, cluster: &Cluster) -> anyhow::Result<()> {
    if work != Work::Tpcc {
        return Ok(());
    }
    let broken = check::broken(&mut cluster.connect(tpcc::DATABASE)?)?;
    if broken.is_empty() { Ok(()) } else { bail!("the database is not consistent: {}", broken.join("; ")) }
}

//! Trials of PostgreSQL: data and the log of writes behind the cache, on one slow file system.
//!
//! Relies on the template being a cluster that was shut down in order. Nothing of a trial is kept; before it ends, the
//! consistency conditions of TPC-C are checked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use quire_sys::ask::TerminationSignal;

use crate::wcache::experiment_context::ExperimentContext;
use crate::wcache::pg::cluster::{PostgresCluster, PostgresPrograms, filling_settings, measured_settings};
use crate::wcache::pg::pgbench;
use crate::wcache::scale::WcacheScale;
use crate::wcache::scenarios::{Scenario, Workload};
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::storage_stack::{StackSpec, StorageStack};
use crate::wcache::tpcc::{self, check, driver, load};
use crate::wcache::trial_observer::{CounterObserver, TrialObserver};
use crate::wcache::trial_stats::TrialStats;

/// Shortest time between checkpoints that PostgreSQL takes. The paper's run of 30 minutes had one every five.
const CHECKPOINT_S: u64 = 30;
/// The cluster's directory in the template.
const DATA: &str = "pg";

/// A filled cluster that was shut down, from which others are copied.
#[derive(Debug)]
pub struct DatabaseTemplate {
    programs: PostgresPrograms,
    dir: PathBuf,
    bytes: u64,
}

impl DatabaseTemplate {
    /// Makes one.
    ///
    /// # Errors
    /// When PostgreSQL is missing or fails, or there was an interrupt.
    pub fn make(context: &ExperimentContext) -> anyhow::Result<Self> {
        let programs = PostgresPrograms::find()?;
        let dir = context.run_dir.dir().join("template-pg");
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        programs.user.own(&dir)?;
        programs.user.reaches(&dir)?;
        programs.user.own(context.run_dir.sockets())?;
        programs.init(&dir.join(DATA))?;
        fill(&programs, &dir.join(DATA), context)?;
        let bytes = dir_bytes(&dir)?;
        Ok(Self { programs, dir, bytes })
    }

    /// Its programs.
    pub fn programs(&self) -> &PostgresPrograms {
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
    pub fn start(&self, context: &ExperimentContext, copy: &Path) -> anyhow::Result<PostgresCluster> {
        let settings = measured_settings(context.scale.buffers_mib, context.scale.wal_mib, CHECKPOINT_S);
        PostgresCluster::start(
            &self.programs,
            &copy.join(DATA),
            context.run_dir.sockets(),
            &settings,
            &context.interrupt,
        )
    }
}

fn fill(programs: &PostgresPrograms, data: &Path, context: &ExperimentContext) -> anyhow::Result<()> {
    let ExperimentContext { scale, interrupt, progress, .. } = context;
    let sockets = context.run_dir.sockets();
    let settings = filling_settings(scale.wal_mib);
    let cluster = PostgresCluster::start(programs, data, sockets, &settings, interrupt)?;
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
pub fn trial(
    template: &DatabaseTemplate,
    scenario: Scenario,
    seed: u64,
    context: &ExperimentContext,
) -> anyhow::Result<TrialStats> {
    let ExperimentContext { scale, run_dir, interrupt, .. } = context;
    let plan = StackSpec {
        quire: &context.quire,
        policy: scenario.policy,
        capacity_mib: scenario.capacity_mib,
        fast: scenario.fast,
        template: &template.dir,
        // Sparse, so what isn't used costs nothing.
        disk_bytes: template.bytes * 2 + (4 << 30),
        slow_speed: scale.database_speed(),
        fast_speed: scale.congested_speed(),
        owner: Some(template.programs.user),
    };
    let mut stack = StorageStack::set(&plan, run_dir, interrupt)?;
    stack.warm(interrupt)?;
    let cluster = template.start(context, stack.point())?;
    stack.slow_down()?;
    let mut observer = CounterObserver::new(&mut stack);
    let stats = work(template, scenario.work, seed, scale, &cluster, interrupt, &mut observer);
    let cache = observer.counted();
    let stats = stats.map(|stats| TrialStats { cache, ..stats });
    let checked = stats.and_then(|stats| consistent(scenario.work, &cluster).map(|()| stats));
    let stopped = cluster.stop(TerminationSignal::Quit);
    let down = stack.take_down();
    let stats = checked?;
    stopped.and(down)?;
    Ok(stats)
}

fn work(
    template: &DatabaseTemplate,
    work: Workload,
    seed: u64,
    scale: &WcacheScale,
    cluster: &PostgresCluster,
    interrupt: &Interrupt,
    observer: &mut dyn TrialObserver,
) -> anyhow::Result<TrialStats> {
    let sockets = cluster.sockets();
    if work == Workload::Tpcc {
        let drive = driver::TerminalLoad {
            sockets,
            size: scale.size,
            terminals: scale.terminals,
            duration: scale.duration,
            seed,
        };
        return driver::run(drive, interrupt, observer);
    }
    // pgbench has no time to run in, so it is run for that first.
    pgbench::measure(&template.programs, sockets, scale.terminals, scale.duration.warm_up)?;
    observer.begins()?;
    let outcome = pgbench::measure(&template.programs, sockets, scale.terminals, scale.duration.count);
    observer.ends()?;
    Ok(tpcb_tally(outcome?, scale.duration.count.as_secs_f64()))
}

/// A tally of what pgbench found in `elapsed_s`.
pub fn tpcb_tally(outcome: pgbench::PgbenchResult, elapsed_s: f64) -> TrialStats {
    let mut stats = TrialStats { ops: (outcome.per_s * elapsed_s).round() as u64, elapsed_s, ..TrialStats::default() };
    stats.latency.insert(crate::wcache::trial_stats::EVERYTHING.to_owned(), outcome.latency);
    stats
}

fn consistent(work: Workload, cluster: &PostgresCluster) -> anyhow::Result<()> {
    if work != Workload::Tpcc {
        return Ok(());
    }
    let broken = check::broken(&mut cluster.connect(tpcc::DATABASE)?)?;
    if broken.is_empty() { Ok(()) } else { bail!("the database is not consistent: {}", broken.join("; ")) }
}

//! The experiment `wcache`: six admission policies of the write cache under real programs, beside each other on this
//! machine (Kim, Jeong, et al., *Request-Oriented Durable Write Caching for Application Performance*, USENIX ATC 2015),
//! and Quire's own log beside redis-server's.
//!
//! Relies on loop devices slowed down by cgroup v1 for disks with seeks, on memory or a throttled loop device for the
//! fast device, on `quire mount` between them, and on PostgreSQL and redis-server in front. A part whose needs aren't
//! met here is not run, and its figures say why.

mod cells;
mod context;
mod figures;
mod found;
mod lab;
mod lines;
mod parts;
mod pg;
mod phase;
mod picture;
mod policy;
mod scale;
mod tally;
mod tpcc;
mod visits;
mod watch;
mod ycsb;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use crate::cli::Args;
use crate::machine;
use crate::progress::Progress;
use crate::report::Report;
use cells::{Cell, Work};
use context::Context;
use found::{Found, Visit};
use lab::command::{program, run as run_program};
use lab::interrupt::Interrupt;
use lab::workplace::Workplace;
use parts::{commits, overhead};
use scale::Scale;
use visits::{database, key_values};

/// Runs the experiment.
///
/// # Errors
/// When an option makes no sense, the directory can't be used, or somebody interrupts.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    let scale = Scale::new(args)?;
    let quire = match &args.quire {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("finding this program")?,
    };
    let quire = quire.canonicalize().with_context(|| format!("finding {}", quire.display()))?;
    let interrupt = Interrupt::noted()?;
    let place = Workplace::new(&args.dir.clone().unwrap_or_else(|| PathBuf::from(".")))?;
    let context = Context { scale, place, interrupt, progress: Progress::begin(), quire, port: args.port };
    let mut report = Report {
        experiment: "wcache",
        machine: machine::facts(context.place.dir()),
        scale: context.scale.facts(),
        results: Vec::new(),
        info: Vec::new(),
    };
    let mut found = Found::default();
    let mut template = Err(anyhow::anyhow!("not asked for"));
    if args.wants("pg") || args.wants("mount") && !context.scale.quick {
        template = mount_is_possible(&context).and_then(|()| database::Template::make(&context));
        context.interrupt.check()?;
    }
    if args.wants("pg") {
        match &template {
            Ok(template) => database_part(&context, template, &mut found, &mut report)?,
            Err(error) => not_run("pg", error, &mut report),
        }
    }
    if args.wants("redis") {
        let template = mount_is_possible(&context).and_then(|()| key_values::Template::make(&context));
        context.interrupt.check()?;
        match template {
            Ok(template) => key_value_part(&context, &template, &mut found, &mut report)?,
            Err(error) => not_run("redis", &error, &mut report),
        }
    }
    if args.wants("log") {
        let measured = commits::measure(&context);
        context.interrupt.check()?;
        match measured {
            Ok(commits) => {
                report.results.extend(commits.figures);
                report.info.extend(commits.info);
            }
            Err(error) => not_run("log", &error, &mut report),
        }
    }
    if args.wants("mount") {
        let template = template.as_ref().ok().filter(|_| !context.scale.quick);
        let measured = mount_is_possible(&context).and_then(|()| overhead::measure(&context, template));
        context.interrupt.check()?;
        match measured {
            Ok(mut figures) => {
                report.info.extend(figures.split_off(1));
                report.results.extend(figures);
            }
            Err(error) => not_run("mount", &error, &mut report),
        }
    }
    report.info.extend(lines::of(&found));
    if let Some(dir) = &args.plot {
        picture::draw(dir, &found)?;
    }
    Ok(report)
}

/// Whether slow disks and mounts can be had here.
fn mount_is_possible(context: &Context) -> anyhow::Result<()> {
    ensure!(quire_sys::ask::is_root(), "slow disks and mounts for other users take root");
    ensure!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse; load the module (modprobe fuse)");
    ensure!(Path::new("/dev/loop-control").exists(), "there are no loop devices; load the module (modprobe loop)");
    let controller = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    ensure!(controller.is_file(), "the blkio controller of cgroup v1 is not at /sys/fs/cgroup/blkio");
    for (name, package) in [("losetup", "mount"), ("mount", "mount"), ("mkfs.ext4", "e2fsprogs")] {
        program(name, package)?;
    }
    let help = run_program(Command::new(&context.quire).args(["mount", "--help"]));
    ensure!(help.is_ok(), "{} has no command `mount`", context.quire.display());
    Ok(())
}

fn not_run(part: &str, error: &anyhow::Error, report: &mut Report) {
    let reason = format!("{error:#}");
    report.results.extend(figures::not_run(part, &reason));
    let reasons = report.scale.entry("not_run").or_insert_with(|| json!({}));
    reasons[part] = json!(reason);
}

fn database_part(
    context: &Context,
    template: &database::Template,
    found: &mut Found,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.scale.insert("postgresql".into(), json!(template.programs().version()));
    for round in 0..context.scale.rounds {
        for cell in cells::of_database(&context.scale, round) {
            visit(context, found, cell, round, || database::visit(template, cell, round as u64 + 1, context))?;
        }
    }
    report.results.extend(figures::of_database(found, &context.scale));
    Ok(())
}

fn key_value_part(
    context: &Context,
    template: &key_values::Template,
    found: &mut Found,
    report: &mut Report,
) -> anyhow::Result<()> {
    for round in 0..context.scale.rounds {
        for cell in cells::of_key_values(&context.scale, round) {
            let Work::Ycsb(workload) = cell.work else { bail!("{} is not for redis-server", cell.work.name()) };
            visit(context, found, cell, round, || key_values::visit(template, cell, workload, context))?;
        }
    }
    report.results.extend(figures::of_key_values(found, &context.scale));
    Ok(())
}

/// Makes a visit and notes what came of it. A failure is a result, too; an interrupt ends everything.
fn visit(
    context: &Context,
    found: &mut Found,
    cell: Cell,
    round: usize,
    make: impl FnOnce() -> anyhow::Result<tally::Tally>,
) -> anyhow::Result<()> {
    context.interrupt.check()?;
    context.progress.say(&format!("round {}: {}", round + 1, cell.name()));
    let outcome = make();
    context.interrupt.check()?;
    let outcome = outcome.map_err(|error| format!("{error:#}"));
    if let Err(reason) = &outcome {
        context.progress.say(&format!("{}: {reason}", cell.name()));
    }
    found.visits.push(Visit { cell, round, outcome });
    Ok(())
}

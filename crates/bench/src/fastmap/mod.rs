//! The experiment `fastmap`: the pool beside Linux mmap, vmcache's approach and direct reads, data several times as large as
//! memory (Papagiannis et al., *Optimizing Memory-mapped I/O for Fast Storage Devices*, USENIX ATC 2020).
//!
//! Relies on cgroup v1 to limit memory, page cache included: each visit is a process of its own under the same limit
//! ([`runner`]). Devices are the real disk under `--dir`, and `/dev/zram0` as the fastest there is ([`place`]).

mod bfs;
mod bounds;
mod cage;
mod figures;
mod found;
mod graph;
mod hit;
mod kv;
mod micro;
mod pages;
mod picture;
mod place;
mod policies;
mod runner;
mod scale;
mod shelf;
mod subject;
mod tally;
mod tour;
mod visit;

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use crate::cli::Args;
use crate::machine;
use crate::progress::Progress;
use crate::report::Report;
use found::Found;
use place::{Place, Zram};
use runner::Runner;
use scale::Scale;
use tour::Tour;

pub use runner::CHILD;
pub use visit::serve;

/// Runs the experiment.
///
/// # Errors
/// Where memory can't be limited, a device fails, or somebody interrupts.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    let scale = Scale::new(args);
    let program = match &args.quire {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("finding this program")?,
    };
    let runner = Runner::new(program)?;
    let parent = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let dir = tempfile::Builder::new()
        .prefix("quire-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("making a directory in {}", parent.display()))?;
    let mut report = Report {
        experiment: "fastmap",
        machine: machine::facts(dir.path()),
        scale: scale.facts(),
        results: Vec::new(),
        info: Vec::new(),
    };
    let progress = Progress::begin();
    let mut tour = Tour { scale: &scale, runner: &runner, progress, found: Found::default() };
    if scale.wants("hit") {
        tour.hit(dir.path())?;
    }
    if ["micro", "contention", "bounds"].iter().any(|part| scale.wants(part)) {
        let fast = on_zram(&mut tour)?;
        report.scale.insert("device_zram".into(), json!(fast));
    }
    if scale.wants("micro") || scale.wants("bounds") {
        let path = dir.path().join("pages");
        tour.progress.say("laying out pages on the disk");
        let place = Place::stamped_file(&path, scale.micro_pages())?;
        tour.micro(&place)?;
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    if scale.wants("kv") {
        tour.key_values(dir.path(), false)?;
        if !scale.quick {
            tour.key_values(dir.path(), true)?;
        }
    }
    if scale.wants("bfs") {
        tour.search(dir.path())?;
    }
    figures::add(&tour.found, &scale, &mut report);
    if scale.wants("policies") {
        progress.say("replaying traces");
        report.info.extend(policies::compare(dir.path(), scale.quick)?);
    }
    if let Some(dir) = &args.plot {
        picture::draw(dir, &tour.found)?;
    }
    Ok(report)
}

/// The microbenchmark on the fastest device; what the device was, or why there is none.
fn on_zram(tour: &mut Tour<'_>) -> anyhow::Result<String> {
    match Zram::claim(tour.scale.micro_pages()) {
        Ok(zram) => {
            tour.micro(zram.place())?;
            Ok("/dev/zram0, pages of one repeated word".into())
        }
        Err(error) => {
            tour.progress.say(&format!("no fast device: {error:#}"));
            Ok(format!("none: {error:#}"))
        }
    }
}

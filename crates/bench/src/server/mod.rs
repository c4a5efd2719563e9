//! The experiment `server`: Quire beside redis-server (and Valkey, if given) under the same loads.
//!
//! Relies on one server being loaded at a time while the others idle, and on rounds that alternate between them, so that
//! drift of the machine meets all alike. Each part adds its figures to the report.

mod footprint;
mod latency;
mod restart;
mod save;
mod setup;
mod sizes;
mod throughput;

use crate::cli::Args;
use crate::machine;
use crate::memory;
use crate::report::Report;

/// Runs the parts that `args` asks for.
///
/// # Errors
/// When a server cannot be started or misbehaves.
pub fn run(args: &Args) -> anyhow::Result<Report> {
    let setup = setup::Setup::new(args)?;
    let mut report = Report {
        experiment: "server",
        machine: machine::facts(setup.dir()),
        scale: setup.facts(),
        results: Vec::new(),
        info: Vec::new(),
    };
    setup.say("warming memory");
    memory::warm(setup.memory_bytes());
    if args.wants("footprint") {
        footprint::measure(&setup, &mut report)?;
    }
    let parts = ["throughput", "save", "latency", "restart"];
    if parts.iter().any(|part| args.wants(part)) {
        let mut sides = setup.start_filled()?;
        if args.wants("throughput") {
            throughput::measure(&setup, &mut sides, &mut report)?;
        }
        if args.wants("save") {
            save::measure(&setup, &mut sides, &mut report)?;
        }
        if args.wants("latency") {
            latency::measure(&setup, &mut sides, &mut report)?;
        }
        if args.wants("restart") {
            restart::measure(&setup, sides, &mut report)?;
        }
    }
    if args.wants("sizes") && !args.quick {
        sizes::measure(&setup, &mut report)?;
    }
    setup.clear_line();
    Ok(report)
}

//! Experiments that set Quire beside real peers on the same machine in the same run, and say the figures with their goals.
//!
//! Relies on Quire and its peers being separate processes that are reached over loopback sockets and watched through
//! `/proc`: the experiments see what a user would see. Every experiment ends in a [`report::Report`], whose JSON form is
//! the contract that later experiments keep.

#![forbid(unsafe_code)]

pub mod blkio;
pub mod ccow;
pub mod cli;
pub mod disk;
pub mod fastmap;
pub mod forkers;
pub mod info;
pub mod load;
pub mod machine;
pub mod markdown;
pub mod measure;
pub mod memory;
pub mod plot;
pub mod process;
pub mod progress;
pub mod redis_benchmark;
pub mod report;
pub mod resp;
pub mod server;
pub mod snapshot;
pub mod stats;
pub mod wcache;
pub mod words;
pub mod zipf;

use anyhow::{Context, bail};

/// Runs the experiment that `args` names, prints its table and writes what was asked for.
///
/// # Errors
/// When the name is unknown or the experiment could not be carried out. A figure that misses its goal is no error.
pub fn run(args: cli::Args) -> anyhow::Result<()> {
    let report = match args.name.as_str() {
        "server" => server::run(&args)?,
        "forkers" => forkers::run(&args)?,
        "snapshot" => snapshot::run(&args)?,
        "ccow" => ccow::run(&args)?,
        "fastmap" => fastmap::run(&args)?,
        "wcache" => wcache::run(&args)?,
        fastmap::CHILD => return fastmap::serve(),
        "tables" => {
            let file = args.from.as_ref().context("tables of which run? `--from FILE` names its JSON")?;
            quire_sys::out!("{}", markdown::of_file(file)?)?;
            return Ok(());
        }
        "list" => {
            quire_sys::outln!("server   Quire beside redis-server: throughput, saves, restarts, memory")?;
            quire_sys::outln!("forkers  redis-server that saves under updates, with and without the preload library")?;
            quire_sys::outln!("tables   the figures of an earlier run (--from FILE) as Markdown")?;
            quire_sys::outln!("snapshot six ways to a snapshot of memory: stall, first writes, release, memory")?;
            quire_sys::outln!(
                "fastmap  pages of files larger than memory: the pool beside mmap, vmcache and direct reads"
            )?;
            quire_sys::outln!(
                "wcache   PostgreSQL and Redis over a write cache, six admission policies; Quire's log beside Redis's"
            )?;
            quire_sys::outln!("ccow     writes under repeated snapshots: copying by coverage beside fork")?;
            return Ok(());
        }
        other => bail!("no experiment is called {other:?}; `quire bench list` names them"),
    };
    quire_sys::out!("{}", report.table())?;
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()).with_context(|| format!("writing the figures to {}", path.display()))?;
    }
    Ok(())
}

//! Tasks of the workspace: `cargo xtask help` lists them.
//!
//! Relies on cargo having started it, so that `CARGO_MANIFEST_DIR` tells where the workspace lies; every task runs from
//! the workspace's root.

mod audit;
mod book;
mod c_api;
mod crashes;
mod docs;
mod file_size;
mod fuzz;
mod graph;
mod header;
mod history;
mod impls;
mod install;
mod layers;
mod licences;
mod links;
mod load;
mod log_lines;
mod loom;
mod notices;
mod origin;
mod output;
mod package;
mod packages;
mod peers;
mod plan;
mod release;
mod rounds;
mod rows;
mod sanitize;
mod shape;
mod sources;
mod steps;
mod stress;
mod test;
mod test_programs;
mod tidy;
mod transcript;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Quire workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = false)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything: packages, format, clippy, layers, tidy, all tests, peers, crashes, bench shape, fuzz smoke
    Test(test::Choice),
    /// Check that crates depend on lower rows only and that modules have no cycles
    Layers,
    /// Check the house rules of the source: headers, sizes, SAFETY, system calls, licence, READMEs
    Tidy,
    /// Build the release binary and run `quire bench` with the arguments given
    Bench {
        /// Arguments of `quire bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Write anew what is made from the sources: COMPAT.md, quire.h, docs/info.md, docs/log-lines.md
    Docs {
        /// Only check that it is up to date
        #[arg(long)]
        check: bool,
        /// A binary of these sources, instead of making a release build
        #[arg(long, value_parser = install::absolute)]
        quire: Option<PathBuf>,
    },
    /// Put the documents together as a book, and build it where mdBook is installed
    Book,
    /// Copy the release build (quire, the libraries, quire.h, quire.pc) to where programs and compilers look for it
    Install(install::Places),
    /// Make a Debian package, one of its debug symbols, and a tarball
    Package(package::Choice),
    /// Look at the crates of others as cargo-deny does: licences, sources, versions that are there twice
    Licences(licences::Choice),
    /// Say what blocks a release: versions, the changelog, the tree, crates that others link, known weaknesses of crates. Publishes nothing
    Release(release::Choice),
    /// Fuzz every target: with cargo-fuzz where it is installed, else with the plain mutation loop
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Run the crash campaigns at full size: kill -9 of the server (100 rounds of saves of 3M keys, 100 of incremental ones and of those
    /// that replace a chain, 200 of the log of writes), of a mount's daemon and of PostgreSQL and Redis on it, of processes that share an SQLite database (100), and power
    /// cuts at every flush under a mount
    Crash {
        /// Only the campaign whose name contains this: saves, log, mount, power, sqlite
        #[arg(long)]
        only: Option<String>,
        /// Rounds with saves, and as many with incremental saves
        #[arg(long, default_value_t = 100)]
        rounds: u32,
        /// Rounds with the log
        #[arg(long, default_value_t = 200)]
        log_rounds: u32,
        /// Rounds with a mount
        #[arg(long, default_value_t = 40)]
        mount_rounds: u32,
        /// Kills of processes that share an SQLite database
        #[arg(long, default_value_t = 100)]
        sqlite_rounds: u32,
    },
    /// Use all snapshot mechanisms at random for long
    Stress {
        /// For how long
        #[arg(long, default_value_t = 30)]
        minutes: u64,
        /// A seed that a failed run has printed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the snapshot mechanisms under Miri and the sanitizers, as far as a nightly toolchain has them
    Sanitize {
        /// Only this one: miri, address or thread
        #[arg(long)]
        only: Option<String>,
        /// Seconds of the stress run under each
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let root = workspace_root();
    if let Err(error) = std::env::set_current_dir(&root) {
        eprintln!("cannot enter {}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    let done = match cli.task {
        Task::Test(choice) => test::run(&choice),
        Task::Layers => layers::run(),
        Task::Tidy => tidy::run(),
        Task::Bench { args } => steps::release_binary().and_then(|quire| steps::bench(&quire, &args)),
        Task::Docs { check, quire } => docs::run(check, quire),
        Task::Book => book::run(),
        Task::Install(places) => install::run(&places),
        Task::Package(choice) => package::run(&choice),
        Task::Licences(choice) => licences::run(&choice),
        Task::Release(choice) => release::run(&choice),
        Task::Fuzz { seconds } => fuzz::run(seconds),
        Task::Crash { only, rounds, log_rounds, mount_rounds, sqlite_rounds } => {
            let rounds = crashes::Rounds { saves: rounds, log: log_rounds, mount: mount_rounds, sqlite: sqlite_rounds };
            steps::release_binary().and_then(|quire| crashes::run(&quire, only.as_deref(), &rounds))
        }
        Task::Stress { minutes, seed } => stress::run(minutes, seed),
        Task::Sanitize { only, seconds } => sanitize::run(only.as_deref(), seconds),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

//! The binary `quire`: starts the server, looks at images, probes the machine, runs experiments.
//!
//! Relies on the crates below for all work; here are only words for people: arguments, banners, tables, exit codes.

#![forbid(unsafe_code)]

mod args;
mod banner;
mod doctor;
mod image;
mod logging;
mod serve;

use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    let words = args::with_default_command(std::env::args_os().collect());
    let matches = args::command().get_matches_from(words);
    let done = match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches),
        Some(("image", matches)) => image::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("bench", matches)) => quire_bench::cli::Args::from_arg_matches(matches)
            .map_err(anyhow::Error::from)
            .and_then(quire_bench::run)
            .map(|()| ExitCode::SUCCESS),
        Some(("docs", _)) => {
            print!("{}", quire_server::compat_markdown());
            Ok(ExitCode::SUCCESS)
        }
        _ => unreachable!("a command is required and all are listed above"),
    };
    done.unwrap_or_else(|error| {
        eprintln!("quire: {error:#}");
        ExitCode::FAILURE
    })
}

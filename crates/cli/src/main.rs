//! The binary `quire`: starts the server, looks at images, probes the machine, runs experiments.
//!
//! Relies on the crates below for all work; here are only words for people: arguments, banners, tables, exit codes.

#![forbid(unsafe_code)]

mod args;
mod banner;
mod clone;
mod docs;
mod doctor;
mod doctor_file;
mod doctor_preload;
mod foreign_flags;
mod image;
mod image_copy;
mod image_path;
mod image_redis;
mod log;
mod logging;
mod mount;
mod peer;
mod program;
mod serve;
mod service_manager;
mod top;
mod watch;

use std::process::ExitCode;

use clap::FromArgMatches;
use quire_sys::output::{self, OutputError};

fn main() -> ExitCode {
    let words = args::with_default_command(std::env::args_os().collect());
    let (words, foreign_flags) = foreign_flags::take(words);
    let matches = match args::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(told) => return tell(&told),
    };
    let done = match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches, &foreign_flags),
        Some(("image", matches)) => image::run(matches),
        Some(("log", matches)) => log::run(matches),
        Some(("mount", matches)) => mount::run(matches),
        Some(("unmount", matches)) => mount::run_unmount(matches),
        Some(("critical", matches)) => mount::run_critical(matches),
        Some(("stats", matches)) => mount::run_stats(matches),
        Some(("top", matches)) => top::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("bench", matches)) => quire_bench::run(matches),
        Some(("report", matches)) => quire_bench::page::PageArgs::from_arg_matches(matches)
            .map_err(anyhow::Error::from)
            .and_then(|args| quire_bench::page::run(&args))
            .map(|()| ExitCode::SUCCESS),
        Some(("measure", matches)) => quire_bench::measure::args::MeasureArgs::from_arg_matches(matches)
            .map_err(anyhow::Error::from)
            .and_then(|args| quire_bench::measure::run(&args))
            .map(|()| ExitCode::SUCCESS),
        Some(("docs", matches)) => docs::run(matches),
        _ => unreachable!("a command is required and all are listed above"),
    };
    let done = done.and_then(|code| output::finish().map(|()| code).map_err(anyhow::Error::from));
    done.unwrap_or_else(|error| {
        if let Some(error) = error.downcast_ref::<OutputError>() {
            return error.end();
        }
        quire_sys::errln!("quire: {}", told(&error));
        ExitCode::FAILURE
    })
}

/// Writes a help text, the version, or what is wrong with the arguments.
fn tell(told: &clap::Error) -> ExitCode {
    if told.use_stderr() {
        // With colours where it is a terminal. If standard error takes nothing there is no place left to tell it.
        let _ = told.print();
    } else if let Err(error) = told.print().map_err(OutputError::from).and_then(|()| output::finish()) {
        return error.end();
    }
    u8::try_from(told.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// An error and its causes in a line; what a message already says of its cause is not said twice.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no room").context("cannot save: no room").context("SAVE failed");
        assert_eq!(super::told(&error), "SAVE failed: cannot save: no room");
    }
}

//! Experiments that set Quire beside real peers on the same machine in the same run, and say the figures with their goals.
//!
//! Relies on Quire and its peers being separate processes that are reached over loopback sockets and watched through
//! `/proc`: the experiments see what a user would see. Every experiment ends in a [`report::Report`], whose JSON form is
//! the contract that later experiments keep.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod ccow;
pub mod chart;
pub mod checkpoint;
mod cleanup_list;
pub mod clone;
pub mod dbio;
pub mod disk;
pub mod experiment;
pub mod fastmap;
pub mod forkers;
pub mod format;
pub mod info;
pub mod list;
pub mod load;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod null_server;
pub mod page;
pub mod picture;
pub mod process;
pub mod progress;
pub mod quick;
pub mod redis_benchmark;
pub mod redraw;
pub mod reply_skimmer;
pub mod report;
pub mod requests;
pub mod resp;
pub mod server;
pub mod snapshot;
pub mod stats;
pub mod supervisor;
pub mod tables;
pub mod types;
pub mod wcache;
pub mod write_limit;
pub mod zread;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};

use list::EXPERIMENTS;

/// `quire bench`, with a command for every experiment.
pub fn command() -> Command {
    let mut command = Command::new("bench")
        .about("Run an experiment on this machine, figures beside goals (`quire bench list` names them)")
        .subcommand_required(true)
        .arg_required_else_help(true)
        // The supervisor starts this program again; that is not for people.
        .arg(Arg::new(supervisor::WORKER).long(supervisor::WORKER).action(ArgAction::SetTrue).hide(true))
        .subcommand_value_name("EXPERIMENT");
    for entry in EXPERIMENTS {
        command = command.subcommand((entry.command)());
    }
    command
        .subcommand(Command::new("list").about("Name all experiments, a line each"))
        .subcommand(tables::TablesArgs::augment_args(Command::new("tables")).about(tables::ABOUT))
        .subcommand(picture::PictureArgs::augment_args(Command::new("picture")).about(picture::ABOUT))
        .subcommand(redraw::RedrawArgs::augment_args(Command::new("redraw")).about(redraw::ABOUT))
        // The experiments start this program again under a memory limit; that is not for people.
        .subcommand(Command::new(fastmap::CHILD).hide(true))
        .subcommand(Command::new(dbio::CHILD).hide(true))
        .subcommand(Command::new(zread::CHILD).hide(true))
}

/// Runs what `matches` of [`command`] ask for.
///
/// # Errors
/// When an experiment could not be carried out. A figure that misses its goal is no error.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let is_worker = matches.get_flag(supervisor::WORKER);
    let done = match matches.subcommand() {
        Some(("list", _)) => quire_sys::out!("{}", listed()).map_err(anyhow::Error::from),
        Some(("tables", matches)) => tables::run(&tables::TablesArgs::from_arg_matches(matches)?),
        Some(("picture", matches)) => picture::run(&picture::PictureArgs::from_arg_matches(matches)?),
        Some(("redraw", matches)) => redraw::run(&redraw::RedrawArgs::from_arg_matches(matches)?),
        Some((fastmap::CHILD, _)) => fastmap::serve(),
        Some((dbio::CHILD, _)) => dbio::serve(),
        Some((zread::CHILD, _)) => zread::serve(),
        Some((name, matches)) => match EXPERIMENTS.iter().find(|entry| entry.name == name) {
            Some(entry) if is_worker => supervisor::work(|| (entry.run)(matches)),
            Some(_) => return supervisor::supervise(),
            None => bail!("no experiment is called {name:?}; `quire bench list` names them"),
        },
        None => bail!("which experiment? `quire bench list` names them"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// All experiments and what becomes of their results, a line each.
fn listed() -> String {
    let lines = EXPERIMENTS.iter().map(|entry| (entry.name, entry.about)).chain([
        ("tables", tables::ABOUT),
        ("picture", picture::ABOUT),
        ("redraw", redraw::ABOUT),
    ]);
    let width = lines.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, about) in lines {
        let _ = writeln!(text, "{name:<width$}  {about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_a_line_for_every_experiment() {
        let text = listed();
        assert_eq!(text.lines().count(), EXPERIMENTS.len() + 3);
        assert!(text.lines().all(|line| line.len() < 120), "{text}");
        for entry in EXPERIMENTS {
            let own = text.lines().find(|line| line.split_ascii_whitespace().next() == Some(entry.name));
            assert!(own.is_some_and(|line| line.ends_with(entry.about)), "{text}");
            assert_eq!(
                own.and_then(|line| line.find(entry.about)),
                text.lines().next().and_then(|line| line.find("Quire")),
                "{text}"
            );
        }
    }

    #[test]
    fn what_scripts_call_is_understood() {
        for words in [
            "bench server --quick",
            "bench server --parts throughput,restart --json x",
            "bench snapshot --sizes 2048 --parts fork,scoot,uffd,barrier --json x --quick --dir y",
            "bench ccow --sizes 2048 --skews 0.9,1.1 --rounds 2 --parts fork,fork_thp,barrier_80,barrier_all --plot z",
            "bench forkers --rounds 3 --quick --dir y --json x",
            "bench fastmap --parts hit,bounds,micro,contention,policies --json x --plot y",
            "bench wcache --parts pg --policies ALL,CP+PI+IOI --sizes 32,512,4096 --seconds 60 --rounds 2",
            "bench checkpoint --mib 64 --value-bytes 200 --rounds 1 --json x --plot y",
            "bench clone --keys 1000 --seconds 1 --rate 500 --json x",
            "bench dbio --memory 256 --data 0.83 --pools 1,4 --clients 1,32 --values random --json x --plot y",
            "bench zread --parts leases --file 64 --json x",
            "bench zread --quick --parts sizes,threads,mixed,video,web,neighbours,fio,nginx --plot y",
            "bench types --parts steps,fragmentation --quick --valkey v --json x --plot y",
            "bench tables --from x",
            "bench picture --from x --out y",
            "bench redraw --from x --out y",
            "bench list",
        ] {
            if let Err(refused) = command().try_get_matches_from(words.split(' ')) {
                panic!("{words}: {refused}");
            }
        }
    }
}

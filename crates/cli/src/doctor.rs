//! `quire doctor`: what this kernel allows, and what Quire does without.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use quire_sys::probe::{self, Feature, State};
use serde_json::json;

/// Prints every feature.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(program) = matches.get_one::<PathBuf>("preload") {
        return crate::doctor_preload::run(program, matches.get_flag("json"));
    }
    let dir = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_else(|| PathBuf::from("."));
    let features = probe::all(&dir);
    if matches.get_flag("json") {
        let list: Vec<_> = features.iter().map(as_json).collect();
        println!("{}", serde_json::Value::from(list));
        return Ok(ExitCode::SUCCESS);
    }
    let colors = std::io::stdout().is_terminal();
    for feature in &features {
        println!("{} {:<24} {}", mark(feature.state, colors), feature.name, feature.detail);
        if feature.state != State::Works && !feature.advice.is_empty() {
            println!("         {:<24} {}", "", feature.advice);
        }
    }
    let lacking = features.iter().filter(|feature| feature.state != State::Works).count();
    match lacking {
        0 => println!("\nEverything that Quire uses works here."),
        _ => println!("\nQuire works here; what is marked above works with a fallback."),
    }
    Ok(ExitCode::SUCCESS)
}

fn name(state: State) -> &'static str {
    match state {
        State::Works => "works",
        State::Limited => "limited",
        State::Missing => "missing",
    }
}

fn mark(state: State, colors: bool) -> String {
    let (code, text) = match state {
        State::Works => (32, "works  "),
        State::Limited => (33, "limited"),
        State::Missing => (31, "missing"),
    };
    if colors { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn as_json(feature: &Feature) -> serde_json::Value {
    json!({
        "name": feature.name,
        "state": name(feature.state),
        "detail": feature.detail,
        "advice": feature.advice,
    })
}

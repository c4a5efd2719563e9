//! `smoke NAME|all [--seconds N | --times N] [--seed N] [--input FILE] [--write-seeds DIR]`: the plain loop over fuzz targets.
//!
//! Relies on [`quire_fuzz::smoke`]; `--times` runs so many times the target's
//! number of inputs, however long that takes; `--input` runs one kept input instead, `--write-seeds` only writes the target's seeds.

use std::process::ExitCode;
use std::time::Duration;

use quire_fuzz::smoke::{Until, smoke, write_seeds};
use quire_fuzz::{TARGETS, Target};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let wanted = words.first().map_or("all", String::as_str);
    let targets: Vec<&Target> = TARGETS.iter().filter(|target| wanted == "all" || wanted == target.name).collect();
    if targets.is_empty() {
        eprintln!("no target is called {wanted}");
        return ExitCode::FAILURE;
    }
    let number = |name: &str| option(name).and_then(|text| text.parse::<u64>().ok());
    let times = number("--times");
    let time = if times.is_some() { Duration::MAX } else { Duration::from_secs(number("--seconds").unwrap_or(10)) };
    let seed = number("--seed").unwrap_or_else(clock_seed);
    for target in &targets {
        if let Some(folder) = option("--write-seeds") {
            if let Err(error) = write_seeds(target, folder.as_ref()) {
                eprintln!("writing to {folder}: {error}");
                return ExitCode::FAILURE;
            }
            continue;
        }
        if let Some(path) = option("--input") {
            match std::fs::read(&path) {
                Ok(data) => (target.run)(&data),
                Err(error) => {
                    eprintln!("reading {path}: {error}");
                    return ExitCode::FAILURE;
                }
            }
            continue;
        }
        // Said first: a run that finds a fault says nothing more.
        println!("{}: inputs from seed {seed}", target.name);
        let iterations = times.map_or(u64::MAX, |times| times.saturating_mul(target.inputs));
        println!("{}: {} inputs passed", target.name, smoke(target, seed, Until { iterations, time }));
    }
    println!("{} passed, 0 failed", targets.len());
    ExitCode::SUCCESS
}

/// Another seed for every run, printed so that it can be repeated.
fn clock_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

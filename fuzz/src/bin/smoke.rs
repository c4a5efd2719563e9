//! `smoke NAME|all [--seconds N] [--seed N] [--input FILE] [--write-seeds DIR]`: the plain loop over fuzz targets.
//!
//! Relies on [`quire_fuzz::smoke`]; `--input` runs one kept input instead, `--write-seeds` only writes the target's seeds.

use std::process::ExitCode;
use std::time::Duration;

use quire_fuzz::smoke::{Until, drive, write_seeds};
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
    let seconds = option("--seconds").and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed = option("--seed").and_then(|text| text.parse().ok()).unwrap_or_else(clock_seed);
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
        let tried = drive(target, seed, Until { iterations: u64::MAX, time: Duration::from_secs(seconds) });
        println!("{}: {tried} inputs in {seconds} s from seed {seed}", target.name);
    }
    println!("{} passed, 0 failed", targets.len());
    ExitCode::SUCCESS
}

/// Another seed for every run, printed so that it can be repeated.
fn clock_seed() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

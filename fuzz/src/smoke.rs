//! The plain loop: mutates seeds and runs a target until a count or a time is reached.
//!
//! Relies on nothing but stable Rust. An input that breaks a target is written to `fuzz/artifacts/NAME-ITERATION`, and
//! the panic goes on; `cargo run -p quire-fuzz --bin smoke -- NAME --input FILE` repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use quire_sys::thread::cpu_time_ns;

use crate::Target;
use quire_rng::SplitMix64;

use crate::mutate::mutate;

/// Longest input.
const MOST_BYTES: usize = 16 << 20;

/// An input that takes more of a processor has found a walk that does not end, or nearly so. Time alone may pass without us.
const LONGEST_RUN: Duration = Duration::from_secs(20);

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// After so many inputs.
    pub iterations: u64,
    /// Or after so long.
    pub time: Duration,
}

/// Runs `target` on mutated seeds; returns how many inputs were tried.
pub fn smoke(target: &Target, seed: u64, until: Until) -> u64 {
    let seeds = (target.seeds)();
    let mut rng = SplitMix64::new(seed);
    let began = Instant::now();
    for whole in &seeds {
        (target.run)(whole);
    }
    let mut iteration = 0;
    while iteration < until.iterations && began.elapsed() < until.time {
        let mut input = seeds[rng.index(seeds.len())].clone();
        mutate(&mut input, MOST_BYTES, &mut rng);
        let timed = || {
            let started = cpu_time_ns();
            (target.run)(&input);
            let took = Duration::from_nanos(cpu_time_ns() - started);
            assert!(took < LONGEST_RUN, "{} took {took:?} on one input", target.name);
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(timed)) {
            keep(target.name, iteration, &input);
            resume_unwind(panic);
        }
        iteration += 1;
    }
    iteration
}

/// Writes the seeds of `target` into `folder`, for engines that keep their inputs in files.
///
/// # Errors
/// What the system says.
pub fn write_seeds(target: &Target, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

fn keep(name: &str, iteration: u64, input: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    let path = folder.join(format!("{name}-{iteration}"));
    match std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
        Ok(()) => eprintln!("the input that broke {name} is in {}", path.display()),
        Err(error) => eprintln!("the input that broke {name} could not be kept in {}: {error}", path.display()),
    }
}

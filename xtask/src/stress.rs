//! `stress`: random use of the snapshot mechanisms for long.
//!
//! Relies on `crates/snapshot/tests/stress.rs`, of which `cargo test` runs 20 seconds.

use std::time::Duration;

use anyhow::bail;

use crate::steps;

/// Runs it for `minutes`, optimised, from `seed` on if there is one.
pub fn run(minutes: u64, seed: Option<u64>) -> anyhow::Result<()> {
    let mut command = steps::cargo();
    command.args(["test", "--release", "--package", "quire-snapshot", "--test", "stress", "--", "--nocapture"]);
    command.env("QUIRE_STRESS_SECONDS", (minutes * 60).to_string());
    if let Some(seed) = seed {
        command.env("QUIRE_STRESS_SEED", seed.to_string());
    }
    let limit = Duration::from_secs(minutes * 60 + 1800);
    if steps::run(command, limit)?.failed > 0 {
        bail!("the stress run found faults; its seeds are above")
    }
    Ok(())
}

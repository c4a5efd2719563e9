//! `docs`: COMPAT.md, written anew from the table of command facts.
//!
//! Relies on `quire docs compat` printing the whole file.

use anyhow::{Context, bail};

use crate::steps::release_binary;

const FILE: &str = "COMPAT.md";

/// Writes the file, or with `check` only says whether it is up to date.
pub fn run(check: bool) -> anyhow::Result<()> {
    let quire = release_binary()?;
    let output = std::process::Command::new(&quire).args(["docs", "compat"]).output().context("running quire docs")?;
    if !output.status.success() {
        bail!("quire docs compat failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let fresh = String::from_utf8(output.stdout).context("COMPAT.md is text")?;
    if check {
        let kept = std::fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
        if kept != fresh {
            bail!("{FILE} is out of date: run `cargo xtask docs`");
        }
        println!("docs: {FILE} is up to date");
    } else {
        std::fs::write(FILE, fresh).with_context(|| format!("writing {FILE}"))?;
        println!("docs: {FILE} written");
    }
    Ok(())
}

//! `docs`: the files that are made from other sources: COMPAT.md from the table of command specifications, quire.h from the doc
//! comments of the C API.
//!
//! Relies on `quire docs compat` printing the whole of COMPAT.md.

use anyhow::{Context, bail};

use crate::header;
use crate::steps::release_binary;

/// Writes the files, or with `check` only says whether they are up to date.
pub fn run(check: bool) -> anyhow::Result<()> {
    let stale = [keep(header::FILE, &header::text()?, check)?, keep("COMPAT.md", &compat()?, check)?];
    let stale: Vec<&str> = stale.into_iter().flatten().collect();
    if stale.is_empty() { Ok(()) } else { bail!("out of date: {}; run `cargo xtask docs`", stale.join(", ")) }
}

/// Writes `fresh` to `file`; with `check` only compares, and returns the name if they differ.
fn keep<'a>(file: &'a str, fresh: &str, check: bool) -> anyhow::Result<Option<&'a str>> {
    if check {
        let kept = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
        if kept != fresh {
            return Ok(Some(file));
        }
        println!("docs: {file} is up to date");
    } else {
        std::fs::write(file, fresh).with_context(|| format!("writing {file}"))?;
        println!("docs: {file} written");
    }
    Ok(None)
}

fn compat() -> anyhow::Result<String> {
    let quire = release_binary()?;
    let output = std::process::Command::new(&quire).args(["docs", "compat"]).output().context("running quire docs")?;
    if !output.status.success() {
        bail!("quire docs compat failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("COMPAT.md is text")
}

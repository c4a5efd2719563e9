//! `docs`: the files that are made from other sources: COMPAT.md from the table of command specifications, docs/info.md from that of
//! INFO's own fields, docs/metrics.md from that of metrics, quire.h from the doc comments of the C API, docs/log-lines.md from the calls that write to the log.
//!
//! Relies on `quire docs NAME` printing the whole of COMPAT.md, of docs/info.md and of docs/metrics.md.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::steps::release_binary;
use crate::{header, log_lines};

/// Writes the files, or with `check` only says whether they are up to date.
pub fn run(check: bool, quire: Option<PathBuf>) -> anyhow::Result<()> {
    let quire = quire.map_or_else(release_binary, Ok)?;
    let stale = [
        keep(header::FILE, &header::text()?, check)?,
        keep(log_lines::FILE, &log_lines::text()?, check)?,
        keep("COMPAT.md", &printed(&quire, "compat")?, check)?,
        keep("docs/metrics.md", &printed(&quire, "metrics")?, check)?,
        keep("docs/info.md", &printed(&quire, "info")?, check)?,
    ];
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

/// What `quire docs NAME` prints.
fn printed(quire: &Path, name: &str) -> anyhow::Result<String> {
    let output = std::process::Command::new(quire).args(["docs", name]).output().context("running quire docs")?;
    if !output.status.success() {
        bail!("quire docs {name} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("what quire docs {name} prints is text"))
}

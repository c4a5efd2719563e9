//! `quire image info|verify FILE`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_checkpoint::{Chain, DeltaInfo, ImageInfo};
use quire_device::DiskDirectory;
use quire_units::{Bytes, UtcTime, format_duration};
use serde_json::json;

/// Most damaged regions that are named one by one.
const NAMED: usize = 20;

/// Runs the subcommand; 1 if the image is damaged.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (what, matches) = matches.subcommand().context("info or verify")?;
    let path: &PathBuf = matches.get_one("file").context("an image")?;
    let chain = open(path)?;
    if what == "info" {
        let (info, deltas) = (chain.info(), chain.deltas());
        quire_sys::out!(
            "{}",
            if matches.get_flag("json") { as_json(&info, &deltas) } else { as_text(&info, &deltas) }
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    verify(&chain)
}

fn open(path: &Path) -> anyhow::Result<Chain> {
    if path.is_dir() {
        bail!("{0} is a directory; name the image in it, such as {0}/dump.quire", path.display());
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        bail!("{} does not name a file", path.display());
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(Chain::open(&DiskDirectory::new(dir), name)?)
}

fn facts(info: &ImageInfo) -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("file", json!(info.file)),
        ("format_version", json!(info.version)),
        ("written_by", json!(info.note)),
        ("epoch", json!(info.epoch)),
        ("created_unix_ms", json!(info.created_unix_ms)),
        ("root_handle", json!(info.root)),
        ("pages", json!(info.page_count)),
        ("present_pages", json!(info.present_pages)),
        ("present_bytes", json!(info.present_bytes())),
        ("regions", json!(info.region_count)),
        ("data_offset", json!(info.data_offset)),
        ("file_bytes", json!(info.file_bytes)),
    ]
}

fn delta_facts(delta: &DeltaInfo) -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("file", json!(delta.file)),
        ("epoch", json!(delta.epoch)),
        ("created_unix_ms", json!(delta.created_unix_ms)),
        ("changed_pages", json!(delta.changed_pages)),
        ("present_pages", json!(delta.present_pages)),
        ("file_bytes", json!(delta.file_bytes)),
    ]
}

fn as_text(info: &ImageInfo, deltas: &[DeltaInfo]) -> String {
    let lines = facts(info).into_iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name:<16} {value}\n")
    });
    let created = format!("{:<16} {}\n", "created", UtcTime(info.created_unix_ms));
    let delta = |delta: &DeltaInfo| {
        let (file, changed, bytes) = (&delta.file, delta.changed_pages, delta.file_bytes);
        format!("{:<16} {file}: {changed} pages changed, {bytes} bytes, {}\n", "delta", UtcTime(delta.created_unix_ms))
    };
    lines.chain([created]).chain(deltas.iter().map(delta)).collect()
}

fn object(facts: Vec<(&'static str, serde_json::Value)>) -> serde_json::Value {
    serde_json::Value::Object(facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn as_json(info: &ImageInfo, deltas: &[DeltaInfo]) -> String {
    let deltas: Vec<_> = deltas.iter().map(|delta| object(delta_facts(delta))).collect();
    let facts = facts(info).into_iter().chain([("deltas", json!(deltas))]);
    format!("{}\n", object(facts.collect()))
}

fn verify(chain: &Chain) -> anyhow::Result<ExitCode> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} regions, {eta} left").context("progress")?;
    let bar = ProgressBar::new(0).with_style(style);
    let summary = chain.verify(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let (size, took) = (Bytes(summary.bytes), format_duration(summary.took));
    if summary.damage.is_empty() {
        let deltas = match chain.deltas().len() {
            0 => String::new(),
            1 => ", a delta".into(),
            many => format!(", {many} deltas"),
        };
        quire_sys::outln!("ok: {} regions{deltas}, {size}, all as written ({took})", summary.regions)?;
        return Ok(ExitCode::SUCCESS);
    }
    for damage in summary.damage.iter().take(NAMED) {
        quire_sys::errln!("{damage}");
    }
    match chain.deltas().len() {
        0 => quire_sys::errln!(
            "damaged: {} of {} regions are not what was written",
            summary.damage.len(),
            summary.regions
        ),
        _ => quire_sys::errln!(
            "damaged: {} regions and pages of the image and its deltas are not what was written",
            summary.damage.len()
        ),
    }
    Ok(ExitCode::FAILURE)
}

//! `quire image info|verify FILE`. `quire image copy` is in [`crate::image_copy`], `quire image import|export` in [`crate::image_redis`],
//! `quire image watch` in [`crate::watch`].

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_checkpoint::{Codec, CompressionInfo, DeltaInfo, ImageChain, ImageInfo};
use quire_device::DiskDirectory;
use quire_snapshot::PAGE_SIZE;
use quire_units::{Bytes, UtcTime, format_duration};
use serde_json::json;

use crate::image_path::place;
use crate::{image_copy, image_redis, watch};

/// Most damaged regions that are named one by one.
const NAMED: usize = 20;

/// Runs the subcommand; 1 if the image is damaged.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (what, matches) = matches.subcommand().context("info, verify, copy, import, export or watch")?;
    if what == "watch" {
        return watch::run(matches);
    }
    let path: &PathBuf = matches.get_one("file").context("an image")?;
    if what == "copy" {
        return image_copy::run(path, matches);
    }
    if what == "import" {
        return image_redis::run_import(path, matches);
    }
    if what == "export" {
        return image_redis::run_export(path, matches);
    }
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

fn open(path: &Path) -> anyhow::Result<ImageChain> {
    let (dir, name) = place(path)?;
    Ok(ImageChain::open(&DiskDirectory::new(dir), name)?)
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
        ("compression", json!(codec(&info.compression))),
        ("compressed_regions", json!(info.compression.regions)),
        ("stored_bytes", json!(info.compression.stored_bytes)),
        ("compression_ratio", json!(ratio(info.present_bytes(), &info.compression))),
    ]
}

fn codec(compression: &CompressionInfo) -> &'static str {
    compression.codec.map_or("no", Codec::name)
}

/// How many times as large as in the file the pages are, with two decimals.
fn ratio(pages_bytes: u64, compression: &CompressionInfo) -> f64 {
    let ratio = if pages_bytes == 0 { 1.0 } else { pages_bytes as f64 / compression.stored_bytes.max(1) as f64 };
    (ratio * 100.0).round() / 100.0
}

fn delta_facts(delta: &DeltaInfo) -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("file", json!(delta.file)),
        ("epoch", json!(delta.epoch)),
        ("created_unix_ms", json!(delta.created_unix_ms)),
        ("changed_pages", json!(delta.changed_pages)),
        ("present_pages", json!(delta.present_pages)),
        ("file_bytes", json!(delta.file_bytes)),
        ("compression", json!(codec(&delta.compression))),
        ("compressed_regions", json!(delta.compression.regions)),
        ("stored_bytes", json!(delta.compression.stored_bytes)),
        ("compression_ratio", json!(ratio(delta.present_pages * PAGE_SIZE as u64, &delta.compression))),
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
        let stored = match delta.compression.codec {
            Some(codec) => format!(" ({} stored, {})", delta.compression.stored_bytes, codec.name()),
            None => String::new(),
        };
        let time = UtcTime(delta.created_unix_ms);
        format!("{:<16} {file}: {changed} pages changed, {bytes} bytes{stored}, {time}\n", "delta")
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

fn verify(chain: &ImageChain) -> anyhow::Result<ExitCode> {
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

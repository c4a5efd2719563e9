//! `quire image info|verify FILE`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_checkpoint::{Image, ImageInfo};
use quire_device::Disk;
use serde_json::json;

/// Most damaged regions that are named one by one.
const NAMED: usize = 20;

/// Runs the subcommand; 1 if the image is damaged.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (what, matches) = matches.subcommand().context("info or verify")?;
    let path: &PathBuf = matches.get_one("file").context("an image")?;
    let image = open(path)?;
    if what == "info" {
        print!("{}", if matches.get_flag("json") { as_json(&image.info()) } else { as_text(&image.info()) });
        return Ok(ExitCode::SUCCESS);
    }
    verify(&image)
}

fn open(path: &Path) -> anyhow::Result<Image> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        bail!("{} does not name a file", path.display());
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(Image::open(&Disk::new(dir), name)?)
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

fn as_text(info: &ImageInfo) -> String {
    let lines = facts(info).into_iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name:<16} {value}\n")
    });
    lines.collect()
}

fn as_json(info: &ImageInfo) -> String {
    let object: serde_json::Map<_, _> = facts(info).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    format!("{}\n", serde_json::Value::Object(object))
}

fn verify(image: &Image) -> anyhow::Result<ExitCode> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} regions, {eta} left").context("progress")?;
    let bar = ProgressBar::new(0).with_style(style);
    let summary = image.verify(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let seconds = summary.took.as_secs_f64();
    let mib = summary.bytes as f64 / f64::from(1 << 20);
    if summary.damage.is_empty() {
        println!("ok: {} regions, {mib:.0} MiB, all as written ({seconds:.2} s)", summary.regions);
        return Ok(ExitCode::SUCCESS);
    }
    for damage in summary.damage.iter().take(NAMED) {
        eprintln!("{damage}");
    }
    eprintln!("damaged: {} of {} regions are not what was written", summary.damage.len(), summary.regions);
    Ok(ExitCode::FAILURE)
}

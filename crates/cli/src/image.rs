//! `quire image info|verify FILE`, `quire image copy FILE DIR`. `quire image watch` is in [`crate::watch`].

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_checkpoint::{
    Codec, CompressionInfo, CopySummary, DeltaInfo, ImageChain, ImageInfo, copy_chain, remove_stale, temporary_files,
};
use quire_device::{Directory, DiskDirectory};
use quire_server::lock_file::CopyLock;
use quire_snapshot::PAGE_SIZE;
use quire_units::{Bytes, UtcTime, format_duration};
use quire_wal::has_log;
use serde_json::json;

use crate::watch;

/// Most damaged regions that are named one by one.
const NAMED: usize = 20;

/// Runs the subcommand; 1 if the image is damaged.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (what, matches) = matches.subcommand().context("info, verify, copy or watch")?;
    if what == "watch" {
        return watch::run(matches);
    }
    let path: &PathBuf = matches.get_one("file").context("an image")?;
    if what == "copy" {
        return copy(path, matches.get_one::<PathBuf>("dir").context("a directory")?);
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

/// The directory of an image, and its name there.
fn place(path: &Path) -> anyhow::Result<(&Path, &str)> {
    if path.is_dir() {
        bail!("{0} is a directory; name the image in it, such as {0}/dump.quire", path.display());
    }
    if let Ok(target) = path.read_link() {
        bail!(
            "{} is a symbolic link to {}. Deltas lie beside the image itself: name that",
            path.display(),
            target.display()
        );
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        bail!("{} does not name a file", path.display());
    };
    Ok((path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")), name))
}

fn copy(path: &Path, target: &Path) -> anyhow::Result<ExitCode> {
    let (dir, name) = place(path)?;
    if !target.is_dir() {
        bail!("{} is not a directory: make it first", target.display());
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %, {eta} left").context("progress")?;
    let bar = ProgressBar::new(0).with_style(style);
    let copied = copy_alone(dir, name, target, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let summary = copied?;
    let deltas = match summary.files - 1 {
        0 => String::new(),
        1 => " and a delta over it".into(),
        many => format!(" and {many} deltas over it"),
    };
    let (size, created) = (Bytes(summary.bytes), UtcTime(summary.created_unix_ms));
    quire_sys::outln!(
        "copied {name}{deltas} to {}: {size}, data of {created}, read back and verified",
        target.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Copies while no server and no other copy writes to the target.
fn copy_alone(dir: &Path, name: &str, target: &Path, on_progress: impl FnMut(u64, u64)) -> anyhow::Result<CopySummary> {
    let lock = CopyLock::take(target, name).map_err(anyhow::Error::msg)?;
    clear_leftovers(&lock, target, name)?;
    if has_log(&DiskDirectory::new(target))? {
        bail!(
            "{} holds a log of writes: a server there would replay it over the copy. Choose another directory",
            target.display()
        );
    }
    Ok(copy_chain(&DiskDirectory::new(dir), name, &DiskDirectory::new(target), on_progress)?)
}

/// Removes what copies to `target` that were ended have left, if no other one can be at it now; else names it.
fn clear_leftovers(lock: &CopyLock, target: &Path, name: &str) -> anyhow::Result<()> {
    if let Some(error) = lock.unsupported() {
        quire_sys::errln!(
            "{}: its file system has no locks ({error}), so nothing keeps a server or another copy away: see to it that none uses it until \
             this copy is done",
            target.display()
        );
    }
    let directory = DiskDirectory::new(target);
    if lock.is_alone() {
        let removed = remove_stale(&directory, name)?;
        if removed > 0 {
            quire_sys::errln!("removed {removed} files that an interrupted copy had left in {}", target.display());
        }
        return Ok(());
    }
    for file in temporary_files(&directory, name)? {
        quire_sys::errln!(
            "{}: an interrupted copy or save has left this, or one is writing it now",
            directory.path_of(&file)
        );
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use quire_server::config::Config;
    use quire_server::{lock_file, saving};

    fn settings(dir: &Path) -> Config {
        Config { dir: dir.to_owned(), ..Config::default() }
    }

    #[test]
    fn a_copy_keeps_servers_and_other_copies_away_as_long_as_it_takes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, target) = (settings(from.path()), settings(to.path()));
        let (mut store, _) = saving::open(&source).unwrap();
        store.save_blocking(&saving::place(&source)).unwrap();
        let name = &source.dbfilename;
        let mut looks = 0;
        copy_alone(from.path(), name, to.path(), |_, _| {
            let refused = lock_file::of_image(&target).unwrap_err();
            assert!(refused.contains("a copy is being written there"), "{refused}");
            assert!(lock_file::of_log(&target).is_err());
            let refused = copy_alone(from.path(), name, to.path(), |_, _| {}).unwrap_err().to_string();
            assert!(refused.contains("another copy is being written there"), "{refused}");
            looks += 1;
        })
        .unwrap();
        assert!(looks > 1);
        assert!(lock_file::of_image(&target).is_ok(), "no longer than that");
    }

    #[test]
    fn a_copy_removes_what_another_one_has_left_that_was_killed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = settings(from.path());
        let (mut store, _) = saving::open(&source).unwrap();
        store.save_blocking(&saving::place(&source)).unwrap();
        let name = &source.dbfilename;
        // As `TemporaryFile::numbered` calls them; and others' files.
        let left = ["dump.quire.tmp-4194999000", "dump.quire.tmp-4194999001"].map(|file| to.path().join(file));
        let others = ["dump.quire.tmp-x", "other.tmp-12"].map(|file| to.path().join(file));
        left.iter().chain(&others).for_each(|path| std::fs::write(path, "half").unwrap());
        copy_alone(from.path(), name, to.path(), |_, _| {}).unwrap();
        assert!(left.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
        std::fs::rename(to.path().join(name), to.path().join(format!("{name}.delta-1"))).unwrap();
        let refused = copy_alone(from.path(), name, to.path(), |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("delta-1 is there without its image"), "{refused}");
    }
}

//! `quire image import --rdb FILE IMAGE` (or `--aof PATH`) and `quire image export --rdb FILE IMAGE`: data of Redis becomes an image, and an
//! image a file that Redis loads.
//!
//! Relies on the store's saves for an image that is whole or not there; a file for Redis is written under a temporary name and made
//! durable before it gets its own. An image that is exported is opened as a clone opens it: its server may be running.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_device::DiskDirectory;
use quire_server::aof;
use quire_server::aof::import::AofSummary;
use quire_server::config::Config;
use quire_server::lock_file::CopyLock;
use quire_server::rdb::export::{ExportSummary, export};
use quire_server::rdb::import::{ImportSummary, import};
use quire_server::saving::arena_bytes;
use quire_server::state::unix_ms;
use quire_store::{ImageLocation, Store, StoreConfig};
use quire_units::Bytes;
use quire_wal::has_log;

use crate::image_copy::cancelled_by_signals;
use crate::image_path::place;

/// How far it is.
const READING: &str = "{bar:40} {percent:>3} %, {binary_bytes_per_sec}, {eta} left";
/// Written to the file at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Runs `quire image import`.
pub fn run_import(image: &Path, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (dir, name) = place(image)?;
    if !dir.is_dir() {
        bail!("{} is not a directory: make it first", dir.display());
    }
    let lock = CopyLock::take(dir, name).map_err(anyhow::Error::msg)?;
    if let Some(error) = lock.unsupported() {
        quire_sys::errln!(
            "{}: its file system has no locks ({error}): see to it that no server uses it",
            dir.display()
        );
    }
    if image.exists() {
        bail!("{} exists: move it away, or name another image", image.display());
    }
    if has_log(&DiskDirectory::new(dir))? {
        bail!("{} holds a log of writes, which belongs to another image: choose another directory", dir.display());
    }
    let mut store = Store::create(StoreConfig { max_memory_bytes: arena_bytes(0), ..StoreConfig::default() })?;
    let place = ImageLocation::new(dir, name);
    if let Some(source) = matches.get_one::<PathBuf>("aof") {
        let summary = read_aof(&mut store, source)?;
        store.save_blocking(&place)?;
        tell_commands(&summary, source, image)?;
    } else {
        let source: &PathBuf = matches.get_one("rdb").context("a file")?;
        let summary = read_rdb(&mut store, source)?;
        store.save_blocking(&place)?;
        tell_imported(&summary, source, image)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_rdb(store: &mut Store, source: &Path) -> anyhow::Result<ImportSummary> {
    let file = File::open(source).with_context(|| source.display().to_string())?;
    let bar = bar(READING, file.metadata()?.len())?;
    store.set_now_ms(unix_ms());
    let imported = import(store, file, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    imported.with_context(|| source.display().to_string())
}

fn read_aof(store: &mut Store, source: &Path) -> anyhow::Result<AofSummary> {
    let files = aof::manifest::files_at(source).map_err(anyhow::Error::msg)?;
    let mut total = 0;
    for file in &files {
        total += std::fs::metadata(file).with_context(|| file.display().to_string())?.len();
    }
    let bar = bar(READING, total)?;
    let imported = aof::import::import(&Config::default(), store, &files, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    Ok(imported?)
}

fn tell_commands(summary: &AofSummary, source: &Path, image: &Path) -> anyhow::Result<()> {
    quire_sys::outln!(
        "imported {} keys{} of {} ({} files with {} commands, {}) to {}",
        summary.keys,
        with_libraries(summary.libraries),
        source.display(),
        summary.files,
        summary.commands,
        Bytes(summary.bytes),
        image.display()
    )?;
    if let Some(cut) = &summary.cut {
        let what = if cut.is_transaction { "a transaction" } else { "a command" };
        quire_sys::errln!(
            "{} ends in {what} that is not whole, which Redis had not finished writing: the last {} bytes, from byte {} on, are left out",
            cut.file,
            cut.bytes,
            cut.offset
        );
    }
    if summary.left_out > 0 {
        quire_sys::errln!("{} commands that write nothing were not run", summary.left_out);
    }
    let losses = summary.rdb.as_ref().map(ImportSummary::losses).unwrap_or_default();
    if !losses.is_empty() {
        quire_sys::errln!("not in the image: {losses}");
    }
    Ok(())
}

fn tell_imported(summary: &ImportSummary, source: &Path, image: &Path) -> anyhow::Result<()> {
    let by = if summary.written_by.is_empty() { "an unnamed server" } else { &summary.written_by };
    quire_sys::outln!(
        "imported {} keys{} of {} (version {} of {by}, {}) to {}",
        summary.keys,
        with_libraries(summary.libraries),
        source.display(),
        summary.version,
        Bytes(summary.bytes),
        image.display()
    )?;
    let losses = summary.losses();
    if !losses.is_empty() {
        quire_sys::errln!("not in the image: {losses}");
    }
    Ok(())
}

/// Libraries of functions, if there are any, in words behind the keys.
fn with_libraries(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => " and a library of functions".into(),
        many => format!(" and {many} libraries of functions"),
    }
}

/// Runs `quire image export`; the first signal that asks for its end cancels it.
pub fn run_export(image: &Path, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let target: &PathBuf = matches.get_one("rdb").context("a file")?;
    let (dir, name) = place(image)?;
    if target.exists() {
        bail!("{} exists: move it away, or name another file", target.display());
    }
    let cancelled = cancelled_by_signals()?;
    // The log's lock of a running server is its own; what the log holds is not in the image, which is all that is exported.
    if has_log(&DiskDirectory::new(dir))? {
        quire_sys::errln!("{} holds a log of writes: what was written since the image is not exported", dir.display());
    }
    let (mut store, _) = Store::open_clone(
        StoreConfig { raise_limit_for_image: true, ..StoreConfig::default() },
        &ImageLocation::new(dir, name),
    )?;
    // A damaged image must not become a file that looks sound.
    store.finish_restore()?;
    store.set_now_ms(unix_ms());
    let exporting = PartFile::create(target)?;
    let summary = export_to(&mut store, &exporting, &cancelled)?;
    let bytes = exporting.publish(target)?;
    quire_sys::outln!(
        "exported {} keys{} of {} to {}: {}",
        summary.keys,
        with_libraries(summary.libraries),
        image.display(),
        target.display(),
        Bytes(bytes)
    )?;
    if summary.expired > 0 {
        quire_sys::errln!("not in the file: {} keys whose time has come", summary.expired);
    }
    Ok(ExitCode::SUCCESS)
}

fn export_to(store: &mut Store, to: &PartFile, cancelled: &Arc<AtomicBool>) -> anyhow::Result<ExportSummary> {
    let bar = bar("{bar:40} {percent:>3} %, {pos} keys, {eta} left", 0)?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, CancellableFile { file: &to.file, cancelled });
    let exported = export(store, out, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    if cancelled.load(Ordering::Relaxed) {
        bail!("the export was cancelled, and nothing of it is left");
    }
    let (summary, _) = exported.with_context(|| to.path.display().to_string())?;
    Ok(summary)
}

fn bar(template: &str, len: u64) -> anyhow::Result<ProgressBar> {
    Ok(ProgressBar::new(len).with_style(ProgressStyle::with_template(template).context("progress")?))
}

/// Fails once the export is cancelled.
struct CancellableFile<'f> {
    file: &'f File,
    cancelled: &'f AtomicBool,
}

impl Write for CancellableFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("cancelled"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// A file under a temporary name, which is removed unless it is published.
struct PartFile {
    path: PathBuf,
    file: File,
    published: bool,
}

impl PartFile {
    fn create(target: &Path) -> anyhow::Result<Self> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".tmp-{}", std::process::id()));
        let path = PathBuf::from(name);
        let file = File::create_new(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path, file, published: false })
    }

    /// Makes it durable and gives it its name; returns its length.
    fn publish(mut self, target: &Path) -> anyhow::Result<u64> {
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let shown = || self.path.display().to_string();
        self.file.sync_all().with_context(shown)?;
        std::fs::rename(&self.path, target).with_context(shown)?;
        File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| dir.display().to_string())?;
        let bytes = self.file.metadata().with_context(|| target.display().to_string())?.len();
        self.published = true;
        Ok(bytes)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.published {
            // There may be none to remove by now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

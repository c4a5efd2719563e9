//! `quire mount`, `quire unmount`, `quire critical` and `quire stats`: a directory behind the write cache.
//!
//! Relies on `quire-fuse` for the mount itself; the other three talk to a mount through attributes of its root.

pub(crate) mod args;
mod ending;
mod hint;
mod metrics;
mod stats;
mod unmount;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quire_fuse::{CriticalityRules, LEAST_QUEUE_BYTES, Mount, MountConfig};
use quire_units::format_bytes;
use quire_writecache::{AdmissionPolicy, WritebackProgress};
use serde_json::Value;

use crate::{logging, service_manager};

pub use args::{critical, mount, stats, unmount};
pub use hint::run as run_critical;
pub use metrics::markdown as metrics_markdown;
pub use stats::run as run_stats;
pub use unmount::run as run_unmount;

/// Mounts, and serves until it is unmounted.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(path) = matches.get_one::<PathBuf>("stats") {
        return stats::print(path, false, matches.get_flag("json"));
    }
    let config = config(matches)?;
    if matches.get_flag("daemon") {
        return start_in_background(matches.contains_id("log-file"));
    }
    quire_sys::limits::refuse_longer_files();
    logging::plain(matches.get_one::<PathBuf>("log-file").map(PathBuf::as_path))?;
    let metrics = metrics::MountMetrics::serve(matches)?;
    let prepared = Mount::prepare(&config)?;
    // A signal ends the process at once only while there is no mount that it could leave behind.
    let signals = ending::watch_signals()?;
    let mounted = prepared.mount()?;
    signals.end(mounted.unmounter());
    metrics.tell_of(mounted.figures());
    let is_sized = matches.value_source("capacity") == Some(ValueSource::CommandLine);
    announce(&config, &mounted, is_sized);
    service_manager::tell_ready();
    let drain = matches.get_flag("drain");
    let bar = drain.then(bar);
    let mut tell = |progress: &WritebackProgress| {
        if let Some(bar) = &bar {
            show(bar, progress);
        }
    };
    let ended = mounted.finish(drain.then_some(&mut tell));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    if let Err(error) = &ended
        && matches.contains_id("log-file")
    {
        // Standard error may be closed by now; without a file for messages it is where this goes.
        tracing::error!(mount_point = %config.mount_point.display(), "unmounted, but: {error}");
    }
    let figures = ended.context("unmounted, but")?;
    say(&format!("unmounted {}: {}", config.mount_point.display(), what_is_left(&figures)));
    Ok(ExitCode::SUCCESS)
}

/// What the log holds and the directory lacks, by a mount's last figures.
fn what_is_left(figures: &Value) -> String {
    let figure = |name: &str| figures["cache"][name].as_u64().unwrap_or(0);
    match (figure("cached_blocks") * 4096, figure("open_truncations")) {
        (0, 0) => "everything is in the directory".to_owned(),
        (0, cuts) => format!(
            "truncations of {cuts} files are in the log only: the next mount needs it (--drain brings them to the directory)"
        ),
        (left, _) => {
            format!("{} are in the log only: the next mount needs it (--drain brings them back)", format_bytes(left))
        }
    }
}

/// A line for people; the process that started this may be gone.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn config(matches: &ArgMatches) -> anyhow::Result<MountConfig> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned().with_context(|| format!("{name} is missing"));
    let mut config = MountConfig::new(path("backing")?, path("mountpoint")?, path("log")?);
    if !config.backing.is_dir() {
        bail!("{} is not a directory: name the one on the slow device", config.backing.display());
    }
    config.cache.capacity_bytes = matches.get_one::<u64>("capacity").copied().unwrap_or(512 << 20);
    if let Some(bytes) = matches.get_one::<u64>("memory") {
        let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
        if bytes < LEAST_QUEUE_BYTES {
            bail!("--memory: a mount needs {} at least", format_bytes(LEAST_QUEUE_BYTES as u64));
        }
        config.cache.queue_bytes = bytes;
    }
    if let Some(policy) = matches.get_one::<String>("policy") {
        config.cache.policy = policy.parse::<AdmissionPolicy>()?;
    }
    if let Some(file) = matches.get_one::<PathBuf>("rules") {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading the rules in {}", file.display()))?;
        config.rules = CriticalityRules::parse(&text).with_context(|| format!("in {}", file.display()))?;
    }
    config.critical = matches.get_many::<String>("critical").into_iter().flatten().cloned().collect();
    config.auto_critical = matches.get_flag("auto-critical");
    config.allow_other = matches.get_flag("allow-other");
    config.cache.accept_damaged = matches.get_flag("accept-damaged-log");
    config.read_only = matches.get_flag("read-only");
    config.stats_file = matches.get_one::<PathBuf>("stats-file").cloned();
    Ok(config)
}

/// Says what was mounted; `is_sized`: the user said how large the log is to be.
fn announce(config: &MountConfig, mounted: &Mount, is_sized: bool) {
    let found = mounted.recovered();
    let log = match (found.is_new, found.log.clean) {
        (true, _) => "new".to_owned(),
        (false, true) => format!("{} blocks kept from last time", found.log.cached_blocks),
        (false, false) => format!("{} blocks of {} files recovered", found.log.cached_blocks, found.files),
    };
    let bytes = mounted.log_bytes();
    if is_sized && !found.is_new && bytes + (64 << 10) < config.cache.capacity_bytes {
        tracing::warn!(bytes, "the log keeps the size it was made with; --drain, then remove the file, to change it");
    }
    for path in &found.lost {
        tracing::warn!(path = %path.display(), "bytes whose file is gone were kept");
    }
    say(&format!(
        "mounted {} at {} (policy {}, log {}: {}, {log})",
        config.backing.display(),
        config.mount_point.display(),
        config.cache.policy,
        config.log.display(),
        format_bytes(bytes),
    ));
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("writing back {bar:30} {bytes} of {total_bytes}, {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: &WritebackProgress) {
    let left = progress.cached_blocks * 4096;
    let total = bar.length().unwrap_or(0).max(left);
    bar.set_length(total);
    bar.set_position(total - left);
    bar.set_message(match progress.eta_ms {
        Some(ms) => format!("{} s left", ms.div_ceil(1000)),
        None => "time left unknown".to_owned(),
    });
}

/// `quire mount --daemon`: starts the same command in a process of its own and waits until it is mounted, which the line says that a
/// mount prints when it is ready. `has_log` says whether its messages have a file to go to.
fn start_in_background(has_log: bool) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program")?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--daemon");
    // No reader is left for its standard error.
    let quiet = if has_log { &[][..] } else { &["--log-file", "/dev/null"][..] };
    let mut child = Command::new(program)
        .args(words)
        .args(quiet)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("starting it in the background")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    if let Some(Ok(line)) = lines.next() {
        quire_sys::outln!("{line}")?;
        quire_sys::outln!("in the background, process {}", child.id())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut complaint = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut complaint).context("its errors")?;
    }
    quire_sys::output::complain(format_args!("{complaint}"));
    child.wait().context("its end")?;
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_truncation_that_the_directory_lacks_is_told_at_the_end() {
        let left = |blocks: u64, cuts: u64| {
            what_is_left(&json!({"cache": {"cached_blocks": blocks, "open_truncations": cuts}}))
        };
        assert_eq!(left(0, 0), "everything is in the directory");
        assert!(left(0, 2).contains("truncations of 2 files are in the log only"));
        assert!(left(1, 2).starts_with("4 KiB are in the log only"));
    }
}

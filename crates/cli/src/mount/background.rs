//! `quire mount --daemon`: the same command in a process of its own, left alone once it has mounted.
//!
//! Relies on the line that a mount prints when it is ready.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

/// Starts it and waits until it is mounted. `has_log` says whether its messages have a file to go to.
pub fn start(has_log: bool) -> anyhow::Result<ExitCode> {
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

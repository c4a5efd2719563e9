//! Two processes for an experiment: a supervisor, which the user starts and ends, and a worker, which measures. When either ends,
//! by whatever signal, the other one takes down all that the experiment has started and made.
//!
//! Relies on every server that is started being a descendant of the worker, and on `cleanup_list::note` being told of every directory and control
//! group. The supervisor adopts orphans, so no descendant gets away from it. A socket between both, which is
//! the worker's standard input, carries the notes, and by its end tells the worker that the supervisor is gone. The worker has a process
//! group of its own: what ends the supervisor's group at once leaves one of them to clear up.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_sys::ask::{TerminationSignal, to_end};
use quire_sys::descendants::{adopt_orphans, end_children, reap};

use crate::cleanup_list;
pub use crate::experiment::WORKER;
use crate::wcache::testbed::leftovers;

/// A worker that notes signals takes its testbed down in order: a mount is written back, limits are lifted. Then it is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for what the worker has left running.
const PATIENCE_WITH_REST: Duration = Duration::from_secs(10);
/// Between two looks at the worker.
const INTERVAL: Duration = Duration::from_millis(20);
/// No path is longer.
const MOST_PATH_BYTES: u64 = 4096;
/// The shell's number for the end by a signal, less the signal.
const BY_SIGNAL: i32 = 128;

/// The supervisor is gone, and this worker clears up.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does the work of a worker: should its supervisor end meanwhile, this process clears up and ends.
///
/// # Errors
/// As `experiment`, or standard input isn't what a supervisor gives.
pub fn work(experiment: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    obey()?;
    let done = catch_unwind(AssertUnwindSafe(experiment));
    // An experiment whose servers are being taken down fails. The thread that does that must not be cut short by the end of this one.
    while IS_ENDING.load(Ordering::Acquire) {
        std::thread::park();
    }
    done.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts the thread that waits for the supervisor's end.
fn obey() -> anyhow::Result<()> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().context("taking standard input")?;
    let mut supervisor = UnixStream::from(input);
    supervisor.peer_addr().context("standard input is no socket of a supervisor")?;
    cleanup_list::begin(supervisor.try_clone().context("a second name of the socket")?);
    let wait = move || {
        // It says nothing; this returns when it is gone.
        let _ = supervisor.read(&mut [0]);
        // Pairs with the load in `work`: what is seen to fail because of what follows fails after this.
        IS_ENDING.store(true, Ordering::Release);
        let paths = cleanup_list::take();
        let _ = adopt_orphans();
        end_rest();
        take_down(&paths);
        std::process::exit(1);
    };
    std::thread::Builder::new().name("quire-bench-end".into()).spawn(wait).context("starting a thread")?;
    Ok(())
}

/// Starts this program once more as the worker, and waits for its end. Returns how the worker ended, or by which signal this process was
/// told to.
///
/// # Errors
/// The worker can't be started.
pub fn supervise() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = words.iter().position(|word| word == "bench").context("a command line without bench")?;
    words.insert(at + 1, format!("--{WORKER}").into());
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        let noted = usize::try_from(number).unwrap_or_default();
        signal_hook::flag::register_usize(number, Arc::clone(&signal), noted).context("waiting for signals")?;
    }
    adopt_orphans().context("becoming the parent of what the experiment leaves")?;
    let (ours, theirs) = UnixStream::pair().context("a socket to the worker")?;
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    let worker = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    drop(command);
    let notes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notes);
    let listener = std::thread::spawn(move || hear(&ours, &heard));
    let status = wait(worker.id(), &signal);
    if end_rest() {
        // All that have the other end of the socket are gone, so there is an end to what it hears.
        let _ = listener.join();
    }
    take_down(&notes.lock().unwrap_or_else(PoisonError::into_inner));
    let told = i32::try_from(signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0);
    let code = match (told, status.signal(), status.code()) {
        (Some(signal), ..) => BY_SIGNAL + signal,
        (None, Some(signal), _) => {
            quire_sys::errln!("quire: the experiment was ended by signal {signal}");
            BY_SIGNAL + signal
        }
        (None, None, code) => code.unwrap_or(1),
    };
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Takes in what the worker notes, until it and all that have its standard input have ended.
fn hear(worker: &UnixStream, notes: &Mutex<Vec<PathBuf>>) {
    let mut input = BufReader::new(worker);
    loop {
        let mut path = Vec::new();
        match input.by_ref().take(MOST_PATH_BYTES).read_until(0, &mut path) {
            Ok(1..) if path.pop() == Some(0) => {
                notes.lock().unwrap_or_else(PoisonError::into_inner).push(PathBuf::from(OsString::from_vec(path)));
            }
            _ => return,
        }
    }
}

/// Waits for the worker's end. A signal that comes meanwhile is passed on; a worker that takes too long over that is killed.
fn wait(worker: u32, signal: &AtomicUsize) -> ExitStatus {
    let mut told_at: Option<Instant> = None;
    loop {
        // Orphans of the worker are waited for as well.
        while let Some((pid, status)) = reap() {
            if pid == worker {
                return status;
            }
        }
        match told_at {
            None if signal.load(Ordering::Relaxed) != 0 => {
                told_at = Some(Instant::now());
                let _ = to_end(worker, TerminationSignal::Terminate);
            }
            Some(since) if since.elapsed() > PATIENCE => {
                let _ = to_end(worker, TerminationSignal::Kill);
            }
            _ => {}
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Ends all processes that are left; whether that is done.
fn end_rest() -> bool {
    let left = end_children(PATIENCE_WITH_REST);
    if left > 0 {
        quire_sys::errln!("quire: {left} processes of the experiment don't end");
    }
    left == 0
}

/// Removes what was made, the last first.
fn take_down(paths: &[PathBuf]) {
    for path in paths.iter().rev().filter(|path| path.exists()) {
        leftovers::take_down(path);
    }
}

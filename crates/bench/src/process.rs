//! Servers as child processes: Quire and its peers, each in a directory and on a port of its own.
//!
//! Relies on the server keeping in the foreground. Dropping a [`Server`] ends its process, so no run leaves one
//! behind.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::info::ServerInfo;
use crate::memory;
use crate::resp::{Connection, Value};

/// Which program a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// Quire.
    Quire,
    /// redis-server, or something that takes its arguments (Valkey).
    Redis,
}

impl ServerKind {
    /// How often its memory is looked at: a walk over the peers' small pages holds up their page faults.
    pub fn memory_interval(self) -> Duration {
        Duration::from_millis(match self {
            Self::Quire => 10,
            Self::Redis => 100,
        })
    }
}

/// A program that can be started as a server.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name in reports.
    pub name: String,
    /// How it wants to be started.
    pub kind: ServerKind,
    /// The binary.
    pub binary: PathBuf,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    program: Program,
    child: Child,
    port: u16,
    dir: PathBuf,
    started: Instant,
}

impl Server {
    /// Starts `program` on `port` with its data in `dir`; does not wait until it answers.
    ///
    /// # Errors
    /// When the binary cannot be started or the port is taken by another program.
    pub fn start(program: &Program, port: u16, dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(program, port, dir, &[])
    }

    /// As [`Server::start`], with further environment variables.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(
        program: &Program,
        port: u16,
        dir: &Path,
        environment: &[(&str, std::ffi::OsString)],
    ) -> anyhow::Result<Self> {
        Self::start_told(program, port, dir, environment, &[])
    }

    /// As [`Server::start_with`], with further words after the usual arguments.
    ///
    /// # Errors
    /// As there.
    pub fn start_told(
        program: &Program,
        port: u16,
        dir: &Path,
        environment: &[(&str, std::ffi::OsString)],
        words: &[&str],
    ) -> anyhow::Result<Self> {
        if Connection::open(port).is_ok() {
            bail!("port {port} is in use by another program; choose others with --port");
        }
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let log = File::options().create(true).append(true).open(dir.join("server.log"))?;
        let mut command = Command::new(&program.binary);
        if program.kind == ServerKind::Quire {
            command.arg("serve");
        }
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir).args(["--save", ""]).args(words);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("starting {}", program.binary.display()))?;
        Ok(Self { program: program.clone(), child, port, dir: dir.to_owned(), started })
    }

    /// Waits until the server listens.
    ///
    /// # Errors
    /// When it ended or did not listen within two minutes.
    pub fn connect(&mut self) -> anyhow::Result<Connection> {
        loop {
            if let Ok(connection) = Connection::open(self.port) {
                return Ok(connection);
            }
            self.check_alive()?;
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Waits until the server answers reads, then returns a connection.
    ///
    /// # Errors
    /// When it ended or did not answer within two minutes.
    pub fn ready(&mut self) -> anyhow::Result<Connection> {
        let mut connection = self.connect()?;
        loop {
            match connection.line("GET no-such-key")? {
                Value::Error(text) if text.starts_with("LOADING") => std::thread::sleep(Duration::from_millis(2)),
                Value::Error(text) => bail!("{} does not serve: {text}", self.program.name),
                _ => return Ok(connection),
            }
            self.check_alive()?;
        }
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let log = std::fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(8).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("{} ended ({status}); its log ends in:\n{}", self.program.name, tail.join("\n"));
        }
        if self.started.elapsed() > Duration::from_secs(120) {
            bail!("{} does not answer after two minutes", self.program.name);
        }
        Ok(())
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Which program it is.
    pub fn kind(&self) -> ServerKind {
        self.program.kind
    }

    /// The program itself.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its data lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// How long the last save held up commands, by the server's own account: Quire's cut, Redis's fork.
    ///
    /// # Errors
    /// When INFO does not say.
    pub fn save_stall_us(&self, control: &mut Connection) -> anyhow::Result<f64> {
        match self.program.kind {
            ServerKind::Quire => ServerInfo::ask(control, "everything")?.number("last_cut_stall_us"),
            ServerKind::Redis => ServerInfo::ask(control, "stats")?.number("latest_fork_usec"),
        }
    }

    /// The file that holds the last save: the largest in its directory besides the log.
    ///
    /// # Errors
    /// When there is none.
    pub fn saved_file(&self) -> anyhow::Result<PathBuf> {
        let entries = std::fs::read_dir(&self.dir)?.filter_map(Result::ok);
        entries
            .filter(|entry| entry.file_name() != "server.log")
            .filter_map(|entry| Some((entry.metadata().ok().filter(|meta| meta.is_file())?.len(), entry.path())))
            .max()
            .map(|(_, path)| path)
            .with_context(|| format!("no saved file in {}", self.dir.display()))
    }

    /// Ends the process at once, without a save.
    pub fn kill(mut self) {
        self.end();
    }

    /// Ends the process at once, without a save, before the server is replaced by another one.
    pub fn end(&mut self) {
        // Both fail only when the process has already ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// CPU time that the threads of process `pid` have used, without its children, in seconds.
///
/// # Errors
/// When there is no such process.
pub fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    /// Ticks a second in `/proc`, on every Linux.
    const TICKS_PER_S: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("asking for the CPU time of a process")?;
    // The name, in parentheses, may hold anything; user and system time are the 12th and 13th words after it.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: f64 = after.split_ascii_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

/// Milliseconds from starting `program` on an empty directory to its first answer: what no start with data can be below. The
/// directory is removed.
///
/// # Errors
/// When it does not start.
pub fn empty_start_ms(program: &Program, port: u16, dir: &Path) -> anyhow::Result<f64> {
    let mut server = Server::start(program, port, dir)?;
    server.ready()?;
    let took = server.started().elapsed();
    server.kill();
    std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    Ok(took.as_secs_f64() * 1000.0)
}

/// A background save that was waited for.
#[derive(Debug, Clone, Copy)]
pub struct BackgroundSave {
    /// When BGSAVE was sent.
    pub began: Instant,
    /// How long its reply took.
    pub reply: Duration,
    /// From sending BGSAVE until the server reported the save as done.
    pub took: Duration,
}

/// Runs one BGSAVE and waits until it is done; `poll` is how often the server is asked.
///
/// # Errors
/// When the save is refused or fails.
pub fn background_save(control: &mut Connection, poll: Duration) -> anyhow::Result<BackgroundSave> {
    let began = Instant::now();
    let answer = control.line("BGSAVE")?;
    let reply = began.elapsed();
    if let Value::Error(text) = answer {
        bail!("BGSAVE was refused: {text}");
    }
    loop {
        std::thread::sleep(poll);
        let info = ServerInfo::ask(control, "persistence")?;
        if !info.flag("rdb_bgsave_in_progress") {
            let took = began.elapsed();
            match info.text("rdb_last_bgsave_status") {
                Some("ok") => return Ok(BackgroundSave { began, reply, took }),
                status => bail!("the save failed: rdb_last_bgsave_status is {status:?}"),
            }
        }
        if began.elapsed() > Duration::from_secs(300) {
            bail!("the save is not done after five minutes");
        }
    }
}

/// As [`background_save`], with the largest proportional set size of process `pid` and its children meanwhile, at which it looks every
/// `interval`.
///
/// # Errors
/// As there.
pub fn watched_save(
    control: &mut Connection,
    pid: u32,
    poll: Duration,
    interval: Duration,
) -> anyhow::Result<(BackgroundSave, u64)> {
    let stop = AtomicBool::new(false);
    let (save, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| memory::watch_peak(pid, interval, &stop).0);
        let save = background_save(control, poll);
        stop.store(true, Ordering::Relaxed);
        (save, watch.join().expect("the watching thread does not panic"))
    });
    Ok((save?, peak))
}

/// The first file called `name` on the PATH.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cpu_time_grows() {
        let before = cpu_s(std::process::id()).unwrap();
        let began = Instant::now();
        while cpu_s(std::process::id()).unwrap() == before {
            assert!(began.elapsed() < Duration::from_secs(30));
        }
    }
}

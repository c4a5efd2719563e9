//! A PostgreSQL cluster: made, started, reached by its socket, ended.
//!
//! Relies on the server staying in the foreground. It listens on a Unix socket only, trusts who gets there, and runs as
//! a user without privileges, as it insists on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use postgres::{Client, NoTls};
use quire_sys::ask::{TerminationSignal, to_end};

use crate::process::find_on_path;
use crate::wcache::testbed::command::run;
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::unprivileged_user::UnprivilegedUser;

/// The superuser of every cluster.
pub const ROLE: &str = "quire";
/// Part of the socket's name; other clusters don't meet it, since the directory is ours.
pub const PORT: u16 = 24_500;

/// The programs of an installed PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresPrograms {
    dir: PathBuf,
    /// As whom they run.
    pub user: UnprivilegedUser,
}

impl PostgresPrograms {
    /// Finds PostgreSQL 15, or else the newest there is.
    ///
    /// # Errors
    /// When there is none.
    pub fn find() -> anyhow::Result<Self> {
        let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
        let mut versions: Vec<(bool, u32, PathBuf)> = installed
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
            .filter(|(_, dir)| dir.join("postgres").is_file() && dir.join("initdb").is_file())
            .map(|(version, dir)| (version == 15, version, dir))
            .collect();
        versions.sort();
        let on_path = || Some(find_on_path("postgres")?.canonicalize().ok()?.parent()?.to_owned());
        let dir = versions.pop().map(|(.., dir)| dir).or_else(on_path);
        let dir = dir.context("PostgreSQL is missing (Debian package postgresql-15)")?;
        Ok(Self { dir, user: UnprivilegedUser::unprivileged()? })
    }

    /// One of the programs.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// What `postgres --version` says.
    pub fn version(&self) -> String {
        let told = run(self.user.command(&self.path("postgres")).arg("--version")).unwrap_or_default();
        told.trim().to_owned()
    }

    /// Makes an empty cluster in `data`, a directory that isn't there yet or is empty and the user's.
    ///
    /// # Errors
    /// When initdb fails.
    pub fn init(&self, data: &Path) -> anyhow::Result<()> {
        let mut command = self.user.command(&self.path("initdb"));
        command.arg("-D").arg(data);
        command.args(["-U", ROLE, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        run(&mut command).map(drop)
    }
}

/// A running cluster. Dropping it ends it at once.
#[derive(Debug)]
pub struct PostgresCluster {
    child: Child,
    sockets: PathBuf,
    log: PathBuf,
}

impl PostgresCluster {
    /// Starts the cluster in `data` and waits until it takes connections. Its socket and its server log come to
    /// `sockets`.
    ///
    /// # Errors
    /// When it ends instead, takes longer than two minutes, or there was an interrupt.
    pub fn start(
        programs: &PostgresPrograms,
        data: &Path,
        sockets: &Path,
        settings: &[(&str, String)],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let log = sockets.join("postgres.log");
        let out = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = programs.user.command(&programs.path("postgres"));
        command.arg("-D").arg(data).args(["-c", "listen_addresses="]);
        command.args(["-c", &format!("unix_socket_directories={}", sockets.display()), "-c", &format!("port={PORT}")]);
        for (name, value) in settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().context("starting postgres")?;
        let mut cluster = Self { child, sockets: sockets.to_owned(), log };
        cluster.wait_ready(interrupt)?;
        Ok(cluster)
    }

    fn wait_ready(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.connect("postgres").is_err() {
            interrupt.sleep(Duration::from_millis(50))?;
            if let Some(status) = self.child.try_wait().context("looking after postgres")? {
                bail!("postgres ended ({status}): {}", self.complaint());
            }
            if began.elapsed() > Duration::from_secs(120) {
                bail!("postgres takes no connections after two minutes: {}", self.complaint());
            }
        }
        Ok(())
    }

    fn complaint(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(4).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// A connection to `database`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn connect(&self, database: &str) -> anyhow::Result<Client> {
        connect(&self.sockets, database)
    }

    /// Where its socket is.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Ends it as `how` says (`Interrupt`: with a checkpoint; `Quit`: at once) and waits for that.
    ///
    /// # Errors
    /// When it doesn't end.
    pub fn stop(mut self, how: TerminationSignal) -> anyhow::Result<()> {
        self.end(how, Duration::from_secs(300)).with_context(|| format!("postgres: {}", self.complaint()))
    }

    fn end(&mut self, how: TerminationSignal, limit: Duration) -> anyhow::Result<()> {
        if self.child.try_wait().context("looking after postgres")?.is_some() {
            return Ok(());
        }
        to_end(self.child.id(), how).context("asking postgres to end")?;
        let began = Instant::now();
        while self.child.try_wait().context("waiting for postgres")?.is_none() {
            if began.elapsed() > limit {
                bail!("it has not ended after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A connection to `database` of the cluster whose socket is in `sockets`.
///
/// # Errors
/// When it is refused.
pub fn connect(sockets: &Path, database: &str) -> anyhow::Result<Client> {
    let mut config = postgres::Config::new();
    config.host_path(sockets).port(PORT).user(ROLE).dbname(database);
    config.connect(NoTls).with_context(|| format!("connecting to database {database}"))
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        if self.end(TerminationSignal::Quit, Duration::from_secs(10)).is_err() {
            // Its children notice that and end, too.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Settings of a cluster that is measured: everything that is acknowledged is durable.
pub fn measured_settings(buffers_mib: u64, wal_mib: u64, checkpoint_s: u64) -> Vec<(&'static str, String)> {
    vec![
        ("shared_buffers", format!("{buffers_mib}MB")),
        ("max_connections", "100".into()),
        // The paper: a checkpoint when 256 MB of log are written. Since 9.5 one begins when this size, divided by one and the completion
        // target, is.
        ("max_wal_size", format!("{}MB", wal_mib * 3 / 2)),
        ("min_wal_size", format!("{}MB", wal_mib * 3 / 2)),
        ("checkpoint_timeout", format!("{checkpoint_s}s")),
        // PostgreSQL 9.2's, which the paper ran.
        ("checkpoint_completion_target", "0.5".into()),
        ("log_checkpoints", "on".into()),
    ]
}

/// Settings of a cluster that is filled: nothing of it needs to survive but a clean end. That leaves as many segments
/// of the log to be written again as a cluster has that runs for long, so that a short trial needn't make new ones.
pub fn filling_settings(wal_mib: u64) -> Vec<(&'static str, String)> {
    let mut settings = vec![("min_wal_size", format!("{}MB", wal_mib.max(48) * 3 / 2))];
    let fixed = [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "off"),
        ("wal_level", "minimal"),
        ("max_wal_senders", "0"),
        ("autovacuum", "off"),
        ("shared_buffers", "256MB"),
        ("maintenance_work_mem", "256MB"),
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "1h"),
    ];
    settings.extend(fixed.map(|(name, value)| (name, value.to_owned())));
    settings
}

//! A server that saves in one of both ways, filled, updated and restarted.
//!
//! Relies on [`Server`] for its process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use quire_rng::SplitMix64;

use super::build::ServerPrograms;
use crate::info::ServerInfo;
use crate::load::closed_loop;
use crate::process::{Program, Server, ServerKind};
use crate::requests::{self, Values};
use crate::resp::{Connection, Value};

/// Most updates that are sent before their replies are read.
const BATCH: u64 = 64;

/// What a server saves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreFormat {
    /// redis-server as it is: an RDB file.
    Rdb,
    /// A checkpoint by `mdc_*`.
    Mdc,
}

impl StoreFormat {
    /// The server's name in figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rdb => "redis_fork",
            Self::Mdc => "redis_mdc",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Rdb => "dump.rdb",
            Self::Mdc => "dump.mdc",
        }
    }
}

/// A running server with its keys.
#[derive(Debug)]
pub(super) struct SavingServer {
    format: StoreFormat,
    pub(super) server: Server,
    pub(super) control: Connection,
    keys: u64,
    value_bytes: usize,
    /// The next load's seed.
    seed: u64,
}

impl SavingServer {
    /// Starts a server and fills it.
    ///
    /// # Errors
    /// When it can't be started or filled.
    pub(super) fn start(
        format: StoreFormat,
        programs: &ServerPrograms,
        dir: &Path,
        port: u16,
        keys: u64,
        value_bytes: usize,
    ) -> anyhow::Result<Self> {
        let binary = match format {
            StoreFormat::Rdb => programs.plain.clone(),
            StoreFormat::Mdc => programs.mdc.clone(),
        };
        let program = Program { name: format.name().to_owned(), kind: ServerKind::Redis, binary };
        let (server, control) = begin(format, &program, port, &dir.join(format.name()))?;
        closed_loop::fill(port, 0..keys, value_bytes, 2)?;
        Ok(Self { format, server, control, keys, value_bytes, seed: 1 })
    }

    /// What it saves to.
    pub(super) fn format(&self) -> StoreFormat {
        self.format
    }

    /// The file that it saves to.
    pub(super) fn file(&self) -> PathBuf {
        self.server.dir().join(self.format.file())
    }

    /// The version of redis.
    ///
    /// # Errors
    /// When INFO does not say.
    pub(super) fn version(&mut self) -> anyhow::Result<String> {
        let info = ServerInfo::ask(&mut self.control, "server")?;
        Ok(info.text("redis_version").context("INFO names no version")?.to_owned())
    }

    /// The load of a save: updates of keys that are drawn uniformly.
    pub(super) fn load(&mut self, per_s: f64) -> PacedUpdates {
        self.seed += 1;
        PacedUpdates {
            port: self.server.port(),
            keys: self.keys,
            value_bytes: self.value_bytes,
            per_s,
            seed: self.seed,
        }
    }

    /// A digest of all that it holds.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) fn digest(&mut self) -> anyhow::Result<String> {
        match self.control.line("DEBUG DIGEST")? {
            Value::Simple(digest) => Ok(digest),
            other => bail!("DEBUG DIGEST answered {other:?}"),
        }
    }

    /// Kills it and starts it again; `cold` runs between.
    ///
    /// # Errors
    /// When it doesn't start, or can't read its file.
    pub(super) fn restart(&mut self, cold: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<Duration> {
        let (program, port) = (self.server.program().clone(), self.server.port());
        let (dir, file) = (self.server.dir().to_owned(), self.file());
        self.server.end();
        cold(&file)?;
        let (server, control) = begin(self.format, &program, port, &dir)?;
        (self.server, self.control) = (server, control);
        Ok(self.server.started().elapsed())
    }
}

/// Starts a server and waits until it answers reads.
fn begin(format: StoreFormat, program: &Program, port: u16, dir: &Path) -> anyhow::Result<(Server, Connection)> {
    let words = [
        "--dbfilename",
        format.file(),
        "--rdbcompression",
        "no",
        "--enable-debug-command",
        "local",
        "--loglevel",
        "notice",
    ];
    let mut server = Server::start_told(program, port, dir, &[], &words)?;
    let control = server.ready()?;
    Ok((server, control))
}

/// Updates at a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacedUpdates {
    port: u16,
    keys: u64,
    value_bytes: usize,
    per_s: f64,
    seed: u64,
}

impl PacedUpdates {
    /// Updates keys until `stop`; `done` counts. Where the server is slower than the rate, it sets the pace.
    ///
    /// # Errors
    /// When the connection fails or the server refuses an update.
    pub(super) fn run(self, stop: &AtomicBool, done: &AtomicU64) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.port)?;
        let (values, mut rng) = (Values::new(self.value_bytes, self.seed), SplitMix64::new(self.seed));
        let (began, mut sent, mut requests) = (Instant::now(), 0, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let due = (began.elapsed().as_secs_f64() * self.per_s) as u64;
            let count = due.saturating_sub(sent).min(BATCH);
            if count == 0 {
                std::thread::sleep(Duration::from_micros(500));
                continue;
            }
            requests.clear();
            for _ in 0..count {
                requests::push_set(&mut requests, rng.below(self.keys), values.pick(&mut rng));
            }
            connection.send(&requests)?;
            if connection.skip(count as usize)? > 0 {
                bail!("the server refused an update");
            }
            sent += count;
            done.store(sent, Ordering::Relaxed);
        }
        Ok(())
    }
}

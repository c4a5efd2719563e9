//! TPC-C on SQLite: the library of this machine with its own VFS beside the VFS of `libquire_sqlite.so`, memory limited.
//!
//! Relies on `wcache` for the population and for what terminals ask for, and on `libquire_sqlite.so` beside this program. Both candidates
//! work on copies of one file, in WAL mode, each transaction a commit (`synchronous=NORMAL`), with a connection for each terminal.

pub mod check;
pub mod figures;
pub mod fill;
mod load;
pub mod results;
pub mod terminal;

use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, ensure};
use quire_peers::sqlite::{Connection, Sqlite};

use super::sqlite_spec::{SqliteCandidate, SqliteSpec};
use super::trial_spec::TrialSpec;
use crate::fastmap::phase_stats::PhaseStats;
use load::TerminalLoad;

/// The environment's variable for the memory of `libquire_sqlite.so`.
pub const POOL_VARIABLE: &str = "QUIRE_SQLITE_POOL";
/// The variable for its second tier.
pub const TIER_VARIABLE: &str = "QUIRE_SQLITE_TIER";
/// How long a connection waits for another's lock before the trial fails.
const BUSY_MS: i32 = 60_000;
/// Reads the large tables once, as a dump of the database would.
const WARM_SCAN: [&str; 3] = [
    "SELECT sum(length(c_data)) FROM customer",
    "SELECT sum(length(s_data)) FROM stock",
    "SELECT sum(ol_amount) FROM order_line",
];

/// The URI by which SQLite opens `path` through the VFS `vfs`.
pub fn uri(path: &Path, vfs: &str) -> String {
    let mut name = String::new();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'?' | b'#' | b'%' | 128.. => name.push_str(&format!("%{byte:02x}")),
            _ => name.push(char::from(byte)),
        }
    }
    format!("file:{name}?vfs={vfs}")
}

/// A connection of a trial.
fn connect(sqlite: &Sqlite, spec: &SqliteSpec, path: &Path, clients: usize) -> anyhow::Result<Connection> {
    let connection = sqlite.open(&uri(path, spec.candidate.vfs()))?;
    connection.set_busy_timeout(BUSY_MS);
    connection.execute("PRAGMA synchronous = NORMAL")?;
    if let Some(bytes) = spec.cache_bytes {
        connection.execute(&format!("PRAGMA cache_size = -{}", (bytes / clients.max(1) as u64 / 1024).max(1)))?;
    }
    Ok(connection)
}

/// Does what `trial` tells with the database of `spec`, which is its testbed, in this process.
///
/// # Errors
/// SQLite fails, or the database is inconsistent in the end.
pub fn carry_out(trial: &TrialSpec, spec: &SqliteSpec) -> anyhow::Result<Vec<PhaseStats>> {
    let sqlite = Sqlite::load()?;
    if spec.candidate != SqliteCandidate::Stock {
        sqlite.open("file::memory:")?.load_extension(&spec.extension)?;
    }
    let path = &trial.testbed.path;
    // Open as long as the trial lasts, as a program's connections are: with the last one the WAL goes, and what is cached for it.
    let keeper = connect(&sqlite, spec, path, 1)?;
    for scan in WARM_SCAN {
        keeper.prepare(scan)?.run(&[])?;
    }
    let writers = Mutex::new(());
    let load = TerminalLoad { sqlite: &sqlite, trial, spec, writers: &writers };
    let mut phases = Vec::new();
    for &clients in &trial.clients {
        phases.push(load.run(clients).with_context(|| format!("{clients} terminals"))?);
    }
    drop(keeper);
    // By SQLite's own VFS, whichever one wrote it.
    let plain = sqlite.open(&uri(path, "unix"))?;
    plain.set_busy_timeout(BUSY_MS);
    let broken = check::broken(&plain)?;
    ensure!(broken.is_empty(), "the database is inconsistent: {}", broken.join("; "));
    Ok(phases)
}

#[cfg(test)]
mod tests;

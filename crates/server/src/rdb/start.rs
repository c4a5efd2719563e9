//! The data that a server starts with which has no image of its own, but finds a `dump.rdb` of Redis in its directory; and what it may not
//! leave unread there.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quire_store::Store;

use super::import::{ImportSummary, import};
use crate::load_progress::LoadProgress;
use crate::state::unix_ms;

/// Redis' own name of the file.
pub const FILE: &str = "dump.rdb";
/// What Redis calls its append-only files unless told: a directory, and a single file before Redis 7.
const APPEND_ONLY: [&str; 2] = ["appendonlydir", "appendonly.aof"];
/// How often a long import says how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Whether a file begins as an RDB file does.
pub fn is_rdb(path: &Path) -> bool {
    let mut begin = [0; 5];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && quire_rdb::is_rdb(&begin)
}

/// Append-only files of Redis in a directory. A server that logs its writes (`appendonly yes`) would start with these, and with no RDB
/// file, which may be much older.
pub fn append_only_files(dir: &Path) -> Option<PathBuf> {
    APPEND_ONLY.into_iter().map(|name| dir.join(name)).find(|path| path.exists())
}

/// Reads an RDB file into an empty store; `None` if there is no such file.
///
/// # Errors
/// In words for people: the file can't be read.
pub fn import_file(store: &mut Store, path: &Path, progress: &LoadProgress) -> Result<Option<ImportSummary>, String> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{shown} cannot be read: {error}. Move it away to start empty")),
    };
    let total = file.metadata().map(|facts| facts.len()).unwrap_or(0);
    // Which keys have expired is known by it.
    store.set_now_ms(unix_ms());
    let began = Instant::now();
    let mut told = began;
    let imported = import(store, file, |bytes| {
        progress.tell(bytes, total);
        if told.elapsed() > PROGRESS_EVERY {
            told = Instant::now();
            let percent = bytes * 100 / total.max(1);
            tracing::info!(bytes, percent, "reading the data of Redis");
        }
    });
    let summary = imported.map_err(|error| {
        format!(
            "{shown} is a Redis RDB file that cannot be read: {error}. Put a good file in its place, or move it away to start \
             empty (redis-check-rdb tells more)"
        )
    })?;
    progress.end_part();
    let losses = summary.losses();
    let took_ms = began.elapsed().as_millis() as u64;
    tracing::info!(
        file = %shown,
        version = summary.version,
        written_by = summary.written_by,
        keys = summary.keys,
        libraries = summary.libraries,
        took_ms,
        "there is no image yet, so the data of Redis is used; the next save makes an image"
    );
    if !losses.is_empty() {
        tracing::warn!(file = %shown, losses, "of the data of Redis this is not here");
    }
    Ok(Some(summary))
}

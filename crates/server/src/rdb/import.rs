//! A whole RDB file, read into an empty store.

use std::collections::BTreeMap;
use std::io::Read;

use quire_rdb::{Item, KeyItem, RdbError, Reader};
use quire_store::{DbId, Store};

use super::load::{LoadError, LoadTarget, Loaded, load_value};
use crate::library_store;
use crate::scripts::{FunctionEngine, LOAD_LIMIT, LibrarySet};

/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 4 << 20;
/// Memory in which libraries of functions are tried.
const LIBRARY_MEMORY_BYTES: usize = 256 << 20;

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It can't be read.
    #[error(transparent)]
    Rdb(#[from] RdbError),
    /// Its libraries of functions can't be loaded.
    #[error("the libraries of functions in it: {0}")]
    Functions(String),
    /// A key's value could not be put into the store.
    #[error("at byte {offset}, the key {key} of database {db}: {source}")]
    Key {
        /// Where the value ends, or what is wrong with it was found.
        offset: u64,
        /// The database.
        db: u64,
        /// The key.
        key: String,
        /// What stands in the way.
        source: LoadError,
    },
}

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportSummary {
    /// The file's version.
    pub version: u32,
    /// The version of the server that wrote it, as that says.
    pub written_by: String,
    /// Keys that the store has now.
    pub keys: u64,
    /// Keys whose time had come.
    pub expired: u64,
    /// Keys without a value.
    pub empty: u64,
    /// Keys whose values this program has no type for, by what they are.
    pub unsupported: BTreeMap<&'static str, u64>,
    /// Libraries of functions that the store has now.
    pub libraries: u64,
    /// Modules whose data was left out.
    pub modules: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl ImportSummary {
    /// What was left out, or is not as it was, in words for people; empty if that is nothing.
    pub fn losses(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |count: u64, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        for (kind, count) in &self.unsupported {
            part(*count, &format!("keys of type {kind} left out"));
        }
        part(self.modules, "parts of modules left out");
        part(self.empty, "keys without a value left out");
        part(self.expired, "keys whose time has come left out");
        parts.join(", ")
    }
}

/// Reads a file into a store, whose clock says which keys have expired. `on_progress` is told how many bytes were read.
///
/// # Errors
/// The file can't be read, or the store can't take it; the store holds a part of it then.
pub fn import<R: Read>(
    store: &mut Store,
    input: R,
    on_progress: impl FnMut(u64),
) -> Result<ImportSummary, ImportError> {
    let (summary, _, _) = import_prefix(store, input, on_progress)?;
    Ok(summary)
}

/// The same from a source that goes on behind the file: bytes that were read too far, and the source, come back, too.
///
/// # Errors
/// As [`import`].
pub fn import_prefix<R: Read>(
    store: &mut Store,
    input: R,
    mut on_progress: impl FnMut(u64),
) -> Result<(ImportSummary, Vec<u8>, R), ImportError> {
    let mut reader = Reader::new(input)?;
    let mut summary = ImportSummary { version: reader.version(), ..ImportSummary::default() };
    let (mut told, mut libraries) = (0, Vec::new());
    loop {
        let offset = reader.offset();
        if offset - told >= REPORT_BYTES {
            on_progress(offset);
            told = offset;
        }
        match reader.next_item()? {
            None => break,
            Some(Item::Aux { name, value }) if name == b"redis-ver" || name == b"valkey-ver" => {
                summary.written_by = String::from_utf8_lossy(&value).into_owned();
            }
            Some(Item::Aux { .. }) => {}
            Some(Item::Function(text)) => libraries.push(text),
            Some(Item::ModuleAux { .. }) => summary.modules += 1,
            Some(Item::Key(item)) => {
                let (db, name) = (item.db, item.key.clone());
                if let Err(source) = import_key(store, item, &mut summary) {
                    let key = name.escape_ascii().to_string();
                    return Err(ImportError::Key { offset: reader.offset(), db, key, source });
                }
            }
        }
    }
    summary.bytes = reader.offset();
    summary.libraries = libraries.len() as u64;
    import_libraries(store, &libraries).map_err(ImportError::Functions)?;
    on_progress(summary.bytes);
    let (behind, rest) = reader.into_rest();
    Ok((summary, behind, rest))
}

/// Keeps libraries of functions, if all of them can be loaded.
fn import_libraries(store: &mut Store, texts: &[Vec<u8>]) -> Result<(), String> {
    if texts.is_empty() {
        return Ok(());
    }
    let engine = FunctionEngine::new(LIBRARY_MEMORY_BYTES).map_err(|error| error.to_string())?;
    let mut set = LibrarySet::default();
    for text in texts {
        set.load(&engine, text, (false, Some(LOAD_LIMIT)))?;
    }
    library_store::write(store, texts.iter().map(Vec::as_slice)).map_err(|error| error.to_string())
}

fn import_key<R: Read>(store: &mut Store, item: KeyItem<'_, R>, summary: &mut ImportSummary) -> Result<(), LoadError> {
    let KeyItem { db, key, facts, value } = item;
    if facts.expire_ms.is_some_and(|at_ms| at_ms <= store.now_ms()) {
        summary.expired += 1;
        return Ok(value.skip()?);
    }
    let db = DbId(u8::try_from(db).map_err(|_| LoadError::Content("there is no such database here"))?);
    if store.kind(db, &key)?.is_some() {
        return Err(LoadError::Content("it is there twice"));
    }
    match load_value(store, LoadTarget { db, key: &key, is_aside: false }, value)? {
        Loaded::Empty => summary.empty += 1,
        Loaded::Unsupported(kind) => *summary.unsupported.entry(kind).or_default() += 1,
        Loaded::Whole => {
            summary.keys += 1;
            if facts.expire_ms.is_some() {
                store.set_expiry(db, &key, facts.expire_ms)?;
            }
            if let Some(frequency) = facts.frequency {
                store.set_access_count(db, &key, frequency)?;
            }
            if let Some(idle_s) = facts.idle_s {
                store.set_idle_seconds(db, &key, idle_s)?;
            }
        }
    }
    Ok(())
}

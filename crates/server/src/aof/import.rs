//! Append-only files, read into an empty store.
//!
//! The commands in them are run by their own handlers, as in a replay of the log: only what writes is run, and no key expires
//! meanwhile, since the files say which keys have gone. A transaction is run when it is whole. Relies on times to live being told as
//! instants, as Redis tells them; others count from now.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use quire_store::{DbId, Store, StoreError};

use super::command_file::{CommandFile, Next};
use crate::args::{ArgRange, Args};
use crate::config::Config;
use crate::dispatch;
use crate::library_store;
use crate::rdb::import::{ImportError, ImportSummary, import_prefix};
use crate::rdb::start::is_rdb;
use crate::registry::{self, Registry};
use crate::replay::Replayer;
use crate::specs;
use crate::state::{ServerState, unix_ms};
use crate::table::{CommandGroup, WRITE};

/// The clock while files are read: before every instant at which a key expires.
const BEFORE_ALL_MS: i64 = 1;
/// Commands between two reports of progress.
const COMMANDS_AT_ONCE: u64 = 1024;
/// Keys that are looked up before they are made to look as if they were used now.
const KEYS_AT_ONCE: usize = 256;
const BUFFER_BYTES: usize = 1 << 20;

/// Why files could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum AofError {
    /// A file can't be opened.
    #[error("{file}: {source}")]
    Open {
        /// The file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The RDB part of a file can't be read.
    #[error("{file}: {source}")]
    Rdb {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: ImportError,
    },
    /// A command can't be read or run.
    #[error("{file}, at byte {offset}: {what}")]
    Command {
        /// The file.
        file: String,
        /// Where the command begins.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A file other than the last one was cut off.
    #[error(
        "{file} ends at byte {offset} in the middle of a command, and is not the last one: what follows it belongs to other data"
    )]
    Cut {
        /// The file.
        file: String,
        /// Where the command begins.
        offset: u64,
    },
    /// What was read makes no sound data.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The libraries of functions can't be loaded.
    #[error("{0}")]
    Libraries(String),
}

/// What lies at the end of the last file and is not used, since it is not whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutTail {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// It is a transaction, of which the end is missing.
    pub is_transaction: bool,
}

/// What was imported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AofSummary {
    /// The RDB file that the first one is or begins with.
    pub rdb: Option<ImportSummary>,
    /// Files.
    pub files: usize,
    /// Commands that were run.
    pub commands: u64,
    /// Commands that were left out, since they write nothing.
    pub left_out: u64,
    /// Keys that the store has now.
    pub keys: u64,
    /// Keys whose time has come, which the first server on the data removes.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// What was cut off at the end.
    pub cut: Option<CutTail>,
}

/// Reads files into an empty store, in this order. `on_progress` is told how many bytes were read.
///
/// # Errors
/// A file can't be read, or holds what this program can't do; the store holds a part of it then.
pub fn import(
    config: &Config,
    store: &mut Store,
    files: &[PathBuf],
    mut on_progress: impl FnMut(u64),
) -> Result<AofSummary, AofError> {
    let registry = registry::install(specs::ALL);
    let mut summary = AofSummary { files: files.len(), ..AofSummary::default() };
    for (index, path) in files.iter().enumerate() {
        store.set_now_ms(BEFORE_ALL_MS);
        let cut = read_file(registry, config, store, path, &mut summary, &mut on_progress)?;
        match cut {
            Some(CutTail { file, offset, .. }) if index + 1 < files.len() => {
                return Err(AofError::Cut { file, offset });
            }
            cut => summary.cut = cut,
        }
    }
    finish(config, store, &mut summary)?;
    on_progress(summary.bytes);
    Ok(summary)
}

fn read_file(
    registry: &Registry,
    config: &Config,
    store: &mut Store,
    path: &Path,
    summary: &mut AofSummary,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Option<CutTail>, AofError> {
    let shown = || path.display().to_string();
    let before = summary.bytes;
    let file = File::open(path).map_err(|source| AofError::Open { file: shown(), source })?;
    let mut input: Box<dyn Read> = Box::new(std::io::BufReader::with_capacity(BUFFER_BYTES, file));
    let mut offset = 0;
    if is_rdb(path) {
        let read = import_prefix(store, input, |bytes| on_progress(before + bytes));
        let (rdb, behind, rest) = read.map_err(|source| AofError::Rdb { file: shown(), source })?;
        offset = rdb.bytes;
        input = Box::new(Cursor::new(behind).chain(rest));
        summary.rdb = Some(rdb);
    }
    let mut player =
        AofPlayer { replayer: Replayer::new(registry, config, store), registry, db: DbId(0), counts: (0, 0) };
    let mut commands = CommandFile::new(input, offset);
    let cut = player.play_all(&mut commands, &mut |offset| on_progress(before + offset));
    summary.commands += player.counts.0;
    summary.left_out += player.counts.1;
    summary.bytes += commands.read_to();
    match cut {
        Ok(cut) => Ok(cut.map(|(offset, is_transaction)| CutTail {
            file: shown(),
            offset,
            bytes: commands.read_to() - offset,
            is_transaction,
        })),
        Err(what) => Err(AofError::Command { file: shown(), offset: commands.offset(), what }),
    }
}

/// The clock is what it is from here on: keys whose time has come are no keys any more, and all others look as if used now.
fn finish(config: &Config, store: &mut Store, summary: &mut AofSummary) -> Result<(), AofError> {
    store.set_now_ms(unix_ms());
    store.set_holding_expired(true);
    let total: u64 = (0..store.databases()).map(|db| store.len(DbId(db))).sum();
    for db in (0..store.databases()).map(DbId) {
        let (mut cursor, mut some) = (0, Vec::new());
        loop {
            cursor = store.scan(db, cursor, KEYS_AT_ONCE, &mut |key, _| some.push(key.to_vec()))?;
            for key in some.drain(..) {
                summary.keys += u64::from(store.set_idle_seconds(db, &key, 0)?);
            }
            if cursor == 0 {
                break;
            }
        }
    }
    store.set_holding_expired(false);
    summary.expired = total.saturating_sub(summary.keys);
    let mut state = ServerState::new(config.clone());
    library_store::load_all(store, &mut state).map_err(AofError::Libraries)?;
    summary.libraries = state.scripts.functions.libraries.len() as u64;
    Ok(())
}

/// A command that waits for the end of its transaction.
struct Queued {
    bytes: Vec<u8>,
    ranges: Vec<ArgRange>,
}

impl Queued {
    fn new(args: Args<'_>) -> Self {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        for word in args.iter() {
            ranges.push(ArgRange { start: bytes.len() as u32, len: word.len() as u32 });
            bytes.extend_from_slice(word);
        }
        Self { bytes, ranges }
    }
}

/// What a command in a file asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Select,
    Begin,
    End,
    Run,
    Nothing,
}

/// Runs the commands of a file.
struct AofPlayer<'a> {
    replayer: Replayer<'a>,
    registry: &'a Registry,
    db: DbId,
    /// Commands that were run, and left out.
    counts: (u64, u64),
}

impl AofPlayer<'_> {
    /// Runs all commands; returns where the one begins that is not whole, if there is one, and whether it is a transaction.
    fn play_all(
        &mut self,
        file: &mut CommandFile<Box<dyn Read>>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Option<(u64, bool)>, String> {
        let mut transaction: Option<(u64, Vec<Queued>)> = None;
        let mut read: u64 = 0;
        loop {
            let next = file.read_next()?;
            if next != Next::Command {
                let begun = transaction.map(|(offset, _)| (offset, true));
                return Ok(begun.or((next == Next::Cut).then_some((file.offset(), false))));
            }
            read += 1;
            if read.is_multiple_of(COMMANDS_AT_ONCE) {
                on_progress(file.offset());
                self.replayer.free();
            }
            let args = file.args();
            match (self.ask(args)?, &mut transaction) {
                (Ask::Begin, None) => transaction = Some((file.offset(), Vec::new())),
                (Ask::Begin, Some(_)) => return Err("a transaction in a transaction".to_owned()),
                (Ask::End, None) => return Err("the end of a transaction that has not begun".to_owned()),
                (Ask::End, Some((_, queued))) => {
                    let queued = std::mem::take(queued);
                    transaction = None;
                    for Queued { bytes, ranges } in &queued {
                        let args = Args::new(bytes, ranges);
                        self.play(self.ask(args)?, args)?;
                    }
                }
                (_, Some((_, queued))) => queued.push(Queued::new(args)),
                (ask, None) => self.play(ask, args)?,
            }
        }
    }

    /// What a command asks for, if it may.
    fn ask(&self, args: Args<'_>) -> Result<Ask, String> {
        let found = self.registry.find(args.at(0)).map(|command| command.id);
        let command = dispatch::resolve(self.registry, found, args).map_err(|error| error.line().into_owned())?;
        let spec = command.spec;
        if !spec.takes(args.len()) {
            return Err(format!("wrong number of arguments for '{}'", command.name));
        }
        Ok(match command.name {
            "select" => Ask::Select,
            "multi" => Ask::Begin,
            "exec" => Ask::End,
            _ if spec.has(WRITE) => Ask::Run,
            // It might do anything, for any time.
            name if spec.group == CommandGroup::Scripting && !spec.key_specs.is_empty() => {
                return Err(format!(
                    "{} in an append-only file is not run: have the server that wrote it write it anew (BGREWRITEAOF)",
                    name.to_ascii_uppercase()
                ));
            }
            _ => Ask::Nothing,
        })
    }

    fn play(&mut self, ask: Ask, args: Args<'_>) -> Result<(), String> {
        match ask {
            Ask::Select => {
                let number = args.int(1).ok().and_then(|number| u8::try_from(number).ok());
                self.db = DbId(number.ok_or("a database that there can't be")?);
            }
            Ask::Run => {
                self.counts.0 += 1;
                let now_ms = if is_relative(args) { unix_ms() } else { BEFORE_ALL_MS };
                self.replayer.play_args(self.db, args, now_ms)?;
            }
            Ask::Begin | Ask::End | Ask::Nothing => self.counts.1 += 1,
        }
        Ok(())
    }
}

/// Whether a command counts a time to live from now. No version of Redis writes such a one; other programs do.
fn is_relative(args: Args<'_>) -> bool {
    let has = |from: usize, words: &[&str]| (from..args.len()).any(|at| words.iter().any(|word| args.is(at, word)));
    match args.at(0).to_ascii_lowercase().as_slice() {
        b"expire" | b"pexpire" | b"setex" | b"psetex" | b"hexpire" | b"hpexpire" => true,
        b"set" => has(3, &["EX", "PX"]),
        b"getex" => has(2, &["EX", "PX"]),
        b"restore" => args.at(2) != b"0" && !has(4, &["ABSTTL"]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use quire_store::{StoreConfig, string};

    use super::*;

    fn words(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let texts: Vec<String> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{}", words.len(), texts.concat())
    }

    fn file_of(lines: &[&str]) -> Vec<u8> {
        lines.iter().map(|line| words(line)).collect::<String>().into_bytes()
    }

    fn import_files(files: &[Vec<u8>]) -> (Store, Result<AofSummary, AofError>) {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (number, bytes) in files.iter().enumerate() {
            paths.push(dir.path().join(format!("{number}.aof")));
            std::fs::write(&paths[number], bytes).unwrap();
        }
        let config = StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, ..StoreConfig::default() };
        let mut store = Store::create(config).unwrap();
        let done = import(&Config::default(), &mut store, &paths, |_| {});
        (store, done)
    }

    fn value(store: &mut Store, db: u8, key: &str) -> Option<String> {
        string::get(store, DbId(db), key.as_bytes()).unwrap().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn commands_of_all_files_are_run_and_keys_expire_only_at_the_end() {
        let first = file_of(&[
            "SELECT 3",
            "SET a 1",
            "PEXPIREAT a 1000",
            "INCR a",
            "SET b x PXAT 2000",
            "GET a",
            "SET c 1 EX 1000",
        ]);
        let second = file_of(&["INCR d", "SELECT 3", "PERSIST a", "MULTI", "SELECT 0", "INCR d", "EXEC", "SET e 1"]);
        let (mut store, done) = import_files(&[first, second]);
        let summary = done.unwrap();
        assert_eq!((summary.files, summary.commands, summary.left_out), (2, 9, 1));
        assert_eq!((summary.keys, summary.expired, summary.cut), (4, 1, None));
        let found = ["a", "b", "c", "e"].map(|key| value(&mut store, 3, key));
        assert_eq!(found, [Some("2".into()), None, Some("1".into()), None]);
        assert_eq!((value(&mut store, 0, "d"), value(&mut store, 0, "e")), (Some("2".into()), Some("1".into())));
        assert_eq!(store.idle_seconds(DbId(0), b"d").unwrap(), Some(0));
    }

    #[test]
    fn a_tail_that_was_cut_off_is_told_and_a_transaction_is_run_whole_or_not_at_all() {
        let whole = file_of(&["SET a 1", "MULTI", "SET a 2", "SET b 2", "EXEC"]);
        let begin = words("SET a 1").len();
        for len in begin..whole.len() {
            let (mut store, done) = import_files(&[whole[..len].to_vec()]);
            let cut = done.unwrap().cut;
            assert_eq!((value(&mut store, 0, "a"), value(&mut store, 0, "b")), (Some("1".into()), None), "{len}");
            match cut {
                None => assert_eq!(len, begin),
                Some(cut) => assert_eq!((cut.offset, cut.bytes), (begin as u64, (len - begin) as u64)),
            }
        }
        let (mut store, done) = import_files(std::slice::from_ref(&whole));
        assert_eq!((done.unwrap().cut, value(&mut store, 0, "b")), (None, Some("2".into())));
        let (_, done) = import_files(&[whole[..whole.len() - 1].to_vec(), file_of(&["SET c 1"])]);
        assert!(matches!(done, Err(AofError::Cut { .. })));
    }

    #[test]
    fn what_may_not_be_in_a_file_is_refused_by_its_place() {
        for (line, error) in [
            ("NOSUCH a", "unknown command"),
            ("SET a", "wrong number of arguments for 'set'"),
            ("EVAL x 0", "EVAL in an append-only file is not run"),
            ("SELECT 99", ""),
            ("SELECT 300", "a database that there can't be"),
            ("EXEC", "the end of a transaction that has not begun"),
        ] {
            let (_, done) = import_files(&[file_of(&["SET b 1", line, "SET c 1"])]);
            let text = done.unwrap_err().to_string();
            let place = if line == "SELECT 99" { "it concerns database 99" } else { "at byte 27: " };
            assert!(text.contains(place) && text.contains(error), "{line}: {text}");
        }
        let (_, done) = import_files(&[file_of(&["MULTI", "MULTI"])]);
        assert!(done.unwrap_err().to_string().contains("a transaction in a transaction"));
        // Nothing but what writes is run.
        let (_, done) =
            import_files(&[file_of(&["SHUTDOWN NOSAVE", "CONFIG SET save x", "PUBLISH a b", "PING", "SET a 1"])]);
        assert_eq!(done.unwrap().left_out, 4);
    }

    #[test]
    fn a_file_may_begin_as_an_rdb_file() {
        let (mut store, _) = import_files(&[file_of(&["SET a 1 PXAT 1000", "SET n 41"])]);
        store.set_now_ms(BEFORE_ALL_MS);
        let (_, mut bytes) = crate::rdb::export::export(&mut store, Vec::new(), |_, _| {}).unwrap();
        let head = bytes.len() as u64;
        bytes.extend(file_of(&["INCR n", "INCR a", "PERSIST a"]));
        bytes.extend_from_slice(b"*1\r\n$3\r\nIN");
        let (mut store, done) = import_files(&[bytes]);
        let summary = done.unwrap();
        assert_eq!((summary.rdb.map(|rdb| (rdb.keys, rdb.bytes)), summary.commands), (Some((2, head)), 3));
        assert_eq!(summary.cut.map(|cut| (cut.bytes, cut.is_transaction)), Some((10, false)));
        assert_eq!((value(&mut store, 0, "n"), value(&mut store, 0, "a")), (Some("42".into()), Some("2".into())));
    }

    #[test]
    fn libraries_of_functions_are_imported() {
        let text = "#!lua name=lib\nredis.register_function('f', function() end)";
        let load = format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{text}\r\n", text.len());
        let (store, done) = import_files(&[load.into_bytes()]);
        assert_eq!(
            (done.unwrap().libraries, library_store::read(&store).unwrap()),
            (1, vec![text.as_bytes().to_vec()])
        );
    }
}

//! Doing again what the log says, on top of an image.
//!
//! Relies on the commands themselves: each is run by its own handler, on the same data and by the clock of the first time, so
//! it does the same. Nothing else runs meanwhile, and no key expires that the log doesn't say has gone. The log tells effects,
//! which don't depend on the clock; logs of earlier versions hold times to live as they were sent.

use std::time::{Duration, Instant};

use quire_device::{Directory, remove_then_free};
use quire_store::{DbId, Store, StoreError};
use quire_wal::{BaseImage, DirectoryScan, LogError, MalformedRecord, Record, Recovery, RecoverySummary};

use crate::acl::Login;
use crate::args::{ArgRange, Args};
use crate::client::{Client, LOG_CLIENT};
use crate::config::Config;
use crate::ctx::{CmdError, Ctx};
use crate::dispatch;
use crate::load_progress::LoadProgress;
use crate::registry::Registry;
use crate::resp::Reply;
use crate::state::{ServerState, unix_ms};

/// How often a long replay says how far it has come.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Records between two looks at the clock.
const RECORDS_AT_ONCE: u64 = 256;
/// Objects of deleted data that are freed at once.
const RECLAIM_BUDGET: usize = 2048;
/// Replies are thrown away; this much memory of them is kept.
const KEPT_REPLY_BYTES: usize = 64 * 1024;

/// Why the log can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There is a log, and no image that it continues.
    #[error(
        "{file} continues an image, but there is no image {image}; put it back, or move the files quire-log-* away to start \
         empty"
    )]
    NoImage {
        /// Path of the first segment.
        file: String,
        /// Where the image should be.
        image: String,
    },
    /// The log was begun over a later save than the one that damage has left.
    #[error(
        "{file} continues save {base}, and damage has left save {restored} of the data: what was written between both is in neither, unless \
         nothing was. To go on without it, start with --accept-damaged-log, too; to go without the log, move the files quire-log-* away"
    )]
    LaterSave {
        /// Path of the first segment.
        file: String,
        /// The save that the log was begun over.
        base: u64,
        /// The save that is used.
        restored: u64,
    },
    /// A command can't be done again.
    #[error("{file}, record {sequence} at byte {offset}: {what}")]
    Command {
        /// Path of the segment.
        file: String,
        /// Where the record begins.
        offset: u64,
        /// Its number.
        sequence: u64,
        /// What stands in the way.
        what: String,
    },
}

/// What was done again.
#[derive(Clone, Debug, Default)]
pub struct ReplaySummary {
    /// What was found in the log.
    pub recovered: RecoverySummary,
    /// Commands in its records.
    pub commands: u64,
    /// How long it took.
    pub took: Duration,
}

/// Applies the log in `directory` to `store`, whose image has just been opened. Whether logging is switched on makes no
/// difference: what is in the log was acknowledged.
///
/// # Errors
/// The log can't be read, doesn't continue the image, or holds what this program can't do.
pub fn replay(
    registry: &Registry,
    config: &Config,
    store: &mut Store,
    directory: &dyn Directory,
    progress: &LoadProgress,
) -> Result<ReplaySummary, ReplayError> {
    let began = Instant::now();
    let base = BaseImage { dataset: store.dataset(), epoch: store.image_epoch(), position: store.log_position() };
    check_image(config, base, directory)?;
    let open = if config.accept_damaged_log { Recovery::of_damaged } else { Recovery::open };
    let mut recovery = open(directory, base)?;
    check_begin(config, store, &recovery)?;
    let mut player = Replayer::new(registry, config, store);
    let mut replayed = ReplaySummary::default();
    let mut told = began;
    loop {
        // At every record at least as much is free as was when the command ran first.
        player.free();
        let step = match recovery.next_record()? {
            None => break,
            Some(record) => player.play(&record).map_err(|what| (record.sequence, what)),
        };
        if let Err((sequence, what)) = step {
            let (file, offset) = recovery.place();
            return Err(ReplayError::Command { file, offset, sequence, what });
        }
        replayed.recovered.records += 1;
        if replayed.recovered.records.is_multiple_of(RECORDS_AT_ONCE) {
            let (done, total) = recovery.progress();
            progress.tell(done, total);
            if told.elapsed() > PROGRESS_EVERY {
                told = Instant::now();
                let (records, percent) = (replayed.recovered.records, done * 100 / total.max(1));
                tracing::info!(records, percent, "replaying the log");
            }
        }
    }
    replayed.commands = player.commands;
    if player.damaged > 0 {
        tracing::warn!(
            commands = player.damaged,
            "these commands of the log met what is damaged in the image, and are lost, as accept-damaged-image says"
        );
    }
    replayed.recovered = recovery.finish(directory)?;
    replayed.took = began.elapsed();
    store.set_log_position(replayed.recovered.next_sequence - 1);
    store.set_now_ms(unix_ms());
    store.reset_stats();
    tell(&replayed);
    Ok(replayed)
}

/// Where links of a chain are not used for their damage, the records of the log have numbers that follow those of what is left. But logging
/// may have been switched on after that was saved, and numbers don't count what was written before.
fn check_begin(config: &Config, store: &Store, recovery: &Recovery) -> Result<(), ReplayError> {
    let restored = store.restored_epoch();
    let Some((file, base)) = recovery.begins_behind_image().filter(|(_, base)| *base > restored) else { return Ok(()) };
    if !config.accept_damaged_log {
        return Err(ReplayError::LaterSave { file: file.to_owned(), base, restored });
    }
    tracing::warn!(
        file,
        base,
        restored,
        "the log continues a later save than the one that damage has left: what was written between both is lost, as \
         accept-damaged-log says"
    );
    Ok(())
}

/// A log goes with an image. One that was begun but never came in force goes with nothing.
fn check_image(config: &Config, base: BaseImage, directory: &dyn Directory) -> Result<(), ReplayError> {
    if base.epoch > 0 {
        return Ok(());
    }
    let survey = DirectoryScan::with_damage(directory, Some(base.position))?;
    if let Some(segment) = survey.segments.iter().find(|segment| segment.meta.in_force) {
        let (file, image) = (segment.path().to_owned(), config.image_path().display().to_string());
        return Err(ReplayError::NoImage { file, image });
    }
    if let Some(damaged) = survey.damaged.first() {
        if !config.accept_damaged_log {
            return Err(damaged.error.clone().into());
        }
        // Whatever its header said, its records continue something that is not there.
        let (file, image) = (directory.path_of(&damaged.name), config.image_path().display().to_string());
        return Err(ReplayError::NoImage { file, image });
    }
    let names: Vec<String> = survey.segments.iter().map(|segment| segment.name.clone()).collect();
    // The survey has the files open. The last descriptor of each must be that of the thread that frees.
    drop(survey);
    for name in &names {
        remove_then_free(directory, name).map_err(LogError::from)?;
    }
    Ok(())
}

fn tell(replayed: &ReplaySummary) {
    let ReplaySummary { recovered, commands, took } = replayed;
    for file in &recovered.ignored {
        tracing::warn!(file, "removed: the server ended before the log was in force");
    }
    for damage in &recovered.damage {
        tracing::warn!(%damage, "what can be read of the log is used all the same, as accept-damaged-log says");
    }
    if let Some(torn) = &recovered.torn {
        tracing::warn!(
            file = torn.file,
            offset = torn.offset,
            bytes = torn.bytes,
            record = torn.sequence,
            "the log ends in a record that was not written to its end and that no client was told was durable; it is cut off"
        );
    }
    if recovered.segments > 0 {
        let took_ms = took.as_millis() as u64;
        tracing::info!(records = recovered.records, commands, took_ms, "the log has been replayed");
    }
}

/// Runs commands of the log, which no client has sent.
pub(crate) struct Replayer<'a> {
    registry: &'a Registry,
    store: &'a mut Store,
    state: ServerState,
    client: Client,
    reply: Reply,
    ranges: Vec<ArgRange>,
    words: Vec<std::ops::Range<usize>>,
    commands: u64,
    /// Commands that failed because the image is damaged.
    damaged: u64,
}

impl<'a> Replayer<'a> {
    pub(crate) fn new(registry: &'a Registry, config: &Config, store: &'a mut Store) -> Self {
        let mut state = ServerState::new(config.clone());
        // What was allowed then is done again, whatever is allowed now.
        state.config.enable_debug_command = "yes".to_owned();
        state.config.proto_max_bulk_len = u64::MAX;
        state.config.read_only = false;
        // The log says which HyperLogLogs became dense.
        state.config.hll_sparse_max_bytes = u64::MAX;
        let mut client = Client::new(LOG_CLIENT, "log".to_owned(), String::new(), 0);
        client.login = Login::unrestricted();
        // As in a transaction: nothing comes between two commands, and none waits.
        client.in_exec = true;
        let (reply, ranges, words) = (Reply::default(), Vec::new(), Vec::new());
        Self { registry, store, state, client, reply, ranges, words, commands: 0, damaged: 0 }
    }

    fn play(&mut self, record: &Record<'_>) -> Result<(), String> {
        let now_ms = record.now_ms().map_err(|error| error.to_string())?;
        self.play_at(record, now_ms)
    }

    /// Does again what a record says, as if it was that time.
    pub(crate) fn play_at(&mut self, record: &Record<'_>, now_ms: i64) -> Result<(), String> {
        let malformed = |error: MalformedRecord| error.to_string();
        self.store.set_now_ms(now_ms);
        let mut commands = record.commands();
        while let Some(db) = commands.next_into(&mut self.words).map_err(malformed)? {
            self.ranges.clear();
            let range = |word: &std::ops::Range<usize>| ArgRange { start: word.start as u32, len: word.len() as u32 };
            self.ranges.extend(self.words.iter().map(range));
            self.run(DbId(db), record.body())?;
            self.commands += 1;
        }
        Ok(())
    }

    fn run(&mut self, db: DbId, body: &[u8]) -> Result<(), String> {
        let ranges = std::mem::take(&mut self.ranges);
        let done = self.run_args(db, Args::new(body, &ranges));
        self.ranges = ranges;
        done
    }

    /// Runs a command that is none of the log, as if it was that time.
    pub(crate) fn play_args(&mut self, db: DbId, args: Args<'_>, now_ms: i64) -> Result<(), String> {
        self.store.set_now_ms(now_ms);
        self.run_args(db, args)
    }

    fn run_args(&mut self, db: DbId, args: Args<'_>) -> Result<(), String> {
        if db.0 >= self.store.databases() {
            return Err(format!("it concerns database {}; start with --databases {}", db.0, u16::from(db.0) + 1));
        }
        self.client.db = db;
        let found = self.registry.find(args.at(0)).map(|command| command.id);
        let command = dispatch::resolve(self.registry, found, args)
            .map_err(|error| format!("{}; a later version may have written it", error.line()))?;
        let mut ctx = Ctx {
            store: &mut *self.store,
            server: &mut self.state,
            client: &mut self.client,
            args,
            reply: &mut self.reply,
        };
        let done = (command.spec.handler)(&mut ctx);
        self.reply.clear(KEPT_REPLY_BYTES);
        match done {
            // A command that fails after it has changed something fails there again.
            Err(CmdError::Store(error @ StoreError::OutOfMemory { .. })) => Err(format!(
                "{}: {error}. Give the server at least as much memory as the one had that wrote the log, and start it again; nothing \
                 was changed",
                command.name
            )),
            Err(CmdError::Store(StoreError::Damaged { .. })) if self.state.config.accept_damaged_image => {
                // It meets what is damaged, as commands of clients will.
                self.damaged += 1;
                Ok(())
            }
            Err(CmdError::Store(error @ StoreError::Damaged { .. })) => Err(format!(
                "{}: {error}. Put a good image in place, or start with --accept-damaged-image to go on without the commands that \
                 meet what is damaged",
                command.name
            )),
            // It may have succeeded when it was logged.
            Err(CmdError::Store(error)) if error.is_fault() => Err(format!(
                "{}: {error}. It is this machine or this version that is at fault, not the log: mend that, and start the server again; \
                 nothing was changed",
                command.name
            )),
            // Any other error is one that the command met when it was logged, too.
            _ => Ok(()),
        }
    }

    /// Frees what was deleted.
    pub(crate) fn free(&mut self) {
        loop {
            match self.store.reclaim_step(RECLAIM_BUDGET) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return tracing::error!(%error, "cannot free deleted data"),
            }
        }
    }
}

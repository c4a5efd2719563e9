//! When to log: at the start, when the setting changes, around a save; and when the log stands in the way of writes.
//!
//! Image and log belong together: an image says which record is the last one in it, and the log must have all that follow.
//! So a log begins with an image: the one that is there at the start (made first if there is none), or one that is taken
//! when logging is switched on while the server runs; until that one is durable the log isn't in force, and a crash leads
//! back to what was there before. A log that is there is replayed whether logging is on or off.
//!
//! Relies on `log_writer` for the log, on the store for images. Saves are started by `persistence`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use quire_device::{Directory, DiskDirectory};
use quire_store::Store;
use quire_wal::{LogError, LogIdentity, has_log, remove_covered, set_aside};

use crate::client::CloseState;
use crate::clone_origin::NO_DIRECTORY;
use crate::config::Config;
use crate::lock_file::{self, SharedLock};
use crate::log_writer::LogWriter;
use crate::output_buffer::OutputBuffer;
use crate::replay::ReplaySummary;
use crate::save_state::SaveCut;
use crate::state::{ServerHooks, ServerState, unix_ms};

/// Files that a log may always have.
const LEAST_SEGMENTS: u64 = 4;

/// Where the log of `dir` lies.
pub fn directory(dir: &Path, hooked: Option<&Arc<dyn Directory>>) -> Arc<dyn Directory> {
    hooked.map_or_else(|| Arc::new(DiskDirectory::new(dir).pinned()) as Arc<dyn Directory>, Arc::clone)
}

/// Takes note of what was replayed, for INFO.
pub fn note_replay(state: &mut ServerState, replayed: &ReplaySummary) {
    let known = &mut state.log_state;
    if replayed.recovered.segments > 0 {
        known.leftovers.note(state.config.image_path());
    }
    known.replayed_records = replayed.recovered.records;
    known.replayed_commands = replayed.commands;
    known.replayed_us = replayed.took.as_micros() as u64;
    known.torn_bytes = replayed.recovered.torn.as_ref().map_or(0, |torn| torn.bytes);
}

/// Sets damaged files of the log aside. An image must hold what was read of them.
///
/// # Errors
/// In words for people: a file can't get another name.
pub fn set_damaged_aside(state: &ServerState, replayed: &ReplaySummary) -> Result<(), String> {
    let directory = directory(&state.config.dir, state.hooks.log_directory.as_ref());
    let unix_ms = u64::try_from(unix_ms()).unwrap_or(0);
    let kept = set_aside(&*directory, &replayed.recovered.damaged_files, unix_ms).map_err(|error| error.to_string())?;
    let (records, last) = (replayed.recovered.records, replayed.recovered.next_sequence.saturating_sub(1));
    tracing::warn!(
        kept_as = kept.join(", "),
        records,
        last_record = last,
        "the log was damaged: these records were recovered, and an image holds them; later writes are lost, but for what \
         the kept files show"
    );
    Ok(())
}

/// Begins to log if the configuration says so. The data must be what image and log hold, and there must be an image.
///
/// # Errors
/// In words for people: the log can't be begun.
pub fn start(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    let config = state.config.clone();
    begin(store, state, &config, true)
}

/// Begins to log while the server runs, as `config` has it, which the caller puts in force when this has gone well. The log comes
/// in force with the next image, which is taken as soon as possible. Its first file is made meanwhile, which no client waits for;
/// if it can't be made, logging is switched off again.
///
/// # Errors
/// In words for the client. Nothing has changed then, locks included.
pub fn switch_on(store: &mut Store, state: &mut ServerState, config: &Config) -> Result<(), String> {
    may_begin_log(state, config)?;
    let directory = directory(&config.dir, state.hooks.log_directory.as_ref());
    // The files are made by another thread, too late to refuse the setting; this can be known now.
    if directory.free_bytes().is_some_and(|free| free < config.log_segment_bytes) {
        return Err(format!("{} has no room for a segment of the log", directory.path_of("")));
    }
    begin(store, state, config, false)
}

/// A log needs images beside it, and a clone must have a place of its own for both.
fn may_begin_log(state: &ServerState, config: &Config) -> Result<(), String> {
    let Some(origin) = &state.saves.restored.clone_of else { return Ok(()) };
    origin.may_save(config)?;
    if origin.shares_directory(config) {
        return Err(format!(
            "{} is the original's directory, and a directory holds one log: choose another with CONFIG SET dir",
            config.dir.display()
        ));
    }
    Ok(())
}

/// Takes the lock on the directory's log for a server that has one or finds one, and may have the lock `held` already.
///
/// # Errors
/// In words for people: another server has it.
pub fn lock(config: &Config, hooks: &ServerHooks, held: Option<&SharedLock>) -> Result<Option<SharedLock>, String> {
    if !config.has_dir() {
        return if config.appendonly { Err(NO_DIRECTORY.to_owned()) } else { Ok(None) };
    }
    if hooks.log_directory.is_some() {
        return Ok(None);
    }
    let found = has_log(&*directory(&config.dir, None)).map_err(|error| error.to_string())?;
    if config.appendonly || found { lock_file::of_log_or_held(&config.dir, held) } else { Ok(None) }
}

/// Whether the directory that the configuration names is still the one in which the server logs, if it does. If only the lock's file was
/// removed there, the lock is taken again.
///
/// # Errors
/// In words for the client: another directory lies there, or another server has taken the lock.
pub fn keep_lock(state: &mut ServerState) -> Result<(), String> {
    let (dir, logs) = (&state.config.dir, state.log_writer.is_some());
    if let Some(lock) = state.log_state.lock.as_ref().filter(|lock| logs && !lock.is_of_log(dir)) {
        if lock.was_taken_in(dir) {
            let again = lock_file::of_log_or_held(dir, None)?;
            tracing::warn!(dir = %dir.display(), "the file of the log's lock was removed; it is made and locked again");
            state.log_state.lock = again.or(state.log_state.lock.take());
            return Ok(());
        }
        return Err(format!(
            "{} is not the directory any more in which writes are logged, and an image lies beside its log: move that directory \
             back, or go on without the log by CONFIG SET appendonly no",
            dir.display()
        ));
    }
    Ok(())
}

/// The configuration names another directory. Where the server does not log any more it keeps no other one from it.
pub fn directory_changed(state: &mut ServerState) {
    if state.log_writer.is_none() {
        state.log_state.lock.take_if(|lock| !lock.is_of_log(&state.config.dir));
    }
}

fn begin(store: &mut Store, state: &mut ServerState, config: &Config, in_force: bool) -> Result<(), String> {
    // What is being removed must not be what is begun here, and it may have the lock.
    state.log_state.leftovers.wait();
    // Given up again if the log can't be begun. Until it is, a directory that the server logged in before stays its own.
    let lock = lock(config, &state.hooks, state.log_state.lock.as_ref())?;
    let directory = directory(&config.dir, state.hooks.log_directory.as_ref());
    let base_epoch = store.image_epoch() + u64::from(!in_force);
    let identity = LogIdentity { dataset: store.dataset(), base_epoch, in_force };
    let next_sequence = store.log_position() + 1;
    let waker = state.instance.waker.clone();
    let log_writer = LogWriter::start(&directory, config, identity, next_sequence, waker).map_err(|error| {
        state.log_state.last_error = error.to_string();
        error.to_string()
    })?;
    tracing::info!(directory = log_writer.directory, next_record = next_sequence, in_force, "logging writes");
    state.log_state.last_error.clear();
    state.log_state.lock = lock;
    state.log_writer = Some(Box::new(log_writer));
    store.set_noting_expired(true);
    judge(store, state);
    Ok(())
}

/// Ends the log: everything in it is made durable, which is waited for. What was logged stays until the next image. False if
/// writes may not be durable that clients wait for: these are disconnected; the one whose command it is, at the end of its turn.
pub fn switch_off(store: &mut Store, state: &mut ServerState) -> bool {
    let Some(log_writer) = state.log_writer.take() else { return true };
    store.set_noting_expired(false);
    store.set_log_position(log_writer.appended());
    state.log_state.leftovers.note(log_writer.image.clone());
    let (durable, appended, told) = (log_writer.durable(), log_writer.appended(), log_writer.told());
    let is_in_image = appended <= state.log_state.image_position;
    let done = log_writer.finish();
    match &done {
        Ok(position) => tracing::info!(last_record = position, "writes are not logged any more"),
        Err(error) if is_in_image => {
            tracing::warn!(%error, "the log was given up; the last image holds all writes that were logged");
        }
        Err(error) => {
            match error {
                LogError::NoRoom { durable, .. } if told <= *durable => {
                    tracing::warn!(%error, last_record = appended, "no client was told that the writes in these are done");
                }
                _ => {
                    tracing::error!(%error, last_record = appended, "the log was given up with writes that may not be durable");
                }
            }
            disown(state, durable);
        }
    }
    judge(store, state);
    done.is_ok() || is_in_image
}

/// Drops replies that wait for more to become durable than ever will. Neither yes nor no would be true.
fn disown(state: &mut ServerState, durable: u64) {
    // The client whose command is running is not among the others: its replies of earlier turns are dropped when that has ended.
    state.log_state.given_up_at = Some(durable);
    let held = state.clients.iter().filter(|(_, client)| client.output.held_for().is_some_and(|last| last > durable));
    let held: Vec<_> = held.map(|(slot, _)| slot).collect();
    for slot in held {
        state.clients.doom(slot);
    }
    for (_, connection) in
        state.clients.iter_mut().filter(|(_, connection)| connection.client.closing == CloseState::Now)
    {
        connection.output = OutputBuffer::default();
    }
}

/// Before the data is fixed for an image: the image is told which record is the last one in it, and so is the caller.
pub fn before_cut(store: &mut Store, state: &mut ServerState) -> u64 {
    if let Some(log_writer) = &mut state.log_writer {
        // It is whole: no save begins within a transaction, but at its end.
        log_writer.close();
        store.set_log_position(log_writer.appended());
    }
    store.log_position()
}

/// An image is durable: records up to the one in it aren't needed any more.
pub fn image_saved(store: &Store, state: &mut ServerState, cut: &SaveCut) {
    state.log_state.image_position = cut.log_position;
    if let Some(log_writer) = &mut state.log_writer {
        // One that went to another place was cut before the log began, which its number tells.
        log_writer.image_saved(store.image_epoch(), cut.log_position);
    } else if let Some(image) = state.log_state.leftovers.take(&cut.image) {
        // Only by a save to the very image that the log continued, wherever the server saves by now: a start from that image without
        // them would lack what was logged.
        if let Err(reason) = remove_leftover(store, state, cut) {
            tracing::warn!(reason, "log segments that are no longer needed stay until the next save to their image");
            state.log_state.leftovers.note(image);
        }
    }
}

/// Has segments removed that an image beside them has made unnecessary.
///
/// # Errors
/// In words for people: nothing is removed.
fn remove_leftover(store: &Store, state: &mut ServerState, cut: &SaveCut) -> Result<(), String> {
    let dir = cut.image.parent().unwrap_or(Path::new(""));
    let hooked = state.hooks.log_directory.as_ref();
    let directory = directory(dir, hooked);
    // The server may have left the directory meanwhile, and given up the lock. What lies there by that name may be another one's now.
    let lock = match hooked {
        Some(_) => None,
        None => lock_file::of_log_or_held(dir, state.log_state.lock.as_ref())?,
    };
    let (dataset, position) = (store.dataset(), cut.log_position);
    // Freeing the blocks of large files takes a while.
    let remove = move || {
        // Until all are removed, whatever directory the server uses by then.
        let _lock = lock;
        let removed = remove_covered(&*directory, dataset, position);
        if let Err(error) = &removed {
            tracing::warn!(%error, "log segments that are no longer needed can't be removed");
        }
        removed.is_ok()
    };
    let thread = std::thread::Builder::new().name("quire-log-files".into()).spawn(remove);
    let thread = thread.map_err(|error| format!("no thread to remove them: {error}"))?;
    state.log_state.leftovers.removed_by(cut.image.clone(), thread);
    Ok(())
}

/// Whether an image is wanted for the log's sake: to come in force, because it has become long, or because it has no room for writes
/// that were acknowledged, which are in memory only. One that failed is tried again while it stands in the way of writes: no save
/// rule may ask for another for hours.
pub fn wants_image(state: &ServerState) -> bool {
    let Some(log_writer) = &state.log_writer else { return false };
    if log_writer.failure().is_some() || state.saves.must_wait(state.clock.now) {
        return false;
    }
    log_writer.awaits_image()
        || log_writer.bounded_bytes() > most_bytes(&state.config) / 2 && !log_writer.is_covering()
        || lacks_acknowledged(log_writer, state)
        || !state.saves.rewrites.last_ok && state.saves.stops_writes(&state.config)
}

/// Whether there is no room for writes whose clients were told before these were durable, and which no image has.
fn lacks_acknowledged(log_writer: &LogWriter, state: &ServerState) -> bool {
    log_writer.stands_still() && log_writer.told() > log_writer.durable().max(state.log_state.image_position)
}

/// Before the end of the server: everything is made durable for which there is room, so that it is known what is not. The disk may
/// be full without the log having come to that yet. The end of the log waits for the same device.
pub fn settle(state: &mut ServerState) {
    let Some(log_writer) = &mut state.log_writer else { return };
    log_writer.settle();
    if log_writer.stands_still() {
        let (durable_record, last_record) = (log_writer.durable(), log_writer.appended());
        tracing::warn!(
            durable_record,
            last_record,
            "the log has no room for its last records, which are in memory only"
        );
    }
}

/// Whether writes that were acknowledged while logging was on would be lost with an end now: the log's first image is not
/// complete, so a restart would ignore the log; or the log has failed, so it lacks what no image has; or it has no room for
/// writes whose clients were told before these were durable.
pub fn needs_last_image(state: &ServerState) -> bool {
    let image_position = state.log_state.image_position;
    let needs = |log_writer: &LogWriter| {
        log_writer.awaits_image()
            || log_writer.failure().is_some() && log_writer.appended() > image_position
            || lacks_acknowledged(log_writer, state)
    };
    state.log_writer.as_ref().is_some_and(|log_writer| needs(log_writer))
}

/// Most bytes of the log's files. A log needs room to go on in while an image is taken.
fn most_bytes(config: &Config) -> u64 {
    config.log_max_bytes.max(LEAST_SEGMENTS * config.log_segment_bytes)
}

/// What is looked after from time to time.
pub fn tick(store: &mut Store, state: &mut ServerState) {
    if let Some(log_writer) = &mut state.log_writer {
        log_writer.retry_files();
        if log_writer.never_began() {
            give_up(store, state);
        }
    }
    judge(store, state);
}

/// A log that was switched on could not be begun: the server goes on without it, as before.
#[cold]
fn give_up(store: &mut Store, state: &mut ServerState) {
    let failure = state.log_writer.as_ref().and_then(|log_writer| log_writer.failure().map(ToString::to_string));
    let reason = failure.unwrap_or_default();
    tracing::error!(reason, "the log can't be begun: appendonly is off again");
    switch_off(store, state);
    state.config.appendonly = false;
    state.log_state.last_error = reason;
}

/// Whether the log's files are as large as they may be, so that writes wait for an image.
pub fn is_full(state: &ServerState) -> bool {
    state.log_writer.as_ref().is_some_and(|log_writer| log_writer.bounded_bytes() > most_bytes(&state.config))
}

/// Decides whether the log stands in the way of writes. To be asked once per turn.
pub fn judge(store: &mut Store, state: &mut ServerState) {
    let log_writer = state.log_writer.as_ref();
    let refusal = log_writer.and_then(|log_writer| refusal(log_writer, state));
    // What a log that has failed lacks is in no record anyway.
    let holds_expired = refusal.is_some() && log_writer.is_some_and(|log_writer| log_writer.failure().is_none());
    let known = &mut state.log_state;
    match (&refusal, &known.refusal) {
        (Some(reason), before) if before.as_ref() != Some(reason) => {
            tracing::error!(%reason, "writes are refused because of the log");
            known.last_error = reason.clone().into_owned();
        }
        (None, Some(_)) if state.log_writer.is_some() => tracing::info!("the log goes on: writes are accepted again"),
        _ => {}
    }
    known.refusal = refusal;
    if known.holds_expired != holds_expired {
        known.holds_expired = holds_expired;
        store.set_holding_expired(state.holds_expired());
    }
}

/// Why writes are refused, if they are.
fn refusal(log_writer: &LogWriter, state: &ServerState) -> Option<Cow<'static, str>> {
    if let Some(error) = log_writer.failure() {
        return Some(failed(error).into());
    }
    if let Some(error) = log_writer.shortage() {
        let advice = if error.is_full() { "Make room on the disk" } else { "Cure the cause" };
        let reason = format!(
            "MISCONF The log has no room to go on: {error}. Writes are refused until it has, reads go on. {advice}; no \
             restart is needed."
        );
        return Some(in_a_line(&reason).into());
    }
    let hopeless = is_full(state) && state.saves.must_wait(state.clock.now);
    hopeless.then_some(Cow::Borrowed(
        "MISCONF The log has reached log-max-bytes and no image that covers it could be taken. Writes are refused until one \
         can; raise log-max-bytes, or look at rdb_last_bgsave_error in INFO.",
    ))
}

/// What clients are told when the log has failed.
pub fn failed(error: &LogError) -> String {
    in_a_line(&format!(
        "MISCONF Errors writing to the log: {error}. Writes are refused, reads go on. Cure the cause and restart the server \
         (or CONFIG SET appendonly no to go on without a log)."
    ))
}

fn in_a_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Hands over what the turn has logged.
pub fn commit(store: &mut Store, state: &mut ServerState) {
    let Some(log_writer) = &mut state.log_writer else { return };
    if store.has_expired_keys() {
        log_writer.note_expired(store);
    }
    log_writer.commit();
}

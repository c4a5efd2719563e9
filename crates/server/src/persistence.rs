//! When to save: the rules, BGSAVE, the end of a background save, the last save at shutdown; and going on with what a
//! start has left to restore. How these are done is the store's business.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{CacheMode, DiskDirectory, IoEngine};
use quire_store::{ImageLocation, RestoreStep, SaveError, SaveSummary, Store};

use crate::cloning;
use crate::config::SaveIoPriority;
use crate::file_identity::is_same_image;
use crate::lock_file;
use crate::log_control;
use crate::save_state::SaveCut;
use crate::saving;
use crate::state::{ServerState, Shutdown};

/// Regions that are brought back in one step while a save waits for them.
const HURRIED_REGIONS: u32 = 16;
/// How often a save that waits looks for regions that have been read.
const RESTORE_POLL: Duration = Duration::from_millis(1);

/// Where a save that begins now goes: into the directory that lies there now, and into no other one that lies there when it ends.
fn place(state: &ServerState) -> ImageLocation {
    match &state.hooks.image_directory {
        Some(directory) => ImageLocation::within(Arc::clone(directory), &state.config.dbfilename),
        None => {
            let directory = DiskDirectory::new(&state.config.dir).pinned();
            ImageLocation::within(Arc::new(directory), &state.config.dbfilename)
        }
    }
}

/// Where what was written to [`place`] is read that is to be mapped: through the system's cache.
fn place_to_map(state: &ServerState) -> ImageLocation {
    match &state.hooks.image_directory {
        Some(directory) => ImageLocation::within(Arc::clone(directory), &state.config.dbfilename),
        None => {
            let directory = DiskDirectory::new(&state.config.dir).pinned();
            let directory = directory.with(CacheMode::Buffered, IoEngine::Threads);
            ImageLocation::within(Arc::new(directory), &state.config.dbfilename)
        }
    }
}

/// Whether this server may save at all: a clone has no place for it unless it was told one, and never the original's.
///
/// # Errors
/// In words for the client.
pub fn may_save(state: &ServerState) -> Result<(), String> {
    if state.steps.loading.is_some() {
        return Err("the data is not loaded yet".to_owned());
    }
    state.saves.restored.clone_of.as_ref().map_or(Ok(()), |origin| origin.may_save(&state.config))
}

/// Whether a background save can begin now: no other one runs, no temporary image is being written, and all that the data stands on was
/// verified.
pub fn may_begin(store: &Store, state: &ServerState) -> bool {
    state.saves.running_since.is_none() && !store.makes_temporary_image() && store.restore_progress().is_none()
}

/// Starts a background save.
///
/// # Errors
/// In words for the client.
pub fn begin(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    begin_as(store, state, false)
}

fn begin_as(store: &mut Store, state: &mut ServerState, for_log: bool) -> Result<(), String> {
    let place = place(state);
    state.saves.scheduled = false;
    state.saves.for_log = false;
    state.saves.last_attempt = Some(state.clock.now);
    if let Err(reason) = may_save(state).and_then(|()| keep_place(state)) {
        failed(state, &reason, true);
        return Err(reason);
    }
    let cut = before_cut(store, state);
    // Writes wait for the save that the log needs, once the log is full.
    store.set_idle_io(state.config.save_io_priority == SaveIoPriority::Idle && !for_log);
    if let Err(error) = store.begin_save(&place) {
        let reason = error.to_string();
        failed(state, &reason, error.leaves_disk_as_it_was());
        return Err(reason);
    }
    state.saves.running_since = Some(Instant::now());
    state.saves.cut = cut;
    let cut_us = store.save_stats().last_cut_ns / 1000;
    note_cut(state, cut_us);
    tracing::info!(cut_us, file = place.path(), "background save started");
    Ok(())
}

/// Fixes the data as it is now, for a temporary image: one that is no save. [`may_begin`] has said that it can begin.
///
/// # Errors
/// In words for the client.
pub fn begin_temporary_image(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    may_save(state).and_then(|()| keep_place(state))?;
    let (place, reader) = (place(state), place_to_map(state));
    store.set_idle_io(state.config.save_io_priority == SaveIoPriority::Idle);
    store.begin_temporary_image(&place, &reader).map_err(|error| error.to_string())?;
    let cut_us = store.save_stats().last_cut_ns / 1000;
    note_cut(state, cut_us);
    tracing::info!(
        cut_us,
        beside = place.path(),
        "writing the data to a temporary image, for clients that have asked for a file"
    );
    Ok(())
}

/// Before a save: the server has the lock of the place that it saves to. The directory has its real path, so that no link leads elsewhere
/// by now; but another one may lie there (it was moved), where another server may save, or the lock could not be made before.
///
/// # Errors
/// In words for the client: another server has it, or the log lies in another directory. Image and log belong together, so a start
/// from an image without the log beside it would lack what was logged since.
fn keep_place(state: &mut ServerState) -> Result<(), String> {
    if state.hooks.image_directory.is_some() || !state.config.has_dir() {
        return Ok(());
    }
    log_control::keep_lock(state)?;
    let held = [&state.hooks.image_lock, &state.saves.cut.image_lock].into_iter().flatten();
    if let Some(lock) = lock_file::of_image_or_held(&state.config, held)? {
        state.hooks.image_lock = Some(lock);
    }
    Ok(())
}

/// Before the data is fixed: what the save will hold, and where it goes.
fn before_cut(store: &mut Store, state: &mut ServerState) -> SaveCut {
    let changes = store.changes();
    SaveCut {
        changes,
        log_position: log_control::before_cut(store, state),
        image: state.config.image_path(),
        image_lock: state.hooks.image_lock.clone(),
        cancelled: false,
    }
}

/// The background save has ended, if there was one. Returns what it was.
fn take_ended(state: &mut ServerState) -> SaveCut {
    state.saves.running_since = None;
    std::mem::take(&mut state.saves.cut)
}

fn note_cut(state: &mut ServerState, cut_us: u64) {
    let threshold_ms = state.config.latency.threshold_ms;
    if threshold_ms > 0 && cut_us / 1000 >= threshold_ms {
        let unix_s = state.unix_s();
        state.monitoring.latency.record("cut", unix_s, cut_us / 1000);
    }
}

/// Starts a background save for the log's sake (BGREWRITEAOF): what it covers needs no log.
///
/// # Errors
/// As [`begin`].
pub fn begin_for_log(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    state.saves.rewrites.scheduled = false;
    let begun = begin_as(store, state, true);
    state.saves.for_log = begun.is_ok();
    state.saves.rewrites.last_ok &= begun.is_ok();
    begun
}

/// Starts the save that waits for the end of another one, of a transaction or of a restore, if it need not wait any more. A
/// failure is in the log and in INFO.
pub fn begin_scheduled(store: &mut Store, state: &mut ServerState) {
    if !may_begin(store, state) {
        return;
    }
    if state.saves.scheduled {
        let _ = begin(store, state);
    } else if state.saves.rewrites.scheduled {
        let _ = begin_for_log(store, state);
    }
}

/// As [`begin_for_log`], unless a save is running or the data is still being verified. A failure is in the log and in INFO.
pub fn begin_for_log_if_idle(store: &mut Store, state: &mut ServerState) {
    if may_begin(store, state) {
        let _ = begin_for_log(store, state);
    }
}

/// Notes that a save has failed. `is_intact`: the image that was there before is known to be there.
fn failed(state: &mut ServerState, reason: &str, is_intact: bool) {
    if std::mem::take(&mut state.saves.for_log) {
        state.saves.rewrites.last_ok = false;
    }
    if is_intact {
        tracing::error!(%reason, "the save failed; the last image stays as it was");
    } else {
        tracing::error!(%reason, "the save failed; a restart may find the image before it, or this one");
    }
    state.saves.last_ok = false;
    state.saves.last_error = reason.to_owned();
    judge_writes(state);
}

fn succeeded(store: &Store, state: &mut ServerState, summary: &SaveSummary, cut: &SaveCut) {
    log_control::image_saved(store, state, cut);
    if std::mem::take(&mut state.saves.for_log) {
        state.saves.rewrites.last_ok = true;
        state.saves.rewrites.count += 1;
        state.saves.rewrites.last_duration_s = state.saves.last_duration_s;
    }
    let (image, cut_us) = (&summary.image, summary.cut_ns / 1000);
    state.saves.last_ok = true;
    state.saves.last_error.clear();
    state.saves.changes_at_last_save = cut.changes;
    state.saves.last_save_unix_s = state.unix_s();
    state.saves.last_save = Instant::now();
    state.saves.last_bytes = image.bytes_written;
    state.saves.saves += 1;
    judge_writes(state);
    tracing::info!(
        bytes = image.bytes_written,
        delta = image.is_delta,
        duration_ms = image.total_time.as_millis() as u64,
        sync_ms = image.sync_time.as_millis() as u64,
        bytes_per_s = summary.bytes_per_s(),
        cut_us,
        io = image.mode,
        "saved"
    );
}

/// Decides whether writes are refused.
pub fn judge_writes(state: &mut ServerState) {
    state.log_state.writes_stopped = state.saves.stops_writes(&state.config) || state.log_state.refusal.is_some();
}

/// Looks whether the background save has ended.
pub fn poll(store: &mut Store, state: &mut ServerState) {
    let Some(since) = state.saves.running_since else { return };
    let Some(result) = store.poll_save() else { return };
    // With it goes the lock on its place, if the configuration names another one by now.
    let cut = take_ended(state);
    match result {
        Ok(summary) => {
            state.saves.last_duration_s = Some(since.elapsed().as_secs());
            succeeded(store, state, &summary, &cut);
        }
        Err(error) if error.needs_full_image() && !cut.cancelled && is_wanted_again(state, &cut) => {
            again_in_full(state, &error);
        }
        Err(error) if error.is_cancelled() || error.needs_full_image() && cut.cancelled => {
            state.saves.for_log = false;
            state.saves.last_duration_s = None;
            tracing::info!("background save cancelled");
        }
        Err(error) => {
            state.saves.last_duration_s = Some(since.elapsed().as_secs());
            failed(state, &error.to_string(), error.leaves_disk_as_it_was());
        }
    }
}

/// Whether another save may take the place of one that could not be a delta. Where the configuration names another image by now, only
/// save rules ask for that: what lies there may be all that its owner has, and the client asked for a save to the place before.
fn is_wanted_again(state: &ServerState, cut: &SaveCut) -> bool {
    !state.config.save.is_empty() || is_same_image(&cut.image, &state.config.image_path())
}

/// Has a full image saved as soon as possible, in place of a delta over files that another program has moved away or exchanged.
/// Nothing failed for which writes would have to be refused.
fn again_in_full(state: &mut ServerState, error: &SaveError) {
    tracing::warn!(%error, "saving a full image instead of a delta");
    if std::mem::take(&mut state.saves.for_log) {
        state.saves.rewrites.scheduled = true;
    } else {
        state.saves.scheduled = true;
    }
}

/// Looks for the end of a save, and whether one is due.
pub fn tick(store: &mut Store, state: &mut ServerState) {
    if state.steps.loading.is_some() {
        return;
    }
    poll(store, state);
    log_control::tick(store, state);
    judge_writes(state);
    if state.ending.ended || !may_begin(store, state) {
        return;
    }
    if state.saves.rewrites.scheduled || log_control::wants_image(state) {
        begin_for_log_if_idle(store, state);
        return;
    }
    let due = state.saves.due(&state.config.save, store.changes(), state.clock.now);
    if let Some(rule) = due {
        tracing::info!(changes = rule.changes, seconds = rule.seconds, "a save rule asks for a save");
    }
    if due.is_some() || state.saves.scheduled {
        // A failure is in the log and in INFO; the rules try again later.
        let _ = begin(store, state);
    }
}

/// Tells the background save to stop; false if there is none. It has stopped when [`poll`] sees it.
pub fn cancel(store: &mut Store, state: &mut ServerState) -> bool {
    let running = state.saves.running_since.is_some();
    if running {
        state.saves.cut.cancelled = true;
        store.cancel_save();
    }
    running
}

/// Saves and waits for it. A save in the background that was told to stop is waited for first.
///
/// # Errors
/// In words for the client.
pub fn save_now(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    may_save(state)?;
    finish_restore(store, state)?;
    keep_place(state)?;
    let cut = before_cut(store, state);
    match store.save_blocking(&place(state)) {
        Ok(summary) => {
            take_ended(state);
            succeeded(store, state, &summary, &cut);
            Ok(())
        }
        Err(error) => {
            if store.save_progress().is_none() {
                // A save in the background that was told to stop has been waited for.
                take_ended(state);
            }
            let reason = error.to_string();
            failed(state, &reason, error.leaves_disk_as_it_was());
            Err(reason)
        }
    }
}

/// Brings back and verifies what is left of the image, which a save waits for.
fn finish_restore(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    if store.restore_progress().is_some() {
        tracing::info!("the save waits until the image that the data comes from is verified");
    }
    while store.restore_progress().is_some() {
        let more = restore_step(store, state, HURRIED_REGIONS);
        if let Some(reason) = &state.ending.fault {
            let reason = reason.clone();
            failed(state, &reason, true);
            return Err(reason);
        }
        if !more && store.restore_progress().is_some() {
            std::thread::sleep(RESTORE_POLL);
        }
    }
    Ok(())
}

/// Goes on bringing back the image; true while more is ready.
pub fn restore_step(store: &mut Store, state: &mut ServerState, regions: u32) -> bool {
    match store.restore_step(regions) {
        Ok(RestoreStep::More) => return true,
        Ok(RestoreStep::Idle | RestoreStep::Waiting) => {}
        Ok(RestoreStep::Finished) => {
            let took = state.saves.restored.served_since.map_or(Duration::ZERO, |since| since.elapsed());
            state.saves.restored.full_us = Some(state.saves.restored.first_read_us + took.as_micros() as u64);
            let (took_ms, damaged) = (took.as_millis() as u64, store.damaged_regions());
            if state.saves.restored.clone_of.is_some() {
                tracing::info!(took_ms, "the whole image that this clone was made from is verified");
            } else if damaged == 0 {
                tracing::info!(took_ms, "the whole image is in memory and verified");
            } else {
                tracing::warn!(
                    took_ms,
                    damaged_regions = damaged,
                    "the whole image is in memory, damage included, as accept-damaged-image says; the next save keeps the \
                     damaged image under another name"
                );
            }
        }
        Err(error) => {
            // A server that goes on could only spread the damage: into replies, and into the next image.
            let reason = match error.is_damage() {
                _ if state.saves.restored.clone_of.is_some() => cloning::advice(&error),
                true => saving::advice(&error),
                false => format!("{error}; --restore-mode load reads everything before it serves"),
            };
            tracing::error!(%reason, "the image can't be brought back; ending without a save");
            state.ending.fault = Some(reason);
            state.ending.request = Some(Shutdown { no_save: true, force: true, ..Shutdown::default() });
        }
    }
    false
}

/// Ends the server, after which no command runs; false if the save that should come first failed.
pub fn shut_down(store: &mut Store, state: &mut ServerState, shutdown: Shutdown) -> bool {
    cancel(store, state);
    log_control::settle(state);
    let wanted = shutdown.save || !state.config.save.is_empty() && !shutdown.no_save;
    // NOSAVE relies on the log; where that is not in force, has failed or has no room there is nothing to rely on.
    let for_log = log_control::needs_last_image(state) && !(shutdown.no_save && shutdown.force);
    // Data that is not loaded yet is where it was.
    if (wanted || for_log) && state.steps.loading.is_none() {
        tracing::info!("saving before the end");
        if let Err(reason) = save_now(store, state) {
            if !shutdown.force {
                tracing::error!(%reason, "cannot save before the end, so the server stays; SHUTDOWN NOSAVE FORCE ends it");
                return false;
            }
            tracing::warn!(%reason, "ending without a save, as asked");
        }
    }
    if !state.config.unixsocket.is_empty() {
        // Another program may have removed it already.
        let _ = std::fs::remove_file(&state.config.unixsocket);
    }
    state.ending.ended = true;
    tracing::info!("goodbye");
    true
}

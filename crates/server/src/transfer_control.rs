//! When the data is cut for clients that have asked for it as a file (SYNC), and what becomes of that.
//!
//! The data is fixed as by a save, and written to a temporary image, which a thread for each client maps and turns into an RDB file: a file is
//! made key by key, and what was cut in memory can be read once, page by page. One image serves all clients that have asked before its cut.
//! Relies on `persistence` for the cut, on `transfer` for the clients. Saves come first.

use quire_store::{Store, TemporaryImage};

use crate::log_control;
use crate::persistence;
use crate::rdb::send;
use crate::saving;
use crate::state::ServerState;
use crate::transfer::{ChunkSender, TransferFrame};

/// Memory for pages that a thread which sends would change of its image: next to none.
const SENDER_BUDGET_BYTES: usize = 1 << 20;

/// Client `id` is to be sent the data as it is now, or soon.
///
/// # Errors
/// In words for the client.
pub fn begin(store: &mut Store, state: &mut ServerState, id: u64, frame: TransferFrame) -> Result<(), String> {
    // What can't be is refused now, even if it would have to wait for something else first.
    persistence::may_save(state)?;
    if state.instance.waker.is_none() {
        return Err("there is no loop that would send it".to_owned());
    }
    let now_ms = state.clock_ms();
    state.blocked.transfers.begin(id, frame, now_ms)?;
    poll(store, state);
    cut(store, state);
    Ok(())
}

/// Looks for the end of a temporary image, and whether one is wanted; true if clients are to be looked at.
pub fn tick(store: &mut Store, state: &mut ServerState) -> bool {
    if state.blocked.transfers.is_empty() && !store.makes_temporary_image() {
        return false;
    }
    poll(store, state);
    cut(store, state);
    true
}

/// Cuts the data if clients wait for that, and nothing else comes first.
fn cut(store: &mut Store, state: &mut ServerState) {
    let saves_wait = state.saves.scheduled || state.saves.rewrites.scheduled || log_control::wants_image(state);
    if !state.blocked.transfers.awaits_cut() || saves_wait || !persistence::may_begin(store, state) {
        return;
    }
    match persistence::begin_temporary_image(store, state) {
        Ok(()) => state.blocked.transfers.note_cut(),
        Err(reason) => fail(state, &reason),
    }
}

/// Looks what has become of the temporary image that was being written.
fn poll(store: &mut Store, state: &mut ServerState) {
    let awaited = state.blocked.transfers.awaits_image();
    if !store.makes_temporary_image() {
        if awaited {
            // A save that could not wait has taken its place, or the data is other data now.
            state.blocked.transfers.note_lost_image();
        }
        return;
    }
    if !awaited {
        // All that have waited for it are gone.
        store.cancel_temporary_image();
    }
    match store.poll_temporary_image() {
        None => {}
        Some(Ok(image)) => start(state, &image),
        Some(Err(error)) if error.is_cancelled() => state.blocked.transfers.note_lost_image(),
        Some(Err(error)) => fail(state, &error.to_string()),
    }
}

fn start(state: &mut ServerState, image: &TemporaryImage) {
    let Some(waker) = state.instance.waker.clone() else { return };
    let mut config = saving::settings(&state.config);
    config.budget_bytes = SENDER_BUDGET_BYTES;
    state.blocked.transfers.start(&waker, |frame| {
        let (image, config) = (image.clone(), config.clone());
        move |out: &mut ChunkSender| send::send(image, config, &frame, out)
    });
}

fn fail(state: &mut ServerState, reason: &str) {
    tracing::error!(%reason, "clients that have asked for the data as a file can't be sent it");
    state.blocked.transfers.fail(reason);
}

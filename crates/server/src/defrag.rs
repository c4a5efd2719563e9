//! Active defragmentation: when what lives among holes is moved together, and for how long.
//!
//! From time to time it is looked how much memory is held but not used, and so what share of a processor moving may take. Until the next
//! look it goes in slices between commands, so far apart that they take that share; a command waits for one slice at most. After a cycle
//! that was not worth its time nothing is moved for a while, unless much more is wasted then.
//!
//! Relies on the store to choose what moves (`defrag_step`), and to move nothing while a snapshot of its memory is open. Values stay what
//! they are: neither the log nor clients hear of it.

use std::time::{Duration, Instant};

use quire_store::Store;

use crate::state::ServerState;

/// How long moving goes on before commands have their turn. The step that exceeds it is the last one.
const SLICE: Duration = Duration::from_micros(400);
/// Entries and pages that are looked at between two looks at the clock. Each may be copied, and be of 32 KiB.
const STEP_BUDGET: usize = 16;
/// The event of the latency monitor, as Redis calls it.
const DEFRAG_CYCLE: &str = "active-defrag-cycle";

/// Whether data has to stay where it is. What moves during a save is copied twice, what a clone moves becomes its own memory, and what is
/// damaged may lead to the wrong place.
fn is_held(store: &Store, server: &ServerState) -> bool {
    server.saves.running_since.is_some()
        || store.save_progress().is_some()
        || store.makes_temporary_image()
        || store.restore_progress().is_some()
        || store.arena().is_file_backed()
        || store.is_damaged()
        || server.steps.loading.is_some()
        || server.holds_deleted()
}

/// Looks how much memory is wasted, and begins, goes on or stops.
pub fn look(store: &mut Store, server: &mut ServerState) {
    let (settings, now) = (server.config.defrag, Instant::now());
    if !settings.is_on {
        server.steps.defrag.switch_off(now);
        // What it found says nothing of the data when it is switched on again.
        store.forget_defrag();
        return;
    }
    let arena = store.arena().stats();
    let (backed_bytes, allocated_bytes) = (arena.backed_bytes(), arena.allocated_bytes);
    let percent = if is_held(store, server) { 0 } else { settings.share_percent(backed_bytes, allocated_bytes) };
    server.steps.defrag.set_share(percent, backed_bytes.saturating_sub(allocated_bytes), now);
}

/// Whether a slice is due.
#[inline]
pub fn is_due(server: &ServerState, now: Instant) -> bool {
    !server.steps.paused && server.steps.defrag.due().is_some_and(|due| due <= now)
}

/// Moves for a short time.
pub fn slice(store: &mut Store, server: &mut ServerState) {
    let began = Instant::now();
    if is_held(store, server) || !server.config.defrag.is_on {
        server.steps.defrag.stop(began);
        return;
    }
    let now = loop {
        let step = store.defrag_step(STEP_BUDGET);
        let now = Instant::now();
        match step {
            Ok(summary) => {
                if !server.steps.defrag.note_step(summary, now) || now.duration_since(began) >= SLICE {
                    break now;
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot move data against fragmentation");
                server.steps.defrag.note_failure(now);
                break now;
            }
        }
    };
    let took = now.duration_since(began);
    server.steps.defrag.note_slice(took, now);
    let took_ms = took.as_millis() as u64;
    if server.config.latency.threshold_ms > 0 && took_ms >= server.config.latency.threshold_ms {
        let unix_s = server.unix_s();
        server.monitoring.latency.record(DEFRAG_CYCLE, unix_s, took_ms);
    }
}

//! What is looked after from time to time: expired keys, keys to evict, memory to give back, idle clients, saves, figures. Work that
//! could take long is done in steps between requests, each of them short.

use std::time::{Duration, Instant};

use quire_store::{CopyStep, ExpireSummary};

use super::engine::Engine;
use super::worker::Worker;
use crate::client::ClientClass;
use crate::clients::Slot;
use crate::defrag;
use crate::eviction;
use crate::invalidation;
use crate::notifications;
use crate::persistence;

/// Keys that are looked at in one step.
const EXPIRE_BUDGET: usize = 200;
/// Objects that are copied in one step, and KiB of them.
const COPY_BUDGET: usize = 512;
/// Objects that are freed in one step.
const RECLAIM_BUDGET: usize = 512;
/// Regions that are brought back in one step.
const RESTORE_BUDGET: u32 = 4;
/// Regions that are given back to the system in one tick.
const TRIM_REGIONS: usize = 8;
/// How often the end of a save is looked for.
const SAVE_POLL: Duration = Duration::from_millis(5);
/// How often regions that have been read are looked for.
const RESTORE_POLL: Duration = Duration::from_millis(2);
/// No client is connected and nothing is to be done: how long the loop sleeps.
const IDLE_TICK: Duration = Duration::from_millis(500);

impl Engine {
    pub(super) fn tick(&mut self, now: Instant) {
        let state = &mut self.worker.state;
        let used_bytes = state.memory_bytes(&self.worker.store);
        state.stats.used_memory_peak_bytes = state.stats.used_memory_peak_bytes.max(used_bytes);
        let now_ms = state.clock_ms();
        let (commands, input, output) =
            (state.stats.commands_processed, state.stats.input_bytes, state.stats.output_bytes);
        state.stats.command_rate.sample(commands, now_ms);
        state.stats.input_rate.sample(input, now_ms);
        state.stats.output_rate.sample(output, now_ms);
        state.stats.turns.sample(now_ms);
        let touched = self.worker.store.take_touched();
        state.mark_touched(&touched, 0);
        eviction::look(&mut self.worker.store, state);
        defrag::look(&mut self.worker.store, state);
        self.steps_left = true;
        if self.wants_step() {
            self.step(now);
        }
        let arena = self.worker.store.arena_mut();
        // What a clone gives back of its file is examined, and may have to be read for that.
        arena.trim(if arena.is_file_backed() { 1 } else { TRIM_REGIONS });
        self.look_after_clients();
        if std::mem::take(&mut self.retry_accept) {
            for listener in 0..self.listeners.len() {
                self.accept(listener);
            }
        }
        persistence::tick(&mut self.worker.store, &mut self.worker.state);
        self.look_after_transfers();
        self.next_tick = now + self.tick_every();
    }

    fn tick_every(&self) -> Duration {
        let state = &self.worker.state;
        if self.worker.store.restore_progress().is_some() {
            return RESTORE_POLL;
        }
        if state.saves.running_since.is_some() || self.worker.store.makes_temporary_image() {
            return SAVE_POLL;
        }
        let every = Duration::from_secs(1) / state.config.hz;
        if state.clients.is_empty() { every.max(IDLE_TICK) } else { every }
    }

    /// One step of everything that is done in steps; notes whether more is left.
    pub(super) fn step(&mut self, began: Instant) {
        let store = &mut self.worker.store;
        let paused = self.worker.state.steps.expiry_paused;
        let expired = if paused { Ok(ExpireSummary::default()) } else { store.expire_step(EXPIRE_BUDGET) };
        let mut more = match expired {
            Ok(summary) => summary.more,
            Err(error) => {
                tracing::error!(%error, "cannot look for expired keys");
                false
            }
        };
        if store.has_key_events() {
            notifications::tell_gone(store, &mut self.worker.state);
        }
        more |= eviction::step(store, &mut self.worker.state);
        more |= invalidation::step(&mut self.worker.state);
        match store.copy_step(COPY_BUDGET) {
            Ok(step) => more |= step == CopyStep::More,
            Err(error) => tracing::error!(%error, "cannot copy a key"),
        }
        let reclaim_budget = if self.worker.state.holds_deleted() { 0 } else { RECLAIM_BUDGET };
        match store.reclaim_step(reclaim_budget) {
            Ok(freed) => more |= freed > 0,
            Err(error) => tracing::error!(%error, "cannot free deleted data"),
        }
        more |= persistence::restore_step(store, &mut self.worker.state, RESTORE_BUDGET);
        self.steps_left = more;
        let state = &mut self.worker.state;
        let took = began.elapsed();
        state.stats.expire_cycle_us += took.as_micros() as u64;
        let took_ms = took.as_millis() as u64;
        if state.config.latency.threshold_ms > 0 && took_ms >= state.config.latency.threshold_ms {
            let unix_s = state.unix_s();
            state.monitoring.latency.record("expire-cycle", unix_s, took_ms);
        }
    }

    /// Moves some data together, if that is due: when nothing else is done in steps, so that a command waits for one of them.
    pub(super) fn defragment(&mut self) {
        let Worker { store, state, .. } = &mut self.worker;
        if defrag::is_due(state, state.clock.command_start) {
            defrag::slice(store, state);
        }
    }

    /// Closes clients that were silent too long or leave too much unread for too long.
    fn look_after_clients(&mut self) {
        let state = &mut self.worker.state;
        let are_listening = state.clients.pubsub.any() || !state.clients.monitors.is_empty();
        let limited = state.config.output_limits.normal.soft_bytes > 0 || are_listening;
        if state.config.timeout_s == 0 && !limited {
            return;
        }
        let (timeout_ms, now_ms) = (state.config.timeout_s * 1000, state.clock_ms());
        let mut waiting: Vec<Slot> = Vec::new();
        let mut idle: Vec<Slot> = Vec::new();
        for (slot, connection) in state.clients.iter() {
            // A client that listens may have nothing to say for ever, and one whose reply waits for the log can't read it yet.
            let waits = connection.client.blocked.as_ref().is_some_and(|blocked| !blocked.is_idle())
                || connection.client.output_class() == ClientClass::PubSub
                || connection.output.held_for().is_some();
            if timeout_ms > 0 && !waits && now_ms.saturating_sub(connection.client.stats.active_ms) > timeout_ms {
                idle.push(slot);
            } else if limited && !connection.output.is_empty() {
                waiting.push(slot);
            }
        }
        for slot in idle {
            tracing::debug!(slot, "closing an idle client");
            state.clients.doom(slot);
        }
        for slot in waiting {
            if let Some(mut connection) = state.clients.take(slot) {
                state.check_output(&mut connection);
                let ends = connection.client.closing == crate::client::CloseState::Now;
                state.clients.put_back(slot, connection);
                if ends {
                    state.clients.doom(slot);
                }
            }
        }
    }
}

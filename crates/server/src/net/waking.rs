//! Clients that wait go on: an event has come, their time is up, or another client says so.
//!
//! Relies on `blocked` for which client waits for what. Each event is announced here by the part of the loop that sees it.

use quire_store::{DbId, ValueType};

use super::engine::Engine;
use super::exchange::go_on;
use super::worker::Worker;
use crate::blocked::{BlockReason, CopyWait, HeldKey, LAST_RECORD, WakeEvent};
use crate::clients::Connection;

impl Engine {
    /// What all clients that wait for an event have waited for has come.
    pub(super) fn announce(&mut self, event: WakeEvent) {
        self.announce_up_to(event, u64::MAX);
    }

    fn announce_up_to(&mut self, event: WakeEvent, last: u64) {
        if !self.worker.state.blocked.is_empty() {
            let ids = self.worker.state.blocked.waiting(event, last);
            self.wake(&ids);
        }
    }

    /// The end of a pause is looked for.
    pub(super) fn end_pause(&mut self) {
        let state = &mut self.worker.state;
        // CLIENT UNPAUSE sets the end to now.
        if state.clients.pause.is_some_and(|pause| state.clock_ms() >= pause.until_ms) {
            state.clients.pause = None;
            self.worker.store.set_holding_expired(self.worker.state.holds_expired());
            self.announce(WakeEvent::PauseEnds);
        }
    }

    /// The time of some clients is up, or they were unblocked.
    pub(super) fn wake_due(&mut self) {
        let state = &mut self.worker.state;
        if !state.blocked.is_empty() {
            let now_ms = state.clock_ms();
            let ids = state.blocked.due(now_ms);
            self.wake(&ids);
        }
    }

    /// A copy may be whole, or there may be none any more. Clients that go on because of that may end theirs, or begin one. Each is
    /// woken when it can go on, and not to find that it can't: with many that wait for their turn, that would be a run of all of them for each
    /// copy. Writers of the key come first: they are not to wait for the copies that others would make of it before.
    pub(super) fn announce_copies(&mut self) {
        while self.copy_got_on() {
            self.copy_events = self.worker.store.copy_events();
            // Without those that begin theirs now.
            let owners = self.worker.state.blocked.waiting(WakeEvent::CopyIsMade, u64::MAX);
            self.wake_writers();
            self.wake(&owners);
            if self.copy_events == self.worker.store.copy_events() {
                self.begin_next_copy();
            }
        }
        self.worker.judge_holds();
    }

    /// Those go on that wait to write a key of which no copy is under way any more, first come, first served, until one of them has something made
    /// of it in steps again. Those that come to wait meanwhile are left out, so that this ends.
    fn wake_writers(&mut self) {
        let (mut from, end) = (0, self.worker.state.blocked.arrivals());
        while let Some((place, id)) = self.worker.state.blocked.next_waiting(WakeEvent::KeyMayChange, from, end) {
            let blocked = self.worker.state.clients.by_id(id).and_then(|client| client.blocked);
            let held = self.worker.store.copy_source().map(HeldKey::of);
            if held
                .is_some_and(|held| blocked.is_some_and(|blocked| blocked.on == BlockReason::Copy(CopyWait::Key(held))))
            {
                return;
            }
            from = place + 1;
            self.wake(&[id]);
        }
    }

    /// Those that wait for their turn get it, first come, first served, until one has begun its copy, with the same exception.
    fn begin_next_copy(&mut self) {
        let (mut from, end) = (0, self.worker.state.blocked.arrivals());
        while self.worker.store.copy_owner().is_none()
            && let Some((place, id)) = self.worker.state.blocked.next_waiting(WakeEvent::CopyMayBegin, from, end)
        {
            from = place + 1;
            self.wake(&[id]);
        }
    }

    /// Whether something became of a copy that clients may wait for, or they wait and there is none: the store may be another
    /// one (DEBUG RELOAD).
    pub(super) fn copy_got_on(&self) -> bool {
        let Worker { store, state, .. } = &self.worker;
        let waits = [WakeEvent::CopyIsMade, WakeEvent::CopyMayBegin, WakeEvent::KeyMayChange];
        self.copy_events != store.copy_events()
            || store.copy_owner().is_none() && waits.into_iter().any(|event| state.blocked.awaits(event))
    }

    /// More of the log may be durable, or none ever will be.
    pub(super) fn announce_durability(&mut self) {
        let last = match &self.worker.state.log_writer {
            Some(log_writer) if log_writer.failure().is_none() && log_writer.awaits_image() => return,
            Some(log_writer) if log_writer.failure().is_none() => log_writer.durable().min(LAST_RECORD - 1),
            Some(_) | None => LAST_RECORD,
        };
        self.announce_up_to(WakeEvent::LogIsDurable, last);
    }

    /// Keys have changed on which clients wait: their requests are run again, in the order in which they came, as long as there is
    /// something to be had. What they do may make further keys ready, which come next.
    #[cold]
    pub(super) fn serve_ready_keys(&mut self) {
        if std::mem::replace(&mut self.serves_keys, true) {
            // Those who serve already will come to it.
            return;
        }
        // What has made a key ready may have taken so long that the key has expired since.
        self.worker.state.take_time();
        self.worker.store.set_now_ms(self.worker.state.clock.unix_ms);
        while let Some((db, key)) = self.worker.store.next_ready_key() {
            self.serve_key(db, &key, false);
            // Who reads a stream in a group's name is told when it is gone.
            self.serve_key(db, &key, true);
        }
        self.serves_keys = false;
    }

    /// Runs the requests that wait for a value of the key's type, or those that wait for a stream while it is none.
    fn serve_key(&mut self, db: DbId, key: &[u8], lost_streams: bool) {
        let mut after = None;
        // Damage of a key is told to the client that uses it.
        while let Ok(kind) = self.worker.store.kind(db, key) {
            let lost = kind != Some(ValueType::Stream);
            let awaited = if lost_streams { Some(ValueType::Stream).filter(|_| lost) } else { kind };
            let Some(awaited) = awaited else { return };
            let Some((place, id)) = self.worker.state.blocked.keys.next_on(db, key, awaited, after) else { return };
            after = Some(place);
            // One that something else keeps from being served comes by itself when that ends, and is not to cost time until then.
            let blocked = self.worker.state.clients.by_id(id).and_then(|client| client.blocked);
            if blocked.is_some_and(|blocked| matches!(blocked.on, BlockReason::Keys(_))) {
                self.wake(&[id]);
            }
        }
    }

    fn wake(&mut self, ids: &[u64]) {
        for id in ids {
            let Some(slot) = self.worker.state.clients.slot_of(*id) else { continue };
            let Some(mut connection) = self.worker.state.clients.take(slot) else { continue };
            self.worker.state.blocked.woken += 1;
            go_on(&mut self.worker, &mut connection);
            self.finish(slot, connection);
        }
    }

    /// Enters a client that waits now, and takes one out that doesn't any more.
    #[cold]
    pub(super) fn enter_blocked(&mut self, connection: &mut Connection) {
        let (id, blocked) = (connection.client.id, connection.client.blocked);
        if connection.entry.is_some_and(|entry| blocked.is_some_and(|blocked| entry.is_of(&blocked))) {
            return;
        }
        let all = &mut self.worker.state.blocked;
        if let Some(entry) = connection.entry.take() {
            all.leave(id, entry);
        }
        connection.entry = blocked.map(|blocked| all.enter(id, &blocked));
    }
}

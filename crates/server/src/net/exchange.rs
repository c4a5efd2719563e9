//! A connection's life: it is accepted, read from, written to, held back, closed.

use std::io::ErrorKind;

use mio::{Registry as Polled, Token};

use super::engine::{Engine, once_each, token_of};
use super::listen::AcceptedSocket;
use super::worker::Worker;
use crate::blocked::{BlockReason, BlockedClient};
use crate::client::{Client, CloseState};
use crate::clients::{Connection, Slot};
use crate::socket::Socket;
use crate::state::ServerState;

const TOO_MANY: &str = "ERR max number of clients reached";
const PROTECTED: &str = "DENIED Redis is running in protected mode because protected mode is enabled and no password is \
    set for the default user. Quire takes connections only from its own machine then. To connect from elsewhere, set a \
    password (requirepass), or turn protected mode off (protected-mode no) if no other machine can reach the server.";
/// Connections that are accepted at one listener in one turn of the loop.
const ACCEPTED_AT_ONCE: usize = 512;
/// A client whose requests wait is not read from while so much of them is here: the rest waits in the kernel, and in the
/// client.
const HELD_INPUT_BYTES: usize = 256 * 1024;
/// Memory for requests that a connection keeps while one is incomplete.
const KEPT_INPUT_BYTES: usize = 512 * 1024;

impl Engine {
    /// Accepts connections that wait at a listener, many at once but not all of a flood.
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let state = &self.worker.state;
            match self.listeners[listener].accept(state.config.tcp_keepalive_s, state.instance.tls.as_ref()) {
                Ok(caller) => welcome(&mut self.worker.state, self.poll.registry(), caller),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    // Out of files, most likely: the next tick tries again to accept what waits.
                    tracing::warn!(%error, "cannot accept a connection");
                    self.retry_accept = true;
                    return;
                }
            }
        }
        self.accept_again.push(listener);
    }

    /// A socket has bytes, or its client will send no more (`ended`), or the socket has failed.
    pub(super) fn readable(&mut self, slot: Slot, ended: bool, failed: bool) {
        let Some(mut connection) = self.worker.state.clients.take(slot) else { return };
        // The kernel tells of the end once, perhaps long before the bytes in front of it are read.
        connection.read_closed |= ended;
        if connection.is_held() && connection.input.len() >= HELD_INPUT_BYTES {
            connection.unread = true;
            if failed {
                connection.client.closing = CloseState::Now;
            }
        } else if !connection.at_end {
            let drained = self.read_once(&mut connection);
            connection.read_closed |= connection.socket.is_ended();
            if !drained || connection.read_closed && !connection.at_end {
                // There may be more: the rest of a long request, or the end after the last bytes.
                self.again.push(slot);
            }
        }
        self.finish(slot, connection);
    }

    /// A socket takes more bytes.
    pub(super) fn writable(&mut self, slot: Slot) {
        let Some(mut connection) = self.worker.state.clients.take(slot) else { return };
        connection.awaits_sending = false;
        if self.worker.state.write_waiting(&mut connection) {
            self.write_again.push(slot);
        }
        if connection.client.is_sent_file() && self.worker.feed(&mut connection) {
            // No event tells of a socket that goes on taking.
            self.write_again.push(slot);
        }
        if is_unread(connection.client.blocked)
            && connection.output.len() <= self.worker.held_output_bytes(&connection) / 2
        {
            go_on(&mut self.worker, &mut connection);
        }
        self.finish(slot, connection);
    }

    /// Sends the messages of this turn to those that were sent any.
    pub(super) fn send_messages(&mut self) {
        let state = &mut self.worker.state;
        if state.are_clients_too_large() {
            // All of them before any client goes on and it is looked again at what all take.
            state.offer_delivered();
        }
        for slot in once_each(&mut state.clients.take_delivered()) {
            self.writable(slot);
        }
    }

    /// Sends replies that had to wait for the log.
    fn let_go(&mut self, slot: Slot, failed: bool) {
        let Some(mut connection) = self.worker.state.clients.take(slot) else { return };
        connection.output.settle(self.worker.state.durable());
        if failed && connection.output.held_for().is_some() {
            // What it did is in memory and perhaps nowhere else: neither yes nor no would be true.
            connection.client.closing = CloseState::Now;
        }
        self.worker.state.clients.put_back(slot, connection);
        self.writable(slot);
    }

    /// Looks which replies need not wait for the log any more.
    pub(super) fn release(&mut self) {
        let failed = self.worker.state.log_writer.as_ref().is_some_and(|log_writer| log_writer.failure().is_some());
        let durable = self.worker.state.durable();
        while let Some(&(sequence, slot)) = self.held.front()
            && (sequence <= durable || failed)
        {
            self.held.pop_front();
            self.let_go(slot, failed);
        }
    }

    /// One read and the requests that it completes; true when the socket is drained.
    fn read_once(&mut self, connection: &mut Connection) -> bool {
        let count = match connection.socket.read(&mut self.scratch) {
            Ok(0) => {
                // The client sends no more, but may still read what it asked for: the requests that wait are run.
                connection.at_end = true;
                return true;
            }
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => return false,
            Err(error) => {
                tracing::debug!(client = connection.client.id, %error, "cannot read");
                connection.client.closing = CloseState::Now;
                return true;
            }
        };
        let worker = &mut self.worker;
        worker.state.stats.input_bytes += count as u64;
        worker.state.stats.reads += 1;
        connection.client.stats.input_total_bytes += count as u64;
        connection.client.stats.active_ms = worker.state.clock_ms();
        connection.client.stats.input_bytes = connection.input.len() + count;
        if connection.client.closing != CloseState::No {
            // Only its last replies matter; what else it says is dropped.
        } else if connection.input.is_empty() && !connection.is_held() {
            let done = worker.run(&self.scratch[..count], connection);
            connection.take_in(&self.scratch[done..count]);
        } else {
            connection.take_in(&self.scratch[..count]);
            if !connection.is_held() {
                run_waiting(worker, connection);
            }
        }
        check_input(worker, connection);
        count < self.scratch.len()
    }

    /// Puts a connection back, or closes it if its time has come. What it has done may concern clients that wait on keys: they come
    /// before any other request, also if the client is gone.
    pub(super) fn finish(&mut self, slot: Slot, connection: Box<Connection>) {
        self.put_back_or_close(slot, connection);
        if self.worker.store.has_ready_keys() {
            self.serve_ready_keys();
        }
    }

    fn put_back_or_close(&mut self, slot: Slot, mut connection: Box<Connection>) {
        // A client that waits on keys and sends no more is gone, whatever it has sent before that wasn't read yet.
        let ended = connection.at_end || connection.read_closed && connection.is_held();
        if ended && connection.client.closing == CloseState::No {
            connection.client.closing = closing_at_end(&connection);
        }
        let closing = connection.client.closing;
        if closing == CloseState::Now || closing == CloseState::AfterReply && !has_unsent(&connection) {
            self.close(slot, connection);
            return;
        }
        if let Some(sequence) = connection.output.held_for()
            && sequence > connection.listed_for
        {
            connection.listed_for = sequence;
            self.held.push_back((sequence, slot));
        }
        if connection.entry.is_some() || connection.is_held() {
            self.enter_blocked(&mut connection);
        }
        if connection.unread && !connection.is_held() {
            connection.unread = false;
            self.again.push(slot);
        }
        let mut wants_writing = !connection.output.waiting().is_empty() || connection.socket.has_unsent();
        if wants_writing && self.worker.defers_sends && !connection.watches_writing {
            // Its socket is asked to take them first, with those of other clients.
            wants_writing = false;
            if !std::mem::replace(&mut connection.awaits_sending, true) {
                self.worker.state.clients.note_unsent(slot);
            }
        }
        if wants_writing != connection.watches_writing {
            watch_writing(self.poll.registry(), slot, &mut connection, wants_writing);
        }
        let state = &mut self.worker.state;
        state.clients.put_back(slot, connection);
        if state.are_clients_too_large() {
            state.relieve_clients();
        }
    }

    /// Closes a connection that was taken out of its slot.
    fn close(&mut self, slot: Slot, mut connection: Box<Connection>) {
        let client = &mut connection.client;
        if client.watch.keys > 0 {
            self.worker.store.unwatch_all(client.id);
        }
        self.worker.state.clients.pubsub.unsubscribe_all(client.id, &mut client.subscriptions);
        self.worker.state.clients.set_monitoring(client.id, false);
        if self.worker.state.clients.tracking.end(client.id) {
            self.worker.store.set_noting_key_events(self.worker.state.wants_key_events());
        }
        if let Some(entry) = connection.entry.take() {
            self.worker.state.blocked.leave(client.id, entry);
        }
        self.worker.state.blocked.keys.end(&mut self.worker.store, client.id);
        self.worker.state.blocked.transfers.end(client.id);
        // Not only of a client that is entered as waiting: the socket may fail in the turn in which its copy begins.
        if let Err(error) = self.worker.store.cancel_copy(client.id) {
            tracing::error!(%error, "cannot free what a copy has taken");
        }
        tracing::debug!(client = client.id, address = %client.peer.address, "client left");
        connection.socket.deregister(self.poll.registry());
        self.worker.state.clients.forget(slot, &connection);
    }

    /// Closes a connection in its slot.
    pub(super) fn close_slot(&mut self, slot: Slot) {
        if let Some(connection) = self.worker.state.clients.take(slot) {
            self.close(slot, connection);
        }
    }
}

/// Takes in a client that has just come, or refuses it.
pub(super) fn welcome(state: &mut ServerState, polled: &Polled, caller: AcceptedSocket) {
    state.stats.connections_received += 1;
    let refusal = if state.clients.len() >= state.config.maxclients as usize {
        Some(TOO_MANY)
    } else if state.config.acl.protected_mode
        && state.clients.acl.default_user().takes_any_password()
        && !caller.is_local
    {
        Some(PROTECTED)
    } else {
        None
    };
    if let Some(line) = refusal {
        state.stats.connections_rejected += 1;
        let mut socket = caller.socket;
        // A caller that does not take the line is refused without it.
        let _ = socket.write(format!("-{line}\r\n").as_bytes());
        return;
    }
    let id = state.clients.next_id();
    let mut client = Client::new(id, caller.address, caller.local_address, state.clock_ms());
    client.login = state.clients.acl.first_login();
    client.peer.is_local = caller.is_local;
    client.peer.is_unix = matches!(caller.socket, Socket::Unix(_));
    client.peer.fd = caller.socket.fd();
    let mut socket = caller.socket;
    let inserted = state.clients.insert(id, |slot| {
        socket.register(polled, token_of(slot))?;
        Ok(Connection::new(client, socket))
    });
    if let Err(error) = inserted {
        tracing::warn!(%error, "cannot wait for a connection's requests");
    }
}

/// Whether a client that sends no more is done with: when every complete request has been run, and the last one doesn't wait
/// for what can't come.
fn closing_at_end(connection: &Connection) -> CloseState {
    match &connection.client.blocked {
        // Also while something else keeps it from being served.
        Some(_) if connection.client.waits_on_keys() => CloseState::AfterReply,
        // It could take the rest, but none does: it is gone, as Redis has it.
        Some(_) if connection.client.is_sent_file() => CloseState::Now,
        Some(blocked) if blocked.ends_with_input() => CloseState::AfterReply,
        Some(_) => CloseState::No,
        None if connection.at_end => CloseState::AfterReply,
        None => CloseState::No,
    }
}

/// Whether bytes wait that the client is still to be sent.
fn has_unsent(connection: &Connection) -> bool {
    !connection.output.is_empty() || connection.socket.has_unsent()
}

fn watch_writing(polled: &Polled, slot: Slot, connection: &mut Connection, writing: bool) {
    let token: Token = token_of(slot);
    match connection.socket.watch_writing(polled, token, writing) {
        Ok(()) => connection.watches_writing = writing,
        Err(error) => {
            tracing::warn!(%error, "cannot wait for a socket to take more");
            connection.client.closing = CloseState::Now;
        }
    }
}

/// Runs a client's requests, or gives the reply that it waits for first, if that is due.
pub(super) fn go_on(worker: &mut Worker, connection: &mut Connection) {
    let Some(blocked) = connection.client.blocked else { return };
    if let Some(how) = blocked.unblocked {
        worker.state.blocked.keys.unblock(connection.client.id, how);
    }
    let goes_on = match blocked.on {
        BlockReason::Pause
        | BlockReason::Output
        | BlockReason::Turn
        | BlockReason::LogBehind
        | BlockReason::Copy(_)
        | BlockReason::Migration
        | BlockReason::Keys(_) => true,
        BlockReason::Durability(_) => worker.answer_durability(&blocked, connection),
        BlockReason::Transfer => {
            worker.feed(connection);
            false
        }
    };
    if goes_on {
        connection.client.blocked = None;
        run_waiting(worker, connection);
    }
}

/// Whether a client waits for its own reading.
fn is_unread(blocked: Option<BlockedClient>) -> bool {
    blocked.is_some_and(|blocked| blocked.on == BlockReason::Output)
}

/// Runs what can be run of the requests that wait in a connection.
fn run_waiting(worker: &mut Worker, connection: &mut Connection) {
    if connection.client.closing != CloseState::No {
        return;
    }
    let mut input = std::mem::take(&mut connection.input);
    connection.client.stats.input_bytes = input.len();
    let done = worker.run(&input, connection);
    if done == input.len() {
        // An idle connection holds no buffer.
        connection.client.stats.input_bytes = 0;
        return;
    }
    input.drain(..done);
    if input.capacity() > KEPT_INPUT_BYTES && input.capacity() / 4 > input.len() {
        // What a large request needed is not kept for the small beginning of the next.
        input.shrink_to(KEPT_INPUT_BYTES.max(input.len()));
    }
    connection.input = input;
    connection.client.stats.input_bytes = connection.input.len();
}

/// Closes a client that sends more than it may leave unprocessed.
fn check_input(worker: &mut Worker, connection: &mut Connection) {
    connection.client.stats.input_bytes = connection.input.len();
    let limit = worker.state.config.client_query_buffer_limit;
    if connection.input.len() as u64 > limit {
        tracing::warn!(
            client = connection.client.id,
            address = %connection.client.peer.address,
            limit_bytes = limit,
            "closing a client that reached its query buffer limit"
        );
        worker.state.stats.query_limit_closed += 1;
        connection.client.closing = CloseState::Now;
    }
}

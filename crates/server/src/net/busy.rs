//! Serves clients while a script that is over its time keeps the event loop: new ones are accepted, and each may ask for the
//! script's end; almost all else is refused (`dispatch` decides).
//!
//! Relies on sockets that don't block: each is simply tried. What is left to be read or written the loop does afterwards,
//! since its own events are still to come.

use std::os::fd::AsFd;

use mio::Registry as Polled;
use quire_store::Store;

use super::exchange;
use super::listen::Listener;
use crate::client::CloseState;
use crate::clients::{Connection, Slot};
use crate::ctx::Ctx;
use crate::dispatch;
use crate::registry::registry;
use crate::resp::{ParseOutcome, Reply, RequestBatch, RequestLimits, parse};
use crate::state::{BusyServer, ServerState};

/// Connections that are accepted at one listener at a time.
const ACCEPTED_AT_ONCE: usize = 64;
/// Read at once from a socket.
const READ_BYTES: usize = 16 * 1024;
/// A client whose requests are not complete is not read from beyond this.
const MOST_INPUT_BYTES: usize = 256 * 1024;

/// What is needed to serve clients without the loop.
pub(super) struct BusySockets {
    listeners: Vec<Listener>,
    polled: Polled,
    scratch: Vec<u8>,
}

impl BusySockets {
    /// Shares the loop's listeners, and adds connections to what it waits for.
    pub fn new(listeners: &[Listener], polled: &Polled) -> std::io::Result<Self> {
        let listeners = listeners.iter().map(Listener::try_clone).collect::<Result<_, _>>()?;
        Ok(Self { listeners, polled: polled.try_clone()?, scratch: vec![0; READ_BYTES] })
    }

    fn accept(&mut self, state: &mut ServerState) {
        for listener in &self.listeners {
            for _ in 0..ACCEPTED_AT_ONCE {
                // Whatever is wrong with it, the loop will meet it, too.
                let accepted = listener.accept(state.config.tcp_keepalive_s, state.instance.tls.as_ref());
                let Ok(caller) = accepted else { break };
                exchange::welcome(state, &self.polled, caller);
            }
        }
    }

    /// Reads from one client and runs what it may.
    fn serve_one(&mut self, store: &mut Store, state: &mut ServerState, connection: &mut Connection) {
        if !connection.output.waiting().is_empty() {
            // The loop may have put its replies off until those of other clients are sent.
            write(connection);
        }
        if connection.is_held()
            || connection.client.closing != CloseState::No
            || connection.input.len() > MOST_INPUT_BYTES
            || !connection.output.is_empty()
        {
            return;
        }
        // The end of the stream and failures are the loop's to see.
        let Ok(count @ 1..) = connection.socket.read(&mut self.scratch) else { return };
        if count == self.scratch.len() {
            // There may be more that no event will tell of; the loop reads on.
            connection.unread = true;
        }
        state.stats.input_bytes += count as u64;
        connection.client.stats.input_total_bytes += count as u64;
        connection.take_in(&self.scratch[..count]);
        let mut reply = Reply::new(connection.client.protocol);
        run_all(store, state, connection, &mut reply);
        connection.output.push(reply.as_bytes());
        write(connection);
        connection.client.stats.input_bytes = connection.input.len();
        connection.client.stats.output_bytes = connection.output.len();
    }
}

impl BusyServer for BusySockets {
    fn serve(&mut self, store: &mut Store, state: &mut ServerState) {
        self.accept(state);
        // It is not the others' whose requests run now.
        let own = state.clients.set_own_aside();
        self.serve_all(store, state);
        state.clients.put_own_back(own);
    }
}

impl BusySockets {
    fn serve_all(&mut self, store: &mut Store, state: &mut ServerState) {
        let slots: Vec<Slot> = state.clients.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(mut connection) = state.clients.take(slot) else { continue };
            self.serve_one(store, state, &mut connection);
            let closes = connection.client.closing != CloseState::No;
            let is_unfinished = !connection.output.is_empty() || connection.socket.has_unsent() || connection.unread;
            if is_unfinished && !connection.awaits_sending {
                connection.awaits_sending = true;
                state.clients.note_unsent(slot);
            }
            state.clients.put_back(slot, connection);
            if closes {
                state.clients.doom(slot);
            }
            if state.ending.ended {
                return;
            }
        }
    }
}

/// Runs the complete requests of a client.
fn run_all(store: &mut Store, state: &mut ServerState, connection: &mut Connection, reply: &mut Reply) {
    let mut input = std::mem::take(&mut connection.input);
    let (mut at, mut batch) = (0, RequestBatch::default());
    while connection.client.closing == CloseState::No && !connection.is_held() {
        let limits = RequestLimits {
            max_bulk_bytes: state.config.proto_max_bulk_len,
            authenticated: !connection.client.login.is_stranger(),
        };
        batch.clear();
        match parse(&input, at, &limits, &mut connection.partial, &mut batch) {
            Ok(ParseOutcome::Request) => {}
            Ok(ParseOutcome::Skipped(next)) => {
                at = next;
                continue;
            }
            Ok(ParseOutcome::Incomplete) => break,
            Err(error) => {
                reply.error(&format!("ERR Protocol error: {error}"));
                connection.client.closing = CloseState::AfterReply;
                break;
            }
        }
        let args = batch.args(0, &input);
        let found = registry().find(args.at(0)).map(|command| command.id);
        let client = &mut connection.client;
        dispatch::run(registry(), found, &mut Ctx { store, server: state, client, args, reply });
        reply.set_protocol(connection.client.protocol);
        at = batch.request(0).end;
    }
    input.drain(..at);
    connection.input = input;
}

fn write(connection: &mut Connection) {
    let waiting = connection.output.waiting();
    if let Ok(count) = connection.socket.write(waiting) {
        connection.client.stats.output_total_bytes += count as u64;
        connection.output.advance(count);
    }
}

impl Listener {
    /// The same socket once more.
    fn try_clone(&self) -> std::io::Result<Self> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(same_tcp(listener)?),
            Listener::Tls(listener) => Listener::Tls(same_tcp(listener)?),
            Listener::Unix(listener, path) => {
                let socket = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
                Listener::Unix(mio::net::UnixListener::from_std(socket), path.clone())
            }
        })
    }
}

fn same_tcp(listener: &mio::net::TcpListener) -> std::io::Result<mio::net::TcpListener> {
    Ok(mio::net::TcpListener::from_std(std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?)))
}

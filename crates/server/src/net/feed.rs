//! Clients that are sent files (SYNC): their outputs get more as they read, and those are looked after that do not.
//!
//! Relies on `transfer` for the bytes, which no output ever holds many of.

use super::engine::Engine;
use super::worker::Worker;
use crate::client::CloseState;
use crate::clients::Connection;
use crate::transfer::{CHUNK_BYTES, TransferStep};
use crate::transfer_control;

/// Bytes of a file that may wait in a client's output.
const OUTPUT_BYTES: usize = 1 << 20;
/// What a client waits for whose file has not begun.
const KEEPALIVE: &[u8] = b"\n";

impl Worker {
    /// Gives the output of a client what has come of the file that the client is sent, as far as there is room; true if it got anything.
    pub fn feed(&mut self, connection: &mut Connection) -> bool {
        // What lies above a limit would have the client closed, though it reads: it is the server that fills the output.
        let limit = self.state.config.output_limits.replica;
        let least = [limit.hard_bytes, limit.soft_bytes].into_iter().filter(|bytes| *bytes > 0).min();
        let most_bytes = least.map_or(OUTPUT_BYTES, |bytes| OUTPUT_BYTES.min(bytes as usize));
        let (id, now_ms) = (connection.client.id, self.state.clock_ms());
        let mut has_fed = false;
        while connection.client.closing == CloseState::No
            && (connection.output.is_empty() || connection.output.len() + CHUNK_BYTES <= most_bytes)
        {
            match self.state.blocked.transfers.next(id, now_ms) {
                TransferStep::Send(bytes) => connection.output.push(&bytes),
                TransferStep::Wait => break,
                TransferStep::End => connection.client.closing = CloseState::AfterReply,
                TransferStep::Refuse(reason) => {
                    let line = format!("ERR the data can't be sent: {}", reason.replace(['\r', '\n'], " "));
                    self.state.stats.count_error(line.as_bytes());
                    connection.output.push(format!("-{line}\r\n").as_bytes());
                    connection.client.closing = CloseState::AfterReply;
                }
                TransferStep::Abort(reason) => {
                    tracing::error!(client = id, %reason, "closing a client amid the file that it is sent");
                    connection.client.closing = CloseState::Now;
                }
            }
            has_fed = true;
        }
        connection.client.stats.output_bytes = connection.output.len();
        has_fed
    }
}

impl Engine {
    /// Has clients be sent the data that wait for it, and looks how they take it.
    pub(super) fn look_after_transfers(&mut self) {
        let Worker { store, state, .. } = &mut self.worker;
        if !transfer_control::tick(store, state) {
            return;
        }
        for id in self.worker.state.blocked.transfers.clients() {
            let Some(slot) = self.worker.state.clients.slot_of(id) else { continue };
            let Some(mut connection) = self.worker.state.clients.take(slot) else { continue };
            self.worker.feed(&mut connection);
            self.look_after_transfer(&mut connection);
            self.finish(slot, connection);
        }
    }

    fn look_after_transfer(&mut self, connection: &mut Connection) {
        let state = &mut self.worker.state;
        let (client, now_ms) = (&mut connection.client, state.clock_ms());
        if connection.output.is_empty() && !connection.socket.has_unsent() {
            if client.closing == CloseState::No && state.blocked.transfers.takes_keepalive(client.id, now_ms) {
                connection.output.push(KEEPALIVE);
            }
        } else if (connection.socket.has_unsent() || !connection.output.waiting().is_empty())
            && state.blocked.transfers.is_stalled(client.id, client.stats.output_total_bytes, now_ms)
        {
            tracing::warn!(client = client.id, address = %client.peer.address, "closing a client that does not take the file that it is sent");
            state.stats.output_limit_closed += 1;
            client.closing = CloseState::Now;
        }
    }
}

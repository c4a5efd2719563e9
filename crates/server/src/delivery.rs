//! What is handed to clients' sockets: the messages of channels and MONITOR, and all else that waits in their outputs. A client that leaves
//! too much unread is closed, and if all together hold too much, the largest.
//!
//! What no socket was asked to take yet is not unread: sockets are asked before a client is closed. Relies on `clients` for the outputs and
//! for what they take.

use std::io::ErrorKind;

use crate::client::CloseState;
use crate::clients::{Connection, Delivery, OutputBounds, Slot};
use crate::pubsub::PushMessage;
use crate::state::ServerState;

/// Written to a socket in one turn of the loop.
const WRITTEN_AT_ONCE_BYTES: usize = 4 << 20;

impl ServerState {
    /// Sends a message to all that listen to a channel; returns how many that are, a client once for each of its subscriptions.
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        if !self.clients.pubsub.listens_to_channels() {
            return 0;
        }
        let mut count = 0;
        for (pattern, ids) in self.clients.pubsub.receivers(channel) {
            let message = match &pattern {
                None => PushMessage::new(&[b"message", channel, message]),
                Some(pattern) => PushMessage::new(&[b"pmessage", pattern, channel, message]),
            };
            self.send(&ids, &message);
            count += ids.len();
        }
        count
    }

    /// Sends some clients a message that they have not asked for there and then. A client that would have more unread than one that
    /// listens may is closed instead.
    pub fn send(&mut self, ids: &[u64], message: &PushMessage) {
        let together_bytes = self.client_memory_limit_bytes();
        let bounds = OutputBounds { together_bytes, of_one_bytes: self.config.output_limits.pubsub.hard_bytes };
        for id in ids {
            let mut delivery = self.clients.deliver(*id, message, bounds);
            if delivery == Delivery::TooMuch
                && let Some(slot) = self.clients.slot_of(*id)
                && self.offer(slot)
            {
                delivery = self.clients.deliver(*id, message, bounds);
            }
            if delivery == Delivery::TooMuch {
                self.close_deaf(*id);
            }
            if self.clients.memory_bytes() as u64 > together_bytes {
                self.relieve_clients();
            }
        }
    }

    /// Closes a client that does not read its messages.
    #[cold]
    fn close_deaf(&mut self, id: u64) {
        self.stats.output_limit_closed += 1;
        let (Some(client), Some(slot)) = (self.clients.by_id(id), self.clients.slot_of(id)) else { return };
        tracing::warn!(
            client = id,
            address = %client.peer.address,
            waiting_bytes = client.stats.output_bytes,
            "closing a client that does not read the messages that it listens to"
        );
        self.clients.doom(slot);
    }

    /// Asks a client's socket to take what waits; false if the client is the one whose command is running.
    #[cold]
    fn offer(&mut self, slot: Slot) -> bool {
        let Some(mut connection) = self.clients.take(slot) else { return false };
        connection.awaits_sending = false;
        self.write_waiting(&mut connection);
        connection.output.shrink();
        let ends = connection.client.closing == CloseState::Now;
        self.clients.put_back(slot, connection);
        if ends {
            self.clients.doom(slot);
        }
        true
    }

    /// Asks all sockets to take the messages of this turn that they were not asked for yet.
    pub fn offer_delivered(&mut self) {
        for slot in self.clients.not_offered() {
            self.offer(slot);
        }
    }

    /// Whether all clients together take more memory than they may.
    #[inline]
    pub fn are_clients_too_large(&self) -> bool {
        self.clients.memory_bytes() as u64 > self.client_memory_limit_bytes()
    }

    /// Closes the clients that take most memory until all together take no more than they may.
    #[cold]
    pub fn relieve_clients(&mut self) {
        self.offer_delivered();
        while self.are_clients_too_large()
            && let Some(slot) = self.clients.largest()
        {
            let all_bytes = self.clients.memory_bytes();
            self.clients.evict(slot);
            let freed_bytes = all_bytes - self.clients.memory_bytes();
            let client = self.clients.at(slot);
            tracing::warn!(
                client = client.map(|client| client.id),
                address = client.map(|client| client.peer.address.as_str()),
                bytes = freed_bytes,
                all_bytes,
                limit_bytes = self.client_memory_limit_bytes(),
                "closing a client because all clients together take more memory than maxmemory-clients allows"
            );
            self.stats.clients_evicted += 1;
        }
    }

    /// Writes what waits, as far as the log allows and the socket takes it, but not for ever; true if there is more that it
    /// may take.
    pub fn write_waiting(&mut self, connection: &mut Connection) -> bool {
        let mut written = 0;
        connection.output.settle(self.durable());
        if connection.socket.send_pending().is_err() {
            connection.client.closing = CloseState::Now;
        }
        while !connection.output.waiting().is_empty() && written < WRITTEN_AT_ONCE_BYTES {
            let Connection { output, socket, client, .. } = connection;
            let waiting = output.waiting();
            match socket.write(&waiting[..waiting.len().min(WRITTEN_AT_ONCE_BYTES)]) {
                Ok(count) => {
                    output.advance(count);
                    written += count;
                    client.stats.output_total_bytes += count as u64;
                    self.stats.output_bytes += count as u64;
                    self.stats.writes += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    client.closing = CloseState::Now;
                    break;
                }
            }
        }
        let client = &mut connection.client;
        client.stats.output_bytes = connection.output.len();
        if written > 0 {
            // A client that reads is not idle.
            client.stats.active_ms = self.clock_ms();
        }
        self.check_output(connection);
        written >= WRITTEN_AT_ONCE_BYTES && !connection.output.waiting().is_empty()
    }

    /// Closes a client that leaves too much unread. Only what it may read counts: what waits for the log, which may wait for room, it is not
    /// sent.
    pub fn check_output(&mut self, connection: &mut Connection) {
        let limit = self.config.output_limits.of(connection.client.output_class());
        let waiting = connection.output.waiting().len() as u64;
        let now_ms = self.clock_ms();
        let above_soft = limit.soft_bytes > 0 && waiting > limit.soft_bytes;
        let since = if above_soft { Some(connection.output.above_soft_since_ms.unwrap_or(now_ms)) } else { None };
        connection.output.above_soft_since_ms = since;
        let too_long =
            since.is_some_and(|since| now_ms.saturating_sub(since) > limit.soft_seconds.saturating_mul(1000));
        if too_long || limit.hard_bytes > 0 && waiting > limit.hard_bytes {
            tracing::warn!(
                client = connection.client.id,
                address = %connection.client.peer.address,
                waiting_bytes = waiting,
                "closing a client that does not read its replies"
            );
            self.stats.output_limit_closed += 1;
            connection.client.closing = CloseState::Now;
        }
    }
}

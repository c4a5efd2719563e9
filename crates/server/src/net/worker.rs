//! Runs the requests of one connection: reads a batch of them ahead, starts loading what they will need, runs them in
//! order, and hands the replies to the socket. Everything that it uses between requests is reused.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use quire_store::{Prefetched, Store};

use crate::blocked::{BlockReason, BlockedClient, CopyWait, HeldKey};
use crate::client::{Client, CloseState, CommandId};
use crate::clients::Connection;
use crate::ctx::{Args, Ctx};
use crate::dispatch;
use crate::durability;
use crate::log_writer::LOST;
use crate::output_buffer::OutputBuffer;
use crate::registry::{Command, Registry};
use crate::request_flags;
use crate::resp::parser::{ParseOutcome, ProtocolError};
use crate::resp::{Reply, RequestBatch, RequestLimits, parse};
use crate::state::ServerState;
use crate::table::{COUNTS_AS_WRITE, DENYOOM, Flags, MAY_WRITE, NEVER_PAUSED, RUNS_QUEUED, WRITE};

/// Requests that are read ahead.
const BATCH: usize = 64;
/// Replies beyond this go to the socket before the batch is done.
const FLUSH_BYTES: usize = 64 * 1024;
/// Memory of the reply buffer that is kept between turns.
const KEPT_REPLY_BYTES: usize = 256 * 1024;
/// A client that leaves more replies than this unread gets no further command run until it has read half of them.
const HELD_OUTPUT_BYTES: usize = 32 << 20;
/// The same for a client that has not given the password, and for all when clients together take half of what they may.
const LEAST_HELD_OUTPUT_BYTES: usize = 64 * 1024;
/// After so long a client's further requests wait for the next turn of the loop, so that others get theirs.
const SHARE: Duration = Duration::from_millis(4);
/// Replies of a client up to this may wait for those of other clients in the same turn.
const DEFERRED_BYTES: usize = 16 * 1024;
/// From so many unsent bytes on the reply buffer is handed over instead of being copied.
const HANDED_OVER_BYTES: usize = 64 * 1024;

/// What running commands needs.
pub(super) struct Worker {
    /// Dropped before the state: that waits for a save, and the state's locks keep other servers away until then.
    pub store: Store,
    pub state: ServerState,
    pub registry: &'static Registry,
    reply: Reply,
    batch: RequestBatch,
    commands: Vec<Option<CommandId>>,
    /// What is known of the key of each.
    tokens: Vec<Option<Prefetched>>,
    /// The log's device is behind: commands that write must wait.
    pub log_behind: bool,
    /// Short replies wait until those of other clients are sent with them: the loop has more to serve in this turn.
    pub defers_sends: bool,
    /// Some commands that write must wait: for the log's device, or for the copy of a key. May be true without cause.
    holds_writes: bool,
}

impl Worker {
    pub fn new(store: Store, state: ServerState, registry: &'static Registry) -> Self {
        Self {
            store,
            state,
            registry,
            reply: Reply::default(),
            batch: RequestBatch::default(),
            commands: Vec::new(),
            tokens: Vec::with_capacity(BATCH),
            log_behind: false,
            defers_sends: false,
            holds_writes: false,
        }
    }

    /// Has this data served from now on.
    pub fn install(&mut self, mut store: Store) {
        let state = &mut self.state;
        store.set_holding_expired(state.holds_expired());
        store.set_noting_key_events(state.wants_key_events());
        store.set_noting_misses(state.wants_misses());
        store.set_access_counting(state.config.maxmemory.access_counting());
        self.store = store;
        for (_, connection) in state.clients.iter_mut() {
            // What was watched while the data was loaded was not there.
            connection.client.watch.touched |= connection.client.watch.keys > 0;
        }
    }

    /// Runs the complete requests of `input`; returns how many bytes of it are done with. Once the server has ended none
    /// is: clients that were read in the same turn as a SHUTDOWN must not be told that what they write is done.
    pub fn run(&mut self, input: &[u8], connection: &mut Connection) -> usize {
        if self.state.ending.ended {
            return 0;
        }
        self.reply.set_protocol(connection.client.protocol);
        self.reply.set_limit(self.reply_limit_bytes());
        self.store.set_touching(!connection.client.options.no_touch);
        connection.client.log.owes = 0;
        self.state.log_state.given_up_at = None;
        let began = Instant::now();
        self.state.clock.command_start = began;
        let mut done = 0;
        loop {
            let most = self.batch_limit(connection);
            let (parsed_to, error) = self.collect(input, done, most, connection);
            self.load_ahead(input, connection);
            let whole_batch = self.run_batch(input, &mut done, began + SHARE, connection);
            if !whole_batch {
                // The requests that were not run are read again later, the incomplete one behind them too.
                connection.partial = None;
                break;
            }
            done = parsed_to;
            if let Some(error) = error {
                self.refuse(&error, connection);
                done = input.len();
                break;
            }
            if self.batch.len() < most {
                break;
            }
        }
        if connection.client.closing != CloseState::No {
            done = input.len();
        }
        self.flush(connection);
        self.reply.clear(KEPT_REPLY_BYTES);
        done
    }

    fn reply_limit_bytes(&self) -> usize {
        let together_bytes = self.state.client_memory_limit_bytes();
        match self.state.config.output_limits.normal.hard_bytes {
            0 => together_bytes as usize,
            bytes => bytes.min(together_bytes) as usize,
        }
    }

    /// Strangers' requests are read one by one: what they may send changes when they give the password.
    fn batch_limit(&self, connection: &Connection) -> usize {
        if connection.client.login.is_stranger() { 1 } else { BATCH }
    }

    /// Reads at most so many requests ahead; returns where the first one begins that was not read.
    fn collect(
        &mut self,
        input: &[u8],
        start: usize,
        most: usize,
        connection: &mut Connection,
    ) -> (usize, Option<ProtocolError>) {
        let limits = RequestLimits {
            max_bulk_bytes: self.state.config.proto_max_bulk_len,
            authenticated: !connection.client.login.is_stranger(),
        };
        let mut at = start;
        self.batch.clear();
        while self.batch.len() < most {
            match parse(input, at, &limits, &mut connection.partial, &mut self.batch) {
                Ok(ParseOutcome::Request) => at = self.batch.request(self.batch.len() - 1).end,
                Ok(ParseOutcome::Skipped(next)) => at = next,
                Ok(ParseOutcome::Incomplete) => break,
                Err(error) => return (at, Some(error)),
            }
        }
        (at, None)
    }

    /// Looks the commands up and starts loading the keys that they name: first every bucket, then every entry, so
    /// that the memory of one key comes while the next is looked at.
    fn load_ahead(&mut self, input: &[u8], connection: &Connection) {
        self.commands.clear();
        self.tokens.clear();
        let several = self.batch.len() > 1;
        for index in 0..self.batch.len() {
            let args = self.batch.args(index, input);
            let command = self.registry.find(args.at(0));
            self.commands.push(command.map(|command| command.id));
            let first_key = command.map_or(0, |command| command.first_key);
            let key = if several && first_key > 0 { args.get(first_key) } else { None };
            self.tokens.push(key.map(|key| self.store.prefetch(connection.client.db, key)));
        }
        for token in self.tokens.iter().flatten() {
            self.store.prefetch_entry(token);
        }
    }

    /// Runs the batch; false if it stopped before the end, at `share_end` at the latest. `done` moves behind every request
    /// that was run.
    fn run_batch(&mut self, input: &[u8], done: &mut usize, share_end: Instant, connection: &mut Connection) -> bool {
        for index in 0..self.batch.len() {
            let found = self.commands[index];
            if let Some(reason) = self.must_wait(found, self.batch.args(index, input), share_end, connection)
                && let Some(blocked) = self.hold(reason, &connection.client)
            {
                connection.client.blocked = Some(blocked);
                return false;
            }
            let ends_copy = self.holds_writes && self.store.copy_owner() == Some(connection.client.id);
            // The input stays as it is while the command runs.
            self.store.expect_key(self.tokens[index].as_ref());
            let mut ctx = Ctx {
                store: &mut self.store,
                server: &mut self.state,
                client: &mut connection.client,
                args: self.batch.args(index, input),
                reply: &mut self.reply,
            };
            dispatch::run(self.registry, found, &mut ctx);
            self.store.expect_key(None);
            if connection.is_held() {
                if connection.client.blocked.is_some_and(|blocked| blocked.is_in_command()) {
                    *done = self.batch.request(index).end;
                } else {
                    // It is counted when it runs.
                    connection.client.stats.commands -= 1;
                }
                self.judge_holds();
                return false;
            }
            *done = self.batch.request(index).end;
            let ends_wait = connection.client.waits_on_keys() && self.end_key_wait(&mut connection.client);
            if connection.client.closing != CloseState::No {
                return false;
            }
            if ends_copy {
                self.forget_steps(connection.client.id);
            }
            if ends_copy || ends_wait || self.store.has_ready_keys() {
                // Clients that have waited, for its copy or on keys, come before its next request, which may ask for another copy or take
                // what they have waited for.
                connection.client.blocked = Some(BlockedClient::until_event(BlockReason::Turn));
                return false;
            }
            if self.reply.len() >= FLUSH_BYTES {
                self.flush(connection);
                if connection.client.closing != CloseState::No {
                    return false;
                }
                self.state.clock.command_start = Instant::now();
            }
        }
        true
    }

    /// The client has got what it waited for on some keys, or its time was up, if it waited; whether it did.
    pub fn end_key_wait(&mut self, client: &mut Client) -> bool {
        client.watch.awaited_bytes = 0;
        self.state.blocked.keys.end(&mut self.store, client.id)
    }

    /// How a client waits whose next request may not run yet. If the request has waited on keys, its time goes on; and not at all if
    /// that wait has ended: then it changes nothing, and is only told so.
    #[cold]
    fn hold(&self, reason: BlockReason, client: &Client) -> Option<BlockedClient> {
        let wait = if client.waits_on_keys() { self.state.blocked.keys.of(client.id) } else { None };
        match wait {
            Some(wait) if wait.ended(self.state.clock_ms()).is_some() => None,
            Some(wait) => Some(BlockedClient { deadline_ms: wait.deadline_ms, ..BlockedClient::until_event(reason) }),
            None => Some(BlockedClient::until_event(reason)),
        }
    }

    /// Why the command may not run yet, if it may not.
    #[inline]
    fn must_wait(
        &self,
        command: Option<CommandId>,
        args: Args<'_>,
        share_end: Instant,
        connection: &Connection,
    ) -> Option<BlockReason> {
        if self.state.clients.pause.is_some() && self.is_paused(command, args, connection) {
            Some(BlockReason::Pause)
        } else if self.holds_writes
            && let Some(reason) = self.holds_write(command, args, connection)
        {
            Some(reason)
        } else if connection.output.len() > LEAST_HELD_OUTPUT_BYTES
            && connection.output.len() > self.held_output_bytes(connection)
            && self.store.copy_owner() != Some(connection.client.id)
        {
            // A client for which a copy is made has come this far before, and others wait for the copy's end.
            Some(BlockReason::Output)
        } else if self.state.clock.command_start > share_end
            || self.state.steps.eviction.is_crowded() && self.waits_for_room(command, args, connection)
        {
            Some(BlockReason::Turn)
        } else {
            None
        }
    }

    /// The command that a request names, its subcommand if it has any.
    fn named(&self, command: Option<CommandId>, args: Args<'_>) -> Option<&'static Command> {
        dispatch::resolve(self.registry, command, args).ok()
    }

    #[cold]
    fn is_paused(&self, command: Option<CommandId>, args: Args<'_>, connection: &Connection) -> bool {
        // What is refused for its words is refused at once.
        let Some(named) = self.named(command, args).filter(|named| named.spec.takes(args.len())) else { return false };
        let container = named.container.map(|id| self.registry.command(id));
        if [Some(named), container].into_iter().flatten().any(|command| command.spec.has(NEVER_PAUSED)) {
            return false;
        }
        self.state.is_paused(self.has_any_flag(command, args, connection, WRITE | MAY_WRITE | COUNTS_AS_WRITE))
    }

    /// Whether a command needs memory that the steps of eviction have to free first.
    #[cold]
    fn waits_for_room(&self, command: Option<CommandId>, args: Args<'_>, connection: &Connection) -> bool {
        !self.state.steps.paused && self.has_any_flag(command, args, connection, DENYOOM)
    }

    /// Whether writes are to be held is looked at anew.
    pub fn judge_holds(&mut self) {
        self.holds_writes = self.log_behind || self.store.copy_owner().is_some();
    }

    /// A client's request has run: what was made in steps for it, if it is still there, serves no other one.
    #[cold]
    fn forget_steps(&mut self, id: u64) {
        if let Err(error) = self.store.cancel_copy(id) {
            tracing::error!(%error, "cannot free what a copy has taken");
        }
    }

    /// Why a command that writes may not run yet.
    #[cold]
    fn holds_write(&self, command: Option<CommandId>, args: Args<'_>, connection: &Connection) -> Option<BlockReason> {
        // Of a container it is the subcommand that tells.
        if !self.has_any_flag(command, args, connection, WRITE | MAY_WRITE) {
            return None;
        }
        if self.log_behind {
            return Some(BlockReason::LogBehind);
        }
        let (key, spec) = (self.store.copy_source()?, self.named(command, args)?.spec);
        if self.store.copy_owner() == Some(connection.client.id) {
            return None;
        }
        let changes = match &connection.client.multi {
            None => spec.may_change(args, key),
            Some(multi) if spec.has(RUNS_QUEUED) => multi
                .commands
                .iter()
                .any(|queued| self.registry.command(queued.command).spec.may_change(multi.args(queued), key)),
            // It is only queued.
            Some(_) => false,
        };
        changes.then(|| BlockReason::Copy(CopyWait::Key(HeldKey::of(key))))
    }

    /// Whether a command has one of these flags: itself, or as the end of a transaction of which a command has it.
    #[cold]
    fn has_any_flag(&self, command: Option<CommandId>, args: Args<'_>, connection: &Connection, flags: Flags) -> bool {
        let Some(command) = self.named(command, args) else { return false };
        request_flags::of(&self.state.scripts, command.spec, args) & flags != 0
            || command.spec.has(RUNS_QUEUED)
                && connection.client.multi.as_ref().is_some_and(|multi| multi.flags & flags != 0)
    }

    /// How many unread replies a client may have before it is made to wait.
    pub fn held_output_bytes(&self, connection: &Connection) -> usize {
        let crowded = self.state.clients.memory_bytes() as u64 > self.state.client_memory_limit_bytes() / 2;
        if crowded || connection.client.login.is_stranger() {
            return LEAST_HELD_OUTPUT_BYTES;
        }
        let limit = self.state.config.output_limits.normal;
        HELD_OUTPUT_BYTES.max(limit.hard_bytes.max(limit.soft_bytes) as usize)
    }

    fn refuse(&mut self, error: &ProtocolError, connection: &mut Connection) {
        tracing::debug!(client = connection.client.id, address = %connection.client.peer.address, %error, "protocol error");
        let line = format!("ERR Protocol error: {error}");
        self.state.stats.count_error(line.as_bytes());
        self.reply.error(&line);
        connection.client.closing = CloseState::AfterReply;
    }

    /// Replies to a client that has written are held until the log has it durable, if it is to be so before they are sent.
    /// A client that only reads isn't held: it may see what isn't durable yet, but never waits for the device.
    #[inline]
    fn hold_if_owed(&self, connection: &mut Connection) {
        let sequence = connection.client.log.owes;
        if sequence > 0
            && let Some(log_writer) = &self.state.log_writer
            && log_writer.holds_replies()
            && sequence > log_writer.durable()
        {
            connection.output.hold(sequence);
        }
    }

    /// Hands the replies to the socket; what it does not take waits in the connection.
    fn flush(&mut self, connection: &mut Connection) {
        if let Some(durable) = self.state.log_state.given_up_at.take()
            && connection.output.held_for().is_some_and(|last| last > durable)
        {
            // Without a log nothing would hold these replies any more, and what they would say is not true.
            connection.output = OutputBuffer::default();
            connection.client.log.owes = LOST;
            connection.client.closing = CloseState::Now;
        }
        if connection.client.log.owes == LOST {
            // What it has written is in memory and nowhere else: neither yes nor no would be true. That holds of a client without a reply,
            // too, as one that has made its consumer and waits for entries.
            self.reply.truncate(0);
            connection.client.closing = CloseState::Now;
            return;
        }
        if self.reply.is_empty() {
            return;
        }
        if self.reply.overflowed() {
            self.drop_replies(connection);
            return;
        }
        self.hold_if_owed(connection);
        let mut sent = 0;
        let defers = self.defers_sends && self.reply.len() <= DEFERRED_BYTES;
        if !defers && connection.output.is_empty() && connection.output.held_for().is_none() {
            sent = write_once(self.reply.as_bytes(), connection, &mut self.state);
        }
        let unsent = self.reply.len() - sent;
        if unsent >= HANDED_OVER_BYTES && connection.output.is_empty() {
            connection.output.adopt(self.reply.take(), sent);
        } else if unsent > 0 {
            connection.output.push(&self.reply.as_bytes()[sent..]);
        }
        self.reply.truncate(0);
        connection.client.stats.output_bytes = connection.output.len();
        if std::mem::take(&mut connection.client.subscriptions.announced) {
            connection.output.fence();
        }
        if !connection.output.is_empty() {
            self.state.check_output(connection);
        }
    }

    /// Closes a client whose replies have outgrown what it may have unread.
    #[cold]
    fn drop_replies(&mut self, connection: &mut Connection) {
        let client = &mut connection.client;
        tracing::warn!(
            client = client.id,
            address = %client.peer.address,
            limit_bytes = self.reply_limit_bytes(),
            "closing a client whose replies are larger than it may leave unread"
        );
        client.closing = CloseState::Now;
        self.state.stats.output_limit_closed += 1;
        self.reply.clear(KEPT_REPLY_BYTES);
    }

    /// Gives the reply of a client that waits for durability, if what it waits for has come, or its time has; false while it
    /// waits on.
    pub fn answer_durability(&mut self, blocked: &BlockedClient, connection: &mut Connection) -> bool {
        let BlockReason::Durability(wanted) = &blocked.on else { return false };
        let Some(answer) = durability::answer(&self.state, blocked) else { return false };
        connection.client.log.owes = 0;
        if !blocked.silent {
            self.reply.set_protocol(connection.client.protocol);
            match answer {
                Ok(durable) => durability::reply(&mut self.reply, wanted, durable),
                Err(error) => self.reply.error(&error.line()),
            }
            self.flush(connection);
            self.reply.clear(KEPT_REPLY_BYTES);
        }
        true
    }
}

/// One write; how much was taken. A socket that is gone takes everything, and its connection is marked.
fn write_once(bytes: &[u8], connection: &mut Connection, state: &mut ServerState) -> usize {
    let count = match connection.socket.write(bytes) {
        Ok(count) => count,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
        Err(_) => {
            connection.client.closing = CloseState::Now;
            return bytes.len();
        }
    };
    connection.client.stats.output_total_bytes += count as u64;
    state.stats.output_bytes += count as u64;
    state.stats.writes += 1;
    count
}

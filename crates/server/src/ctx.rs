//! What a command handler is given. Relies on the store, on the server's state and on the sender's.

use quire_store::{Store, ValueType};

pub use crate::args::{ArgRange, Args};
use crate::awaited_keys::UnblockOutcome;
use crate::blocked::{BlockReason, BlockedClient, CopyWait};
use crate::client::{Client, CloseState, LOG_CLIENT};
use crate::effects::EffectWord;
pub use crate::error::CmdError;
use crate::pubsub::PushMessage;
use crate::resp::Reply;
use crate::state::ServerState;

/// All that a command may touch while it runs.
pub struct Ctx<'a> {
    /// The data.
    pub store: &'a mut Store,
    /// Everything of the server but the data: configuration, statistics, the other clients.
    pub server: &'a mut ServerState,
    /// The client that sent the command.
    pub client: &'a mut Client,
    /// The request's words.
    pub args: Args<'a>,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
}

impl Ctx<'_> {
    /// Whether an effect that is said is written down: there is a log.
    #[inline]
    pub fn says_effects(&self) -> bool {
        self.server.log_writer.is_some()
    }

    /// Says the effect of the command in words of its own; it is told only if data has changed.
    pub fn say_effect(&mut self, words: &[EffectWord<'_>]) {
        if self.says_effects() {
            self.server.effects.say(words);
        }
    }

    /// Says a further command of the effect, which follows what was said before in the same record.
    pub fn say_also(&mut self, words: &[EffectWord<'_>]) {
        if self.says_effects() {
            self.server.effects.say_also(words);
        }
    }

    /// Says that the command has changed data, though its specification doesn't say that it writes.
    pub fn say_changed(&mut self) {
        if self.says_effects() {
            self.server.effects.say_as_it_came();
        }
    }

    /// Says that the command fails after it has done what its first `words` words say: the whole of it might do more, or
    /// fail again, when it is done again.
    #[cold]
    pub fn did_only(&mut self, words: usize) {
        let words: Vec<EffectWord<'_>> = (0..words).map(EffectWord::Arg).collect();
        self.say_effect(&words);
    }

    /// The command has run, and gives its reply when the event comes or time is up. Not within a transaction, which is run to
    /// its end.
    pub fn block(&mut self, on: BlockReason, deadline_ms: Option<u64>) {
        debug_assert!(!self.client.in_exec, "a transaction doesn't wait");
        self.client.blocked = Some(BlockedClient { deadline_ms, ..BlockedClient::until_event(on) });
    }

    /// The command can't go on yet: the handler returns this error, and the request is run again, as if it came then, when the event
    /// comes. What the command has changed until now is told and logged, and stays. Not within a transaction.
    pub fn not_yet(&mut self, on: BlockReason) -> CmdError {
        self.block(on, None);
        CmdError::NotYet
    }

    /// What the command needs is made in steps, for it or for another client that came first.
    pub fn not_made_yet(&mut self) -> CmdError {
        let is_own = self.store.copy_owner() == Some(self.client.id);
        self.not_yet(BlockReason::Copy(if is_own { CopyWait::Own } else { CopyWait::Turn }))
    }

    /// Whether the log is read back: what a request says was done then, whatever the clock is now.
    pub fn is_replayed(&self) -> bool {
        self.client.id == LOG_CLIENT
    }

    /// In whose name a large value is changed in steps; `None` where a command has to run to its end at once, in a transaction and
    /// when the log is replayed.
    pub fn steps_owner(&self) -> Option<u64> {
        (!self.client.in_exec).then_some(self.client.id)
    }

    /// None of these keys has a value of the type from which the command takes something, and nothing was taken: the handler returns
    /// this error, and the request is run again when one of them has, time is up or another client says so. The handler looks first
    /// whether it was one of the latter ([`Ctx::wait_ended`]). XREADGROUP has made its consumer by then. Not within a transaction.
    pub fn wait_on_keys<'k>(
        &mut self,
        kind: ValueType,
        keys: impl Iterator<Item = &'k [u8]>,
        deadline_ms: Option<u64>,
    ) -> CmdError {
        let id = self.client.id;
        let waits = &mut self.server.blocked.keys;
        let (place, deadline_ms) = match waits.of(id) {
            // Its place and deadline are those with which it began to wait.
            Some(wait) => (wait.place, wait.deadline_ms),
            None => {
                let (place, bytes) = waits.begin(self.store, id, (self.client.db, kind, keys), deadline_ms);
                self.client.watch.awaited_bytes = bytes;
                (place, deadline_ms)
            }
        };
        self.block(BlockReason::Keys(place), deadline_ms);
        CmdError::NotYet
    }

    /// How the client's waiting on keys has ended though there was nothing to take, if it was waiting: its request is run again only to
    /// be told that, and must change nothing.
    pub fn wait_ended(&self) -> Option<UnblockOutcome> {
        if !self.client.waits_on_keys() {
            return None;
        }
        self.server.blocked.keys.of(self.client.id)?.ended(self.server.clock_ms())
    }

    /// Sends a message to all that listen to a channel; returns how many that are, a client once for each of its subscriptions.
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.server.publish(channel, message)
    }

    /// Sends some clients a message of these parts.
    pub fn send(&mut self, ids: &[u64], parts: &[&[u8]]) {
        self.server.send(ids, &PushMessage::new(parts));
    }

    /// What the client has sent itself meanwhile follows the reply.
    #[cold]
    pub fn take_own_messages(&mut self) {
        let Some(messages) = self.server.clients.take_own_messages() else {
            tracing::warn!(client = self.client.id, "closing a client that sends itself more than it may leave unread");
            self.client.closing = CloseState::Now;
            return;
        };
        for message in messages {
            self.reply.message(message.encoded(self.client.protocol));
        }
    }

    /// Ends all watches of the client; whether one of its keys was changed no longer matters.
    pub fn forget_watched(&mut self) {
        if self.client.watch.keys > 0 {
            self.store.unwatch_all(self.client.id);
            (self.client.watch.keys, self.client.watch.bytes) = (0, 0);
        }
        self.client.watch.touched = false;
    }
}

/// The function that runs a command. An error that it returns is sent as the reply; it must not have begun one.
pub type Handler = fn(&mut Ctx<'_>) -> Result<(), CmdError>;

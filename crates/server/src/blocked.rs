//! The one way to wait. A client's requests are not run, or the reply to its last one is not given, until an event comes or
//! time is up; which event that is says its [`BlockReason`].
//!
//! The command or the loop says why a client waits ([`crate::client::Client::blocked`]); the loop enters it here at the end of
//! its requests' turn, and takes it out when it goes on, leaves or is closed. So there is at most one entry for each client, and
//! none of one that is gone. The keys on which clients wait are kept in `awaited_keys`. Relies on nothing else; the loop
//! (`net/waking.rs`) knows the events.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::awaited_keys::{AwaitedKeys, UnblockOutcome};
use crate::migration::Migrations;
use crate::transfer::Transfers;

/// What a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockReason {
    /// The end of a pause (CLIENT PAUSE) that holds its next request back.
    Pause,
    /// That the client reads: too many of its replies are unread.
    Output,
    /// The next turn of the loop: it has had its share of this one.
    Turn,
    /// That the log's device catches up: the next request would write.
    LogBehind,
    /// Because of what is done to a large value in steps: its copy, room for a longer string, the parting of a list's nodes.
    Copy(CopyWait),
    /// That what it has written is durable (WAIT, WAITAOF); the command has run, its reply is still to be given.
    Durability(Durability),
    /// That another server has replied about keys that are moved there (MIGRATE).
    Migration,
    /// That it has the whole file that it is sent (SYNC); then its connection ends.
    Transfer,
    /// That one of some keys has what its next request takes (BLPOP). The number is its place among those who wait for keys.
    Keys(u64),
}

/// What of the work in steps a client waits for. Each has an event of its own: there is one such work at a time, and clients that it
/// does not let go on are not run to find that out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyWait {
    /// That its own, which its next request asks for, is made.
    Own,
    /// That its turn comes: another client's is under way.
    Turn,
    /// That the work on this key ends, which its next request writes.
    Key(HeldKey),
}

/// A key that may not be changed for a while, by its hash: another one with the same hash makes writers wait longer and does nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldKey(u64);

impl HeldKey {
    /// The key of this name.
    pub fn of(key: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Which writes must be durable, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durability {
    /// Here…
    pub local: bool,
    /// …up to this record of the log.
    pub sequence: u64,
    /// On replicas, too: there are none, so that only the time ends it.
    pub replicas: bool,
    /// The reply tells of the log (WAITAOF), and not of replicas alone (WAIT).
    pub tells_log: bool,
}

/// A client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedClient {
    /// What for.
    pub on: BlockReason,
    /// When that ends in any case, on the server's monotonic clock; `None` for never.
    pub deadline_ms: Option<u64>,
    /// The reply isn't wanted (CLIENT REPLY).
    pub silent: bool,
    /// Another client has ended the waiting.
    pub unblocked: Option<UnblockOutcome>,
}

impl BlockedClient {
    /// A client that waits until the event comes.
    pub const fn until_event(on: BlockReason) -> Self {
        Self { on, deadline_ms: None, silent: false, unblocked: None }
    }

    /// Whether a command has run and waits with its reply, rather than requests that have not been run.
    pub const fn is_in_command(&self) -> bool {
        match self.on {
            BlockReason::Durability(_) | BlockReason::Transfer => true,
            BlockReason::Pause
            | BlockReason::Output
            | BlockReason::Turn
            | BlockReason::LogBehind
            | BlockReason::Copy(_)
            | BlockReason::Migration
            | BlockReason::Keys(_) => false,
        }
    }

    /// Whether a command that is there to wait is the reason: CLIENT LIST shows such clients as blocked, and CLIENT UNBLOCK ends it.
    pub const fn is_asked_for(&self) -> bool {
        match self.on {
            BlockReason::Durability(_) | BlockReason::Keys(_) => true,
            BlockReason::Pause
            | BlockReason::Output
            | BlockReason::Turn
            | BlockReason::LogBehind
            | BlockReason::Migration
            | BlockReason::Transfer
            | BlockReason::Copy(_) => false,
        }
    }

    /// Whether INFO counts it among the blocked clients, as Redis does: held up for what others do, rather than for a moment or
    /// for its own reading.
    const fn is_counted(&self) -> bool {
        match self.on {
            BlockReason::Durability(_) | BlockReason::Pause | BlockReason::Keys(_) => true,
            BlockReason::Output
            | BlockReason::Turn
            | BlockReason::LogBehind
            | BlockReason::Migration
            | BlockReason::Transfer
            | BlockReason::Copy(_) => false,
        }
    }

    /// Whether only the client itself can end it, so that it counts as idle meanwhile.
    pub const fn is_idle(&self) -> bool {
        match self.on {
            BlockReason::Output => true,
            BlockReason::Pause
            | BlockReason::Turn
            | BlockReason::LogBehind
            | BlockReason::Copy(_)
            | BlockReason::Migration
            | BlockReason::Transfer
            | BlockReason::Durability(_)
            | BlockReason::Keys(_) => false,
        }
    }

    /// Whether a client that sends no more is done with: nothing that can happen ends the waiting, or what it waits for would be
    /// taken for a client that is gone.
    pub const fn ends_with_input(&self) -> bool {
        match self.on {
            BlockReason::Durability(durability) => durability.replicas && self.deadline_ms.is_none(),
            BlockReason::Keys(_) | BlockReason::Transfer => true,
            BlockReason::Pause
            | BlockReason::Output
            | BlockReason::Turn
            | BlockReason::LogBehind
            | BlockReason::Migration
            | BlockReason::Copy(_) => false,
        }
    }

    /// The event that ends it, and its place among those who wait for the same event; `arrival` is the number of clients that
    /// have waited before.
    const fn queue(&self, arrival: u64) -> (WakeEvent, u64) {
        match self.on {
            BlockReason::Pause => (WakeEvent::PauseEnds, arrival),
            BlockReason::Output => (WakeEvent::OutputIsRead, arrival),
            BlockReason::Turn => (WakeEvent::TurnBegins, arrival),
            BlockReason::LogBehind => (WakeEvent::LogCatchesUp, arrival),
            BlockReason::Copy(CopyWait::Own) => (WakeEvent::CopyIsMade, arrival),
            BlockReason::Copy(CopyWait::Turn) => (WakeEvent::CopyMayBegin, arrival),
            BlockReason::Copy(CopyWait::Key(_)) => (WakeEvent::KeyMayChange, arrival),
            BlockReason::Migration => (WakeEvent::MigrationEnds, arrival),
            BlockReason::Transfer => (WakeEvent::TransferGoesOn, arrival),
            BlockReason::Keys(place) => (WakeEvent::KeyIsReady, place),
            BlockReason::Durability(Durability { local: false, .. }) => (WakeEvent::LogIsDurable, u64::MAX),
            BlockReason::Durability(Durability { replicas: true, .. }) => (WakeEvent::LogIsDurable, LAST_RECORD),
            BlockReason::Durability(Durability { sequence, .. }) => (WakeEvent::LogIsDurable, sequence),
        }
    }
}

/// No record has this number: who waits for it can only be told that the log is gone.
pub const LAST_RECORD: u64 = u64::MAX - 1;

/// What wakes clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WakeEvent {
    /// A pause ends.
    PauseEnds,
    /// A client has read replies.
    OutputIsRead,
    /// The loop begins its next turn.
    TurnBegins,
    /// The log's device isn't behind any more.
    LogCatchesUp,
    /// The copy that is under way is whole, or there is none any more.
    CopyIsMade,
    /// No copy is under way: told to one client after the other, until one has begun its own.
    CopyMayBegin,
    /// The work on a key has ended that its writers have waited for: told to one client after the other, until one has the next begun.
    KeyMayChange,
    /// More records of the log are durable, or the log has ended or failed.
    LogIsDurable,
    /// What another server is told about keys has ended, for some client.
    MigrationEnds,
    /// There is more of the files that clients are sent.
    TransferGoesOn,
    /// A key has what a client waits for: told for each key, not for all who wait for keys.
    KeyIsReady,
}

/// Where a client is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitEntry {
    event: WakeEvent,
    order: u64,
    deadline_ms: Option<u64>,
    counted: bool,
}

impl WaitEntry {
    /// Whether a client that waits so is entered here already.
    pub fn is_of(&self, blocked: &BlockedClient) -> bool {
        blocked.queue(self.order) == (self.event, self.order) && blocked.deadline_ms == self.deadline_ms
    }
}

/// All clients that wait.
#[derive(Default, Debug)]
pub struct BlockedClients {
    by_event: BTreeSet<(WakeEvent, u64, u64)>,
    by_deadline: BTreeSet<(u64, u64)>,
    arrivals: u64,
    counted: usize,
    /// Clients that others have unblocked in this turn.
    unblocked: Vec<u64>,
    /// How often clients that waited were run, since the server started.
    pub woken: u64,
    /// The keys on which clients wait.
    pub keys: AwaitedKeys,
    /// What other servers are told for clients that wait for the end of it.
    pub migrations: Migrations,
    /// The files that clients are sent.
    pub transfers: Transfers,
}

impl BlockedClients {
    /// Enters client `id`.
    pub fn enter(&mut self, id: u64, blocked: &BlockedClient) -> WaitEntry {
        let (event, order) = blocked.queue(self.arrivals);
        self.arrivals += 1;
        let entry = WaitEntry { event, order, deadline_ms: blocked.deadline_ms, counted: blocked.is_counted() };
        self.by_event.insert((event, order, id));
        if let Some(deadline_ms) = entry.deadline_ms {
            self.by_deadline.insert((deadline_ms, id));
        }
        self.counted += usize::from(entry.counted);
        entry
    }

    /// Takes client `id` out, which goes on or is gone.
    pub fn leave(&mut self, id: u64, entry: WaitEntry) {
        self.by_event.remove(&(entry.event, entry.order, id));
        if let Some(deadline_ms) = entry.deadline_ms {
            self.by_deadline.remove(&(deadline_ms, id));
        }
        self.counted -= usize::from(entry.counted);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.by_event.len()
    }

    /// True when none does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_event.is_empty()
    }

    /// How many of them INFO calls blocked.
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// Whether any wait for this.
    #[inline]
    pub fn awaits(&self, event: WakeEvent) -> bool {
        !self.is_empty() && self.by_event.range((event, 0, 0)..=(event, u64::MAX, u64::MAX)).next().is_some()
    }

    /// Who waits for this, of the places up to `last`, those first that came first.
    pub fn waiting(&self, event: WakeEvent, last: u64) -> Vec<u64> {
        self.by_event.range((event, 0, 0)..=(event, last, u64::MAX)).map(|&(_, _, id)| id).collect()
    }

    /// How many have come to wait so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Who is first of those who wait for this at the places `from` to `end` (not included), and where.
    pub fn next_waiting(&self, event: WakeEvent, from: u64, end: u64) -> Option<(u64, u64)> {
        self.by_event.range((event, from, 0)..(event, end, 0)).next().map(|&(_, place, id)| (place, id))
    }

    /// When the first of all has waited long enough.
    pub fn first_deadline_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|&(deadline_ms, _)| deadline_ms)
    }

    /// Notes that client `id` was unblocked by another one.
    pub fn unblock(&mut self, id: u64) {
        self.unblocked.push(id);
    }

    /// Who goes on whatever has happened: the time is up, or another client says so.
    pub fn due(&mut self, now_ms: u64) -> Vec<u64> {
        let mut due = std::mem::take(&mut self.unblocked);
        due.extend(self.by_deadline.range(..=(now_ms, u64::MAX)).map(|&(_, id)| id));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durability(local: bool, sequence: u64, replicas: bool) -> BlockReason {
        BlockReason::Durability(Durability { local, sequence, replicas, tells_log: true })
    }

    #[test]
    fn clients_are_woken_by_their_event_in_the_order_in_which_they_came() {
        let mut all = BlockedClients::default();
        let mut enter = |id, on| all.enter(id, &BlockedClient::until_event(on));
        let third = enter(3, BlockReason::Pause);
        enter(1, BlockReason::Pause);
        enter(2, BlockReason::Turn);
        assert_eq!((all.waiting(WakeEvent::PauseEnds, u64::MAX), all.len(), all.counted()), (vec![3, 1], 3, 2));
        assert!(all.awaits(WakeEvent::TurnBegins) && !all.awaits(WakeEvent::LogCatchesUp));
        all.leave(3, third);
        assert_eq!(all.waiting(WakeEvent::PauseEnds, u64::MAX), [1]);
        assert!(third.is_of(&BlockedClient::until_event(BlockReason::Pause)));
        assert!(!third.is_of(&BlockedClient::until_event(BlockReason::Turn)));
    }

    #[test]
    fn who_waits_for_a_copy_is_woken_by_what_the_wait_is_for() {
        let mut all = BlockedClients::default();
        let mut enter = |id, wait| all.enter(id, &BlockedClient::until_event(BlockReason::Copy(wait)));
        let first = enter(9, CopyWait::Turn);
        enter(1, CopyWait::Own);
        enter(2, CopyWait::Turn);
        enter(3, CopyWait::Key(HeldKey::of(b"key")));
        let at_start = all.arrivals();
        all.enter(4, &BlockedClient::until_event(BlockReason::Copy(CopyWait::Turn)));
        assert_eq!(all.waiting(WakeEvent::CopyIsMade, u64::MAX), [1]);
        assert_eq!(all.waiting(WakeEvent::KeyMayChange, u64::MAX), [3]);
        let next = |all: &BlockedClients, from| all.next_waiting(WakeEvent::CopyMayBegin, from, at_start);
        assert_eq!((next(&all, 0), next(&all, 1), next(&all, 3)), (Some((0, 9)), Some((2, 2)), None), "4 came later");
        all.leave(9, first);
        assert_eq!((next(&all, 0), all.counted()), (Some((2, 2)), 0));
    }

    #[test]
    fn who_waits_for_durability_is_woken_by_the_record_and_no_earlier() {
        let mut all = BlockedClients::default();
        for (id, on) in [
            (1, durability(true, 7, false)),
            (2, durability(true, 5, false)),
            (3, durability(true, 1, true)),
            (4, durability(false, 1, true)),
        ] {
            all.enter(id, &BlockedClient::until_event(on));
        }
        assert_eq!(all.waiting(WakeEvent::LogIsDurable, 4), []);
        assert_eq!(all.waiting(WakeEvent::LogIsDurable, 6), [2]);
        assert_eq!(all.waiting(WakeEvent::LogIsDurable, LAST_RECORD), [2, 1, 3], "the log is gone");
        assert_eq!(all.counted(), 4);
    }

    #[test]
    fn a_deadline_is_due_once_and_goes_with_its_client() {
        let mut all = BlockedClients::default();
        let with =
            |deadline_ms| BlockedClient { deadline_ms, ..BlockedClient::until_event(durability(true, 9, false)) };
        let first = all.enter(1, &with(Some(30)));
        all.enter(2, &with(Some(20)));
        all.enter(3, &with(None));
        assert_eq!((all.first_deadline_ms(), all.due(19), all.due(30)), (Some(20), vec![], vec![2, 1]));
        all.leave(1, first);
        all.unblock(3);
        assert_eq!((all.due(19), all.due(99), all.len()), (vec![3], vec![2], 2));
        assert!(with(None).is_in_command() && !with(None).ends_with_input());
        assert!(BlockedClient::until_event(durability(false, 0, true)).ends_with_input());
        let on_keys = BlockedClient::until_event(BlockReason::Keys(7));
        assert!(on_keys.is_asked_for() && !on_keys.is_in_command() && on_keys.ends_with_input());
    }
}

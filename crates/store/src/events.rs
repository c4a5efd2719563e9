//! What happened to a key, for all that listen: WATCH, clients that are blocked on the key, and a copy that is being made of it.
//! Every change of a key, that of a value by its type (`ValueMut`), its end and its new name alike, passes [`Events::emit`] once, with
//! the database and whether the key is there now.
//!
//! A listener to some keys is a kind of [`Watcher`]: no type, no operation on keys and no command has to know of it, and a client that is
//! woken goes on by the server's one way to wait (`blocked`). Notifications are of all keys: what happened is noted here in its order
//! ([`KeyEvent`]) as long as they are wanted, and the server, which knows the command, takes it and finds its name.
//!
//! Lives in ordinary memory: connections don't outlive the process. While no client listens, an event costs one comparison.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::db::DbId;

/// The listeners.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) watchers: Watchers,
    /// What has happened since it was last taken, if it is to be noted.
    noted: Option<Vec<KeyEvent>>,
    /// Whether reads of keys that are not there are noted, too.
    notes_misses: bool,
    /// Keys that came to be and of which nothing was noted since: one, or two while a value is made aside.
    made: Vec<KeyName>,
}

/// What became of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyFate {
    /// It was made or changed, and is there.
    Changed,
    /// It is not there any more.
    Gone,
    /// It is not there any more because its time had come.
    Expired,
    /// It is not there any more because memory was short.
    Evicted,
    /// It was read, and is not there.
    Missed,
    /// Fields of the hash that it holds are not there any more because their time had come.
    FieldsExpired,
    /// It is not there any more because the time of its last fields had come.
    LastFieldsExpired,
}

impl KeyFate {
    /// Whether a command has changed the key, or taken it away.
    pub const fn is_change(self) -> bool {
        matches!(self, KeyFate::Changed | KeyFate::Gone)
    }

    /// Whether the key is there.
    const fn is_there(self) -> bool {
        matches!(self, KeyFate::Changed | KeyFate::FieldsExpired)
    }
}

/// Something that happened to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyEvent {
    /// The database.
    pub db: DbId,
    /// The key.
    pub key: Box<[u8]>,
    /// What became of it.
    pub fate: KeyFate,
    /// It is the first of a key that was not there.
    pub is_new: bool,
}

impl Events {
    /// Whether an event would reach a listener.
    #[inline]
    pub(crate) fn heard(&self) -> bool {
        !self.watchers.is_empty() || self.noted.is_some()
    }

    /// Something happened to a key.
    #[inline]
    pub(crate) fn emit(&mut self, db: DbId, key: &[u8], fate: KeyFate) {
        if self.heard() {
            self.tell(db, key, fate);
        }
    }

    fn tell(&mut self, db: DbId, key: &[u8], fate: KeyFate) {
        self.watchers.touch(db, key, fate.is_there());
        self.note(db, key, fate);
    }

    /// Notes it without telling a watcher.
    pub(crate) fn note(&mut self, db: DbId, key: &[u8], fate: KeyFate) {
        if let Some(noted) = &mut self.noted {
            let made = self.made.iter().position(|made| made.0 == db && *made.1 == *key);
            if let Some(at) = made {
                self.made.swap_remove(at);
            }
            noted.push(KeyEvent { db, key: key.into(), fate, is_new: made.is_some() });
        }
    }

    /// A key was read that is not there, of which no watcher is told.
    #[inline]
    pub(crate) fn note_miss(&mut self, db: DbId, key: &[u8]) {
        if self.notes_misses {
            self.note(db, key, KeyFate::Missed);
        }
    }

    /// A key came to be, of which an event will tell.
    #[inline]
    pub(crate) fn note_made(&mut self, db: DbId, key: &[u8]) {
        let Some(noted) = &self.noted else { return };
        if noted.is_empty() {
            // What a command made that failed.
            self.made.clear();
        }
        self.made.push((db, key.into()));
    }

    /// Says whether what happens is noted; what was noted so far is forgotten when it is no longer.
    pub(crate) fn set_noting(&mut self, noting: bool) {
        if noting != self.noted.is_some() {
            self.noted = noting.then(Vec::new);
            self.made.clear();
        }
    }

    /// Says whether reads of keys that are not there are noted where other events are.
    pub(crate) fn set_noting_misses(&mut self, noting: bool) {
        self.notes_misses = noting;
    }

    /// Whether anything was noted since the last call of [`Events::take_noted`].
    #[inline]
    pub(crate) fn has_noted(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| !noted.is_empty())
    }

    /// How much was.
    #[inline]
    pub(crate) fn noted_count(&self) -> usize {
        self.noted.as_ref().map_or(0, Vec::len)
    }

    /// What was noted since the last call, in its order.
    pub(crate) fn take_noted(&mut self) -> Vec<KeyEvent> {
        self.made.clear();
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// A key and its database.
pub type KeyName = (DbId, Box<[u8]>);

/// Who watches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watcher {
    /// A client (WATCH), by its number.
    Client(u64),
    /// The copy that is under way: the key is its source.
    Copy,
    /// All clients that are blocked on the key, of which the server knows.
    Blocked,
}

/// One watcher of one key.
#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    /// The key had expired, though it wasn't deleted yet, when the watch began: its deletion is no change.
    expired: bool,
    /// The key is among those that are ready.
    told: bool,
}

/// Watches that the list of a key has room for at least.
const LEAST_WATCHES: usize = 4;

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    keys: HashMap<KeyName, Vec<Watch>>,
    of: HashMap<Watcher, Vec<KeyName>>,
    /// Clients of whose keys one has changed.
    touched: BTreeSet<u64>,
    copy_touched: bool,
    /// Keys on which clients are blocked and that were changed, each once, in the order in which they were changed.
    ready: VecDeque<KeyName>,
}

impl Watchers {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the memory that it takes, about: none if this watcher was watching the key.
    pub(crate) fn add(&mut self, watcher: Watcher, db: DbId, key: &[u8], expired: bool) -> usize {
        let watches = self.keys.entry((db, key.into())).or_default();
        if watches.iter().any(|watch| watch.watcher == watcher) {
            return 0;
        }
        watches.push(Watch { watcher, expired, told: false });
        self.of.entry(watcher).or_default().push((db, key.into()));
        // The key in both tables, the first one's entry with its list of watches, the name in the other's list.
        2 * (key.len() + size_of::<KeyName>()) + size_of::<Vec<Watch>>() + LEAST_WATCHES * size_of::<Watch>()
    }

    pub(crate) fn remove_all(&mut self, watcher: Watcher) {
        for key in self.of.remove(&watcher).unwrap_or_default() {
            if let Some(watches) = self.keys.get_mut(&key) {
                watches.retain(|watch| watch.watcher != watcher);
                if watches.is_empty() {
                    self.keys.remove(&key);
                }
            }
        }
        match watcher {
            Watcher::Client(id) => drop(self.touched.remove(&id)),
            Watcher::Copy => self.copy_touched = false,
            Watcher::Blocked => {}
        }
    }

    /// Clients are blocked on the key from now on.
    pub(crate) fn await_key(&mut self, db: DbId, key: &[u8]) {
        let watches = self.keys.entry((db, key.into())).or_default();
        if watches.iter().all(|watch| watch.watcher != Watcher::Blocked) {
            watches.push(Watch { watcher: Watcher::Blocked, expired: false, told: false });
        }
    }

    /// No client is blocked on the key any more.
    pub(crate) fn forget_key(&mut self, db: DbId, key: &[u8]) {
        let name = (db, Box::from(key));
        if let Some(watches) = self.keys.get_mut(&name) {
            watches.retain(|watch| watch.watcher != Watcher::Blocked);
            if watches.is_empty() {
                self.keys.remove(&name);
            }
        }
    }

    /// Whether [`Watchers::next_ready`] has one.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next key on which clients are blocked and that was changed since it was last told, or went.
    pub(crate) fn next_ready(&mut self) -> Option<KeyName> {
        let name = self.ready.pop_front()?;
        let watches = self.keys.get_mut(&name).into_iter().flatten();
        watches.filter(|watch| watch.watcher == Watcher::Blocked).for_each(|watch| watch.told = false);
        Some(name)
    }

    /// A key was changed; `exists` says whether it is there now.
    pub(crate) fn touch(&mut self, db: DbId, key: &[u8], exists: bool) {
        self.tell(db, key, |watch| {
            let is_change = exists || !watch.expired;
            watch.expired &= exists;
            is_change
        });
    }

    /// What a key holds is exchanged: something `goes`, and something `comes`, which may have expired. As long as there is nothing that has
    /// not expired, that is no change.
    pub(crate) fn exchange(&mut self, db: DbId, key: &[u8], goes: bool, comes: Option<bool>) {
        self.tell(db, key, |watch| {
            let was_there = goes && !watch.expired;
            let is_change = was_there || comes == Some(false);
            watch.expired = !is_change && comes.is_some();
            is_change
        });
    }

    /// Tells the watchers of a key of which `is_change` says that it is a change for them.
    fn tell(&mut self, db: DbId, key: &[u8], is_change: impl Fn(&mut Watch) -> bool) {
        let Some(watches) = self.keys.get_mut(&(db, Box::from(key))) else { return };
        for watch in watches.iter_mut() {
            if !is_change(watch) {
                continue;
            }
            match watch.watcher {
                Watcher::Client(id) => drop(self.touched.insert(id)),
                Watcher::Copy => self.copy_touched = true,
                Watcher::Blocked if watch.told => {}
                Watcher::Blocked => {
                    watch.told = true;
                    self.ready.push_back((db, key.into()));
                }
            }
        }
    }

    /// A key was changed in what only the copy of it has to know.
    pub(crate) fn touch_copy(&mut self, db: DbId, key: &[u8]) {
        let watches = self.keys.get(&(db, Box::from(key))).into_iter().flatten();
        self.copy_touched |= watches.into_iter().any(|watch| watch.watcher == Watcher::Copy);
    }

    /// The watched keys of a database.
    pub(crate) fn keys_of(&self, db: DbId) -> Vec<Box<[u8]>> {
        self.keys.keys().filter(|(other, _)| *other == db).map(|(_, key)| key.clone()).collect()
    }

    /// Whether the source of the copy that is under way has changed.
    pub(crate) fn is_copy_touched(&self) -> bool {
        self.copy_touched
    }

    /// A client's keys that hadn't expired when it began to watch them.
    pub(crate) fn live_keys(&self, client: u64) -> impl Iterator<Item = (DbId, &[u8])> {
        let watcher = Watcher::Client(client);
        let keys = self.of.get(&watcher).into_iter().flatten();
        keys.filter(move |key| {
            let watches = self.keys.get(*key).into_iter().flatten();
            watches.into_iter().any(|watch| watch.watcher == watcher && !watch.expired)
        })
        .map(|(db, key)| (*db, &**key))
    }

    /// Clients whose keys changed since the last call.
    pub(crate) fn take_touched(&mut self) -> Vec<u64> {
        if self.touched.is_empty() { Vec::new() } else { std::mem::take(&mut self.touched).into_iter().collect() }
    }
}

//! Client-side caching: which clients have asked to be told of changes (CLIENT TRACKING), of which keys, and what has changed for those
//! that are told at the end of a turn.
//!
//! A client tracks in one of two modes. By default the keys that it reads are remembered ([`TrackedKeys`]) and it is told once when one
//! changes. In broadcast mode it names prefixes, nothing is remembered, and it is told of every change of a key that begins so, all of a
//! turn's in one message. Who is sent what stands in `invalidation`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

use crate::tracked_keys::TrackedKeys;

/// Bytes of a prefix's entries in the tables here besides the prefix itself, about.
const PREFIX_BYTES: usize = 320;
/// Bytes of a changed key that waits for the end of the turn, besides the key itself, about.
const PENDING_BYTES: usize = 64;
/// More than this does not wait for the end of the turn.
const MOST_PENDING_BYTES: usize = 1 << 20;

/// Of which of the keys that a client reads it wants to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachingChoice {
    /// Of all.
    #[default]
    All,
    /// Of those of the request that follows CLIENT CACHING YES (OPTIN).
    OptIn,
    /// Of all but those of the request that follows CLIENT CACHING NO (OPTOUT).
    OptOut,
}

/// What a client has asked for with CLIENT TRACKING ON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrackingMode {
    /// The client that is told in its place; 0 for none.
    pub redirect: u64,
    /// It is told of all changes under its prefixes (BCAST).
    pub broadcasts: bool,
    /// Of which keys that it reads.
    pub choice: CachingChoice,
    /// Not of its own changes (NOLOOP).
    pub no_loop: bool,
}

/// A client that tracks.
#[derive(Default, Debug)]
pub struct ClientTracking {
    /// What it has asked for.
    pub mode: TrackingMode,
    /// The client that was to be told in its place was gone when there was something to tell.
    pub is_broken: bool,
    /// CLIENT CACHING was the last request.
    pub caching_given: bool,
    prefixes: BTreeSet<Box<[u8]>>,
}

impl ClientTracking {
    /// The prefixes of the keys that it is told of.
    pub fn prefixes(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.prefixes.iter().map(|prefix| &**prefix)
    }

    /// Whether the keys that it reads now are remembered.
    pub fn remembers(&self) -> bool {
        let chosen = match self.mode.choice {
            CachingChoice::All => true,
            CachingChoice::OptIn => self.caching_given,
            CachingChoice::OptOut => !self.caching_given,
        };
        chosen && !self.mode.broadcasts
    }

    /// A prefix of the client that begins as `prefix` does, as far as the shorter of them goes.
    pub fn overlapping(&self, prefix: &[u8]) -> Option<&[u8]> {
        overlapping(&self.prefixes, prefix)
    }
}

/// The first of some prefixes that overlaps with another one. No two of them overlap, but for the empty one with all others: so only the
/// neighbours can.
fn overlapping<'p>(prefixes: &'p BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'p [u8]> {
    let first = prefixes.first().filter(|first| first.is_empty());
    let before =
        prefixes.range::<[u8], _>((Unbounded, Included(prefix))).next_back().filter(|other| prefix.starts_with(other));
    let after =
        || prefixes.range::<[u8], _>((Included(prefix), Unbounded)).next().filter(|other| other.starts_with(prefix));
    first.or(before).or_else(after).map(|found| &**found)
}

/// Two of these prefixes that overlap, by their places: those of which one comes first.
pub fn overlap_within(prefixes: &[&[u8]]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    order.sort_by_key(|&at| (prefixes[at], at));
    // What begins with a prefix follows it in this order.
    let pairs = order.windows(2).filter(|pair| prefixes[pair[1]].starts_with(prefixes[pair[0]]));
    pairs.map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1]))).min()
}

/// The keys under a prefix that have changed in this turn, and who is told of them.
#[derive(Default, Debug)]
struct PrefixTopic {
    /// With the client that has changed each of them last; 0 if none did.
    changed: BTreeMap<Box<[u8]>, u64>,
    clients: BTreeSet<u64>,
}

/// What clients are told at the end of a turn.
pub struct Broadcast {
    /// Whom.
    pub clients: Vec<u64>,
    /// The keys, with the client that has changed each of them last.
    pub changed: BTreeMap<Box<[u8]>, u64>,
}

/// All clients that track.
#[derive(Default, Debug)]
pub struct Tracking {
    clients: BTreeMap<u64, ClientTracking>,
    /// What they may have, but for those in broadcast mode.
    pub keys: TrackedKeys,
    prefixes: BTreeMap<Box<[u8]>, PrefixTopic>,
    /// How many prefixes there are of each length.
    lengths: BTreeMap<usize, usize>,
    prefix_bytes: usize,
    pending_bytes: usize,
}

impl Tracking {
    /// Whether any client tracks.
    #[inline]
    pub fn any(&self) -> bool {
        !self.clients.is_empty()
    }

    /// How many do.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// True when none does.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// How many different prefixes there are.
    pub fn prefix_count(&self) -> usize {
        self.prefixes.len()
    }

    /// Memory that all of it takes, about.
    pub const fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.prefix_bytes + self.pending_bytes
    }

    /// What client `id` has asked for, if it tracks.
    pub fn of(&self, id: u64) -> Option<&ClientTracking> {
        self.clients.get(&id)
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, id: u64) -> Option<&mut ClientTracking> {
        self.clients.get_mut(&id)
    }

    /// The numbers of all clients that track.
    pub fn ids(&self) -> Vec<u64> {
        self.clients.keys().copied().collect()
    }

    /// Client `id` tracks from now on, or in another way than before. To broadcast mode the prefixes are added; without any it is told
    /// of all keys.
    pub fn begin(&mut self, id: u64, mode: TrackingMode, prefixes: &[&[u8]]) {
        let of = self.clients.entry(id).or_default();
        (of.mode, of.is_broken) = (mode, false);
        if !mode.broadcasts {
            return;
        }
        let all: &[&[u8]] = if prefixes.is_empty() { &[b""] } else { prefixes };
        for prefix in all {
            if !of.prefixes.insert((*prefix).into()) {
                continue;
            }
            self.prefix_bytes += PREFIX_BYTES + 2 * prefix.len();
            let lengths = &mut self.lengths;
            let topic = self.prefixes.entry((*prefix).into()).or_insert_with(|| {
                *lengths.entry(prefix.len()).or_default() += 1;
                PrefixTopic::default()
            });
            topic.clients.insert(id);
        }
    }

    /// Client `id` does not track any more; whether it did. What it may have is forgotten when it changes, or with the last client.
    pub fn end(&mut self, id: u64) -> bool {
        let Some(of) = self.clients.remove(&id) else { return false };
        for prefix in of.prefixes {
            self.prefix_bytes -= PREFIX_BYTES + 2 * prefix.len();
            self.leave(id, &prefix);
        }
        if self.clients.is_empty() {
            self.keys.clear();
        }
        true
    }

    fn leave(&mut self, id: u64, prefix: &[u8]) {
        let Some(topic) = self.prefixes.get_mut(prefix) else { return };
        topic.clients.remove(&id);
        if !topic.clients.is_empty() {
            return;
        }
        if let Some(topic) = self.prefixes.remove(prefix) {
            self.pending_bytes -= pending_bytes(&topic.changed);
        }
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    /// A key has changed: those that are told of its prefix are told so at the end of the turn. `by` is the client that has changed it, 0
    /// if none did.
    pub fn note_changed(&mut self, key: &[u8], by: u64) {
        for length in self.lengths.range(..=key.len()).map(|(length, _)| *length) {
            if let Some(topic) = self.prefixes.get_mut(&key[..length])
                && topic.changed.insert(key.into(), by).is_none()
            {
                self.pending_bytes += PENDING_BYTES + key.len();
            }
        }
    }

    /// Whether clients are to be told of changes at the end of the turn.
    #[inline]
    pub const fn has_pending(&self) -> bool {
        self.pending_bytes > 0
    }

    /// Whether so much has changed that it does not wait for the end of the turn.
    pub const fn is_crowded(&self) -> bool {
        self.pending_bytes > MOST_PENDING_BYTES
    }

    /// What has changed, a prefix each, and who is to be told.
    pub fn take_pending(&mut self) -> Vec<Broadcast> {
        self.pending_bytes = 0;
        let changed = self.prefixes.values_mut().filter(|topic| !topic.changed.is_empty());
        changed
            .map(|topic| Broadcast {
                clients: topic.clients.iter().copied().collect(),
                changed: std::mem::take(&mut topic.changed),
            })
            .collect()
    }
}

fn pending_bytes(changed: &BTreeMap<Box<[u8]>, u64>) -> usize {
    changed.keys().map(|key| PENDING_BYTES + key.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broadcasting() -> TrackingMode {
        TrackingMode { broadcasts: true, ..TrackingMode::default() }
    }

    /// Clients, and the keys that they are told of with who has changed each.
    type Told = (Vec<u64>, Vec<(String, u64)>);

    /// Who is told of which keys, in the order of the prefixes.
    fn told(tracking: &mut Tracking) -> Vec<Told> {
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let pending = tracking.take_pending().into_iter();
        pending.map(|one| (one.clients, one.changed.iter().map(|(key, by)| (text(key), *by)).collect())).collect()
    }

    #[test]
    fn a_change_is_told_to_those_of_its_prefixes_once() {
        let mut tracking = Tracking::default();
        tracking.begin(1, broadcasting(), &[b"a", b"bc"]);
        tracking.begin(2, broadcasting(), &[]);
        tracking.begin(3, broadcasting(), &[b"bc"]);
        for (key, by) in [("a", 1), ("abc", 2), ("a", 3), ("b", 2), ("bcd", 0)] {
            tracking.note_changed(key.as_bytes(), by);
        }
        let keys = |keys: &[(&str, u64)]| keys.iter().map(|(key, by)| ((*key).to_owned(), *by)).collect::<Vec<_>>();
        assert_eq!(
            told(&mut tracking),
            [
                (vec![2], keys(&[("a", 3), ("abc", 2), ("b", 2), ("bcd", 0)])),
                (vec![1], keys(&[("a", 3), ("abc", 2)])),
                (vec![1, 3], keys(&[("bcd", 0)])),
            ]
        );
        assert!(!tracking.has_pending() && told(&mut tracking).is_empty());
        tracking.note_changed(b"a", 0);
        assert_eq!((tracking.len(), tracking.prefix_count()), (3, 3));
        assert!([1, 2, 3].into_iter().all(|id| tracking.end(id)) && !tracking.end(1));
        assert_eq!((tracking.memory_bytes(), tracking.prefix_count(), tracking.lengths.len()), (0, 0, 0));
    }

    #[test]
    fn prefixes_overlap_where_one_begins_with_the_other() {
        let mut tracking = Tracking::default();
        tracking.begin(1, broadcasting(), &[b"ab", b"b", b"cde"]);
        let of = tracking.of(1).unwrap();
        for (prefix, expected) in
            [("a", Some("ab")), ("abc", Some("ab")), ("ac", None), ("c", Some("cde")), ("cdf", None), ("", Some("ab"))]
        {
            assert_eq!(of.overlapping(prefix.as_bytes()), expected.map(str::as_bytes), "{prefix}");
        }
        tracking.begin(1, broadcasting(), &[]);
        assert_eq!(tracking.of(1).unwrap().overlapping(b"x"), Some(&b""[..]));
        assert_eq!(overlap_within(&[b"x", b"ab", b"y", b"a"]), Some((1, 3)));
        assert_eq!(overlap_within(&[b"x", b"x"]), Some((0, 1)));
        assert_eq!(overlap_within(&[b"x", b"y", b"ab", b"ac"]), None);
    }

    #[test]
    fn a_client_chooses_of_which_keys_it_is_told() {
        for (choice, given, expected) in [
            (CachingChoice::All, false, true),
            (CachingChoice::OptIn, false, false),
            (CachingChoice::OptIn, true, true),
            (CachingChoice::OptOut, false, true),
            (CachingChoice::OptOut, true, false),
        ] {
            let mode = TrackingMode { choice, ..TrackingMode::default() };
            let of = ClientTracking { mode, caching_given: given, ..ClientTracking::default() };
            assert_eq!(of.remembers(), expected, "{choice:?} {given}");
        }
    }

    #[test]
    fn what_the_last_client_may_have_is_forgotten() {
        let mut tracking = Tracking::default();
        for id in [1, 2] {
            tracking.begin(id, TrackingMode::default(), &[]);
            tracking.keys.remember(b"a", id);
        }
        tracking.end(1);
        assert_eq!((tracking.keys.len(), tracking.keys.items()), (1, 2));
        tracking.end(2);
        assert_eq!((tracking.keys.len(), tracking.keys.items()), (0, 0));
    }
}

//! Changes for which there is no memory, of keys and fields that expire and of streams: they change nothing, and whatever was cut at that moment
//! is whole.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_rng::SplitMix64;
use quire_store::stream::{self, StreamCut, StreamSummary, StreamTrim};
use quire_store::{DbId, Store, StoreConfig, StoreError, StreamId, ValueType, hash};

use crate::common::copy_steps::{free_all, objects_of_an_empty_store};
use crate::common::streams::{GroupModel, Words, all, groups};
use crate::common::{config, image_of, open};

const DB: DbId = DbId(0);
const OTHER: DbId = DbId(1);
/// The hash that takes the memory that others then lack.
const FILLS: &[u8] = b"fills";
const NOW_MS: i64 = 1000;
/// Everything that expires does so before.
const END_MS: i64 = 100_000;

type Done = quire_store::Result<()>;

/// All that a key is.
#[derive(Clone, Debug, Default, PartialEq)]
struct KeyState {
    expiry: Option<i64>,
    fields: BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>,
    summary: StreamSummary,
    entries: Vec<(StreamId, Words)>,
    groups: BTreeMap<Vec<u8>, GroupModel>,
}

fn state_of(store: &mut Store, db: DbId, key: &[u8]) -> Option<KeyState> {
    let expiry = store.expiry(db, key).unwrap()?;
    assert!(store.check_value(db, key).unwrap());
    let mut state = KeyState { expiry, ..KeyState::default() };
    match store.kind(db, key).unwrap() {
        Some(ValueType::Hash) => {
            let fields = hash::view(store, db, key).unwrap();
            let note = &mut |field: &[u8], value: &[u8], at_ms| {
                state.fields.insert(field.to_vec(), (value.to_vec(), at_ms));
            };
            fields.for_each_with_expiry(note).unwrap();
        }
        Some(ValueType::Stream) => {
            state.summary = stream::view(store, db, key).unwrap().summary().unwrap();
            if db == DB {
                (state.entries, state.groups) = (all(store, key), groups(store, key));
            }
        }
        kind => panic!("a key of type {kind:?}"),
    }
    Some(state)
}

fn key_of(number: usize) -> Vec<u8> {
    format!("key:{number}:{}", "k".repeat(number * 3)).into_bytes()
}

fn field_of(number: usize) -> Vec<u8> {
    format!("field:{number}:{}", "f".repeat(number % 13)).into_bytes()
}

/// A store and what takes its memory.
struct Short {
    store: Store,
    rng: SplitMix64,
    filled: u64,
    freed: u64,
    refused: usize,
}

impl Short {
    fn new(seed: u64) -> Short {
        let mut store = Store::create(StoreConfig { max_memory_bytes: 4 << 20, ..config() }).unwrap();
        store.set_now_ms(NOW_MS);
        Short { store, rng: SplitMix64::new(seed), filled: 0, freed: 0, refused: 0 }
    }

    /// Takes memory in pieces of this size as long as there is any.
    fn fill(&mut self, bytes: usize) {
        let value = vec![7; bytes];
        while hash::set(&mut self.store, DB, FILLS, format!("{:09}", self.filled).as_bytes(), &value).is_ok() {
            self.filled += 1;
        }
    }

    fn fill_all(&mut self) {
        for bytes in [30_000, 2000, 500, 200, 100, 43, 27, 11] {
            self.fill(bytes);
        }
    }

    /// Gives the oldest pieces back.
    fn free(&mut self, most: u64) {
        let end = self.filled.min(self.freed + most);
        for number in self.freed..end {
            assert!(hash::del(&mut self.store, DB, FILLS, format!("{number:09}").as_bytes()).unwrap());
        }
        self.freed = end;
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.index(bound)
    }

    /// Something is done to two keys of both databases; if there is no memory for it nothing has changed.
    fn act(&mut self) {
        let (one, other) = (key_of(self.below(6)), key_of(self.below(6)));
        let places = [(DB, &one), (DB, &other), (OTHER, &one)];
        let before = places.map(|(db, key)| state_of(&mut self.store, db, key));
        let done = match self.below(3) {
            0 => self.change_keys(&one, &other),
            1 => self.change_hash(&one),
            _ => self.change_stream(&other),
        };
        match done {
            Ok(()) | Err(StoreError::WrongType) => {}
            Err(StoreError::OutOfMemory { .. }) => {
                self.refused += 1;
                let now = places.map(|(db, key)| state_of(&mut self.store, db, key));
                assert_eq!(now, before);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn change_keys(&mut self, one: &[u8], other: &[u8]) -> Done {
        let at_ms = NOW_MS + 1 + self.below(9000) as i64;
        match self.below(9) {
            0 => self.store.rename(DB, one, other).map(drop),
            1 => self.store.copy(DB, one, DB, other, true).map(drop),
            2 => self.store.move_key(DB, one, OTHER).map(drop),
            3 => self.store.move_key(OTHER, one, DB).map(drop),
            4 => self.store.remove(DB, one).map(drop),
            5 => self.store.set_expiry(DB, one, None).map(drop),
            _ => self.store.set_expiry(DB, one, Some(at_ms)).map(drop),
        }
    }

    fn change_hash(&mut self, key: &[u8]) -> Done {
        let (field, what) = (field_of(self.below(150)), self.below(12));
        let value = vec![b'v'; [0, 9, 30, 100, 600][self.below(5)]];
        let at_ms = NOW_MS + 1 + self.below(9000) as i64;
        let mut hash = hash::open_mut(&mut self.store, DB, key)?;
        match what {
            0..4 => hash.set(&field, &value).map(drop),
            4..8 => hash.set_expiry(&field, Some(at_ms)).map(drop),
            8 => hash.set_expiry(&field, None).map(drop),
            9 => hash.remove(&field).map(drop),
            10 => hash.set_new(&field, &value).map(drop),
            _ => match hash.incr_by(&field, 1) {
                Err(StoreError::HashValueNotInteger) => Ok(()),
                done => done.map(drop),
            },
        }
    }

    fn change_stream(&mut self, key: &[u8]) -> Done {
        let (what, most, whole_blocks) = (self.below(14), self.below(200) as u64, self.below(2) == 0);
        let value = vec![b'v'; [0, 9, 30, 600, 3000][self.below(5)]];
        let name = [b'a' + self.below(4) as u8];
        let mut stream = stream::open_mut(&mut self.store, DB, key)?;
        let (last, group) = (stream.view()?.last_id(), stream.view()?.group(&name)?);
        match (what, group) {
            (0..8, _) => {
                let trim = StreamTrim { cut: StreamCut::MaxLen(most), whole_blocks, limit: 0 };
                stream.add(StreamId { ms: last.ms + 1, seq: 0 }, &[b"field", &value])?;
                assert_eq!(stream.view()?.last_id().ms, last.ms + 1);
                // What was added stays if there is no memory for the trim.
                let (may, before) = (stream.view()?.may_trim(&trim)?, stream.view()?.len()?);
                let removed = stream.trim(&trim).unwrap();
                assert!((may || removed == 0) && stream.view()?.len()? == before - removed);
                Ok(())
            }
            (8, _) => stream.delete(StreamId { ms: last.ms.saturating_sub(most), seq: 0 }).map(drop),
            (9 | 10, None) if stream.exists() => stream.create_group(&name, last, None),
            (9, Some(group)) if most < 20 => stream.destroy_group(&group),
            (10 | 11, Some(group)) => match stream.view()?.consumer(&group, &[name[0], most as u8 % 3])? {
                Some(consumer) => stream.set_pending(&group, &consumer, (StreamId { ms: most, seq: 0 }, 5, 1)),
                None => stream.create_consumer(&group, &[name[0], most as u8 % 3], 5).map(drop),
            },
            (12, Some(group)) => stream.remove_pending(&group, StreamId { ms: most, seq: 0 }).map(drop),
            (13, _) if stream.exists() => stream.set_ids(last, None, None),
            _ => Ok(()),
        }
    }

    /// An image of now has all that is here, and its indexes lead to all that expires.
    fn check_image(&mut self) {
        let mut again = open(&image_of(&mut self.store)).unwrap();
        again.set_now_ms(NOW_MS);
        let mut lasting = BTreeMap::new();
        for db in [DB, OTHER] {
            assert_eq!((again.len(db), again.expires_len(db)), (self.store.len(db), self.store.expires_len(db)));
            for number in 0..6 {
                let key = key_of(number);
                let state = state_of(&mut self.store, db, &key);
                assert_eq!(state_of(&mut again, db, &key), state);
                if let Some(mut state) = state.filter(|state| state.expiry.is_none()) {
                    state.fields.retain(|_, (_, at_ms)| at_ms.is_none());
                    if !state.fields.is_empty() || !state.entries.is_empty() || state.summary.added > 0 {
                        lasting.insert((db.0, key), state);
                    }
                }
            }
        }
        again.set_now_ms(END_MS);
        (0..200).for_each(|_| _ = again.expire_step(1000).unwrap());
        assert!(!again.has_expiring_subkeys() && again.expires_len(DB) + again.expires_len(OTHER) == 0);
        for ((db, key), state) in &lasting {
            assert_eq!(state_of(&mut again, DbId(*db), key).as_ref(), Some(state));
        }
        let keys = again.len(DB) + again.len(OTHER) - u64::from(again.exists(DB, FILLS).unwrap());
        assert_eq!(keys, lasting.len() as u64);
        again.flush_all().unwrap();
        free_all(&mut again);
        assert_eq!(again.arena().stats().objects, objects_of_an_empty_store());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_there_is_no_memory_for_changes_nothing(seed in any::<u64>()) {
        let mut short = Short::new(seed);
        for _ in 0..200 {
            short.act();
        }
        short.fill_all();
        for round in 0..600 {
            match short.below(10) {
                0 => short.free(1 + round % 20),
                1 | 2 => short.fill([500, 200, 100, 43, 27, 11][round as usize % 6]),
                3 => _ = short.store.reclaim_step(100).unwrap(),
                _ => short.act(),
            }
            if round % 150 == 149 {
                short.check_image();
            }
        }
        prop_assert!(short.refused > 0);
        short.store.flush_all().unwrap();
        free_all(&mut short.store);
        prop_assert_eq!(short.store.arena().stats().objects, objects_of_an_empty_store());
    }
}

#[test]
fn an_image_has_the_index_of_keys_that_expire_though_there_was_no_memory_for_another_one() {
    let mut short = Short::new(1);
    let key = |number: usize| format!("{number:07}").into_bytes();
    for number in 0..4000 {
        hash::set(&mut short.store, DB, &key(number), b"field", b"value").unwrap();
    }
    short.fill_all();
    let (mut refused, mut expiring) = (0, Vec::new());
    for number in 0..4000 {
        match short.store.set_expiry(DB, &key(number), Some(5000)) {
            Ok(set) => {
                assert!(set);
                expiring.push(number);
            }
            Err(StoreError::OutOfMemory { .. }) if refused < 30 => {
                refused += 1;
                let mut again = open(&image_of(&mut short.store)).unwrap();
                again.set_now_ms(NOW_MS);
                for number in &expiring {
                    assert!(again.set_expiry(DB, &key(*number), None).unwrap());
                }
                assert_eq!(again.expires_len(DB), 0);
            }
            Err(StoreError::OutOfMemory { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0 && !expiring.is_empty(), "{refused} {}", expiring.len());
}

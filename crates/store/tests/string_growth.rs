//! Strings that outgrow their place in steps: at every point the string is what it was or what the whole command makes of it, whatever
//! happens to it meanwhile; an image cut at any step, work that is given up and memory that is refused have nothing of it left.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire_store::{
    CopyStep, DbId, ExpiryChange, ImageLocation, RestoreMode, Store, StoreConfig, StoreError, set, string,
};

const DB: DbId = DbId(0);
const OWNER: u64 = 7;
const BUDGET: usize = 100;
/// Bytes that one unit of a budget copies.
const UNIT_BYTES: usize = 2048;
const LEN: usize = 5 << 20;
const STEPS: usize = LEN.div_ceil(BUDGET * UNIT_BYTES);

fn config() -> StoreConfig {
    StoreConfig { max_memory_bytes: 64 << 20, budget_bytes: 1 << 20, seed: Some(2026), ..StoreConfig::default() }
}

/// Bytes that differ from those of another seed, and from place to place.
fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16).wrapping_add(seed.wrapping_mul(37)) as u8).collect()
}

fn filled() -> Store {
    let mut store = Store::create(config()).unwrap();
    string::set(&mut store, DB, b"key", &content(1, LEN), ExpiryChange::Clear).unwrap();
    store
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    string::peek(store, DB, key).unwrap().map(<[u8]>::to_vec)
}

fn free_all(store: &mut Store) {
    while store.reclaim_step(1000).unwrap() > 0 {}
}

fn taken(store: &Store) -> (u64, u64) {
    let stats = store.arena().stats();
    (stats.objects, stats.allocated_bytes)
}

/// A command that makes a string longer.
#[derive(Clone, Debug)]
enum Command {
    Append(Vec<u8>),
    SetRange(usize, Vec<u8>),
    SetBit(usize, bool),
}

use Command::{Append, SetBit, SetRange};

impl Command {
    /// Asks for it; `None` while steps are under way.
    fn ask(&self, store: &mut Store, owner: u64, key: &[u8]) -> Result<Option<usize>, StoreError> {
        match self {
            Append(value) => string::append_in_steps(store, owner, DB, key, value),
            SetRange(at, value) => string::set_range_in_steps(store, owner, DB, key, *at as u64, value),
            SetBit(at, bit) => {
                string::set_bit_in_steps(store, owner, DB, key, *at as u64, *bit).map(|old| old.map(usize::from))
            }
        }
    }

    /// What it makes of a value, and what it returns.
    fn apply(&self, value: &mut Vec<u8>) -> usize {
        match self {
            Append(more) => value.extend(more),
            SetRange(_, more) if more.is_empty() => {}
            SetRange(at, more) => {
                value.resize(value.len().max(at + more.len()), 0);
                value[*at..at + more.len()].copy_from_slice(more);
            }
            SetBit(at, bit) => {
                value.resize(value.len().max(at / 8 + 1), 0);
                let mask = 0x80 >> (at % 8);
                let old = value[at / 8] & mask != 0;
                value[at / 8] = if *bit { value[at / 8] | mask } else { value[at / 8] & !mask };
                return usize::from(old);
            }
        }
        value.len()
    }
}

fn commands() -> [Command; 5] {
    [
        Append(b"more".to_vec()),
        SetRange(LEN + 100, b"behind a gap".to_vec()),
        SetRange(2 * LEN, b"x".to_vec()),
        SetBit(8 * LEN + 7, true),
        SetBit(16 * LEN, false),
    ]
}

/// Asks until it is done, with steps between; returns the reply and the steps.
fn run(store: &mut Store, command: &Command) -> (usize, usize) {
    let mut steps = 0;
    loop {
        if let Some(reply) = command.ask(store, OWNER, b"key").unwrap() {
            return (reply, steps);
        }
        loop {
            steps += 1;
            if store.copy_step(BUDGET).unwrap() != CopyStep::More {
                break;
            }
        }
    }
}

#[test]
fn a_long_string_grows_in_steps_of_the_budget_and_changes_at_one_instant() {
    for command in commands() {
        let mut store = filled();
        store.set_expiry(DB, b"key", Some(99_000)).unwrap();
        let mut expected = content(1, LEN);
        let reply = command.apply(&mut expected);
        store.watch(1, DB, b"key");
        let (changes, objects) = (store.changes(), store.arena().stats().objects);
        assert_eq!(command.ask(&mut store, OWNER, b"key").unwrap(), None);
        assert!(store.copied_bytes(OWNER) >= expected.len() as u64);
        while store.copy_step(BUDGET).unwrap() == CopyStep::More {
            assert_eq!(command.ask(&mut store, OWNER, b"key").unwrap(), None);
            assert!(store.changes() == changes && string::strlen(&mut store, DB, b"key").unwrap() == LEN);
        }
        assert!(value(&store, b"key").unwrap() == content(1, LEN) && store.take_touched().is_empty());
        assert_eq!(command.ask(&mut store, OWNER, b"key").unwrap(), Some(reply), "{command:?}");
        assert!(value(&store, b"key").unwrap() == expected, "{command:?}");
        assert_eq!((store.changes() - changes, store.take_touched()), (1, vec![1]), "{command:?}");
        assert_eq!(store.expiry(DB, b"key").unwrap(), Some(Some(99_000)));
        assert_eq!((store.encoding(DB, b"key").unwrap(), store.copy_owner()), (Some("raw"), None));
        assert_eq!(store.arena().stats().objects, objects, "nothing that served the steps alone is left");
        assert_eq!((store.longest_copy_step(), store.check_value(DB, b"key").unwrap()), (BUDGET, true));
    }
}

#[test]
fn the_steps_are_as_many_as_the_bytes_that_are_copied_and_cleared() {
    for (command, bytes) in commands().iter().zip([LEN, LEN + 112, 2 * LEN + 1, LEN + 1, 2 * LEN + 1]) {
        assert_eq!(run(&mut filled(), command).1, bytes.div_ceil(BUDGET * UNIT_BYTES), "{command:?}");
    }
}

#[test]
fn a_key_that_is_not_there_is_filled_with_zeros_in_steps() {
    for command in [SetRange(LEN, b"end".to_vec()), SetBit(8 * LEN, false)] {
        let mut store = Store::create(config()).unwrap();
        let mut expected = Vec::new();
        let reply = command.apply(&mut expected);
        assert_eq!(command.ask(&mut store, OWNER, b"key").unwrap(), None);
        store.copy_step(BUDGET).unwrap();
        assert!(!store.exists(DB, b"key").unwrap() && store.len(DB) == 0);
        assert_eq!(run(&mut store, &command), (reply, STEPS - 1));
        assert!(value(&store, b"key").unwrap() == expected, "{command:?}");
        assert_eq!(store.changes(), 1);
    }
}

#[test]
fn little_is_done_at_once() {
    let mut store = Store::create(config()).unwrap();
    string::set(&mut store, DB, b"key", &content(1, 512 * UNIT_BYTES), ExpiryChange::Clear).unwrap();
    assert_eq!(run(&mut store, &Append(b"x".to_vec())), (512 * UNIT_BYTES + 1, 0));
    assert_eq!(run(&mut store, &SetRange(1_100_000, b"in reserve".to_vec())), (1_100_010, 0));
    let mut store = filled();
    assert_eq!(run(&mut store, &SetRange(5, b"in place".to_vec())), (LEN, 0));
    assert_eq!(run(&mut store, &SetRange(2 * LEN, b"".to_vec())), (LEN, 0));
    // Once it has room, what follows is at once until that is used up.
    assert!(run(&mut store, &Append(b"x".to_vec())).1 > 0);
    for more in 2..1000 {
        assert_eq!(run(&mut store, &Append(b"x".to_vec())), (LEN + more, 0));
    }
}

#[test]
fn what_is_not_allowed_is_refused_before_any_step() {
    let mut store = filled();
    set::open_mut(&mut store, DB, b"set").unwrap().add(b"member").unwrap();
    let before = taken(&store);
    let too_long = SetRange(quire_store::STRING_MAX_BYTES, b"x".to_vec()).ask(&mut store, OWNER, b"key");
    assert!(matches!(too_long, Err(StoreError::TooLarge { .. })), "{too_long:?}");
    let outside = SetBit(8 * quire_store::STRING_MAX_BYTES, true).ask(&mut store, OWNER, b"key");
    assert!(matches!(outside, Err(StoreError::OutOfRange { .. })), "{outside:?}");
    let wrong = SetRange(LEN, b"x".to_vec()).ask(&mut store, OWNER, b"set");
    assert!(matches!(wrong, Err(StoreError::WrongType)), "{wrong:?}");
    assert_eq!((taken(&store), store.copy_owner()), (before, None));
}

type Event = fn(&mut Store);

#[test]
fn a_string_that_changes_meanwhile_grows_from_what_it_is_then() {
    let events: [Event; 8] = [
        |store| assert!(store.remove(DB, b"key").unwrap()),
        |store| assert!(store.rename(DB, b"key", b"elsewhere").unwrap()),
        |store| assert_eq!(store.flush_all().unwrap(), 1),
        |store| store.swap(DB, DbId(1)).unwrap(),
        |store| store.set_now_ms(5000),
        |store| assert_eq!(string::append(store, DB, b"key", b"other").unwrap(), LEN + 5),
        |store| assert!(string::set_bit(store, DB, b"key", 9, false).is_ok()),
        |store| {
            // It may get the same places again.
            store.remove(DB, b"key").unwrap();
            string::set(store, DB, b"key", &content(2, LEN), ExpiryChange::Clear).unwrap();
        },
    ];
    for (command, whole) in commands().iter().flat_map(|command| [(command, false), (command, true)]) {
        for (number, event) in events.iter().enumerate() {
            let mut store = filled();
            string::set_range(&mut store, DB, b"key", 1, b"\xff").unwrap();
            store.set_expiry(DB, b"key", Some(5000)).unwrap();
            assert_eq!(command.ask(&mut store, OWNER, b"key").unwrap(), None);
            while store.copy_step(BUDGET).unwrap() == CopyStep::More && whole {}
            event(&mut store);
            if !whole {
                assert_eq!(store.copy_step(BUDGET).unwrap(), CopyStep::Ended);
            }
            let mut expected = value(&store, b"key").unwrap_or_default();
            let reply = command.apply(&mut expected);
            assert_eq!(run(&mut store, command).0, reply, "{command:?} {number}");
            assert!(value(&store, b"key").unwrap() == expected, "{command:?} {number}");
            store.flush_all().unwrap();
            free_all(&mut store);
            assert_eq!(store.arena().stats().objects, Store::create(config()).unwrap().arena().stats().objects);
        }
    }
}

#[test]
fn what_is_given_up_at_any_step_gives_its_memory_back() {
    for steps in (0..STEPS + 1).step_by(5).chain([STEPS]) {
        let mut store = filled();
        let before = taken(&store);
        assert_eq!(commands()[0].ask(&mut store, OWNER, b"key").unwrap(), None);
        for _ in 0..steps {
            store.copy_step(BUDGET).unwrap();
        }
        if steps % 2 == 0 {
            store.cancel_copy(OWNER).unwrap();
        } else {
            // Another command of the same client, which needs no steps.
            SetRange(0, b"\x25".to_vec()).ask(&mut store, OWNER, b"key").unwrap().unwrap();
        }
        free_all(&mut store);
        assert_eq!((taken(&store), store.copy_owner()), (before, None), "{steps}");
        assert_eq!(value(&store, b"key").map(|value| value.len()), Some(LEN));
    }
}

#[test]
fn an_image_cut_at_any_step_has_the_old_string_and_none_of_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let place = ImageLocation::new(dir.path(), "dump.quire");
    for steps in [0, 1, STEPS / 2, STEPS - 1, STEPS] {
        let mut store = filled();
        let (digest, objects) = (store.digest().unwrap(), store.arena().stats().objects);
        assert_eq!(commands()[0].ask(&mut store, OWNER, b"key").unwrap(), None);
        for _ in 0..steps {
            store.copy_step(BUDGET).unwrap();
        }
        store.save_blocking(&place).unwrap();
        let (mut again, _) = Store::open(config(), &place, RestoreMode::Load, false).unwrap();
        assert_eq!((again.digest().unwrap(), again.copy_owner()), (digest, None));
        free_all(&mut again);
        assert_eq!(again.arena().stats().objects, objects, "{steps}");
        let mut expected = content(1, LEN);
        let reply = commands()[0].apply(&mut expected);
        assert_eq!(run(&mut store, &commands()[0]).0, reply);
        assert!(value(&store, b"key").unwrap() == expected);
    }
}

#[test]
fn growth_without_memory_is_refused_and_leaves_the_string_as_it_was() {
    let config = StoreConfig { max_memory_bytes: 16 << 20, ..config() };
    let mut store = Store::create(config).unwrap();
    string::set(&mut store, DB, b"key", &content(1, 6 << 20), ExpiryChange::Clear).unwrap();
    let before = taken(&store);
    for command in [Append(b"x".to_vec()), SetRange(12 << 20, b"x".to_vec()), SetBit(96 << 20, true)] {
        let refused = command.ask(&mut store, OWNER, b"key");
        assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
        assert_eq!((taken(&store), store.copy_owner(), store.has_copy_step()), (before, None, false));
    }
    assert!(value(&store, b"key").unwrap() == content(1, 6 << 20));
}

#[test]
fn two_that_grow_wait_for_each_other() {
    let mut store = filled();
    let (first, second) = (Append(b"first".to_vec()), Append(b"second".to_vec()));
    assert_eq!(first.ask(&mut store, 1, b"key").unwrap(), None);
    assert_eq!(second.ask(&mut store, 2, b"key").unwrap(), None);
    while store.copy_step(BUDGET).unwrap() == CopyStep::More {}
    assert_eq!((second.ask(&mut store, 2, b"key").unwrap(), store.copy_owner()), (None, Some(1)));
    assert_eq!(first.ask(&mut store, 1, b"key").unwrap(), Some(LEN + 5));
    assert_eq!(second.ask(&mut store, 2, b"key").unwrap(), Some(LEN + 11), "it has room now");
}

const KEYS: [&[u8]; 2] = [b"one", b"two"];

#[derive(Clone, Debug)]
enum Op {
    Ask(u64, usize, Command),
    Step(usize),
    Set(usize, usize, usize),
    /// Another client turns a bit over that the string has.
    Turn(usize, usize),
    Delete(usize),
    Expire(usize, i64),
    Rename(usize),
    Advance(i64),
    Flush,
    Reclaim,
    Cancel(u64),
    Restart,
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (0usize..200, 1usize..1_200_000).prop_map(|(seed, len)| Append(content(seed, len))),
        (0usize..5_000_000, 0usize..5000).prop_map(|(at, len)| SetRange(at, content(at, len))),
        (0usize..40_000_000, any::<bool>()).prop_map(|(at, bit)| SetBit(at, bit)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0usize..KEYS.len();
    prop_oneof![
        12 => (0u64..2, key(), command()).prop_map(|(owner, key, command)| Op::Ask(owner, key, command)),
        12 => (1usize..900).prop_map(Op::Step),
        1 => (key(), 1usize..4_000_000, 0usize..200).prop_map(|(key, len, seed)| Op::Set(key, len, seed)),
        4 => (key(), 0usize..8_000_000).prop_map(|(key, at)| Op::Turn(key, at)),
        1 => key().prop_map(Op::Delete),
        1 => (key(), 1i64..50).prop_map(|(key, in_ms)| Op::Expire(key, in_ms)),
        1 => key().prop_map(Op::Rename),
        2 => (0i64..20).prop_map(Op::Advance),
        1 => Just(Op::Flush),
        2 => Just(Op::Reclaim),
        1 => (0u64..2).prop_map(Op::Cancel),
        1 => Just(Op::Restart),
    ]
}

struct Pair {
    store: Store,
    model: BTreeMap<usize, (Vec<u8>, Option<i64>)>,
    now_ms: i64,
    /// What each client has asked for and has no reply to.
    asked: [Option<(usize, Command)>; 2],
    dir: tempfile::TempDir,
}

/// As little that some are refused.
fn tight() -> StoreConfig {
    StoreConfig { max_memory_bytes: 24 << 20, ..config() }
}

impl Pair {
    fn run(&mut self, op: &Op) {
        let (store, model) = (&mut self.store, &mut self.model);
        match *op {
            Op::Ask(owner, key, ref command) => {
                self.asked[owner as usize].get_or_insert_with(|| (key, command.clone()));
                self.ask(owner);
            }
            Op::Step(budget) => {
                if store.copy_step(budget).unwrap() == CopyStep::Ended {
                    (0..2).for_each(|owner| self.ask(owner));
                }
            }
            Op::Set(key, len, seed) => {
                let done = string::set(store, DB, KEYS[key], &content(seed, len), ExpiryChange::Clear);
                if !matches!(done, Err(StoreError::OutOfMemory { .. })) {
                    done.unwrap();
                    model.insert(key, (content(seed, len), None));
                }
            }
            Op::Turn(key, at) => {
                if let Some((value, _)) = model.get_mut(&key).filter(|(value, _)| !value.is_empty()) {
                    let (byte, bit) = (at % value.len(), 0x80 >> (at % 8));
                    let offset = (8 * byte + at % 8) as u64;
                    value[byte] ^= bit;
                    string::set_bit(store, DB, KEYS[key], offset, value[byte] & bit != 0).unwrap();
                }
            }
            Op::Delete(key) => assert_eq!(store.remove(DB, KEYS[key]).unwrap(), model.remove(&key).is_some()),
            Op::Expire(key, in_ms) => {
                let at_ms = Some(self.now_ms + in_ms);
                if store.set_expiry(DB, KEYS[key], at_ms).is_ok() {
                    model.entry(key).and_modify(|item| item.1 = at_ms);
                }
            }
            Op::Rename(key) => {
                if store.rename(DB, KEYS[key], KEYS[1 - key]).is_ok()
                    && let Some(item) = model.remove(&key)
                {
                    model.insert(1 - key, item);
                }
            }
            Op::Advance(by_ms) => {
                self.now_ms += by_ms;
                store.set_now_ms(self.now_ms);
                let now_ms = self.now_ms;
                model.retain(|_, (_, expiry)| expiry.is_none_or(|at_ms| at_ms > now_ms));
            }
            Op::Flush => {
                store.flush_all().unwrap();
                model.clear();
            }
            Op::Reclaim => drop(store.reclaim_step(300).unwrap()),
            Op::Cancel(owner) => {
                store.cancel_copy(owner).unwrap();
                self.asked[owner as usize] = None;
            }
            Op::Restart => self.restart(),
        }
    }

    /// A client asks (again) for what it wants.
    fn ask(&mut self, owner: u64) {
        let Some((key, command)) = self.asked[owner as usize].take() else { return };
        match command.ask(&mut self.store, owner, KEYS[key]) {
            Ok(None) => self.asked[owner as usize] = Some((key, command)),
            Ok(Some(reply)) => {
                // What a command adds no byte to is not made.
                let is_nothing = matches!(&command, SetRange(_, value) if value.is_empty());
                if !is_nothing || self.model.contains_key(&key) {
                    assert_eq!(command.apply(&mut self.model.entry(key).or_default().0), reply, "{owner} {key}");
                }
            }
            Err(StoreError::OutOfMemory { .. }) => assert!(self.store.copy_owner() != Some(owner)),
            Err(error) => panic!("{error}"),
        }
    }

    /// An image is cut as things are, and the store goes on as what was restored from it.
    fn restart(&mut self) {
        let place = ImageLocation::new(self.dir.path(), "dump.quire");
        self.store.save_blocking(&place).unwrap();
        (self.store, _) = Store::open(tight(), &place, RestoreMode::Load, false).unwrap();
        self.store.set_now_ms(self.now_ms);
        self.asked = [None, None];
        self.check();
    }

    fn check(&mut self) {
        for (index, key) in KEYS.iter().enumerate() {
            let expected = self.model.get(&index);
            assert_eq!(self.store.expiry(DB, key).unwrap(), expected.map(|item| item.1));
            let found = string::peek(&self.store, DB, key).unwrap();
            assert!(found == expected.map(|item| &item.0[..]), "the value of {index}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn strings_that_grow_between_other_commands_are_what_the_model_says(ops in prop::collection::vec(op(), 1..80)) {
        let mut store = Store::create(tight()).unwrap();
        let empty = store.arena().stats().objects;
        store.set_now_ms(1_000_000);
        let dir = tempfile::tempdir().unwrap();
        let mut pair = Pair { store, model: BTreeMap::new(), now_ms: 1_000_000, asked: [None, None], dir };
        for op in &ops {
            pair.run(op);
        }
        pair.check();
        (0..2).for_each(|owner| pair.store.cancel_copy(owner).unwrap());
        pair.store.flush_all().unwrap();
        free_all(&mut pair.store);
        prop_assert_eq!(pair.store.arena().stats().objects, empty);
    }
}

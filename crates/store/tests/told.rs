//! What changes a value is counted and told to those who watch its key; what fails for lack of memory, or changes nothing, is
//! not. Through every operation of every type, with values of all encodings, in a store that is nearly full.

use proptest::prelude::*;
use quire_store::list::End;
use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate};
use quire_store::{
    DbId, Direction, EncodingLimits, ExpiryChange, Store, StoreConfig, StoreError, hash, list, set, string,
};

const DB: DbId = DbId(0);
const KEYS: [&[u8]; 5] = [b"first", b"second", b"third", b"fourth", b"fifth"];
const WATCHER: u64 = 7;

#[derive(Clone, Debug)]
enum Op {
    Set(usize, ExpiryChange),
    SetRaw(usize),
    Append(usize),
    SetRange(u64, usize),
    SetBit(u64, bool),
    Edit(usize, usize),
    StoreElements(usize, usize),
    StoreMembers(usize),
    Incr(i64),
    IncrFloat(f64),
    HashSet(u8, usize),
    HashSetNew(u8, usize),
    HashDel(u8),
    HashIncr(u8, i64),
    HashIncrFloat(u8, f64),
    Add(u8, usize),
    AddInt(i64),
    SetDel(u8, usize),
    Pop(usize),
    Union,
    List(ListOp),
    Zset(ZsetOp),
}

#[derive(Clone, Debug)]
enum ZsetOp {
    Set(u8, usize, i8),
    Add(u8, f64),
    Remove(u8, usize),
    RemoveRanks(u64, u64),
    Pop(Direction, u64),
    Union,
    Range(u64, u64),
}

fn zset_op() -> impl Strategy<Value = ZsetOp> {
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    prop_oneof![
        5 => (0u8..12, len(), any::<i8>()).prop_map(|(member, len, score)| ZsetOp::Set(member, len, score)),
        2 => (0u8..12, -10.0..10.0).prop_map(|(member, by)| ZsetOp::Add(member, by)),
        1 => (0u8..12, len()).prop_map(|(member, len)| ZsetOp::Remove(member, len)),
        1 => (0u64..6, 0u64..4).prop_map(|(start, len)| ZsetOp::RemoveRanks(start, len)),
        1 => (direction, 0u64..3).prop_map(|(from, count)| ZsetOp::Pop(from, count)),
        1 => Just(ZsetOp::Union),
        1 => (0u64..6, 0u64..6).prop_map(|(start, len)| ZsetOp::Range(start, len)),
    ]
}

#[derive(Clone, Debug)]
enum ListOp {
    Push(End, u8, usize),
    Pop(End, u64),
    Set(u64, usize),
    Insert(u8, bool, usize),
    Remove(End, u8, u64),
    Keep(u64, u64),
    Rotate(End, End),
}

fn list_op() -> impl Strategy<Value = ListOp> {
    let end = || prop_oneof![Just(End::Front), Just(End::Back)];
    prop_oneof![
        4 => (end(), 0u8..12, len()).prop_map(|(end, element, len)| ListOp::Push(end, element, len)),
        1 => (end(), 0u64..4).prop_map(|(end, count)| ListOp::Pop(end, count)),
        2 => (0u64..12, len()).prop_map(|(index, len)| ListOp::Set(index, len)),
        3 => (0u8..12, any::<bool>(), len()).prop_map(|(pivot, behind, len)| ListOp::Insert(pivot, behind, len)),
        1 => (end(), 0u8..12, 0u64..3).prop_map(|(end, element, most)| ListOp::Remove(end, element, most)),
        1 => (0u64..3, 0u64..12).prop_map(|(front, len)| ListOp::Keep(front, len)),
        1 => (end(), end()).prop_map(|(from, to)| ListOp::Rotate(from, to)),
    ]
}

/// How long a value is: most are small, some get an object of their own.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..12, 3 => 12usize..200, 1 => 15_000usize..18_000]
}

fn op() -> impl Strategy<Value = Op> {
    let expiry = prop_oneof![
        Just(ExpiryChange::Clear),
        Just(ExpiryChange::Keep),
        (2_000_000i64..3_000_000).prop_map(ExpiryChange::At)
    ];
    prop_oneof![
        (len(), expiry).prop_map(|(len, expiry)| Op::Set(len, expiry)),
        len().prop_map(Op::SetRaw),
        len().prop_map(Op::Append),
        (0u64..40_000, len()).prop_map(|(offset, len)| Op::SetRange(offset, len)),
        (0u64..3000, any::<bool>()).prop_map(|(offset, bit)| Op::SetBit(offset, bit)),
        (0usize..3000, len()).prop_map(|(offset, len)| Op::Edit(offset, len)),
        (0usize..300, 0usize..100).prop_map(|(count, len)| Op::StoreElements(count, len)),
        (0usize..300).prop_map(Op::StoreMembers),
        any::<i64>().prop_map(Op::Incr),
        (-10.0..10.0).prop_map(Op::IncrFloat),
        (0u8..12, len()).prop_map(|(field, len)| Op::HashSet(field, len)),
        (0u8..12, len()).prop_map(|(field, len)| Op::HashSetNew(field, len)),
        (0u8..12).prop_map(Op::HashDel),
        (0u8..12, any::<i64>()).prop_map(|(field, by)| Op::HashIncr(field, by)),
        (0u8..12, -10.0..10.0).prop_map(|(field, by)| Op::HashIncrFloat(field, by)),
        (0u8..12, len()).prop_map(|(member, len)| Op::Add(member, len)),
        (-3i64..300).prop_map(Op::AddInt),
        (0u8..12, len()).prop_map(|(member, len)| Op::SetDel(member, len)),
        (0usize..3).prop_map(Op::Pop),
        Just(Op::Union),
        list_op().prop_map(Op::List),
        list_op().prop_map(Op::List),
        list_op().prop_map(Op::List),
        list_op().prop_map(Op::List),
        zset_op().prop_map(Op::Zset),
        zset_op().prop_map(Op::Zset),
        zset_op().prop_map(Op::Zset),
        zset_op().prop_map(Op::Zset),
    ]
}

fn name(number: u8, len: usize) -> Vec<u8> {
    [number.to_string().as_bytes(), &vec![b'm'; len]].concat()
}

/// Runs it on a key.
fn run(store: &mut Store, key: &[u8], op: &Op) -> Result<(), StoreError> {
    let value = |len: usize| vec![b'v'; len];
    match *op {
        Op::Set(len, expiry) => string::set(store, DB, key, &value(len), expiry),
        Op::SetRaw(len) => string::set_raw(store, DB, key, &value(len), ExpiryChange::Clear),
        Op::Append(len) => string::append(store, DB, key, &value(len)).map(drop),
        Op::SetRange(offset, len) => string::set_range(store, DB, key, offset, &value(len)).map(drop),
        Op::SetBit(offset, bit) => string::set_bit(store, DB, key, offset, bit).map(drop),
        Op::Edit(offset, len) => {
            let mut string = string::open_mut(store, DB, key, offset + len)?;
            string.write(offset, &value(len))?;
            string.write(0, b"")
        }
        Op::StoreElements(count, len) => {
            let elements: Vec<Vec<u8>> = (0..count).map(|number| name(number as u8, len)).collect();
            list::store_elements(store, DB, key, elements.iter().map(Vec::as_slice)).map(drop)
        }
        Op::StoreMembers(count) => {
            let mut members = zset::ScoredMembers::default();
            (0..count).for_each(|number| members.push(number as f64, &name(number as u8, number / 9)));
            zset::store_members(store, DB, key, &members).map(drop)
        }
        Op::Incr(by) => string::incr_by(store, DB, key, by).map(drop),
        Op::IncrFloat(by) => string::incr_by_float(store, DB, key, by).map(drop),
        Op::HashSet(field, len) => hash::set(store, DB, key, &[field], &value(len)).map(drop),
        Op::HashSetNew(field, len) => hash::open_mut(store, DB, key)?.set_new(&[field], &value(len)).map(drop),
        Op::HashDel(field) => hash::del(store, DB, key, &[field]).map(drop),
        Op::HashIncr(field, by) => hash::open_mut(store, DB, key)?.incr_by(&[field], by).map(drop),
        Op::HashIncrFloat(field, by) => hash::open_mut(store, DB, key)?.incr_by_float(&[field], by).map(drop),
        Op::Add(member, len) => set::open_mut(store, DB, key)?.add(&name(member, len)).map(drop),
        Op::AddInt(number) => set::open_mut(store, DB, key)?.add(number.to_string().as_bytes()).map(drop),
        Op::SetDel(member, len) => set::open_mut(store, DB, key)?.remove(&name(member, len)).map(drop),
        Op::Pop(n) => set::pop(store, DB, key, n, &mut |_| true, &mut |_| {}).map(drop),
        Op::Union => set::store_combination(store, DB, key, SetOperation::Union, KEYS.into_iter()).map(drop),
        Op::List(ref op) => run_on_list(store, key, op),
        Op::Zset(ref op) => run_on_zset(store, key, op),
    }
}

fn run_on_list(store: &mut Store, key: &[u8], op: &ListOp) -> Result<(), StoreError> {
    if let ListOp::Rotate(from, to) = *op {
        return list::move_element(store, DB, (key, from), (key, to)).map(drop);
    }
    let mut list = list::open_mut(store, DB, key)?;
    match *op {
        ListOp::Push(end, element, len) => {
            let element = name(element, len);
            list.make_room([element.as_slice()])?;
            list.push(end, &element).map(drop)
        }
        ListOp::Pop(end, count) => list.pop(end, count, &mut |_| true).map(drop),
        ListOp::Set(index, len) => {
            if index >= list.len()? {
                return Ok(());
            }
            list.make_room([vec![b's'; len].as_slice()])?;
            list.set(index, &vec![b's'; len]).map(drop)
        }
        ListOp::Insert(pivot, behind, len) => list.insert(&name(pivot, 0), behind, &vec![b'i'; len]).map(drop),
        ListOp::Remove(end, element, most) => list.remove(end, &name(element, 0), most).map(drop),
        ListOp::Keep(front, len) => {
            let front = front.min(list.len()?);
            let end = (front + len).min(list.len()?);
            list.keep(front..end)
        }
        ListOp::Rotate(..) => Ok(()),
    }
}

fn run_on_zset(store: &mut Store, key: &[u8], op: &ZsetOp) -> Result<(), StoreError> {
    match *op {
        ZsetOp::Set(member, len, score) => {
            zset::open_mut(store, DB, key)?.set(&name(member, len), f64::from(score)).map(drop)
        }
        ZsetOp::Add(member, by) => {
            zset::open_mut(store, DB, key)?.update(&name(member, 0), |score| Some(score.unwrap_or(0.0) + by)).map(drop)
        }
        ZsetOp::Remove(member, len) => zset::open_mut(store, DB, key)?.remove(&name(member, len)).map(drop),
        ZsetOp::RemoveRanks(start, len) => zset::open_mut(store, DB, key)?.remove_ranks(start..start + len).map(drop),
        ZsetOp::Pop(from, count) => zset::open_mut(store, DB, key)?.pop(from, count, &mut |_, _| true).map(drop),
        ZsetOp::Union => {
            let operands = zset::operands(store, DB, KEYS[2..5].iter().copied().filter(|other| *other != KEYS[3]))?;
            zset::store_combination(store, DB, key, SetOperation::Union, Aggregate::Sum, &operands).map(drop)
        }
        ZsetOp::Range(start, len) => zset::store_range(store, DB, key, KEYS[4], start..start + len).map(drop),
    }
}

/// A store whose keys begin as a string, a hash, a set, a list and a sorted set, with room for little more if `full`.
fn store(full: bool) -> Store {
    let limits = EncodingLimits::default()
        .with(&hash::MAX_PACKED_FIELDS, 4)
        .with(&set::MAX_INTS, 4)
        .with(&set::MAX_PACKED_MEMBERS, 6)
        .with(&list::MAX_NODE, 4)
        .with(&zset::MAX_PACKED_MEMBERS, 4);
    let config = StoreConfig {
        max_memory_bytes: 4 << 20,
        budget_bytes: 1 << 20,
        limits,
        seed: Some(2026),
        ..StoreConfig::default()
    };
    let mut store = Store::create(config).unwrap();
    store.set_now_ms(1_000_000);
    string::set(&mut store, DB, KEYS[0], b"17", ExpiryChange::At(2_500_000)).unwrap();
    hash::set(&mut store, DB, KEYS[1], b"f", b"3").unwrap();
    set::open_mut(&mut store, DB, KEYS[2]).unwrap().add(b"5").unwrap();
    list::open_mut(&mut store, DB, KEYS[3]).unwrap().push(End::Back, b"7").unwrap();
    zset::open_mut(&mut store, DB, KEYS[4]).unwrap().set(b"9", 9.5).unwrap();
    if full {
        fill(&mut store);
    }
    store
}

/// Leaves no room for another key.
fn fill(store: &mut Store) {
    let mut number = 0u32;
    for len in [50_000, 1000, 100, 8] {
        loop {
            number += 1;
            match string::set(store, DbId(1), &number.to_ne_bytes(), &vec![b'f'; len], ExpiryChange::Clear) {
                Ok(()) => {}
                Err(StoreError::OutOfMemory { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// The values of the keys and their times to live.
fn state(store: &mut Store) -> Vec<(String, Option<Option<i64>>)> {
    KEYS.iter()
        .map(|key| {
            let mut shown = format!("{:?} ", store.kind(DB, key).unwrap());
            if let Ok(Some(bytes)) = string::get(store, DB, key) {
                shown += &format!("{bytes:?}");
            }
            let mut parts: Vec<String> = Vec::new();
            let _ = hash::for_each(store, DB, key, &mut |field, value| parts.push(format!("{field:?}={value:?}")));
            if let Ok(members) = set::view(store, DB, key) {
                members
                    .for_each(|member| {
                        parts.push(format!("{:?}", member.text(&mut itoa::Buffer::new())));
                        true
                    })
                    .unwrap();
            }
            parts.sort();
            if let Ok(list) = list::view(store, DB, key) {
                let len = list.len().unwrap();
                list.range(0..len, |element| parts.push(format!("{element:?}"))).unwrap();
            }
            if let Ok(zset) = zset::view(store, DB, key) {
                let show = |score, member: &[u8]| {
                    parts.push(format!("{member:?} {score:?}"));
                    true
                };
                zset.range(0..u64::MAX, Direction::Up, show).unwrap();
            }
            (shown + &parts.join(","), store.expiry(DB, key).unwrap())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_change_is_told_and_what_fails_for_lack_of_memory_is_none(
        full: bool,
        ops in prop::collection::vec((0..KEYS.len(), op()), 1..60),
    ) {
        let mut store = store(full);
        let mut before = state(&mut store);
        for (at, op) in ops {
            for (other, key) in KEYS.iter().enumerate() {
                store.watch(other as u64, DB, key);
            }
            store.watch(WATCHER, DB, b"another key");
            let changes = store.changes();
            let done = run(&mut store, KEYS[at], &op);
            let touched = store.take_touched();
            let counted = store.changes() - changes;
            (0..=WATCHER).for_each(|watcher| store.unwatch_all(watcher));
            let after = state(&mut store);
            for other in 0..KEYS.len() {
                let changed = before[other] != after[other];
                prop_assert!(!changed || other == at, "{op:?} changed another key");
                prop_assert!(!changed || counted > 0, "{op:?} was not counted");
                prop_assert!(!changed || touched.contains(&(other as u64)), "{op:?} was not told");
                prop_assert!(store.check_value(DB, KEYS[other]).is_ok());
            }
            prop_assert_eq!(counted > 0, touched == [at as u64]);
            if done.is_err() {
                prop_assert_eq!(counted, 0, "{:?} failed: {:?}", op, done);
                prop_assert_eq!(&before, &after);
            }
            before = after;
        }
    }
}

//! Target `image_contents`: an image whose checksums are right but whose contents are hostile.
//!
//! Relies on a small valid store, whose pages the input patches, as an attacker would who writes an image of his own. The
//! promise: opening it and every command on it give an answer or an error, without panic, and come to an end. The store
//! below the patches is the same each time, so a kept input hits again.

use std::sync::{Arc, OnceLock};

use quire_arena::Arena;
use quire_snapshot::{PAGE_SIZE, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate};
use quire_store::{Cut, DbId, Direction, End, ExpiryChange, SetMember, Store, StoreConfig, hash, list, set, string};
use quire_sys::buffer::BumpAllocator;
use quire_sys::mem::Reservation;

use quire_rng::SplitMix64;

use crate::contents_streams;

const MAX_BYTES: usize = 64 << 20;
/// Tables and draws of every store here follow from it: an input must hit the same thing each time.
const SEED: u64 = 2026;
/// Commands are tried on so many of the keys that the damaged store lists.
const MOST_KEYS: usize = 400;
const ZERO: DbId = DbId(0);

/// The pages of the valid store.
struct Base {
    page_count: u32,
    pages: Vec<(u32, Vec<u8>)>,
    digest: [u8; 20],
}

/// Patches the valid store with `data`, opens it and uses all of it. Each patch is a page (two bytes), an offset (two),
/// a length (one, up to 16) and the bytes.
pub fn run(data: &[u8]) {
    let base = base();
    let mut pages = base.pages.clone();
    let mut rest = data;
    while let [page_low, page_high, at_low, at_high, len, tail @ ..] = rest {
        let page = usize::from(u16::from_le_bytes([*page_low, *page_high])) % pages.len();
        let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % PAGE_SIZE;
        let len = (usize::from(*len) % 17).min(tail.len()).min(PAGE_SIZE - at);
        pages[page].1[at..at + len].copy_from_slice(&tail[..len]);
        rest = &tail[len..];
    }
    if let Some(mut store) = open(base.page_count, &pages) {
        if data.is_empty() {
            let keys = [b"members".as_slice(), b"chain", b"row", b"tree", b"ranks", b"expiring", b"few expire"];
            for key in keys.into_iter().chain(contents_streams::KEYS) {
                assert!(store.check_value(ZERO, key).is_ok_and(|found| found), "the valid store is not well-formed");
            }
            assert_eq!(store.digest().ok(), Some(base.digest), "the valid store changed by being opened");
        }
        use_all_of(&mut store);
    }
}

fn open(page_count: u32, pages: &[(u32, Vec<u8>)]) -> Option<Store> {
    let mut carver = BumpAllocator::new(Reservation::new(MAX_BYTES).ok()?);
    let committed = page_count as usize * PAGE_SIZE;
    let mut memory = carver.carve(0..committed).ok()?;
    for (number, page) in pages {
        let start = *number as usize * PAGE_SIZE;
        memory[start..start + PAGE_SIZE].copy_from_slice(page);
    }
    drop(memory);
    let config = WriteBarrierConfig { budget_bytes: 1 << 20 };
    let mut barrier = WriteBarrier::new(Arc::clone(carver.memory()), config).ok()?;
    for (number, _) in pages {
        barrier.mark_present(*number..*number + 1);
    }
    let arena = Arena::open(barrier, committed).ok()?;
    Store::from_arena(arena, store_config()).ok()
}

pub(crate) fn store_config() -> StoreConfig {
    StoreConfig {
        max_memory_bytes: MAX_BYTES as u64,
        budget_bytes: 1 << 20,
        seed: Some(SEED),
        ..StoreConfig::default()
    }
}

/// Every kind of command on whatever the store says that it holds. Errors are fine, so results are dropped.
pub(crate) fn use_all_of(store: &mut Store) {
    store.set_now_ms(2_000_000);
    let mut keys = Vec::new();
    let _ = store.for_each_key(ZERO, &mut |key, _| {
        if keys.len() < MOST_KEYS {
            keys.push(key.to_vec());
        }
    });
    let _ = store.digest();
    let (mut cursor, mut turns) = (0, 0);
    while let Ok(next) = store.scan(ZERO, cursor, 50, &mut |_, _| {}) {
        (cursor, turns) = (next, turns + 1);
        if cursor == 0 || turns > 10_000 {
            break;
        }
    }
    for key in &keys {
        read(store, key);
    }
    for (number, key) in keys.iter().enumerate() {
        write(store, key, number);
    }
    let _ = store.random_key(ZERO);
    let _ = store.expire_step(1000);
    let _ = store.defrag_step(5000);
    let _ = store.swap(ZERO, DbId(1));
    let _ = store.flush_all();
    for _ in 0..200 {
        if !matches!(store.reclaim_step(1000), Ok(done) if done > 0) {
            break;
        }
    }
    let _ = string::set(store, ZERO, b"after", &[7; 3000], ExpiryChange::Clear);
    let _ = store.arena_mut().trim(8);
    let _ = store.stats();
}

fn read(store: &mut Store, key: &[u8]) {
    let _ = string::get(store, ZERO, key).map(|value| value.map(<[u8]>::len));
    let _ = store.kind(ZERO, key);
    let _ = store.encoding(ZERO, key);
    let _ = store.memory_usage(ZERO, key);
    let _ = store.expiry(ZERO, key);
    let _ = store.check_value(ZERO, key);
    let _ = store.digest_value(ZERO, key);
    let _ = hash::len(store, ZERO, key);
    let _ = hash::get(store, ZERO, key, b"field-3").map(|value| value.map(<[u8]>::len));
    let _ = hash::for_each(store, ZERO, key, &mut |_, _| {});
    if let Ok(hash) = hash::view(store, ZERO, key) {
        let _ = (hash.expiry(b"field-4"), hash.first_expiry());
        let _ = hash.for_each_with_expiry(&mut |_, _, _| {});
    }
    let _ = hash::scan(store, ZERO, key, 0, 10, &mut |_, _| {});
    let _ = hash::random_fields(store, ZERO, key, 5, true, &mut |_, _| {});
    let _ = set::random_members(store, ZERO, key, 5, true, &mut |_| {});
    read_list(store, key);
    read_zset(store, key);
    contents_streams::read(store, key);
    if let Ok(sets) = set::views(store, ZERO, [key, b"ints", b"words", b"members"].into_iter()) {
        let _ = sets[0].contains(&SetMember::Bytes(b"member-3"));
        let _ = sets[0].scan(0, 10, &mut |_| {});
        for how in [SetOperation::Intersection, SetOperation::Union, SetOperation::Difference] {
            let _ = set::combine(how, &sets, |_| true);
        }
    }
}

fn read_list(store: &mut Store, key: &[u8]) {
    let Ok(list) = list::view(store, ZERO, key) else { return };
    let len = list.len().unwrap_or(0);
    for index in [0, len / 2, len.saturating_sub(1), u64::MAX] {
        let _ = list.get(index);
        let _ = list.walk(End::Back, index, |_| true);
    }
    let _ = list.range(0..len, |_| {});
    let _ = list.positions(End::Back, b"3", 500, |_| true);
}

fn read_zset(store: &mut Store, key: &[u8]) {
    let Ok(zset) = zset::view(store, ZERO, key) else { return };
    let len = zset.len();
    if len.as_ref().is_ok_and(|len| *len == 0) {
        return;
    }
    let len = len.unwrap_or(0);
    let _ = zset.range(0..len, Direction::Up, |_, _| true);
    let _ = zset.range(len / 3..len / 2, Direction::Down, |_, _| true);
    let _ = zset.ranks_between(&Cut::BelowScore(3.0), &Cut::UpToScore(7.0));
    let _ = zset.rank_of(&Cut::UpToMember(b"member-3"));
    let _ = zset.rank(b"member-3");
    let _ = zset.scan(0, 10, &mut |_, _| {});
    let _ = zset::random_members(store, ZERO, key, 5, true, &mut |_, _| {});
    if let Ok(operands) = zset::operands(store, ZERO, [key, b"ranks", b"members"].into_iter()) {
        for how in [SetOperation::Intersection, SetOperation::Union, SetOperation::Difference] {
            let _ = zset::combine(store, how, Aggregate::Max, &operands, &mut |_, _| true);
        }
    }
}

fn write_zset(store: &mut Store, key: &[u8]) {
    // Of the many keys only sorted sets, damaged ones too: each of the others would be given hundreds of members.
    if zset::view(store, ZERO, key).is_ok_and(|zset| zset.len().is_ok_and(|len| len == 0)) {
        return;
    }
    let _ = zset::store_range(store, ZERO, b"range", key, 1..9);
    if let Ok(operands) = zset::operands(store, ZERO, [key, b"tree", b"words"].into_iter()) {
        let _ = zset::store_combination(store, ZERO, b"summed", SetOperation::Union, Aggregate::Sum, &operands);
    }
    let Ok(mut zset) = zset::open_mut(store, ZERO, key) else { return };
    for number in 0..200 {
        let _ = zset.set(format!("new-{number}").as_bytes(), f64::from(number * 7 % 50));
    }
    let _ = zset.set(b"member-3", 1e9);
    let _ = zset.set(b"member-4", 40.5);
    let _ = zset.remove(b"member-5");
    let _ = zset.remove_ranks(10..150);
    let _ = zset.pop(Direction::Down, 3, &mut |_, _| true);
}

fn write_list(store: &mut Store, key: &[u8]) {
    let _ = list::move_element(store, ZERO, (key, End::Back), (b"row", End::Front));
    let _ = list::move_element(store, ZERO, (b"chain", End::Front), (key, End::Back));
    let Ok(mut list) = list::open_mut(store, ZERO, key) else { return };
    for end in [End::Front, End::Back] {
        let _ = list.make_room([[5; 300].as_slice()]);
        let _ = list.push(end, &[5; 300]);
        let _ = list.pop(end, 2, &mut |_| true);
        let _ = list.remove(end, b"element-3", 2);
    }
    let middle = list.len().unwrap_or(0) / 2;
    let _ = list.set(middle, &[6; 700]);
    let _ = list.insert(&[6; 700], true, &[7; 900]);
    let _ = list.keep(1..middle);
}

fn write(store: &mut Store, key: &[u8], number: usize) {
    match number % 10 {
        0 => drop(string::append(store, ZERO, key, &[1; 100])),
        1 => drop(string::set(store, ZERO, key, &[2; 700], ExpiryChange::At(9_000_000))),
        2 => drop(string::set_range(store, ZERO, key, 50, b"range")),
        3 => drop(string::incr_by(store, ZERO, key, 3)),
        4 => drop(store.remove(ZERO, key)),
        5 => drop(store.rename(ZERO, key, b"renamed")),
        6 => drop(store.copy(ZERO, key, DbId(2), b"copied", true)),
        7 => drop(store.move_key(ZERO, key, DbId(3))),
        8 => drop(store.set_expiry(ZERO, key, Some(1))),
        _ => drop(string::set_bit(store, ZERO, key, 77, true)),
    }
    contents_streams::write(store, key);
    write_list(store, key);
    write_zset(store, key);
    let _ = hash::set(store, ZERO, key, b"field-new", &[3; 90]);
    let _ = hash::del(store, ZERO, key, b"field-3");
    write_fields(store, key);
    let _ = set::move_member(store, ZERO, key, b"words", b"member-3");
    let _ = set::pop(store, ZERO, key, 2, &mut |_| true, &mut |_| {});
    let keys = [key, b"ints", b"words", b"members"];
    let _ = set::store_combination(store, ZERO, b"united", SetOperation::Union, keys.into_iter());
    if let Ok(mut set) = set::open_mut(store, ZERO, key) {
        let _ = set.add(b"12345");
        let _ = set.add(&[4; 90]);
        let _ = set.remove(b"3");
    }
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(valid)
}

fn valid() -> Base {
    let mut store = filled_store();
    let digest = store.digest().expect("a valid store has a digest");
    let mut snapshot = store.arena_mut().cut().expect("a first cut");
    let mut pages = Vec::new();
    for number in 0..snapshot.page_count() {
        let mut page = vec![0; PAGE_SIZE];
        if snapshot.take(number, &mut page) == TakeOutcome::Copied {
            pages.push((number, page));
        }
    }
    Base { page_count: snapshot.page_count(), pages, digest }
}

/// A valid store.
pub(crate) fn filled_store() -> Store {
    let mut store = Store::create(store_config()).expect("an empty store");
    fill(&mut store).expect("a small store fits");
    store
}

/// Something of every shape: strings inline and outside, packed and tabled hashes, all sets, lists, sorted sets and streams, times to live, space to reclaim.
fn fill(store: &mut Store) -> quire_store::Result<()> {
    store.set_now_ms(1_000_000);
    for number in 0..150_usize {
        let expiry =
            if number % 5 == 0 { ExpiryChange::At(1_500_000 + number as i64 * 10_000) } else { ExpiryChange::Clear };
        let value = vec![number as u8; [0, 3, 30, 300, 3000][number % 5]];
        string::set(store, ZERO, format!("string:{number}").as_bytes(), &value, expiry)?;
    }
    string::set(store, ZERO, b"long", &vec![9; 40_000], ExpiryChange::Clear)?;
    string::set(store, ZERO, b"number", b"41", ExpiryChange::Clear)?;
    string::set(store, ZERO, &[b'k'; 500], b"long key", ExpiryChange::Clear)?;
    for number in 0..600 {
        let field = format!("field-{number}");
        hash::set(store, ZERO, b"large", field.as_bytes(), b"value")?;
        hash::set(store, DbId(4), b"doomed", field.as_bytes(), b"value")?;
        set::open_mut(store, ZERO, b"members")?.add(format!("member-{number}").as_bytes())?;
        zset::open_mut(store, ZERO, b"tree")?.set(format!("member-{number}").as_bytes(), (number * 7 % 90) as f64)?;
        append(store, b"chain", &vec![number as u8; 20 + number % 40])?;
        if number < 20 {
            append(store, b"row", format!("element-{number}").as_bytes())?;
            append(store, b"row", number.to_string().as_bytes())?;
            zset::open_mut(store, ZERO, b"ranks")?.set(format!("member-{number}").as_bytes(), number as f64 / 4.0)?;
            set::open_mut(store, ZERO, b"ints")?.add(number.to_string().as_bytes())?;
            set::open_mut(store, ZERO, b"words")?.add(format!("member-{number}").as_bytes())?;
            hash::set(store, ZERO, b"small", field.as_bytes(), b"value")?;
        }
    }
    contents_streams::fill(store)?;
    for number in 0..200 {
        let field = format!("field-{number}");
        for (key, most) in [(&b"expiring"[..], 200), (b"few expire", 20)] {
            if number < most {
                let expiry_ms = (number % 3 > 0).then_some(1_500_000 + number * 10_000);
                hash::open_mut(store, ZERO, key)?.load(field.as_bytes(), b"value", expiry_ms)?;
            }
        }
    }
    store.flush(DbId(4))?;
    Ok(())
}

/// Gives fields times to live and takes them, and has those searched for that are over.
fn write_fields(store: &mut Store, key: &[u8]) {
    if let Ok(mut hash) = hash::open_mut(store, ZERO, key) {
        let _ = hash.set_expiry(b"field-4", Some(3_000_000));
        let _ = hash.set_expiry(b"field-5", Some(2_000_001));
        let _ = hash.set_expiry(b"field-5", None);
        let _ = hash.load(b"field-loaded", b"value", Some(1));
        let _ = hash.set(b"field-7", &[3; 90]);
        let _ = hash.incr_by(b"field-8", 1);
        let _ = hash.remove(b"field-10");
    }
    let _ = store.expire_step(50);
}

fn append(store: &mut Store, key: &[u8], element: &[u8]) -> quire_store::Result<()> {
    let mut list = list::open_mut(store, ZERO, key)?;
    list.make_room([element])?;
    list.push(End::Back, element).map(drop)
}

/// The valid store, and patches of one to three places all over it.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(404);
    let patch = |rng: &mut SplitMix64| {
        let mut patch: Vec<u8> = (0..5).map(|_| rng.next_u64() as u8).collect();
        let len = 1 << rng.index(4);
        patch[4] = len;
        // Most of what matters is small numbers and other objects' handles.
        let bytes = (rng.next_u64() >> (8 * rng.index(8))).to_le_bytes();
        patch.extend(bytes.iter().cycle().take(usize::from(len)));
        patch
    };
    let patched = (0..200).map(|_| (0..=rng.index(3)).flat_map(|_| patch(&mut rng)).collect());
    std::iter::once(Vec::new()).chain(patched.collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valid_store_has_the_same_pages_each_time() {
        assert!(valid().pages == valid().pages);
    }
}

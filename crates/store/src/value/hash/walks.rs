//! Walking through a hash: HSCAN and HRANDFIELD.

use std::collections::HashSet;

use quire_arena::{Arena, Handle};
use quire_rng::SplitMix64;

use super::fields::Field;
use super::packed::{self, FieldSpan};
use super::view::view;
use super::{field_count, for_each_field};
use crate::db::DbId;
use crate::encoding::{HashEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::value::ValueRef;
use crate::table::TableHead;
use crate::table::sample::{SelectionSampler, random_item};

/// If more than one in so many fields is wanted, a walk is cheaper than picking.
const PICK_ONE_IN: usize = 3;

/// Calls `f` with about `count` fields of a hash and returns the cursor to go on with, 0 at the end; with all of a
/// small hash. The promise is that of [`Keyspace::scan`].
///
/// # Errors
/// As [`super::get`].
pub fn scan(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    cursor: u64,
    count: usize,
    f: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64> {
    view(keyspace, db, key)?.scan(cursor, count, f)
}

fn show_field(arena: &Arena, item: Handle, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    let field = Field::read(arena, item)?;
    f(field.name(arena)?, field.value(arena)?);
    Ok(())
}

/// Calls `f` with `n` random fields of a hash: up to `n` different ones if `distinct`, otherwise exactly `n` of
/// which some may be the same. None if there is no such key.
///
/// # Errors
/// As [`super::get`].
pub fn random_fields(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let mut rng = keyspace.rng.clone();
    let Some(hash) = keyspace.open(db, key, ValueType::Hash)? else { return Ok(()) };
    let done = show_random(&hash, n, distinct, f, &mut rng);
    keyspace.rng = rng;
    done
}

fn show_random(
    hash: &ValueRef<'_>,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    rng: &mut SplitMix64,
) -> Result<()> {
    let len = field_count(hash)?;
    if distinct && n >= len {
        return for_each_field(hash.arena(), hash.entry(), f);
    }
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table => show_random_of_table(hash.arena(), &hash.table()?, n, distinct, f, rng),
        HashEncoding::Packed => show_random_of_packed(hash.bytes()?, n, distinct, f, rng),
    }
}

fn show_random_of_packed(
    bytes: &[u8],
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    rng: &mut SplitMix64,
) -> Result<()> {
    let spans = packed::pairs(bytes)?.collect::<Result<Vec<FieldSpan>>>()?;
    let mut show = |span: &FieldSpan| f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
    if spans.is_empty() {
        return Err(StoreError::damaged("a hash without fields"));
    }
    if distinct {
        let mut chooser = SelectionSampler { wanted: n as u64, left: spans.len() as u64 };
        spans.iter().filter(|_| chooser.takes(rng)).for_each(&mut show);
    } else {
        (0..n).for_each(|_| show(&spans[rng.index(spans.len())]));
    }
    Ok(())
}

fn show_random_of_table(
    arena: &Arena,
    head: &TableHead,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    rng: &mut SplitMix64,
) -> Result<()> {
    if distinct && n.saturating_mul(PICK_ONE_IN) > head.count as usize {
        let mut chooser = SelectionSampler { wanted: n as u64, left: head.count };
        return head.for_each(arena, |item| if chooser.takes(rng) { show_field(arena, item, f) } else { Ok(()) });
    }
    let mut seen = HashSet::new();
    // With two thirds not yet seen, four tries a field are plenty; the bound is for damaged tables.
    let mut tries = n.saturating_mul(20).saturating_add(100);
    let mut shown = 0;
    while shown < n && tries > 0 {
        tries -= 1;
        let Some(item) = random_item(arena, head, rng)? else {
            return Err(StoreError::damaged("a hash without fields"));
        };
        if !distinct || seen.insert(item) {
            show_field(arena, item, f)?;
            shown += 1;
        }
    }
    Ok(())
}

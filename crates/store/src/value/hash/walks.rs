//! Walking through a hash: HSCAN and HRANDFIELD.

use std::collections::HashSet;

use quire_arena::Handle;

use super::fields::Field;
use super::packed::{self, Span};
use super::view::view;
use super::{field_count, for_each_field};
use crate::db::DbId;
use crate::encoding::{Encoding, Kind};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::table::TableHead;
use crate::table::sample::{Chooser, random_below, random_item};

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

fn show_field(keyspace: &Keyspace, item: Handle, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    let field = Field::read(&keyspace.heap.arena, item)?;
    f(field.name(&keyspace.heap.arena)?, field.value(&keyspace.heap.arena)?);
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
    let Some(entry) = keyspace.find_kind_to_read(db, key, Kind::Hash)? else { return Ok(()) };
    let mut random = keyspace.random;
    let done = show_random(keyspace, &entry, n, distinct, f, &mut random);
    keyspace.random = random;
    done
}

fn show_random(
    keyspace: &Keyspace,
    entry: &Entry,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    random: &mut u64,
) -> Result<()> {
    let len = field_count(&keyspace.heap.arena, entry)?;
    if distinct && n >= len {
        return for_each_field(&keyspace.heap.arena, entry, f);
    }
    if entry.encoding()? == Encoding::TableHash {
        let head = entry.table(&keyspace.heap.arena)?;
        return show_random_of_table(keyspace, &head, n, distinct, f, random);
    }
    let bytes = entry.value(&keyspace.heap.arena)?;
    let spans = packed::pairs(bytes)?.collect::<Result<Vec<Span>>>()?;
    let mut show = |span: &Span| f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
    if spans.is_empty() {
        return Err(StoreError::damaged("a hash without fields"));
    }
    if distinct {
        let mut chooser = Chooser { wanted: n as u64, left: spans.len() as u64 };
        spans.iter().filter(|_| chooser.takes(random)).for_each(&mut show);
    } else {
        (0..n).for_each(|_| show(&spans[random_below(random, spans.len() as u64) as usize]));
    }
    Ok(())
}

fn show_random_of_table(
    keyspace: &Keyspace,
    head: &TableHead,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    random: &mut u64,
) -> Result<()> {
    if distinct && n.saturating_mul(PICK_ONE_IN) > head.count as usize {
        let mut chooser = Chooser { wanted: n as u64, left: head.count };
        return head.for_each(&keyspace.heap.arena, |item| {
            if chooser.takes(random) { show_field(keyspace, item, f) } else { Ok(()) }
        });
    }
    let mut seen = HashSet::new();
    // With two thirds not yet seen, four tries a field are plenty; the bound is for damaged tables.
    let mut tries = n.saturating_mul(20).saturating_add(100);
    let mut shown = 0;
    while shown < n && tries > 0 {
        tries -= 1;
        let Some(item) = random_item(&keyspace.heap.arena, head, random)? else {
            return Err(StoreError::damaged("a hash without fields"));
        };
        if !distinct || seen.insert(item) {
            show_field(keyspace, item, f)?;
            shown += 1;
        }
    }
    Ok(())
}

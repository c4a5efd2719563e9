//! Active defragmentation: what lies in mostly empty slabs moves into others, and free pages go back to the system.
//!
//! Relies on the arena for what is to be moved where, and on `entries` for moving an entry with all that leads to it. One cycle surveys the
//! arena's slabs, walks through the tables of all databases, with the tables that values are, and then through the free runs. Nothing that a command could see changes:
//! no event is told, no change counted, nothing logged. While a snapshot is open, memory is being restored or shared with a file, or
//! something is made of a value in steps, nothing moves. See `docs/design/defrag.md`.

use quire_arena::Handle;

use crate::error::{Result, StoreError};
use crate::keyspace::entry::Entry;
use crate::keyspace::root::DATABASES;
use crate::keyspace::{Keyspace, entries};
use crate::table::TableHead;
use crate::table::defrag::{DefragTally, move_bucket, move_item};

/// Looks at pages that take about as long as one at an entry.
const LOOKS: usize = 64;
/// Bytes of an object that weigh as much as an entry.
const WEIGHT_BYTES: usize = 1024;
/// Tables of a database: its keys, those that expire, those with subkeys that do.
const TABLES: usize = 3;

/// What one step of the defragmentation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragSummary {
    /// Entries and pages looked at.
    pub examined: usize,
    /// Objects moved.
    pub moved: usize,
    /// Objects that stayed, since their slabs are well filled.
    pub stayed: usize,
    /// Pages given back to the system.
    pub released_pages: usize,
    /// The walk through all databases, and then through the pages, is at its end: the next step begins anew.
    pub is_cycle_done: bool,
}

/// How far a cycle has come.
#[derive(Debug, Default)]
pub(crate) struct Defrag {
    stage: Stage,
    /// Which table is walked through, of all databases' tables.
    table: usize,
    /// The bucket to go on with, or the page.
    cursor: u64,
    /// Values that are tables, of the entries that were passed last: their items come next.
    values: Vec<PassedValue>,
}

/// A value that is a table. Handle and hash tell whether it is still there; another one that has taken its place is as good.
#[derive(Clone, Copy, Debug)]
struct PassedValue {
    db_index: usize,
    hash: u32,
    handle: Handle,
    /// The bucket to go on with.
    cursor: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Survey,
    Tables,
    Runs,
}

/// The next [`step`] begins a new cycle, with a new survey.
pub(crate) fn forget(keyspace: &mut Keyspace) {
    keyspace.searches.defrag = Defrag::default();
    keyspace.heap.arena.forget_defrag();
}

/// Looks at about `budget` entries or pages, and moves objects out of slabs that are mostly empty.
///
/// # Errors
/// [`StoreError::Damaged`], of the first thing found damaged; what comes behind it was moved all the same.
pub(crate) fn step(keyspace: &mut Keyspace, budget: usize) -> Result<DefragSummary> {
    let mut summary = DefragSummary::default();
    let arena = &keyspace.heap.arena;
    let is_memory_shared = arena.snapshot_open() || arena.is_restoring() || arena.is_file_backed();
    if is_memory_shared || keyspace.copies.is_under_way() {
        return Ok(summary);
    }
    let (mut tally, mut failed) = (DefragTally::default(), None);
    while summary.examined < budget && !summary.is_cycle_done {
        let left = budget - summary.examined;
        match keyspace.searches.defrag.stage {
            Stage::Survey => {
                let (is_made, looks) = keyspace.heap.arena.plan_defrag(left.saturating_mul(LOOKS));
                summary.examined += 1 + looks / LOOKS;
                if is_made {
                    // If there is nothing to move, no table need be walked through.
                    let stage = if keyspace.heap.arena.has_defrag() { Stage::Tables } else { Stage::Runs };
                    keyspace.searches.defrag = Defrag { stage, ..Defrag::default() };
                }
            }
            // What is damaged must not hold up what comes behind it.
            Stage::Tables => match walk_tables(keyspace, &mut tally) {
                Ok(examined) => summary.examined += examined,
                Err(error) => {
                    summary.examined += 1;
                    failed.get_or_insert(error);
                }
            },
            Stage::Runs => trim(keyspace, left, &mut summary),
        }
    }
    (summary.moved, summary.stayed) = (tally.moved, tally.stayed);
    failed.map_or(Ok(summary), Err)
}

/// Gives free runs back.
fn trim(keyspace: &mut Keyspace, budget: usize, summary: &mut DefragSummary) {
    let page = keyspace.searches.defrag.cursor as u32;
    let trimmed = keyspace.heap.arena.trim_runs(page, budget.saturating_mul(LOOKS));
    summary.examined += 1 + trimmed.looks / LOOKS;
    summary.released_pages += trimmed.released_pages;
    keyspace.searches.defrag.cursor = trimmed.cursor.into();
    if trimmed.cursor == 0 {
        forget(keyspace);
        summary.is_cycle_done = true;
    }
}

/// The table of that number.
fn table_of(keyspace: &Keyspace, number: usize) -> TableHead {
    let index = number / TABLES;
    match number % TABLES {
        0 => keyspace.dbs[index].keys,
        1 => keyspace.dbs[index].expires,
        _ => keyspace.searches.subkeys.tables[index],
    }
}

/// Goes on for a bucket; returns what it took of the budget.
fn walk_tables(keyspace: &mut Keyspace, tally: &mut DefragTally) -> Result<usize> {
    let (seen, moved_bytes) = (tally.moved + tally.stayed, tally.moved_bytes);
    if let Some(value) = keyspace.searches.defrag.values.pop() {
        walk_value(keyspace, value, tally)?;
    } else if keyspace.searches.defrag.table == DATABASES * TABLES {
        keyspace.searches.defrag = Defrag { stage: Stage::Runs, ..Defrag::default() };
    } else {
        walk_table(keyspace, tally)?;
    }
    Ok(1 + tally.moved + tally.stayed - seen + (tally.moved_bytes - moved_bytes) / WEIGHT_BYTES)
}

/// Goes on for a bucket of a database's table.
fn walk_table(keyspace: &mut Keyspace, tally: &mut DefragTally) -> Result<()> {
    let state = &keyspace.searches.defrag;
    let (number, cursor) = (state.table, state.cursor);
    let table = table_of(keyspace, number);
    let (index, next) = table.at_cursor(cursor).unzip();
    let state = &mut keyspace.searches.defrag;
    state.cursor = next.unwrap_or(0);
    state.table += usize::from(state.cursor == 0);
    let Some(index) = index else { return Ok(()) };
    let bucket = move_bucket(&mut keyspace.heap.arena, &table, index, tally);
    if !number.is_multiple_of(TABLES) {
        return bucket;
    }
    let db_index = number / TABLES;
    bucket.and(each_item(keyspace, &table, index, |keyspace, item| move_entry(keyspace, db_index, item, tally)))
}

/// Goes on for a bucket of the table that a value is, if it still is.
fn walk_value(keyspace: &mut Keyspace, value: PassedValue, tally: &mut DefragTally) -> Result<()> {
    let PassedValue { db_index, hash, handle, cursor } = value;
    let keys = &keyspace.dbs[db_index].keys;
    if keys.tag_of(&keyspace.heap.arena, hash, handle)?.is_none() {
        return Ok(());
    }
    let entry = Entry::read(&keyspace.heap.arena, handle)?;
    let Some(table) = movable_table(keyspace, &entry)? else { return Ok(()) };
    let Some((index, next)) = table.at_cursor(cursor) else { return Ok(()) };
    if next != 0 {
        keyspace.searches.defrag.values.push(PassedValue { cursor: next, ..value });
    }
    let bucket = move_bucket(&mut keyspace.heap.arena, &table, index, tally);
    bucket.and(each_item(keyspace, &table, index, |keyspace, item| {
        move_item(&mut keyspace.heap.arena, &table, item, tally)
    }))
}

/// The table that a value is, if its items can move.
fn movable_table(keyspace: &Keyspace, entry: &Entry) -> Result<Option<TableHead>> {
    let ops = keyspace.ops(entry)?;
    if ops.has_movable_items { (ops.table)(&keyspace.heap.arena, entry) } else { Ok(None) }
}

/// Does something with each item of a bucket.
fn each_item(
    keyspace: &mut Keyspace,
    table: &TableHead,
    index: u32,
    mut act: impl FnMut(&mut Keyspace, Handle) -> Result<()>,
) -> Result<()> {
    let mut batch: Vec<Handle> = std::mem::take(&mut keyspace.heap.reclaim.batch);
    batch.clear();
    let mut done = table.visit(&keyspace.heap.arena, index, |item| {
        batch.push(item);
        Ok(())
    });
    batch.iter().for_each(|&item| keyspace.heap.arena.prefetch(item));
    for &item in &batch {
        // What is damaged must not hold up the others.
        done = done.and(act(keyspace, item));
    }
    batch.clear();
    keyspace.heap.reclaim.batch = batch;
    done
}

/// Moves an entry with the objects beside it, and notes the table that its value is.
fn move_entry(keyspace: &mut Keyspace, db_index: usize, item: Handle, tally: &mut DefragTally) -> Result<()> {
    let entry = Entry::read(&keyspace.heap.arena, item)?;
    if let Err(error) = entry.encoding() {
        tally.stayed += 1;
        // What else leads to it, only a newer version knows.
        return if matches!(error, StoreError::Newer { .. }) { Ok(()) } else { Err(error) };
    }
    let entry = entries::move_entry(keyspace, db_index, entry, tally)?;
    entries::move_parts(&mut keyspace.heap.arena, &entry, tally)?;
    if movable_table(keyspace, &entry)?.is_some() {
        let value = PassedValue { db_index, hash: entry.header.hash, handle: entry.handle, cursor: 0 };
        keyspace.searches.defrag.values.push(value);
    }
    Ok(())
}

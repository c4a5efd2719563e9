//! Walking through a hash: HSCAN and HRANDFIELD.

use std::collections::HashSet;

use quire_arena::Handle;

use crate::db::DbId;
use crate::entry::{Entry, Form, Kind};
use crate::error::{Result, StoreError};
use crate::fields::Field;
use crate::packed::{self, Span};
use crate::sample::{random_below, random_item};
use crate::store::Store;
use crate::table::TableHead;

/// If more than one in so many fields is wanted, a walk is cheaper than picking.
const PICK_ONE_IN: usize = 3;

impl Store {
    /// Calls `f` with about `count` fields of a hash and returns the cursor to go on with, 0 at the end; with all of a
    /// small hash. The promise is that of [`Store::scan`].
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_scan(
        &mut self,
        db: DbId,
        key: &[u8],
        cursor: u64,
        count: usize,
        f: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        self.hash_view(db, key)?.scan(cursor, count, f)
    }

    fn show_field(&self, item: Handle, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let field = Field::read(&self.arena, item)?;
        f(field.name(&self.arena)?, field.value(&self.arena)?);
        Ok(())
    }

    /// Calls `f` with `n` random fields of a hash: up to `n` different ones if `distinct`, otherwise exactly `n` of
    /// which some may be the same. None if there is no such key.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_random_fields(
        &mut self,
        db: DbId,
        key: &[u8],
        n: usize,
        distinct: bool,
        f: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let Some(entry) = self.find_kind_to_read(db, key, Kind::Hash)? else { return Ok(()) };
        let mut random = self.random;
        let done = self.show_random(&entry, n, distinct, f, &mut random);
        self.random = random;
        done
    }

    fn show_random(
        &self,
        entry: &Entry,
        n: usize,
        distinct: bool,
        f: &mut dyn FnMut(&[u8], &[u8]),
        random: &mut u64,
    ) -> Result<()> {
        let len = self.field_count(entry)?;
        if distinct && n >= len {
            return self.for_each_field(entry, f);
        }
        if entry.form()? == Form::TableHash {
            let head = entry.table(&self.arena)?;
            return self.show_random_of_table(&head, n, distinct, f, random);
        }
        let bytes = entry.value(&self.arena)?;
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
        &self,
        head: &TableHead,
        n: usize,
        distinct: bool,
        f: &mut dyn FnMut(&[u8], &[u8]),
        random: &mut u64,
    ) -> Result<()> {
        if distinct && n.saturating_mul(PICK_ONE_IN) > head.count as usize {
            let mut chooser = Chooser { wanted: n as u64, left: head.count };
            return head.for_each(
                &self.arena,
                |item| {
                    if chooser.takes(random) { self.show_field(item, f) } else { Ok(()) }
                },
            );
        }
        let mut seen = HashSet::new();
        // With two thirds not yet seen, four tries a field are plenty; the bound is for damaged tables.
        let mut tries = n.saturating_mul(20).saturating_add(100);
        let mut shown = 0;
        while shown < n && tries > 0 {
            tries -= 1;
            let Some(item) = random_item(&self.arena, head, random)? else {
                return Err(StoreError::damaged("a hash without fields"));
            };
            if !distinct || seen.insert(item) {
                self.show_field(item, f)?;
                shown += 1;
            }
        }
        Ok(())
    }
}

/// Chooses `wanted` of `left` items that pass by, each set of them equally likely.
struct Chooser {
    wanted: u64,
    left: u64,
}

impl Chooser {
    fn takes(&mut self, random: &mut u64) -> bool {
        let takes = self.left > 0 && random_below(random, self.left) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= u64::from(takes);
        takes
    }
}

//! Walking through a hash: HSCAN and HRANDFIELD.

use std::collections::HashSet;

use quire_arena::{Arena, Handle};
use quire_rng::SplitMix64;

use super::fields::Field;
use super::packed::{self, FieldSpan};
use super::packed_ttl;
use super::ttl_table::TtlField;
use super::view::view;
use super::{expired_count, field_count, for_each_field, stored_count};
use crate::db::DbId;
use crate::encoding::{HashEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::value::ValueRef;
use crate::table::TableHead;
use crate::table::sample::{SelectionSampler, random_item};
use crate::value::zset::schedule;

/// If more than one in so many fields is wanted, a walk is cheaper than picking.
const PICK_ONE_IN: usize = 3;
/// Items that are drawn before a field without a time to live is looked for in one bucket after the other.
const PLAIN_TRIES: usize = 30;
/// Buckets that are looked at so, for all fields of one request.
const MOST_BUCKETS: u32 = 4096;
/// Buckets more that are looked at for each field that there is, if most of them are wanted.
const BUCKETS_PER_FIELD: u32 = 1;

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
    match hash.encoding()?.of_hash()? {
        HashEncoding::TableTtl if len > 0 => show_random_of_ttl_table(hash, n, distinct, f, rng),
        HashEncoding::TableTtl => Ok(()),
        HashEncoding::Table | HashEncoding::Packed | HashEncoding::PackedTtl if distinct && n >= len => {
            for_each_field(hash, f)
        }
        HashEncoding::Table => show_random_of_table(hash.arena(), &hash.table()?, n, distinct, f, rng),
        HashEncoding::Packed => {
            let bytes = hash.bytes()?;
            let spans = packed::pairs(bytes)?.collect::<Result<Vec<FieldSpan>>>()?;
            if spans.is_empty() {
                return Err(StoreError::damaged("a hash without fields"));
            }
            let mut show = |span: &FieldSpan| f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
            show_random_of(&spans, n, distinct, rng, &mut show);
            Ok(())
        }
        HashEncoding::PackedTtl => {
            let (bytes, now_ms, mut spans) = (hash.bytes()?, hash.keyspace().now_ms(), Vec::new());
            for span in packed_ttl::records(bytes)? {
                spans.extend(Some(span?).filter(|span| span.is_live(now_ms)));
            }
            show_random_of(&spans, n, distinct, rng, &mut |span| f(span.name(bytes), span.content(bytes)));
            Ok(())
        }
    }
}

/// Shows some of the fields of a packed hash.
fn show_random_of<T>(fields: &[T], n: usize, distinct: bool, rng: &mut SplitMix64, show: &mut dyn FnMut(&T)) {
    if distinct {
        let mut chooser = SelectionSampler { wanted: n as u64, left: fields.len() as u64 };
        fields.iter().filter(|_| chooser.takes(rng)).for_each(show);
    } else if !fields.is_empty() {
        (0..n).for_each(|_| show(&fields[rng.index(fields.len())]));
    }
}

/// Shows fields of a table some of whose fields have times to live: of those the ones whose time has not come are known by their ranks.
/// Others are drawn among all items, or looked for in its buckets; if there are very few of them among very many whose time has come, fewer may be shown.
fn show_random_of_ttl_table(
    hash: &ValueRef<'_>,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(&[u8], &[u8]),
    rng: &mut SplitMix64,
) -> Result<()> {
    let mut draw = TtlDraw::new(hash)?;
    if distinct && n.saturating_mul(PICK_ONE_IN) as u64 > draw.plain + draw.live {
        return draw.show_most(hash, n, f, rng);
    }
    let (arena, mut seen, mut shown) = (hash.arena(), HashSet::new(), 0);
    // With two thirds not yet seen, four tries a field are plenty.
    let mut tries = n.saturating_mul(20).saturating_add(100);
    while shown < n && tries > 0 {
        tries -= 1;
        let Some(field) = draw.field(hash, rng)? else { return Ok(()) };
        if !distinct || seen.insert(field.handle) {
            f(field.name(arena)?, field.value(arena)?);
            shown += 1;
        }
    }
    Ok(())
}

/// What is known of such a table when fields are drawn by chance.
struct TtlDraw {
    head: TableHead,
    /// Fields without a time to live.
    plain: u64,
    /// The rank of the first field whose time has not come.
    first: u64,
    /// Such fields.
    live: u64,
    /// Buckets that may yet be looked at one after the other.
    buckets_left: u32,
}

impl TtlDraw {
    fn new(hash: &ValueRef<'_>) -> Result<TtlDraw> {
        let head = hash.table()?;
        let (in_tree, first) = (schedule::len(hash.arena(), &head)?, expired_count(hash)?);
        let plain = stored_count(hash)?.checked_sub(in_tree);
        let plain = plain.ok_or_else(|| StoreError::damaged("a hash with more times than fields"))?;
        Ok(TtlDraw { head, plain, first, live: in_tree.saturating_sub(first), buckets_left: MOST_BUCKETS })
    }

    /// One of the fields, all equally likely as long as those without a time to live are soon met.
    fn field(&mut self, hash: &ValueRef<'_>, rng: &mut SplitMix64) -> Result<Option<TtlField>> {
        let arena = hash.arena();
        if rng.below(self.plain + self.live) < self.plain {
            for _ in 0..PLAIN_TRIES {
                let item = random_item(arena, &self.head, rng)?;
                if let Some(field) = item.map_or(Ok(None), |item| plain_field(arena, item))? {
                    return Ok(Some(field));
                }
            }
            if let Some(field) = self.walk(arena, rng)? {
                return Ok(Some(field));
            }
        }
        if self.live == 0 {
            return Ok(None);
        }
        TtlField::read(arena, schedule::item_at(arena, &self.head, self.first + rng.below(self.live))?)
    }

    /// The first field without a time to live from some bucket on.
    fn walk(&mut self, arena: &Arena, rng: &mut SplitMix64) -> Result<Option<TtlField>> {
        let mut found = Vec::new();
        for bucket in self.buckets_from_any(self.buckets_left, rng) {
            self.buckets_left -= 1;
            self.add_plain(arena, bucket, &mut found)?;
            if !found.is_empty() {
                break;
            }
        }
        Ok(found.first().copied())
    }

    /// Up to `most` buckets, one after the other, from one on that is drawn.
    fn buckets_from_any(&self, most: u32, rng: &mut SplitMix64) -> impl Iterator<Item = u32> + use<> {
        let buckets = self.head.buckets();
        let start = rng.below(u64::from(buckets)) as u32;
        (0..most.min(buckets))
            .map(move |step| if step < buckets - start { start + step } else { step - (buckets - start) })
    }

    /// Adds the fields of a bucket that have no time to live.
    fn add_plain(&self, arena: &Arena, bucket: u32, found: &mut Vec<TtlField>) -> Result<()> {
        self.head.visit(arena, bucket, |item| {
            found.extend(plain_field(arena, item)?);
            Ok(())
        })
    }

    /// Shows `n` different fields, or all. The table is walked through, unless it is large for so few fields because of others whose time has come:
    /// then those without a time to live are looked for in some of its buckets.
    fn show_most(
        &self,
        hash: &ValueRef<'_>,
        n: usize,
        f: &mut dyn FnMut(&[u8], &[u8]),
        rng: &mut SplitMix64,
    ) -> Result<()> {
        let (arena, len) = (hash.arena(), self.plain + self.live);
        let for_fields = u32::try_from(len).unwrap_or(u32::MAX).saturating_mul(BUCKETS_PER_FIELD);
        let most_buckets = MOST_BUCKETS.saturating_add(for_fields);
        let mut chooser = SelectionSampler { wanted: n as u64, left: len };
        if self.head.buckets() <= most_buckets {
            return for_each_field(hash, &mut |field, value| {
                if chooser.takes(rng) {
                    f(field, value);
                }
            });
        }
        let mut plain = Vec::new();
        for bucket in self.buckets_from_any(most_buckets, rng) {
            if plain.len() as u64 >= self.plain {
                break;
            }
            self.add_plain(arena, bucket, &mut plain)?;
        }
        chooser.left = self.live + plain.len() as u64;
        let mut show = |field: &TtlField| -> Result<()> {
            f(field.name(arena)?, field.value(arena)?);
            Ok(())
        };
        for rank in self.first..self.first + self.live {
            if chooser.takes(rng) {
                let item = schedule::item_at(arena, &self.head, rank)?;
                TtlField::read(arena, item)?.as_ref().map_or(Ok(()), &mut show)?;
            }
        }
        plain.iter().filter(|_| chooser.takes(rng)).try_for_each(show)
    }
}

/// The field that an item is, if it has no time to live.
fn plain_field(arena: &Arena, item: Handle) -> Result<Option<TtlField>> {
    Ok(TtlField::read(arena, item)?.filter(|field| field.expiry_ms.is_none()))
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

//! Members by chance: ZRANDMEMBER.

use std::collections::HashSet;

use quire_rng::SplitMix64;

use crate::db::DbId;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::table::sample::SelectionSampler;

use super::order::Direction;
use super::view::{ZsetValue, ZsetView, view};
use super::{members, packed, tree};

/// If more than one in so many members is wanted, a walk is cheaper than picking.
const PICK_ONE_IN: u64 = 3;

/// Calls `f` with `n` random members of a sorted set and their scores: up to `n` different ones if `distinct`, otherwise exactly `n`
/// of which some may be the same. None if there is no such key.
///
/// # Errors
/// As [`super::open_mut`].
pub fn random_members(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    n: u64,
    distinct: bool,
    f: &mut dyn FnMut(f64, &[u8]),
) -> Result<()> {
    let mut rng = keyspace.rng.clone();
    let zset = view(keyspace, db, key)?;
    let shown = show_random(&zset, n, distinct, f, &mut rng);
    keyspace.rng = rng;
    shown
}

fn show_random(
    zset: &ZsetView<'_>,
    n: u64,
    distinct: bool,
    f: &mut dyn FnMut(f64, &[u8]),
    rng: &mut SplitMix64,
) -> Result<()> {
    let Some(body) = zset.body() else { return Ok(()) };
    let len = zset.len()?;
    if len == 0 {
        return Err(StoreError::damaged("a sorted set without members"));
    }
    if distinct && n.saturating_mul(PICK_ONE_IN) > len {
        let mut chooser = SelectionSampler { wanted: n.min(len), left: len };
        return zset.range(0..len, Direction::Up, |score, member| {
            if chooser.takes(rng) {
                f(score, member);
            }
            chooser.wanted > 0
        });
    }
    let (arena, mut seen, mut shown) = (zset.arena(), HashSet::new(), 0);
    let items = match body {
        ZsetValue::Packed(bytes) => packed::items(bytes)?.collect::<Result<Vec<_>>>()?,
        ZsetValue::Tree(_) => Vec::new(),
    };
    // Of distinct ones at most a third is wanted, so this soon comes to an end.
    while shown < n {
        let rank = rng.below(len);
        if distinct && !seen.insert(rank) {
            continue;
        }
        shown += 1;
        match body {
            ZsetValue::Packed(_) => items.get(rank as usize).into_iter().for_each(|item| f(item.score, item.member)),
            ZsetValue::Tree(head) => {
                let item = tree::item_at(arena, head, rank)?;
                f(members::score(arena, item)?, members::text(arena, item)?);
            }
        }
    }
    Ok(())
}

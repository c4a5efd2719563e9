//! Members by chance: SRANDMEMBER and SPOP.

use std::collections::HashSet;

use quire_arena::Handle;
use quire_rng::SplitMix64;

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::table::TableHead;
use crate::table::sample::{SelectionSampler, random_item};

use super::view::{SetMember, SetValue, SetView, view};
use super::{SetMut, members, packed};

/// If more than one in so many members is wanted, a walk is cheaper than picking.
const PICK_ONE_IN: usize = 3;

fn empty() -> StoreError {
    StoreError::damaged("a set without members")
}

/// Calls `f` with `n` random members of a set: up to `n` different ones if `distinct`, otherwise exactly `n` of which some may
/// be the same. None if there is no such key.
///
/// # Errors
/// As [`super::open_mut`].
pub fn random_members(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(SetMember<'_>),
) -> Result<()> {
    let mut rng = keyspace.rng.clone();
    let set = view(keyspace, db, key)?;
    let shown = show_random(&set, n, distinct, f, &mut rng);
    keyspace.rng = rng;
    shown
}

fn show_random(
    set: &SetView<'_>,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(SetMember<'_>),
    rng: &mut SplitMix64,
) -> Result<()> {
    let len = set.len()?;
    if distinct && n.saturating_mul(PICK_ONE_IN) > len {
        let mut chooser = SelectionSampler { wanted: n.min(len) as u64, left: len as u64 };
        return set.for_each(|member| {
            if chooser.takes(rng) {
                f(member);
            }
            chooser.wanted > 0
        });
    }
    let Some(body) = set.body() else { return Ok(()) };
    if len == 0 {
        return Err(empty());
    }
    match *body {
        SetValue::Ints(ints) => pick(n, distinct, len, rng, |index| f(SetMember::Int(ints.get(index)))),
        SetValue::Packed(bytes) => {
            let spans = packed::spans(bytes)?.collect::<Result<Vec<_>>>()?;
            pick(n, distinct, len, rng, |index| f(SetMember::Bytes(&bytes[spans[index].member.clone()])));
        }
        SetValue::Table(head) => return pick_of_table(set, &head, n, distinct, f, rng),
    }
    Ok(())
}

/// Calls `f` with `n` of the numbers below `len`; where they have to be distinct, at most a third of them.
fn pick(n: usize, distinct: bool, len: usize, rng: &mut SplitMix64, mut f: impl FnMut(usize)) {
    let mut seen = HashSet::new();
    let mut shown = 0;
    while shown < n {
        let index = rng.index(len);
        if !distinct || seen.insert(index) {
            f(index);
            shown += 1;
        }
    }
}

fn pick_of_table(
    set: &SetView<'_>,
    head: &TableHead,
    n: usize,
    distinct: bool,
    f: &mut dyn FnMut(SetMember<'_>),
    rng: &mut SplitMix64,
) -> Result<()> {
    let arena = set.arena();
    let mut seen: HashSet<Handle> = HashSet::new();
    // With two thirds not yet seen, four tries a member are plenty; the bound is for damaged tables.
    let mut tries = n.saturating_mul(20).saturating_add(100);
    let mut shown = 0;
    while shown < n && tries > 0 {
        tries -= 1;
        let item = random_item(arena, head, rng)?.ok_or_else(empty)?;
        if !distinct || seen.insert(item) {
            f(SetMember::Bytes(members::read(arena, item)?));
            shown += 1;
        }
    }
    Ok(())
}

/// Removes up to `n` random members and calls `f` with each. The last one takes the key with it. Returns whether there is a set
/// still.
///
/// # Errors
/// As [`super::open_mut`]; the members that `f` was called with are gone.
pub fn pop(keyspace: &mut Keyspace, db: DbId, key: &[u8], n: usize, f: &mut dyn FnMut(SetMember<'_>)) -> Result<bool> {
    let mut set = SetMut { value: keyspace.open_mut(db, key, ValueType::Set)? };
    for _ in 0..n {
        if !set.pop_one(f)? {
            break;
        }
    }
    Ok(set.value.get().is_some())
}

impl SetMut<'_> {
    /// Removes a random member and calls `f` with it; false if there is none.
    fn pop_one(&mut self, f: &mut dyn FnMut(SetMember<'_>)) -> Result<bool> {
        let mut rng = self.value.rng().clone();
        let Some(set) = self.value.get() else { return Ok(false) };
        let body = SetValue::read(set.arena(), set.entry())?;
        let len = body.len()?;
        if len == 0 {
            return Err(empty());
        }
        let index = rng.index(len);
        match body {
            SetValue::Ints(ints) => {
                let number = ints.get(index);
                self.remove_from_ints(index)?;
                f(SetMember::Int(number));
            }
            SetValue::Packed(bytes) => {
                let span = packed::spans(bytes)?.nth(index).ok_or_else(empty)??;
                let member = bytes[span.member.clone()].to_vec();
                self.remove_from_packed(&span)?;
                f(SetMember::Bytes(&member));
            }
            SetValue::Table(head) => {
                let item = random_item(self.value.arena(), &head, &mut rng)?.ok_or_else(empty)?;
                let member = members::read(self.value.arena(), item)?.to_vec();
                self.remove_from_table(head, item)?;
                f(SetMember::Bytes(&member));
            }
        }
        *self.value.rng() = rng;
        Ok(true)
    }
}

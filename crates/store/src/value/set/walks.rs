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

use super::view::{SetMember, SetValue, SetView, view, view_to_change};
use super::{MemberBuffer, SetMut, members, packed};

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

/// What was popped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped {
    /// Members, and there are more.
    Some,
    /// All of them, or there was no set.
    All,
    /// None: `fits` was false.
    None,
}

/// Removes up to `n` random members and calls `f` with each. The last one takes the key with it. They are drawn before: if `fits` returns
/// false for one of them, none is removed.
///
/// # Errors
/// As [`super::open_mut`]; the members that `f` was called with are gone.
pub fn pop(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    n: usize,
    fits: &mut dyn FnMut(SetMember<'_>) -> bool,
    f: &mut dyn FnMut(SetMember<'_>),
) -> Result<Popped> {
    let (mut drawn, mut all_fit) = (MemberBuffer::default(), true);
    let mut draw = |member: SetMember<'_>| {
        all_fit = all_fit && fits(member);
        if all_fit {
            drawn.push(member);
        }
    };
    let mut rng = keyspace.rng.clone();
    let set = view_to_change(keyspace, db, key)?;
    let shown = show_random(&set, n, true, &mut draw, &mut rng);
    keyspace.rng = rng;
    shown?;
    if !all_fit {
        return Ok(Popped::None);
    }
    let mut set = SetMut { value: keyspace.open_mut(db, key, ValueType::Set)? };
    let len = match set.value.get() {
        Some(value) => SetValue::read(value.arena(), value.entry())?.len()?,
        None => return Ok(Popped::All),
    };
    if len <= drawn.len() {
        set.value.count_members(drawn.len() as u64);
        set.value.delete()?;
        drawn.iter().for_each(|member| f(SetMember::Bytes(member)));
        return Ok(Popped::All);
    }
    for member in drawn.iter() {
        // Drawn of this very set; a damaged one may not find it again.
        if !set.remove(member)? {
            return Err(StoreError::damaged("a member of a set that is not found"));
        }
        f(SetMember::Bytes(member));
    }
    Ok(if set.value.get().is_some() { Popped::Some } else { Popped::All })
}

//! SORT and SORT_RO: the elements of lists, sets and sorted sets in an order, or what belongs to them.
//!
//! Elements and their weights are collected in ordinary memory, up to a limit. Relies on `sort_pattern` for what belongs to an element.
//! Elements of one weight are put in an order of their own, so that a replay of SORT with STORE makes the same list, and a script gets the same
//! one in each run.

use std::cmp::Ordering;
use std::ops::Range;

use quire_store::numbers::read_f64;
use quire_store::{Direction, End, Keyspace, ValueType, list, numbers, set, zset};

use crate::cmd::sort_pattern::{Parts, Pattern};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::notifications::tell_found;
use crate::permission;
use crate::registry::registry;

/// Most bytes of elements, weights and their places.
const MOST_BYTES: usize = 1 << 30;
/// Longer numbers are rare.
const LONGEST_NUMBER: usize = 255;
const TOO_LARGE: CmdError = CmdError::fixed("ERR the elements and weights to sort take more than 1 GiB");
const BY_DENIED: CmdError = CmdError::fixed("ERR BY option of SORT denied due to insufficient ACL permissions.");
const GET_DENIED: CmdError = CmdError::fixed("ERR GET option of SORT denied due to insufficient ACL permissions.");
const NOT_NUMBERS: CmdError = CmdError::fixed("ERR One or more scores can't be converted into double");

/// What a request asks for.
struct SortRequest<'a> {
    /// What elements are weighed by; themselves without it.
    by: Option<Pattern<'a>>,
    /// They are taken as they come.
    unsorted: bool,
    /// How many are left out, and how many come then: all if negative.
    limit: (i64, i64),
    /// What is taken for each element; itself without any.
    gets: Vec<Pattern<'a>>,
    descending: bool,
    /// Weights are text.
    alpha: bool,
    /// The word that is the key to store at.
    store_at: Option<usize>,
}

/// An element.
struct Sorted {
    element: Range<usize>,
    weight: Weight,
}

/// What an element is sorted by.
#[derive(Clone, PartialEq, Debug)]
enum Weight {
    Number(f64),
    Text(Range<usize>),
    /// The element's own text, or none is needed.
    Element,
    /// There is no such text.
    Missing,
}

impl<'a> SortRequest<'a> {
    /// `reads_all` tells whether the client may read any key: which ones patterns lead to is not known before.
    fn parse(args: Args<'a>, may_store: bool, reads_all: bool) -> Result<Self, CmdError> {
        let mut request = Self {
            by: None,
            unsorted: false,
            limit: (0, -1),
            gets: Vec::new(),
            descending: false,
            alpha: false,
            store_at: None,
        };
        let mut at = 2;
        while at < args.len() {
            let behind = args.len() - at - 1;
            at += match args.at(at).to_ascii_lowercase().as_slice() {
                b"asc" => {
                    request.descending = false;
                    1
                }
                b"desc" => {
                    request.descending = true;
                    1
                }
                b"alpha" => {
                    request.alpha = true;
                    1
                }
                b"limit" if behind >= 2 => {
                    request.limit = (args.int(at + 1)?, args.int(at + 2)?);
                    3
                }
                b"store" if may_store && behind >= 1 => {
                    request.store_at = Some(at + 1);
                    2
                }
                b"by" if behind >= 1 && !reads_all && !Pattern::is_constant(args.at(at + 1)) => return Err(BY_DENIED),
                b"get" if behind >= 1 && !reads_all => return Err(GET_DENIED),
                b"by" if behind >= 1 => {
                    request.by = Some(Pattern::parse(args.at(at + 1)));
                    // As in Redis, one that is constant holds though another one follows.
                    request.unsorted |= Pattern::is_constant(args.at(at + 1));
                    2
                }
                b"get" if behind >= 1 => {
                    request.gets.push(Pattern::parse(args.at(at + 1)));
                    2
                }
                _ => return Err(CmdError::SYNTAX),
            };
        }
        Ok(request)
    }

    /// Whether it reads fields of hashes.
    fn reads_fields(&self) -> bool {
        self.gets.iter().chain(&self.by).any(|pattern| matches!(pattern, Pattern::Key { field: Some(_), .. }))
    }

    /// Which of `len` elements are asked for.
    fn range(&self, len: u64) -> Range<u64> {
        let (start, count) = self.limit;
        let start = u64::try_from(start).unwrap_or(0).min(len);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        start..start.saturating_add(count).min(len)
    }
}

/// The elements of a value of any of the three types. Sets, and what is sorted anyway, come whole, otherwise only those that are asked for.
fn collect(
    store: &mut Keyspace,
    (db, key): (quire_store::DbId, &[u8]),
    kind: Option<ValueType>,
    request: &SortRequest<'_>,
    parts: &mut Parts,
) -> Result<(Vec<Sorted>, Range<u64>), CmdError> {
    let (mut elements, mut full) = (Vec::new(), false);
    let mut push = |bytes: &[u8]| {
        full |= parts.len() + elements.len() * size_of::<Sorted>() > MOST_BYTES;
        if !full {
            elements.push(Sorted { element: parts.push(bytes), weight: Weight::Element });
        }
        !full
    };
    let mut left = 0..0;
    match kind {
        Some(ValueType::Set) => {
            let set = set::view(store, db, key)?;
            left = request.range(set.len()? as u64);
            set.for_each(|member| push(member.text(&mut itoa::Buffer::new())))?;
        }
        Some(ValueType::List) => {
            let list = list::view(store, db, key)?;
            let len = list.len()?;
            left = request.range(len);
            let (from, skip, count) = part(request, &mut left, len);
            let (end, first) = match from {
                Direction::Up => (End::Front, skip),
                Direction::Down => (End::Back, (len - skip).saturating_sub(1)),
            };
            let mut left = count;
            if left > 0 {
                list.walk(end, first, |element| {
                    left -= 1;
                    push(element.text(&mut itoa::Buffer::new())) && left > 0
                })?;
            }
        }
        Some(ValueType::Zset) => {
            let zset = zset::view(store, db, key)?;
            let len = zset.len()?;
            left = request.range(len);
            let (direction, skip, count) = part(request, &mut left, len);
            let ranks = match direction {
                Direction::Up => skip..skip + count,
                Direction::Down => len - skip - count..len - skip,
            };
            zset.range(ranks, direction, |_, member| push(member))?;
        }
        _ => {}
    }
    if full { Err(TOO_LARGE) } else { Ok((elements, left)) }
}

/// From where elements of a list or a sorted set are taken, behind how many, and how many. What is left to be taken of them afterwards
/// becomes all, where only those come that are asked for.
fn part(request: &SortRequest<'_>, left: &mut Range<u64>, len: u64) -> (Direction, u64, u64) {
    if !request.unsorted {
        return (Direction::Up, 0, len);
    }
    let (skip, count) = (left.start, left.end - left.start);
    *left = 0..count;
    (if request.descending { Direction::Down } else { Direction::Up }, skip, count)
}

/// Reads a weight as the C library does: the text ends at a zero byte, and nothing at all is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    numbers::parse_f64(text.trim_ascii_start()).or_else(|| {
        // `parse_f64` reads no longer text.
        let (value, len) = read_f64(text);
        (text.len() > LONGEST_NUMBER && len == text.len() && value.is_finite()).then_some(value)
    })
}

/// Finds what each element is sorted by.
fn weigh(
    ctx: &mut Ctx<'_>,
    request: &SortRequest<'_>,
    sorted: &mut [Sorted],
    parts: &mut Parts,
) -> Result<(), CmdError> {
    let (mut name, mut element, mut all_numbers) = (Vec::new(), Vec::new(), true);
    let places = size_of_val(sorted);
    for one in sorted {
        element.clear();
        element.extend_from_slice(parts.get(&one.element));
        let text = match &request.by {
            None if request.alpha => continue,
            None => Some(element.as_slice()),
            Some(by) => by.look_up(ctx.store, ctx.client.db, &element, &mut name)?,
        };
        one.weight = match text {
            Some(text) if request.alpha => Weight::Text(parts.push(text)),
            None if request.alpha => Weight::Missing,
            Some(text) => Weight::Number(number(text).unwrap_or_else(|| {
                all_numbers = false;
                0.0
            })),
            None => Weight::Number(0.0),
        };
        if parts.len() + places > MOST_BYTES {
            return Err(TOO_LARGE);
        }
        tell_found(ctx.store, ctx.server, ctx.client.id);
    }
    if all_numbers { Ok(()) } else { Err(NOT_NUMBERS) }
}

fn compare(parts: &Parts, one: &Sorted, other: &Sorted) -> Ordering {
    match (&one.weight, &other.weight) {
        (Weight::Number(weight), Weight::Number(than)) => weight
            .partial_cmp(than)
            .unwrap_or(Ordering::Equal)
            .then_with(|| parts.get(&one.element).cmp(parts.get(&other.element))),
        (Weight::Text(text), Weight::Text(than)) => parts.get(text).cmp(parts.get(than)),
        (Weight::Missing, Weight::Missing) => Ordering::Equal,
        (Weight::Missing, _) => Ordering::Less,
        (_, Weight::Missing) => Ordering::Greater,
        _ => parts.get(&one.element).cmp(parts.get(&other.element)),
    }
}

/// SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA] [STORE destination]
pub fn sort(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, true)
}

/// SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA]
pub fn sort_ro(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, false)
}

fn run(ctx: &mut Ctx<'_>, may_store: bool) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let reads_all = permission::may_read_all_keys(ctx, registry().find(args.at(0)));
    let mut request = SortRequest::parse(args, may_store, reads_all)?;
    let kind = ctx.store.kind(db, args.at(1))?;
    if !matches!(kind, None | Some(ValueType::Set | ValueType::List | ValueType::Zset)) {
        return Err(CmdError::WRONG_TYPE);
    }
    if kind.is_none() {
        ctx.store.note_read(db, args.at(1), false);
    }
    let is_repeatable = request.store_at.is_some() || ctx.server.scripts.is_running();
    if request.unsorted && kind == Some(ValueType::Set) && is_repeatable {
        // Members of sets come in the order of a table, which no replay repeats, and on which no script may depend.
        (request.unsorted, request.alpha, request.by) = (false, true, None);
    }
    let mut parts = Parts::default();
    let (mut sorted, range) = collect(ctx.store, (db, args.at(1)), kind, &request, &mut parts)?;
    if !request.unsorted {
        weigh(ctx, &request, &mut sorted, &mut parts)?;
        let by_bytes = kind == Some(ValueType::Set);
        let rest = |one: &Sorted, other: &Sorted| match by_bytes {
            true => parts.get(&one.element).cmp(parts.get(&other.element)),
            false => Ordering::Equal,
        };
        let order = |one: &Sorted, other: &Sorted| compare(&parts, one, other);
        match request.descending {
            false => sorted.sort_by(|one, other| order(one, other).then_with(|| rest(one, other))),
            true => sorted.sort_by(|one, other| order(other, one).then_with(|| rest(one, other))),
        }
    }
    let wanted = sorted.get(range.start as usize..range.end as usize).unwrap_or_default();
    match request.store_at {
        Some(at) => store(ctx, at, &request, wanted, parts),
        None => show(ctx, &request, wanted, &parts),
    }
}

fn show(ctx: &mut Ctx<'_>, request: &SortRequest<'_>, wanted: &[Sorted], parts: &Parts) -> Result<(), CmdError> {
    let (db, reply) = (ctx.client.db, &mut *ctx.reply);
    let start = reply.len();
    reply.array(wanted.len() * request.gets.len().max(1));
    let mut name = Vec::new();
    for one in wanted {
        let element = parts.get(&one.element);
        if request.gets.is_empty() {
            reply.bulk(element);
        }
        for get in &request.gets {
            match get.look_up(ctx.store, db, element, &mut name) {
                Ok(Some(value)) => reply.bulk(value),
                Ok(None) => reply.null(),
                Err(error) => {
                    reply.truncate(start);
                    return Err(error.into());
                }
            }
        }
        tell_found(ctx.store, ctx.server, ctx.client.id);
        if reply.overflowed() {
            break;
        }
    }
    Ok(())
}

fn store(
    ctx: &mut Ctx<'_>,
    at: usize,
    request: &SortRequest<'_>,
    wanted: &[Sorted],
    parts: Parts,
) -> Result<(), CmdError> {
    let (db, mut parts, mut name, mut element) = (ctx.client.db, parts, Vec::new(), Vec::new());
    let mut stored: Vec<Range<usize>> = Vec::new();
    for one in wanted {
        if request.gets.is_empty() {
            stored.push(one.element.clone());
            continue;
        }
        element.clear();
        element.extend_from_slice(parts.get(&one.element));
        for get in &request.gets {
            // What isn't there is stored as an empty element.
            let value = get.look_up(ctx.store, db, &element, &mut name)?.unwrap_or_default();
            stored.push(parts.push(value));
        }
        if parts.len() + size_of_val(stored.as_slice()) > MOST_BYTES {
            return Err(TOO_LARGE);
        }
        tell_found(ctx.store, ctx.server, ctx.client.id);
    }
    let count = list::store_elements(ctx.store, db, ctx.args.at(at), stored.iter().map(|part| parts.get(part)))?;
    if request.reads_fields() && ctx.store.has_expiring_subkeys() {
        say_stored(ctx, at, stored.iter().map(|part| parts.get(part)));
    }
    ctx.reply.int(count as i64);
    Ok(())
}

/// Says which elements are stored: by another clock, fields whose time had come might be found. Keys whose time has come are logged as deleted
/// before.
fn say_stored<'p>(ctx: &mut Ctx<'_>, at: usize, elements: impl ExactSizeIterator<Item = &'p [u8]>) {
    if !ctx.says_effects() {
        return;
    }
    ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(at)]);
    if elements.len() > 0 {
        let words = [EffectWord::Bytes(b"RPUSH"), EffectWord::Arg(at)];
        let words: Vec<EffectWord<'_>> = words.into_iter().chain(elements.map(EffectWord::Bytes)).collect();
        ctx.say_also(&words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_as_the_c_library_reads_them() {
        for (text, weight) in [
            (&b""[..], Some(0.0)),
            (b"\x001", Some(0.0)),
            (b" 1", Some(1.0)),
            (b"0x10", Some(16.0)),
            (b"1e3\0x", Some(1000.0)),
            (b"-inf", Some(f64::NEG_INFINITY)),
            (b" ", None),
            (b"1 ", None),
            (b"nan", None),
            (b"1e400", None),
            (b"1,5", None),
        ] {
            assert_eq!(number(text), weight, "{text:?}");
        }
        assert_eq!(number(&[b"1".as_slice(), &[b'0'; 300]].concat()), Some(1e300));
    }

    #[test]
    fn the_part_that_is_asked_for_lies_within_the_elements() {
        let range = |limit: (i64, i64)| {
            let request = SortRequest {
                by: None,
                unsorted: false,
                limit,
                gets: Vec::new(),
                descending: false,
                alpha: false,
                store_at: None,
            };
            request.range(5)
        };
        assert_eq!((range((0, -1)), range((2, 2)), range((-3, 2))), (0..5, 2..4, 0..2));
        assert_eq!((range((7, 3)), range((3, i64::MAX)), range((0, 0))), (5..5, 3..5, 0..0));
    }
}

//! The words of stream commands: IDs, ranges of them, how a stream is trimmed, and how entries are shown.
//!
//! Relies on the store for how numbers are read.

use quire_store::stream::{StreamCut, StreamFields, StreamTrim};
use quire_store::{Element, StreamId, StreamOrder, StreamView};

use crate::ctx::{Args, CmdError};
use crate::resp::Reply;

pub(super) const INVALID_ID: CmdError = CmdError::fixed("ERR Invalid stream ID specified as stream command argument");
const INVALID_START: CmdError = CmdError::fixed("ERR invalid start ID for the interval");
const INVALID_END: CmdError = CmdError::fixed("ERR invalid end ID for the interval");
const TWO_STRATEGIES: CmdError =
    CmdError::fixed("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
const NO_STRATEGY: CmdError = CmdError::fixed("ERR syntax error, XTRIM must be called with a trimming strategy");
const LIMIT_ALONE: CmdError =
    CmdError::fixed("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
const LIMIT_EXACT: CmdError = CmdError::fixed("ERR syntax error, LIMIT cannot be used without the special ~ option");
/// A longer word is no ID.
const ID_MAX_BYTES: usize = 127;
/// Blocks that an approximate trim takes away at most.
const TRIMMED_BLOCKS: usize = 100;

/// An ID; without a number it has this one.
pub(super) fn strict_id(word: &[u8], missing_seq: u64) -> Result<StreamId, CmdError> {
    if word.len() > ID_MAX_BYTES {
        return Err(INVALID_ID);
    }
    let (ms, seq) = StreamId::parse_parts(word).ok_or(INVALID_ID)?;
    Ok(StreamId { ms, seq: seq.unwrap_or(missing_seq) })
}

/// An ID, or one of the signs for the first and the last one.
pub(super) fn any_id(word: &[u8], missing_seq: u64) -> Result<StreamId, CmdError> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        word => strict_id(word, missing_seq),
    }
}

/// Where a range begins, by a word that may exclude its ID.
pub(super) fn range_start(word: &[u8]) -> Result<StreamId, CmdError> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => strict_id(rest, 0)?.next().ok_or(INVALID_START),
        word => any_id(word, 0),
    }
}

/// Where a range ends.
pub(super) fn range_end(word: &[u8]) -> Result<StreamId, CmdError> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => strict_id(rest, u64::MAX)?.previous().ok_or(INVALID_END),
        word => any_id(word, u64::MAX),
    }
}

/// The ID that XADD was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GivenId {
    /// `*`: by the clock.
    Auto,
    /// `ms-*`: the next one of this millisecond.
    OfMs(u64),
    /// This one.
    Whole(StreamId),
}

impl GivenId {
    fn parse(word: &[u8]) -> Result<GivenId, CmdError> {
        match word {
            [ms @ .., b'-', b'*'] if word.len() <= ID_MAX_BYTES && !ms.contains(&b'-') => {
                let (ms, _) = StreamId::parse_parts(ms).ok_or(INVALID_ID)?;
                Ok(GivenId::OfMs(ms))
            }
            word => strict_id(word, 0).map(GivenId::Whole),
        }
    }

    /// The ID that an entry gets behind others; `None` if there is none above theirs.
    pub(super) fn choose(self, last: StreamId, now_ms: u64) -> Option<StreamId> {
        let id = match self {
            GivenId::Auto if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
            GivenId::Auto => last.next()?,
            GivenId::OfMs(ms) if ms == last.ms => StreamId { ms, seq: last.seq.checked_add(1)? },
            GivenId::OfMs(ms) => StreamId { ms, seq: 0 },
            GivenId::Whole(id) => id,
        };
        (id > last).then_some(id)
    }
}

/// The options of XADD and XTRIM.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrimOptions {
    /// The stream is not made if there is none.
    pub(super) no_stream: bool,
    pub(super) trim: Option<StreamTrim>,
    /// The ID; `*` if there is none.
    pub(super) id: GivenId,
    /// Where the ID stands, or the words end.
    pub(super) at: usize,
}

/// Reads a number that may not be negative.
fn count(args: Args<'_>, at: usize, negative: &'static str) -> Result<u64, CmdError> {
    u64::try_from(args.int(at)?).map_err(|_| CmdError::fixed(negative))
}

impl TrimOptions {
    /// Reads the words behind the key. `block_entries` is what a block has at most, by which an approximate trim is limited.
    pub(super) fn parse(args: Args<'_>, adds: bool, block_entries: usize) -> Result<TrimOptions, CmdError> {
        let mut options = TrimOptions { no_stream: false, trim: None, id: GivenId::Auto, at: 2 };
        let mut limit = None;
        while options.at < args.len() {
            let (at, more) = (options.at, options.at + 1 < args.len());
            if adds && args.at(at) == b"*" {
                break;
            }
            if more && (args.is(at, "MAXLEN") || args.is(at, "MINID")) {
                options.parse_cut(args)?;
            } else if more && args.is(at, "LIMIT") {
                limit = Some(count(args, at + 1, "ERR The LIMIT argument must be >= 0.")?);
                options.at += 2;
            } else if adds && args.is(at, "NOMKSTREAM") {
                options.no_stream = true;
                options.at += 1;
            } else if adds {
                options.id = GivenId::parse(args.at(at))?;
                break;
            } else {
                return Err(CmdError::SYNTAX);
            }
        }
        let Some(trim) = &mut options.trim else {
            let alone = limit.is_some_and(|limit| limit > 0);
            return if alone { Err(LIMIT_ALONE) } else { if adds { Ok(options) } else { Err(NO_STRATEGY) } };
        };
        match limit {
            Some(_) if !trim.whole_blocks => return Err(LIMIT_EXACT),
            Some(limit) => trim.limit = limit,
            None if trim.whole_blocks => trim.limit = default_limit(block_entries),
            None => {}
        }
        Ok(options)
    }

    fn parse_cut(&mut self, args: Args<'_>) -> Result<(), CmdError> {
        if self.trim.is_some() {
            return Err(TWO_STRATEGIES);
        }
        let by_len = args.is(self.at, "MAXLEN");
        let sign = args.at(self.at + 1);
        let has_sign = self.at + 2 < args.len() && (sign == b"~" || sign == b"=");
        let at = self.at + 1 + usize::from(has_sign);
        let cut = match by_len {
            true => StreamCut::MaxLen(count(args, at, "ERR The MAXLEN argument must be >= 0.")?),
            false => StreamCut::MinId(strict_id(args.at(at), 0)?),
        };
        self.trim = Some(StreamTrim { cut, whole_blocks: has_sign && sign == b"~", limit: 0 });
        self.at = at + 1;
        Ok(())
    }
}

fn default_limit(block_entries: usize) -> u64 {
    match block_entries.saturating_mul(TRIMMED_BLOCKS) as u64 {
        0 => 10_000,
        limit => limit.min(1_000_000),
    }
}

/// Writes an ID.
pub(super) fn write_id(reply: &mut Reply, id: StreamId) {
    // Two numbers of up to 20 digits and what joins them.
    let mut text = [0; 41];
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms).as_bytes(), seq.format(id.seq).as_bytes());
    let len = ms.len() + 1 + seq.len();
    text[..ms.len()].copy_from_slice(ms);
    text[ms.len()] = b'-';
    text[ms.len() + 1..len].copy_from_slice(seq);
    reply.bulk(&text[..len]);
}

fn write_element(reply: &mut Reply, element: Element<'_>) {
    reply.bulk(element.text(&mut itoa::Buffer::new()));
}

/// Writes an entry: its ID, and its fields and values.
pub(super) fn write_entry(reply: &mut Reply, id: StreamId, fields: StreamFields<'_>) {
    reply.array(2);
    write_id(reply, id);
    reply.array(2 * fields.len());
    for (field, value) in fields {
        write_element(reply, field);
        write_element(reply, value);
    }
}

/// Writes the array of up to `most` entries between two IDs, and calls `f` with the ID of each.
pub(super) fn write_entries(
    reply: &mut Reply,
    stream: &StreamView<'_>,
    ids: (StreamId, StreamId),
    (order, most): (StreamOrder, u64),
    mut f: impl FnMut(StreamId),
) -> Result<(), CmdError> {
    let (mark, mut written) = (reply.begin_array(), 0);
    let walked = match most {
        0 => Ok(()),
        most => stream.range(ids, order, |id, fields| {
            write_entry(reply, id, fields);
            f(id);
            written += 1;
            written < most
        }),
    };
    if let Err(error) = walked {
        reply.abandon_array(mark);
        return Err(error.into());
    }
    reply.end_array(mark, written as usize);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn an_entry_gets_an_id_above_the_last_one_or_none() {
        let last = id(5, 7);
        assert_eq!(GivenId::Auto.choose(last, 9), Some(id(9, 0)));
        assert_eq!(GivenId::Auto.choose(last, 3), Some(id(5, 8)), "the clock went back");
        assert_eq!(GivenId::Auto.choose(id(5, u64::MAX), 3), Some(id(6, 0)));
        assert_eq!(GivenId::OfMs(5).choose(last, 9), Some(id(5, 8)));
        assert_eq!(GivenId::OfMs(6).choose(last, 9), Some(id(6, 0)));
        assert_eq!(GivenId::OfMs(4).choose(last, 9), None);
        assert_eq!(GivenId::OfMs(5).choose(id(5, u64::MAX), 9), None);
        assert_eq!(GivenId::Whole(last).choose(last, 9), None);
        assert_eq!(GivenId::Auto.choose(StreamId::MAX, 9), None);
    }

    #[test]
    fn ranges_exclude_what_is_behind_a_bracket() {
        assert_eq!(range_start(b"(5-7").unwrap(), id(5, 8));
        assert_eq!(range_end(b"(5").unwrap(), id(5, u64::MAX - 1));
        assert_eq!((range_start(b"5").unwrap(), range_end(b"5").unwrap()), (id(5, 0), id(5, u64::MAX)));
        assert!(range_end(b"(0-0").is_err() && range_start(b"(-").is_err() && range_start(b"(").is_err());
    }
}

//! Reads requests in place: the words of a request are ranges of the input buffer, nothing is copied. Only inline
//! commands, whose words may be quoted, are unpacked into a side buffer.
//!
//! A request that is not complete yet is remembered in a [`PartialRequest`], so that a long one that comes in pieces is
//! not read again from its start. However the bytes are cut into pieces, the result is the same.

use crate::args::ArgRange;
use crate::resp::inline;
use crate::resp::request_batch::{Request, RequestBatch};

/// Longest line: an inline command, or a length.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Most words of a request, and longest word, before the client has authenticated.
const UNAUTHENTICATED_WORDS: i64 = 10;
const UNAUTHENTICATED_WORD_BYTES: i64 = 16 * 1024;
/// Words for which room is made before they have come.
const WORDS_AHEAD: usize = 1024;

/// What a request may be at most.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Longest word (`proto-max-bulk-len`).
    pub max_bulk_bytes: u64,
    /// Whether the client has authenticated; if not, only short requests are read.
    pub authenticated: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { max_bulk_bytes: 512 << 20, authenticated: true }
    }
}

/// Bytes that are not the protocol; the connection must be closed after the error is sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A line without end.
    #[error("too big inline request")]
    InlineTooLong,
    /// Quotes that are not closed.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// A count line without end.
    #[error("too big mbulk count string")]
    CountTooLong,
    /// A length line without end.
    #[error("too big bulk count string")]
    LengthTooLong,
    /// The number of words is not a number or too large.
    #[error("invalid multibulk length")]
    InvalidCount,
    /// The length of a word is not a number or too large.
    #[error("invalid bulk length")]
    InvalidLength,
    /// Too many words for a client that has not authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// Too long a word for a client that has not authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedLength,
    /// A word does not begin with its length.
    #[error("expected '$', got '{}'", *.0 as char)]
    ExpectedLength(u8),
}

/// What is known of a request whose end has not come yet. Offsets count from the request's first byte.
#[derive(Default, Debug)]
pub struct PartialRequest {
    ranges: Vec<ArgRange>,
    missing_words: u32,
    cursor: usize,
    word_bytes: Option<u32>,
    /// So much of the current line was searched for its end in vain.
    searched: usize,
}

impl PartialRequest {
    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.ranges.capacity() * size_of::<ArgRange>()
    }

    /// How long the request will be at least.
    pub fn needs_bytes(&self) -> usize {
        self.cursor + self.word_bytes.map_or(0, |bytes| bytes as usize + 2)
    }
}

/// What [`parse`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseOutcome {
    /// A request was added to the batch.
    Request,
    /// Nothing but empty lines up to this offset.
    Skipped(usize),
    /// The request that begins at the offset is not complete; come again with more bytes behind it.
    Incomplete,
}

/// Reads the request that begins at `start` of `input`. `partial` must be `None` for a request that is seen for the
/// first time, and what the last call left for one that was incomplete.
pub fn parse(
    input: &[u8],
    start: usize,
    limits: &RequestLimits,
    partial: &mut Option<Box<PartialRequest>>,
    batch: &mut RequestBatch,
) -> Result<ParseOutcome, ProtocolError> {
    if let Some(mut known) = partial.take() {
        return match resume(input, start, limits, &mut known, batch)? {
            ParseOutcome::Incomplete => {
                *partial = Some(known);
                Ok(ParseOutcome::Incomplete)
            }
            parsed => Ok(parsed),
        };
    }
    match input.get(start) {
        None => Ok(ParseOutcome::Incomplete),
        Some(b'*') => {
            if let Some(request) = whole(input, start, limits, batch) {
                batch.requests.push(request);
                return Ok(ParseOutcome::Request);
            }
            let mut fresh = Box::<PartialRequest>::default();
            let parsed = resume(input, start, limits, &mut fresh, batch)?;
            if parsed == ParseOutcome::Incomplete {
                *partial = Some(fresh);
            }
            Ok(parsed)
        }
        Some(_) => inline_request(input, start, batch),
    }
}

/// The usual case, fast: a short request that is there in full. `None` if it is anything else; nothing is kept then.
#[inline]
fn whole(input: &[u8], start: usize, limits: &RequestLimits, batch: &mut RequestBatch) -> Option<Request> {
    let (words, mut at) = short_number(input, start + 1)?;
    if words == 0 || words as i64 > UNAUTHENTICATED_WORDS && !limits.authenticated {
        return None;
    }
    let first = batch.ranges.len();
    for _ in 0..words {
        let found = short_word(input, at);
        let Some((bytes, next)) = found.filter(|(bytes, _)| word_allowed(*bytes as i64, limits)) else {
            batch.ranges.truncate(first);
            return None;
        };
        batch.ranges.push(ArgRange { start: next as u32, len: bytes as u32 });
        at = next + bytes + 2;
    }
    if at > input.len() {
        batch.ranges.truncate(first);
        return None;
    }
    Some(Request { first: first as u32, words: words as u32, end: at, inline: false })
}

#[inline]
fn short_word(input: &[u8], at: usize) -> Option<(usize, usize)> {
    if *input.get(at)? != b'$' {
        return None;
    }
    short_number(input, at + 1)
}

/// A canonical number of up to seven digits and its line end; returns it and where the next line begins.
#[inline]
fn short_number(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = input.get(at..)?;
    let first = line.first()?.wrapping_sub(b'0');
    if first > 9 {
        return None;
    }
    let mut value = first as usize;
    for index in 1..line.len().min(8) {
        let byte = line[index];
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            // A second byte of the line end must have come too.
            let canonical = first != 0 || index == 1;
            return (byte == b'\r' && canonical && index + 1 < line.len()).then_some((value, at + index + 2));
        }
        value = value * 10 + digit as usize;
    }
    None
}

fn word_allowed(bytes: i64, limits: &RequestLimits) -> bool {
    bytes as u64 <= limits.max_bulk_bytes && (limits.authenticated || bytes <= UNAUTHENTICATED_WORD_BYTES)
}

enum Line {
    Number(Option<i64>),
    Incomplete,
    TooLong,
}

/// The number between `from` and the line end; `known.cursor` moves behind the line.
fn number_line(input: &[u8], start: usize, known: &mut PartialRequest, skip: usize) -> Line {
    let line_start = start + known.cursor;
    let line = input.get(line_start..).unwrap_or_default();
    let search_from = known.searched.min(line.len());
    let Some(end) = memchr::memchr(b'\r', &line[search_from..]).map(|found| search_from + found) else {
        known.searched = line.len();
        return if line.len() > MAX_LINE_BYTES { Line::TooLong } else { Line::Incomplete };
    };
    if end > MAX_LINE_BYTES {
        return Line::TooLong;
    }
    if end + 1 >= line.len() {
        known.searched = end;
        return Line::Incomplete;
    }
    known.searched = 0;
    known.cursor += end + 2;
    Line::Number(quire_store::numbers::parse_i64(line.get(skip..end).unwrap_or_default()))
}

/// Reads on where `known` says; the general case.
fn resume(
    input: &[u8],
    start: usize,
    limits: &RequestLimits,
    known: &mut PartialRequest,
    batch: &mut RequestBatch,
) -> Result<ParseOutcome, ProtocolError> {
    if known.cursor == 0 {
        let words = match number_line(input, start, known, 1) {
            Line::Incomplete => return Ok(ParseOutcome::Incomplete),
            Line::TooLong => return Err(ProtocolError::CountTooLong),
            Line::Number(words) => words,
        };
        match words {
            Some(words) if words > UNAUTHENTICATED_WORDS && !limits.authenticated => {
                return Err(ProtocolError::UnauthenticatedCount);
            }
            Some(words) if words <= 0 => return Ok(ParseOutcome::Skipped(start + known.cursor)),
            Some(words) if words <= i64::from(i32::MAX) => known.missing_words = words as u32,
            _ => return Err(ProtocolError::InvalidCount),
        }
        known.ranges.reserve((known.missing_words as usize).min(WORDS_AHEAD));
    }
    while known.missing_words > 0 {
        if !word(input, start, limits, known)? {
            return Ok(ParseOutcome::Incomplete);
        }
    }
    let first = batch.ranges.len();
    batch
        .ranges
        .extend(known.ranges.iter().map(|range| ArgRange { start: range.start + start as u32, len: range.len }));
    batch.requests.push(Request {
        first: first as u32,
        words: known.ranges.len() as u32,
        end: start + known.cursor,
        inline: false,
    });
    Ok(ParseOutcome::Request)
}

/// Reads one word; false when it has not come in full.
fn word(input: &[u8], start: usize, limits: &RequestLimits, known: &mut PartialRequest) -> Result<bool, ProtocolError> {
    let bytes = match known.word_bytes {
        Some(bytes) => bytes,
        None => {
            let marker_at = start + known.cursor;
            let length = match number_line(input, start, known, 1) {
                Line::Incomplete => return Ok(false),
                Line::TooLong => return Err(ProtocolError::LengthTooLong),
                Line::Number(length) => length,
            };
            let marker = input[marker_at];
            if marker != b'$' {
                return Err(ProtocolError::ExpectedLength(marker));
            }
            let bytes = match length {
                Some(bytes) if bytes < 0 || bytes as u64 > limits.max_bulk_bytes => {
                    return Err(ProtocolError::InvalidLength);
                }
                Some(bytes) if !word_allowed(bytes, limits) => return Err(ProtocolError::UnauthenticatedLength),
                Some(bytes) => u32::try_from(bytes).map_err(|_| ProtocolError::InvalidLength)?,
                None => return Err(ProtocolError::InvalidLength),
            };
            known.word_bytes = Some(bytes);
            bytes
        }
    };
    if input.len() < start + known.cursor + bytes as usize + 2 {
        return Ok(false);
    }
    known.ranges.push(ArgRange { start: known.cursor as u32, len: bytes });
    known.cursor += bytes as usize + 2;
    known.word_bytes = None;
    known.missing_words -= 1;
    Ok(true)
}

fn inline_request(input: &[u8], start: usize, batch: &mut RequestBatch) -> Result<ParseOutcome, ProtocolError> {
    let line = &input[start..];
    let window = &line[..line.len().min(MAX_LINE_BYTES + 1)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if line.len() > MAX_LINE_BYTES {
            Err(ProtocolError::InlineTooLong)
        } else {
            Ok(ParseOutcome::Incomplete)
        };
    };
    let text = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
    let first = batch.ranges.len();
    let RequestBatch { ranges, unpacked, .. } = batch;
    inline::split(text, unpacked, |at, len| ranges.push(ArgRange { start: at as u32, len: len as u32 }))
        .map_err(|_| ProtocolError::UnbalancedQuotes)?;
    let words = batch.ranges.len() - first;
    if words == 0 {
        return Ok(ParseOutcome::Skipped(start + end + 1));
    }
    batch.requests.push(Request { first: first as u32, words: words as u32, end: start + end + 1, inline: true });
    Ok(ParseOutcome::Request)
}

/// Reads `input` as a connection would that receives it in pieces of the given sizes (cyclically; the rest at once
/// when there are none). Returns the requests' words and the error that ended it. For fuzzing and tests.
pub fn read_all(input: &[u8], pieces: &[usize], limits: &RequestLimits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut requests = Vec::new();
    let (mut start, mut arrived, mut turn) = (0, 0, 0);
    let mut partial = None;
    let mut batch = RequestBatch::default();
    while arrived < input.len() {
        let piece = pieces.get(turn % pieces.len().max(1)).copied().unwrap_or(input.len());
        turn += 1;
        arrived = (arrived + piece.max(1)).min(input.len());
        loop {
            batch.clear();
            match parse(&input[..arrived], start, limits, &mut partial, &mut batch) {
                Ok(ParseOutcome::Request) => {
                    requests.push(batch.args(0, input).iter().map(<[u8]>::to_vec).collect());
                    start = batch.request(0).end;
                }
                Ok(ParseOutcome::Skipped(next)) => start = next,
                Ok(ParseOutcome::Incomplete) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(input: &[u8]) -> (Vec<Vec<String>>, Option<ProtocolError>) {
        let (requests, error) = read_all(input, &[], &RequestLimits::default());
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        (requests.iter().map(|words| words.iter().map(text).collect()).collect(), error)
    }

    #[test]
    fn requests_of_both_forms_are_read() {
        let (requests, error) =
            read(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\n set \"a b\" c\n*1\r\n$0\r\n\r\n");
        assert_eq!(requests, [vec!["GET", "a"], vec!["PING"], vec!["set", "a b", "c"], vec![""]]);
        assert_eq!(error, None);
    }

    #[test]
    fn what_is_not_the_protocol_is_named() {
        let long = [b'x'; MAX_LINE_BYTES + 2];
        let mut long_count = b"*".to_vec();
        long_count.extend([b'1'; MAX_LINE_BYTES + 2]);
        let mut long_length = b"*1\r\n$".to_vec();
        long_length.extend([b'1'; MAX_LINE_BYTES + 2]);
        let cases: &[(&[u8], ProtocolError)] = &[
            (b"*abc\r\n", ProtocolError::InvalidCount),
            (b"*01\r\n", ProtocolError::InvalidCount),
            (b"*99999999999\r\n", ProtocolError::InvalidCount),
            (b"*1\r\n:3\r\n", ProtocolError::ExpectedLength(b':')),
            (b"*1\r\n$-1\r\n", ProtocolError::InvalidLength),
            (b"*1\r\n$99999999999\r\n", ProtocolError::InvalidLength),
            (b"*1\r\n$x\r\n", ProtocolError::InvalidLength),
            (b"\"abc\r\n", ProtocolError::UnbalancedQuotes),
            (&long, ProtocolError::InlineTooLong),
            (&long_count, ProtocolError::CountTooLong),
            (&long_length, ProtocolError::LengthTooLong),
        ];
        for (input, expected) in cases {
            assert_eq!(
                read(input).1.as_ref(),
                Some(expected),
                "{:?}",
                String::from_utf8_lossy(&input[..input.len().min(20)])
            );
        }
    }

    #[test]
    fn strangers_may_send_short_requests_only() {
        let limits = RequestLimits { authenticated: false, ..RequestLimits::default() };
        assert_eq!(read_all(b"*11\r\n", &[], &limits).1, Some(ProtocolError::UnauthenticatedCount));
        assert_eq!(read_all(b"*1\r\n$20000\r\n", &[], &limits).1, Some(ProtocolError::UnauthenticatedLength));
        assert_eq!(read_all(b"*1\r\n$4\r\nPING\r\n", &[], &limits).0.len(), 1);
    }

    #[test]
    fn a_partial_request_says_how_much_it_needs() {
        let mut partial = None;
        let parsed =
            parse(b"*1\r\n$1000\r\nab", 0, &RequestLimits::default(), &mut partial, &mut RequestBatch::default());
        assert_eq!(parsed, Ok(ParseOutcome::Incomplete));
        assert_eq!(partial.unwrap().needs_bytes(), 11 + 1002);
    }

    fn request() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::collection::vec(any::<u8>(), 0..40);
        let framed = prop::collection::vec(word, 0..6).prop_map(|words| {
            let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
            for word in words {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
            bytes
        });
        prop_oneof![
            4 => framed,
            1 => "[a-z \"'\\\\x0-9]{0,20}\r?\n".prop_map(String::into_bytes),
            1 => prop::collection::vec(prop::sample::select(b"*$0123-\r\nab".to_vec()), 0..12),
        ]
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(requests in prop::collection::vec(request(), 0..8), pieces in prop::collection::vec(1usize..30, 1..6)) {
            let input = requests.concat();
            let limits = RequestLimits::default();
            prop_assert_eq!(read_all(&input, &[], &limits), read_all(&input, &pieces, &limits));
            prop_assert_eq!(read_all(&input, &[], &limits), read_all(&input, &[1], &limits));
        }

        #[test]
        fn framed_requests_come_back_as_sent(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..30)) {
            let mut input = format!("*{}\r\n", words.len()).into_bytes();
            for word in &words {
                input.extend(format!("${}\r\n", word.len()).bytes());
                input.extend(word);
                input.extend(b"\r\n");
            }
            prop_assert_eq!(read_all(&input, &[], &RequestLimits::default()), (vec![words], None));
        }
    }
}

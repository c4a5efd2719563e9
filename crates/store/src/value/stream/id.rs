//! IDs of entries: a time and a number within it, in the order of both.

use std::fmt;

use crate::numbers::parse_u64;

/// Reads one of the two numbers as Redis does: as C's `strtoull`, which knows a sign and spaces before it, but takes no negative
/// number in its usual form.
fn parse_number(text: &[u8]) -> Option<u64> {
    if let Some(number) = parse_u64(text) {
        return Some(number);
    }
    let spaces = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let (negative, digits) = match &text[spaces..] {
        [b'-', b'1'..=b'9', ..] if spaces == 0 => return None,
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative { number.wrapping_neg() } else { number })
}

/// The ID of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds, of a clock as a rule.
    pub ms: u64,
    /// Tells entries of the same millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// Before all IDs that an entry may have.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The last one.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The ID behind this one; `None` for the last one.
    pub fn next(self) -> Option<StreamId> {
        match (self.ms.checked_add(1), self.seq.checked_add(1)) {
            (_, Some(seq)) => Some(StreamId { seq, ..self }),
            (Some(ms), None) => Some(StreamId { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// The ID before this one; `None` for the first one.
    pub fn previous(self) -> Option<StreamId> {
        match (self.ms.checked_sub(1), self.seq.checked_sub(1)) {
            (_, Some(seq)) => Some(StreamId { seq, ..self }),
            (Some(ms), None) => Some(StreamId { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }

    /// Whether it is the one that stands for none.
    pub fn is_zero(self) -> bool {
        self == StreamId::MIN
    }

    /// The parts of an ID in text: the milliseconds, and the number if there is one.
    pub fn parse_parts(text: &[u8]) -> Option<(u64, Option<u64>)> {
        match text.iter().position(|&byte| byte == b'-') {
            None => Some((parse_number(text)?, None)),
            Some(dash) => Some((parse_number(&text[..dash])?, Some(parse_number(&text[dash + 1..])?))),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn ids_are_next_to_one_another_across_milliseconds() {
        for (first, second) in [(id(1, 2), id(1, 3)), (id(1, u64::MAX), id(2, 0)), (id(0, 0), id(0, 1))] {
            assert_eq!((first.next(), second.previous()), (Some(second), Some(first)));
            assert!(first < second);
        }
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }

    #[test]
    fn text_is_read_as_redis_reads_it() {
        assert_eq!(StreamId::parse_parts(b"5-7"), Some((5, Some(7))));
        assert_eq!(StreamId::parse_parts(b"18446744073709551615"), Some((u64::MAX, None)));
        assert_eq!(StreamId::parse_parts(b"+05- 7"), Some((5, Some(7))));
        assert_eq!(StreamId::parse_parts(b"5--01"), Some((5, Some(u64::MAX))));
        for wrong in ["", "-", "5-", "-5", "5-7-9", "5--1", "a", "5-a", "+", "5 ", "18446744073709551616"] {
            assert_eq!(StreamId::parse_parts(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(id(12, 0).to_string(), "12-0");
    }
}

//! Writes replies in RESP2 or RESP3 straight into an output buffer. Relies only on `itoa` and on the store for numbers in text.
//!
//! Types that RESP2 lacks are written as what Redis sends to RESP2 clients instead: a map as a flat array, a set as
//! an array, a double as a bulk string, a boolean as 0 or 1.

use quire_store::numbers;

/// The protocol that a client speaks; RESP2 until `HELLO 3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// The classic protocol.
    #[default]
    Resp2,
    /// Adds maps, sets, doubles, booleans, verbatim strings, big numbers and pushes.
    Resp3,
}

/// An output buffer with the calls that append one reply element each.
#[derive(Debug)]
pub struct Reply {
    pub(super) buffer: Vec<u8>,
    protocol: Protocol,
    limit_bytes: usize,
    overflowed: bool,
    /// Up to here it holds messages that go ahead of the reply that is to be written.
    ahead: usize,
}

impl Default for Reply {
    fn default() -> Self {
        Self::new(Protocol::Resp2)
    }
}

impl Reply {
    /// An empty buffer.
    pub fn new(protocol: Protocol) -> Self {
        Self { buffer: Vec::new(), protocol, limit_bytes: usize::MAX, overflowed: false, ahead: 0 }
    }

    /// From here on no bulk string is added once there are more than so many bytes, and [`Reply::overflowed`] tells.
    /// What was written is no reply then: its connection must be closed.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit_bytes = bytes;
    }

    /// An empty buffer with this one's protocol and limit.
    pub fn part(&self) -> Self {
        Self { limit_bytes: self.limit_bytes, ..Self::new(self.protocol) }
    }

    /// Appends what was written into a [`Reply::part`].
    pub fn append(&mut self, part: &Reply) {
        self.overflowed |= part.overflowed;
        self.raw(part.as_bytes());
    }

    /// How many bytes may be added before no bulk string is any more; `None` if none is now.
    #[inline]
    pub fn room(&self) -> Option<usize> {
        self.limit_bytes.checked_sub(self.buffer.len())
    }

    /// More was to be written than the limit allows, since the last [`Reply::clear`].
    #[inline]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Gives the buffer away.
    pub fn take(&mut self) -> Vec<u8> {
        self.ahead = 0;
        std::mem::take(&mut self.buffer)
    }

    /// The protocol in which replies are written.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// True when RESP3 types may be sent as such.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// Changes the protocol of what is written from here on.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What has been written and not yet taken away.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Bytes written so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// True when nothing is written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Forgets everything written after `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
        self.ahead = self.ahead.min(len);
    }

    /// What was written goes ahead of the reply that is to be written.
    pub fn begin_here(&mut self) {
        self.ahead = self.buffer.len();
    }

    /// Where the reply begins of a command that has begun to run when so many bytes were written.
    #[inline]
    pub fn begins_at(&self, before: usize) -> usize {
        before.max(self.ahead)
    }

    /// Empties the buffer; memory beyond `keep_bytes` is given back.
    pub fn clear(&mut self, keep_bytes: usize) {
        self.buffer.clear();
        (self.overflowed, self.ahead) = (false, 0);
        if self.buffer.capacity() > keep_bytes {
            self.buffer.shrink_to(keep_bytes);
        }
    }

    /// Appends bytes that are already RESP.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A simple string; it must not contain line ends.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error line, with its code in front (`ERR …`). Line ends inside become spaces.
    pub fn error(&mut self, text: &str) {
        self.buffer.reserve(text.len() + 3);
        self.buffer.push(b'-');
        let start = self.buffer.len();
        self.raw(text.as_bytes());
        for byte in &mut self.buffer[start..] {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.raw(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match value {
            0 => self.raw(b":0\r\n"),
            1 => self.raw(b":1\r\n"),
            _ => self.number(b':', value),
        }
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.buffer.len() > self.limit_bytes {
            self.overflowed = true;
            return;
        }
        self.buffer.reserve(bytes.len() + 16);
        // Lengths of one digit or two need no conversion, and most have no more.
        match bytes.len() {
            len @ 0..10 => self.raw(&[b'$', digit(len), b'\r', b'\n']),
            len @ 10..100 => self.raw(&[b'$', digit(len / 10), digit(len % 10), b'\r', b'\n']),
            len => self.number(b'$', len as i64),
        }
        self.raw(bytes);
        self.raw(b"\r\n");
    }

    /// A bulk string of text.
    #[inline]
    pub fn bulk_str(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A bulk string holding an integer in decimal.
    pub fn bulk_int(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.bulk(digits.format(value).as_bytes());
    }

    /// The null of a missing value.
    #[inline]
    pub fn null(&mut self) {
        self.raw(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The null of a missing array.
    pub fn null_array(&mut self) {
        self.raw(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The header of an array of `len` elements, which follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }

    /// The header of a map of `len` pairs, which follow.
    pub fn map(&mut self, len: usize) {
        if self.is_resp3() {
            self.number(b'%', len as i64);
        } else {
            self.number(b'*', 2 * len as i64);
        }
    }

    /// The header of a set of `len` elements, which follow.
    pub fn set(&mut self, len: usize) {
        self.number(if self.is_resp3() { b'~' } else { b'*' }, len as i64);
    }

    /// The header of an out-of-band push of `len` elements.
    pub fn push(&mut self, len: usize) {
        self.number(if self.is_resp3() { b'>' } else { b'*' }, len as i64);
    }

    /// Adds a whole message, its first byte and the others, within the limit.
    pub fn message(&mut self, (first, rest): (u8, &[u8])) {
        if self.buffer.len().saturating_add(rest.len()) > self.limit_bytes {
            self.overflowed = true;
        } else {
            self.raw(&[first]);
            self.raw(rest);
        }
    }

    /// A double.
    pub fn double(&mut self, value: f64) {
        self.double_text(&numbers::format_f64(value));
    }

    /// A double whose digits are these.
    pub fn double_text(&mut self, text: &str) {
        if self.is_resp3() {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk_str(text);
        }
    }

    /// A boolean; 1 or 0 to RESP2 clients.
    pub fn boolean(&mut self, value: bool) {
        match (self.is_resp3(), value) {
            (true, true) => self.raw(b"#t\r\n"),
            (true, false) => self.raw(b"#f\r\n"),
            (false, value) => self.int(i64::from(value)),
        }
    }

    /// A verbatim string with its three-letter format; a bulk string to RESP2 clients.
    pub fn verbatim(&mut self, format: &str, bytes: &[u8]) {
        if !self.is_resp3() {
            return self.bulk(bytes);
        }
        self.number(b'=', bytes.len() as i64 + 4);
        self.raw(format.as_bytes());
        self.raw(b":");
        self.raw(bytes);
        self.raw(b"\r\n");
    }

    /// A number of any size in decimal; a bulk string to RESP2 clients.
    pub fn bignum(&mut self, digits: &str) {
        if self.is_resp3() {
            self.line(b'(', digits.as_bytes());
        } else {
            self.bulk_str(digits);
        }
    }

    #[inline]
    fn number(&mut self, marker: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.line(marker, digits.format(value).as_bytes());
    }

    #[inline]
    fn line(&mut self, marker: u8, text: &[u8]) {
        self.buffer.reserve(text.len() + 3);
        self.buffer.push(marker);
        self.buffer.extend_from_slice(text);
        self.buffer.extend_from_slice(b"\r\n");
    }
}

/// A number below ten as text.
#[inline]
fn digit(number: usize) -> u8 {
    b'0' + number as u8
}

/// What a bulk string takes in a reply, or a little more.
pub const fn bulk_bytes(bytes: &[u8]) -> usize {
    bytes.len() + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        String::from_utf8(reply.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn scalars_are_the_same_in_both_protocols() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(written(protocol, |r| r.ok()), "+OK\r\n");
            assert_eq!(written(protocol, |r| r.int(-42)), ":-42\r\n");
            assert_eq!(written(protocol, |r| r.bulk(b"a\r\nb")), "$4\r\na\r\nb\r\n");
            assert_eq!(written(protocol, |r| r.bulk(b"")), "$0\r\n\r\n");
        }
    }

    #[test]
    fn types_of_resp3_fall_back_for_resp2() {
        let two = |w: fn(&mut Reply)| written(Protocol::Resp2, w);
        let three = |w: fn(&mut Reply)| written(Protocol::Resp3, w);
        assert_eq!((two(|r| r.null()), three(|r| r.null())), ("$-1\r\n".into(), "_\r\n".into()));
        assert_eq!((two(|r| r.null_array()), three(|r| r.null_array())), ("*-1\r\n".into(), "_\r\n".into()));
        assert_eq!((two(|r| r.map(2)), three(|r| r.map(2))), ("*4\r\n".into(), "%2\r\n".into()));
        assert_eq!((two(|r| r.set(2)), three(|r| r.set(2))), ("*2\r\n".into(), "~2\r\n".into()));
        assert_eq!((two(|r| r.double(1.5)), three(|r| r.double(1.5))), ("$3\r\n1.5\r\n".into(), ",1.5\r\n".into()));
        assert_eq!((two(|r| r.boolean(true)), three(|r| r.boolean(true))), (":1\r\n".into(), "#t\r\n".into()));
        assert_eq!(three(|r| r.verbatim("txt", b"hi")), "=6\r\ntxt:hi\r\n");
        assert_eq!(two(|r| r.verbatim("txt", b"hi")), "$2\r\nhi\r\n");
        assert_eq!(three(|r| r.bignum("123")), "(123\r\n");
    }

    #[test]
    fn an_error_stays_on_one_line() {
        assert_eq!(written(Protocol::Resp2, |r| r.error("ERR a\r\nb")), "-ERR a  b\r\n");
    }

    #[test]
    fn a_bulk_string_says_its_length_in_decimal() {
        for len in [0, 1, 9, 10, 19, 90, 99, 100, 101, 999, 1000, 123_456] {
            let text = "x".repeat(len);
            assert_eq!(written(Protocol::Resp2, |r| r.bulk_str(&text)), format!("${len}\r\n{text}\r\n"));
        }
    }

    #[test]
    fn nothing_is_added_beyond_the_limit() {
        let mut reply = Reply::default();
        reply.set_limit(10);
        reply.bulk(b"0123456789");
        assert!(!reply.overflowed());
        reply.bulk(b"more");
        assert_eq!((reply.len(), reply.overflowed()), (17, true));
        reply.clear(0);
        assert!(!reply.overflowed());
    }
}

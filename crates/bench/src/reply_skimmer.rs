//! Counts the replies in the bytes of a connection without keeping them: what a client does that only wants to know when the next request may go.
//!
//! Relies on RESP2. The bytes may be hostile: they end in an error or wait for more, and take a bounded memory: one line at most.

use std::io;

/// Most bytes of a line; those that servers send are much shorter.
const LINE_BYTES: usize = 64 << 10;
/// So much of an error's text is kept.
const ERROR_BYTES: usize = 500;

/// Where a connection's replies stand: in which of them, and in which part of it.
#[derive(Debug, Default)]
pub struct ReplySkimmer {
    /// The beginning of a line whose end has not come.
    partial_line: Vec<u8>,
    /// Bytes of a string that have not come, with CR and LF behind it.
    payload_left: u64,
    /// Parts of the reply that have not come to their ends, however deep in arrays; 0 between replies.
    parts_left: u64,
    first_error: Option<String>,
}

/// What was found in some bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Skimmed {
    /// Bytes that were looked at: all, unless the replies that were asked for came to their ends before.
    pub bytes: usize,
    /// Replies that came to their ends.
    pub replies: usize,
    /// Errors that came to their ends, those in arrays too.
    pub errors: usize,
}

impl ReplySkimmer {
    /// Looks at `input`, up to the end of the reply number `most` in it.
    ///
    /// # Errors
    /// When the bytes are no replies. What is asked afterwards has no meaning.
    pub fn skim(&mut self, input: &[u8], most: usize) -> io::Result<Skimmed> {
        let mut found = Skimmed::default();
        while found.replies < most && found.bytes < input.len() {
            let rest = &input[found.bytes..];
            if self.payload_left > 0 {
                found.bytes += self.jump(rest, &mut found.replies)?;
                continue;
            }
            let Some(at) = rest.iter().position(|&byte| byte == b'\n') else {
                self.keep(rest)?;
                found.bytes = input.len();
                break;
            };
            found.bytes += at + 1;
            if self.partial_line.is_empty() {
                self.take_line(&rest[..=at], &mut found)?;
            } else {
                self.keep(&rest[..=at])?;
                let line = std::mem::take(&mut self.partial_line);
                self.take_line(&line, &mut found)?;
            }
        }
        Ok(found)
    }

    /// The text of the first error that came.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Jumps over what has come of a string; returns how many bytes that are.
    fn jump(&mut self, rest: &[u8], replies: &mut usize) -> io::Result<usize> {
        let (left, len) = (self.payload_left, rest.len() as u64);
        for (from_end, wanted) in [(2, b'\r'), (1, b'\n')] {
            if left >= from_end && left - from_end < len && rest[(left - from_end) as usize] != wanted {
                return Err(malformed("a string that is not as long as it says"));
            }
        }
        let part = left.min(len);
        self.payload_left -= part;
        if self.payload_left == 0 {
            self.end_part(replies);
        }
        Ok(part as usize)
    }

    fn keep(&mut self, part: &[u8]) -> io::Result<()> {
        if self.partial_line.len() + part.len() > LINE_BYTES {
            return Err(malformed("a line that does not end"));
        }
        self.partial_line.extend_from_slice(part);
        Ok(())
    }

    /// Takes a line with its end.
    fn take_line(&mut self, line: &[u8], found: &mut Skimmed) -> io::Result<()> {
        let [kind, text @ .., b'\r', b'\n'] = line else { return Err(malformed("a line without CR LF")) };
        self.parts_left = self.parts_left.max(1);
        match kind {
            b'+' => {}
            b':' => drop(number(text)?),
            b'-' => {
                found.errors += 1;
                let told = || String::from_utf8_lossy(&text[..text.len().min(ERROR_BYTES)]).into_owned();
                self.first_error.get_or_insert_with(told);
            }
            b'$' => {
                if let Some(length) = length(text)? {
                    // Two bytes more than half of what fits.
                    self.payload_left = length + 2;
                    return Ok(());
                }
            }
            b'*' => {
                let count = length(text)?.unwrap_or(0);
                self.parts_left =
                    self.parts_left.checked_add(count).ok_or_else(|| malformed("an array without an end"))?;
            }
            _ => return Err(malformed("an unknown kind of reply")),
        }
        self.end_part(&mut found.replies);
        Ok(())
    }

    fn end_part(&mut self, replies: &mut usize) {
        self.parts_left -= 1;
        *replies += usize::from(self.parts_left == 0);
    }
}

/// A length or a count; `None` for what is nil.
fn length(text: &[u8]) -> io::Result<Option<u64>> {
    match number(text)? {
        -1 => Ok(None),
        length => u64::try_from(length).map(Some).map_err(|_| malformed("a length below zero")),
    }
}

fn number(text: &[u8]) -> io::Result<i64> {
    let (digits, sign) = match text {
        [b'-', digits @ ..] => (digits, -1),
        digits => (digits, 1),
    };
    let none = || malformed("a number that is none");
    if digits.is_empty() {
        return Err(none());
    }
    // Downwards or upwards, as the smallest number is further from zero than the largest.
    digits.iter().try_fold(0_i64, |number, &byte| {
        let digit = if byte.is_ascii_digit() { i64::from(byte - b'0') } else { return Err(none()) };
        number.checked_mul(10).and_then(|tens| tens.checked_add(sign * digit)).ok_or_else(none)
    })
}

/// The error of bytes that are no reply.
pub fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Connection, Value};
    use proptest::prelude::*;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener};

    fn text() -> impl Strategy<Value = String> {
        "[ -~]{0,20}"
    }

    fn reply() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            text().prop_map(Value::Simple),
            text().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Int),
            Just(Value::Bulk(None)),
            prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..40)
                .prop_map(|bytes| Value::Bulk(Some(bytes))),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Value::Array))
    }

    fn errors(value: &Value) -> usize {
        match value {
            Value::Error(_) => 1,
            Value::Array(parts) => parts.iter().map(errors).sum(),
            Value::Simple(_) | Value::Int(_) | Value::Bulk(_) => 0,
        }
    }

    /// What the parser makes of the bytes.
    fn parsed(bytes: Vec<u8>, count: usize) -> Vec<Value> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut connection = Connection::open(port).unwrap();
        let sender = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&bytes).unwrap());
        let values = (0..count).map(|_| connection.reply().unwrap()).collect();
        sender.join().unwrap();
        assert!(connection.reply().is_err(), "the parser finds more");
        values
    }

    /// All that is found in `bytes`, cut into pieces of these lengths, over and over.
    fn skimmed(bytes: &[u8], lengths: &[usize]) -> io::Result<Skimmed> {
        let (mut skimmer, mut total, mut rest) = (ReplySkimmer::default(), Skimmed::default(), bytes);
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, behind) = rest.split_at((*length).min(rest.len()));
            let found = skimmer.skim(part, usize::MAX)?;
            assert_eq!(found.bytes, part.len());
            total.replies += found.replies;
            total.errors += found.errors;
            total.bytes += found.bytes;
            rest = behind;
        }
        Ok(total)
    }

    proptest! {
        #[test]
        fn as_many_replies_and_errors_are_found_as_the_parser_finds_wherever_the_bytes_are_cut(
            replies in prop::collection::vec(reply(), 1..8),
            lengths in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let bytes: Vec<u8> = replies.iter().flat_map(Value::to_bytes).collect();
            let values = parsed(bytes.clone(), replies.len());
            let expected =
                Skimmed { bytes: bytes.len(), replies: values.len(), errors: values.iter().map(errors).sum() };
            prop_assert_eq!(skimmed(&bytes, &lengths).unwrap(), expected);
            // The last byte completes the last reply.
            prop_assert_eq!(skimmed(&bytes[..bytes.len() - 1], &lengths).unwrap().replies, values.len() - 1);
        }

        #[test]
        fn it_stops_at_the_end_of_the_last_reply_that_is_asked_for(
            replies in prop::collection::vec(reply(), 1..8),
            most in 1_usize..8,
        ) {
            let bytes: Vec<u8> = replies.iter().flat_map(Value::to_bytes).collect();
            let wanted: usize = replies.iter().take(most).map(|reply| reply.to_bytes().len()).sum();
            let found = ReplySkimmer::default().skim(&bytes, most).unwrap();
            prop_assert_eq!((found.bytes, found.replies), (wanted, most.min(replies.len())));
        }

        #[test]
        fn hostile_bytes_are_an_error_or_wait_for_more_and_the_same_however_they_are_cut(
            bytes in prop::collection::vec(prop_oneof![
                Just(b"\r\n".to_vec()), Just(b"$".to_vec()), Just(b"*".to_vec()), Just(b"-1".to_vec()),
                "[0-9]{1,20}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 1..4),
            ], 0..30),
            lengths in prop::collection::vec(1_usize..9, 1..9),
        ) {
            let bytes = bytes.concat();
            prop_assert_eq!(skimmed(&bytes, &lengths).ok(), skimmed(&bytes, &[usize::MAX]).ok());
        }
    }

    #[test]
    fn what_no_server_sends_is_refused() {
        let hostile: &[&[u8]] = &[
            b"$-2\r\n",
            b"*-7\r\n",
            b"$\r\n",
            b":-\r\n",
            b":1x\r\n",
            b"\r\n",
            b"+no carriage return\n",
            b"%1\r\n",
            b"$3\r\nabcde",
            b"$3\r\nabc\rx",
            b"$9223372036854775808\r\n",
        ];
        for bytes in hostile {
            assert!(skimmed(bytes, &[usize::MAX]).is_err(), "{}", bytes.escape_ascii());
            assert!(skimmed(bytes, &[1]).is_err(), "{}, byte by byte", bytes.escape_ascii());
        }
        let arrays = b"*9223372036854775807\r\n".repeat(3);
        assert!(skimmed(&arrays, &[5]).is_err(), "more parts than can be counted");
    }

    #[test]
    fn a_string_of_any_claimed_length_and_arrays_of_any_depth_take_no_memory() {
        let mut skimmer = ReplySkimmer::default();
        let deep = b"*1\r\n".repeat(100_000);
        assert_eq!(skimmer.skim(&deep, 1).unwrap().replies, 0);
        assert_eq!(skimmer.skim(b"$9223372036854775807\r\nabc", 1).unwrap().replies, 0);
        assert_eq!(skimmer.partial_line.capacity(), 0);
        let mut skimmer = ReplySkimmer::default();
        let endless = (0..).map(|_| skimmer.skim(&[b'+'; 1000], 1)).find(io::Result::is_err);
        assert!(endless.is_some() && skimmer.partial_line.len() <= LINE_BYTES);
    }

    #[test]
    fn the_first_error_s_text_is_kept() {
        let mut skimmer = ReplySkimmer::default();
        skimmer.skim(b"+OK\r\n*2\r\n-ERR fir", 5).unwrap();
        assert_eq!(skimmer.first_error(), None);
        skimmer.skim(b"st\r\n-ERR second\r\n", 5).unwrap();
        assert_eq!(skimmer.first_error(), Some("ERR first"));
    }
}

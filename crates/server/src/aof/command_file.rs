//! The commands in an append-only file, one after the other.
//!
//! Relies on the parser of requests: a command in a file looks as a client sends it. Memory is taken as bytes come.

use std::io::Read;

use crate::args::Args;
use crate::resp::{ParseOutcome, PartialRequest, RequestBatch, RequestLimits, parse};

/// Read at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// Longest line of an annotation.
const LONGEST_LINE: usize = 64 * 1024;

/// What comes next in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A command.
    Command,
    /// Nothing.
    End,
    /// A command that is not whole: the file was cut off.
    Cut,
}

/// A file of commands.
pub(super) struct CommandFile<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    buffer_offset: u64,
    /// Where in the buffer the command begins that is read, and where it ends.
    start: usize,
    end: usize,
    /// There is nothing behind the buffer.
    is_read: bool,
    partial: Option<Box<PartialRequest>>,
    batch: RequestBatch,
}

impl<R: Read> CommandFile<R> {
    /// What is read from `input`, of which the first byte lies at `offset` of the file.
    pub(super) fn new(input: R, offset: u64) -> Self {
        let (buffer, batch) = (Vec::new(), RequestBatch::default());
        Self { input, buffer, buffer_offset: offset, start: 0, end: 0, is_read: false, partial: None, batch }
    }

    /// Where in the file the command begins that was read last, or could not be.
    pub(super) fn offset(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }

    /// Where the file ends, as far as it was read.
    pub(super) fn read_to(&self) -> u64 {
        self.buffer_offset + self.buffer.len() as u64
    }

    /// The words of the command that was read last.
    pub(super) fn args(&self) -> Args<'_> {
        self.batch.args(0, &self.buffer)
    }

    /// Reads the next command.
    ///
    /// # Errors
    /// The text says what is wrong there.
    pub(super) fn read_next(&mut self) -> Result<Next, String> {
        self.start = self.end;
        self.batch.clear();
        loop {
            let is_whole = match self.buffer.get(self.start) {
                None if self.is_read => return Ok(Next::End),
                None => false,
                Some(b'*') => self.parse()?,
                Some(b'#') => {
                    let line = memchr::memchr(b'\n', &self.buffer[self.start..]);
                    if let Some(len) = line {
                        self.start += len + 1;
                        self.end = self.start;
                        continue;
                    } else if self.buffer.len() - self.start > LONGEST_LINE {
                        return Err("an annotation without an end".to_owned());
                    }
                    false
                }
                Some(_) => return Err("no command begins here".to_owned()),
            };
            if is_whole {
                return Ok(Next::Command);
            } else if self.is_read {
                return Ok(Next::Cut);
            }
            self.fill()?;
        }
    }

    /// Whether the command that begins at `start` is there to its end.
    fn parse(&mut self) -> Result<bool, String> {
        let limits = RequestLimits::default();
        let found = parse(&self.buffer, self.start, &limits, &mut self.partial, &mut self.batch);
        match found.map_err(|error| error.to_string())? {
            ParseOutcome::Request => {
                self.end = self.batch.request(0).end;
                Ok(true)
            }
            ParseOutcome::Skipped(_) => Err("a command without words".to_owned()),
            ParseOutcome::Incomplete => Ok(false),
        }
    }

    fn fill(&mut self) -> Result<(), String> {
        self.buffer.drain(..self.start);
        self.buffer_offset += self.start as u64;
        (self.start, self.end) = (0, 0);
        let before = self.buffer.len();
        let read = self.input.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut self.buffer);
        read.map_err(|error| format!("cannot be read: {error}"))?;
        self.is_read = self.buffer.len() == before;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(bytes: &[u8]) -> Result<(Vec<String>, Next, u64), String> {
        let mut file = CommandFile::new(bytes, 100);
        let mut found = Vec::new();
        loop {
            match file.read_next()? {
                Next::Command => found
                    .push(file.args().iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")),
                next => return Ok((found, next, file.offset())),
            }
        }
    }

    #[test]
    fn commands_are_read_past_annotations() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n#TS:17\r\n*1\r\n$4\r\nPING\r\n";
        let (found, next, offset) = commands(bytes).unwrap();
        assert_eq!(
            (found, next, offset),
            (vec!["GET a".to_owned(), "PING".to_owned()], Next::End, 100 + bytes.len() as u64)
        );
    }

    #[test]
    fn a_file_that_is_cut_off_gives_what_is_whole_wherever_that_is() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n";
        for len in 0..whole.len() {
            let (found, next, offset) = commands(&whole[..len]).unwrap();
            let first = len >= 20;
            let is_boundary = len == 0 || len == 20;
            assert_eq!(found.len(), usize::from(first), "{len}");
            assert_eq!(
                (next, offset),
                (if is_boundary { Next::End } else { Next::Cut }, if first { 120 } else { 100 }),
                "{len}"
            );
        }
    }

    #[test]
    fn long_commands_span_chunks() {
        let long = "x".repeat(3 * CHUNK_BYTES + 17);
        let text = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{long}\r\n", long.len()).repeat(3);
        let (found, next, _) = commands(text.as_bytes()).unwrap();
        assert_eq!((found.len(), next), (3, Next::End));
        assert!(found.iter().all(|line| line.len() == long.len() + 5));
    }

    #[test]
    fn what_is_no_command_is_an_error() {
        for bytes in [
            &b"PING\r\n"[..],
            b"\0\0",
            b"*1\r\n:1\r\n",
            b"*x\r\n",
            b"*1\r\n$x\r\n",
            b"*0\r\n",
            b"*1\r\n$999999999999\r\n",
        ] {
            assert!(commands(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(commands(&[b'#'; LONGEST_LINE + 10]).is_err());
    }
}

//! The body of a record: a time and commands, each a database and words.
//!
//! ```text
//! 0   time, unix milliseconds, i64
//! 8   commands: database u8 · number of words · words, each its length and its bytes
//! ```
//! Numbers of words and lengths are in seven bits a byte, the lowest first; the highest bit says that more follow.
//!
//! Relies on the record's checksum against accidents, and on nothing against forgery: reading bounds-checks everything.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::error::{LogError, MalformedRecord};
use super::format::{COMMANDS, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader};

/// Bytes of the time.
const TIME_BYTES: usize = 8;
/// Most bytes of a number: 32 bits.
const MOST_NUMBER_BYTES: usize = 5;

/// A record that was read: what one client did at one instant, to be done again whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub sequence: u64,
    /// Commands in it.
    pub commands: u32,
    body: &'a [u8],
}

impl<'a> Record<'a> {
    /// A record of these parts.
    pub fn new(sequence: u64, commands: u32, body: &'a [u8]) -> Self {
        Self { sequence, commands, body }
    }

    /// The body's bytes, into which the ranges of [`CommandReader::next_into`] point.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// When the commands were run, in unix milliseconds.
    ///
    /// # Errors
    /// The body is too short.
    pub fn now_ms(&self) -> Result<i64, MalformedRecord> {
        let bytes = self.body.first_chunk().ok_or(MalformedRecord { at: self.body.len() })?;
        Ok(i64::from_le_bytes(*bytes))
    }

    /// The commands, one after the other.
    pub fn commands(&self) -> CommandReader<'a> {
        CommandReader { body: self.body, at: TIME_BYTES, left: self.commands }
    }
}

/// Reads the commands of a record.
#[derive(Clone, Debug)]
pub struct CommandReader<'a> {
    body: &'a [u8],
    at: usize,
    left: u32,
}

impl CommandReader<'_> {
    /// Puts the places of the next command's words into `words`, and returns its database; `None` behind the last one.
    ///
    /// # Errors
    /// The body doesn't hold what it says.
    pub fn next_into(&mut self, words: &mut Vec<Range<usize>>) -> Result<Option<u8>, MalformedRecord> {
        words.clear();
        if self.left == 0 {
            return if self.at == self.body.len() { Ok(None) } else { Err(MalformedRecord { at: self.at }) };
        }
        let db = *self.body.get(self.at).ok_or(MalformedRecord { at: self.at })?;
        self.at += 1;
        let count = self.number()?;
        if count == 0 {
            return Err(MalformedRecord { at: self.at });
        }
        for _ in 0..count {
            let len = self.number()? as usize;
            let end = self.at.checked_add(len).filter(|&end| end <= self.body.len());
            let end = end.ok_or(MalformedRecord { at: self.at })?;
            words.push(self.at..end);
            self.at = end;
        }
        self.left -= 1;
        Ok(Some(db))
    }

    fn number(&mut self) -> Result<u32, MalformedRecord> {
        let start = self.at;
        let mut number = 0u64;
        for (place, &byte) in self.body.iter().skip(start).take(MOST_NUMBER_BYTES).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.at = start + place + 1;
                return u32::try_from(number).map_err(|_| MalformedRecord { at: start });
            }
        }
        Err(MalformedRecord { at: start })
    }
}

/// Records that were put together and not written yet, as they will lie in a segment, with headers still to be filled in.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch {
    pub(crate) bytes: Vec<u8>,
    /// Where the record begins that isn't sealed yet.
    open: Option<usize>,
    commands: u32,
}

impl RecordBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins a command of `words` words in the record that is open, or in a new one of the time `now_ms`.
    pub(crate) fn command(&mut self, now_ms: i64, db: u8, words: usize) {
        if self.open.is_none() {
            self.open = Some(self.bytes.len());
            self.commands = 0;
            self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
            self.bytes.extend_from_slice(&now_ms.to_le_bytes());
        }
        self.commands += 1;
        self.bytes.push(db);
        self.number(words);
    }

    /// Adds the next word of the command.
    #[inline]
    pub(crate) fn word(&mut self, word: &[u8]) {
        self.number(word.len());
        self.bytes.extend_from_slice(word);
    }

    #[inline]
    fn number(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Closes the record that is open: the bytes of its body and its commands. `None` if none is open.
    pub(crate) fn close(&mut self) -> Option<SealedRecord<'_>> {
        let start = self.open.take()?;
        let body_bytes = self.bytes.len() - start - RECORD_HEADER_BYTES;
        let padded = self.bytes.len().next_multiple_of(RECORD_ALIGN);
        self.bytes.resize(padded, 0);
        let header = &mut self.bytes[start..start + RECORD_HEADER_BYTES];
        Some(SealedRecord { header, body_bytes: body_bytes as u64, commands: self.commands })
    }

    /// Sets the record that is open aside, so that those before it can be handed over.
    pub(crate) fn part(&mut self) -> Vec<u8> {
        self.open.map_or_else(Vec::new, |start| self.bytes.split_off(start))
    }

    /// Takes back what was set aside. There must be nothing else.
    pub(crate) fn rejoin(&mut self, aside: Vec<u8>) {
        if self.open.is_some() {
            (self.bytes, self.open) = (aside, Some(0));
        }
    }

    /// Takes the record that is open away again.
    pub(crate) fn drop_open(&mut self) {
        if let Some(start) = self.open.take() {
            self.bytes.truncate(start);
        }
    }
}

/// A record whose body is complete and whose header is not.
pub(crate) struct SealedRecord<'a> {
    /// Where the header goes.
    pub(crate) header: &'a mut [u8],
    pub(crate) body_bytes: u64,
    pub(crate) commands: u32,
}

impl SealedRecord<'_> {
    /// Fills the header in, but for what only the writer knows.
    pub(crate) fn fill(self, sequence: u64) -> Result<(), LogError> {
        let body_bytes = u32::try_from(self.body_bytes).map_err(|_| LogError::TooLarge { bytes: self.body_bytes })?;
        let header = RecordHeader {
            checksum: 0.into(),
            sequence: sequence.into(),
            undurable: 0.into(),
            body_bytes: body_bytes.into(),
            commands: self.commands.into(),
            kind: COMMANDS.into(),
        };
        self.header.copy_from_slice(header.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A database and words.
    type Command = (u8, Vec<Vec<u8>>);

    fn read(record: &Record<'_>) -> Result<Vec<Command>, MalformedRecord> {
        let mut commands = record.commands();
        let (mut all, mut words) = (Vec::new(), Vec::new());
        while let Some(db) = commands.next_into(&mut words)? {
            all.push((db, words.iter().map(|word| record.body()[word.clone()].to_vec()).collect()));
        }
        Ok(all)
    }

    fn command() -> impl Strategy<Value = Command> {
        (0..16u8, prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..5))
    }

    proptest! {
        #[test]
        fn commands_are_read_as_they_were_written(
            records in prop::collection::vec((any::<i64>(), prop::collection::vec(command(), 1..4)), 1..4),
        ) {
            let mut batch = RecordBatch::default();
            for (now_ms, commands) in &records {
                let start = batch.bytes.len();
                for (db, words) in commands {
                    batch.command(*now_ms, *db, words.len());
                    words.iter().for_each(|word| batch.word(word));
                }
                let closed = batch.close().unwrap();
                let (body_bytes, count) = (closed.body_bytes as usize, closed.commands);
                let body = &batch.bytes[start + RECORD_HEADER_BYTES..][..body_bytes];
                let record = Record::new(1, count, body);
                prop_assert_eq!(record.now_ms().unwrap(), *now_ms);
                prop_assert_eq!(&read(&record).unwrap(), commands);
                prop_assert!(batch.bytes.len().is_multiple_of(8));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(commands in 0u32..5, body in prop::collection::vec(any::<u8>(), 0..60)) {
            let record = Record::new(1, commands, &body);
            let bytes: usize = read(&record).map_or(0, |all| all.iter().flat_map(|(_, words)| words).map(Vec::len).sum());
            prop_assert!(bytes <= body.len());
        }
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        let body = [&[0u8; 8][..], &[0, 0xff, 0xff, 0xff, 0xff, 0x1f]].concat();
        assert!(read(&Record::new(1, 1, &body)).is_err());
        let body = [&[0u8; 8][..], &[0, 0x80, 0x80, 0x80, 0x80, 0x80, 0]].concat();
        assert!(read(&Record::new(1, 1, &body)).is_err());
    }
}

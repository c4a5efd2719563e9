//! Values that lie in one string: listpacks and the forms before them, gone through word by word.
//!
//! Relies on each form's own file for where a word ends. The bytes are checked as they are read, each step against the end.

use crate::word::{Word, Wrong};
use crate::{intset, listpack, ziplist, zipmap};

/// The form of packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

/// Packed bytes that are gone through.
#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    form: Form,
    at: usize,
    /// Words so far.
    words: u64,
    /// Bytes of the word before, where the form says it.
    before: usize,
    ended: bool,
}

impl Packed {
    /// Begins with the first word.
    pub(crate) fn open(form: Form, bytes: Vec<u8>) -> Result<Self, Wrong> {
        let at = match form {
            Form::Listpack => listpack::open(&bytes)?,
            Form::Ziplist => ziplist::open(&bytes)?,
            Form::Zipmap => zipmap::open(&bytes)?,
            Form::Intset => intset::open(&bytes)?,
        };
        Ok(Self { bytes, form, at, words: 0, before: 0, ended: false })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The next word; `None` at the end, which is checked to be where it should be.
    pub(crate) fn next(&mut self) -> Result<Option<Word>, Wrong> {
        if self.ended {
            return Ok(None);
        }
        let step = match self.form {
            Form::Listpack => listpack::step(&self.bytes, self.at)?,
            Form::Ziplist => ziplist::step(&self.bytes, self.at, self.before)?,
            Form::Zipmap => zipmap::step(&self.bytes, self.at, self.words)?,
            Form::Intset => intset::step(&self.bytes, self.at)?,
        };
        match step {
            Some((word, next)) => {
                self.before = next - self.at;
                self.at = next;
                self.words += 1;
                Ok(Some(word))
            }
            None => {
                self.ended = true;
                self.check_count()?;
                Ok(None)
            }
        }
    }

    fn check_count(&self) -> Result<(), Wrong> {
        let said = match self.form {
            Form::Listpack => listpack::count(&self.bytes),
            Form::Ziplist => ziplist::count(&self.bytes),
            Form::Zipmap => zipmap::count(&self.bytes),
            Form::Intset => None,
        };
        if said.is_none_or(|said| said == self.words) { Ok(()) } else { Err("packed words are not as many as is said") }
    }

    /// Appends the text of the next word to `to`, which is emptied before; false at the end.
    pub(crate) fn next_into(&mut self, to: &mut Vec<u8>) -> Result<bool, Wrong> {
        to.clear();
        let Some(word) = self.next()? else { return Ok(false) };
        to.extend_from_slice(word.text(&self.bytes, &mut itoa::Buffer::new()));
        Ok(true)
    }

    /// The next word, which has to be a number.
    pub(crate) fn number(&mut self) -> Result<i64, Wrong> {
        match self.next()? {
            Some(Word::Int(value)) => Ok(value),
            Some(word) => {
                let mut buffer = itoa::Buffer::new();
                let text = std::str::from_utf8(word.text(&self.bytes, &mut buffer)).ok();
                text.and_then(|text| text.parse().ok()).ok_or("text where a number should be")
            }
            None => Err("packed words end too early"),
        }
    }
}

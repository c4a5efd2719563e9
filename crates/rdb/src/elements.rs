//! Values of many parts, read one part after the other: elements, pairs of field and value, members with scores.
//!
//! Relies on `packed` for parts that lie in one string. Whether a part comes twice is for the caller to see.

use std::io::Read;

use crate::error::Result;
use crate::input::Input;
use crate::packed::{Form, Packed};

/// How the parts are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ElementSource {
    /// A count, and so many strings for each.
    Strings { each: u64 },
    /// One string.
    Packed { form: Form },
    /// A count, and so many strings of packed elements, or of one element each where they are marked so.
    Nodes { are_marked: bool },
}

/// A node of one element.
const PLAIN_NODE: u64 = 1;
/// A node of packed elements.
const PACKED_NODE: u64 = 2;

/// Parts that are being read.
#[derive(Debug)]
pub struct Elements<'r, R> {
    input: &'r mut Input<R>,
    source: ElementSource,
    /// Strings or nodes that are still to be read.
    left: u64,
    packed: Option<Packed>,
}

impl<'r, R: Read> Elements<'r, R> {
    pub(crate) fn begin(input: &'r mut Input<R>, source: ElementSource) -> Result<Self> {
        let (mut left, mut packed) = (0, None);
        match source {
            ElementSource::Strings { each } => {
                left = input.length()?;
                left = match left.checked_mul(each) {
                    Some(left) => left,
                    None => return input.malformed("more parts than there can be"),
                };
            }
            ElementSource::Nodes { .. } => left = input.length()?,
            ElementSource::Packed { form } => packed = Some(open(input, form)?),
        }
        input.in_value = true;
        Ok(Self { input, source, left, packed })
    }

    /// Reads the next element in the place of what `to` holds; false at the end.
    ///
    /// # Errors
    /// The bytes end or are malformed.
    pub fn next_into(&mut self, to: &mut Vec<u8>) -> Result<bool> {
        loop {
            if let Some(packed) = &mut self.packed {
                match packed.next_into(to) {
                    Ok(true) => return Ok(true),
                    Ok(false) => self.packed = None,
                    Err(what) => return self.input.malformed(what),
                }
            }
            if self.left == 0 {
                self.input.in_value = false;
                return Ok(false);
            }
            self.left -= 1;
            match self.source {
                ElementSource::Strings { .. } => return self.input.string_into(to).map(|()| true),
                ElementSource::Nodes { are_marked: false } => self.packed = Some(open(self.input, Form::Ziplist)?),
                ElementSource::Nodes { are_marked: true } => match self.input.length()? {
                    PLAIN_NODE => return self.input.string_into(to).map(|()| true),
                    PACKED_NODE => self.packed = Some(open(self.input, Form::Listpack)?),
                    _ => return self.input.malformed("a node of a list of no known form"),
                },
                ElementSource::Packed { .. } => {}
            }
        }
    }

    /// The next element, which has to be there.
    fn next_of_pair(&mut self, to: &mut Vec<u8>) -> Result<()> {
        if self.next_into(to)? { Ok(()) } else { self.input.malformed("a field or member without what belongs to it") }
    }
}

fn open<R: Read>(input: &mut Input<R>, form: Form) -> Result<Packed> {
    let bytes = input.string()?;
    Packed::open(form, bytes).or_else(|what| input.malformed(what))
}

/// Fields and values that are being read.
#[derive(Debug)]
pub struct Pairs<'r, R> {
    elements: Elements<'r, R>,
    /// When the last pair that was read expires is told how.
    times: PairTimes,
    /// That instant, in Unix milliseconds; 0 if there is none.
    expire_ms: u64,
    time: Vec<u8>,
}

/// How instants stand beside pairs: before each, or behind it where pairs are packed. 0 stands for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PairTimes {
    /// Not at all.
    None,
    /// As they are.
    Absolute,
    /// From one millisecond before this instant on.
    Since(u64),
}

/// The last instant at which a field of a hash may expire, in Unix milliseconds.
pub const MAX_FIELD_EXPIRY_MS: u64 = (1 << 48) - 1;

impl<'r, R: Read> Pairs<'r, R> {
    pub(crate) fn begin(input: &'r mut Input<R>, source: ElementSource) -> Result<Self> {
        let elements = Elements::begin(input, source)?;
        Ok(Self { elements, times: PairTimes::None, expire_ms: 0, time: Vec::new() })
    }

    /// Pairs with instants at which they expire, before which the earliest one is told, or not.
    pub(crate) fn begin_mortal(input: &'r mut Input<R>, source: ElementSource, tells_earliest: bool) -> Result<Self> {
        let mut times = PairTimes::Absolute;
        if tells_earliest {
            let earliest_ms = u64::from_le_bytes(input.array()?);
            // Those of packed pairs are told in full all the same.
            if !matches!(source, ElementSource::Packed { .. }) {
                times = PairTimes::Since(earliest_ms);
            }
        }
        Ok(Self { times, ..Self::begin(input, source)? })
    }

    /// Reads the next field and value in the place of what these hold; false at the end.
    ///
    /// # Errors
    /// The bytes end or are malformed.
    pub fn next_into(&mut self, field: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let is_packed = matches!(self.elements.source, ElementSource::Packed { .. });
        let has_time = self.times != PairTimes::None;
        if has_time && !is_packed && self.elements.left > 0 {
            let time = self.elements.input.length()?;
            self.set_time(Some(time))?;
        }
        if !self.elements.next_into(field)? {
            return Ok(false);
        }
        self.elements.next_of_pair(value)?;
        if has_time && is_packed {
            self.elements.next_of_pair(&mut self.time)?;
            let time = std::str::from_utf8(&self.time).ok().and_then(|text| text.parse().ok());
            self.set_time(time)?;
        }
        Ok(true)
    }

    /// Notes the instant that was read; `None` if it is no number.
    fn set_time(&mut self, time: Option<u64>) -> Result<()> {
        let expire_ms = time.and_then(|time| match self.times {
            PairTimes::Since(earliest_ms) if time > 0 => earliest_ms.checked_add(time - 1),
            _ => Some(time),
        });
        match expire_ms {
            Some(expire_ms @ 0..=MAX_FIELD_EXPIRY_MS) => self.expire_ms = expire_ms,
            Some(_) | None => return self.elements.input.malformed("a field that expires at no instant"),
        }
        Ok(())
    }

    /// When the field that was read last expires, in Unix milliseconds.
    pub fn expire_ms(&self) -> Option<i64> {
        i64::try_from(self.expire_ms).ok().filter(|at_ms| *at_ms > 0)
    }
}

/// Members with scores that are being read.
#[derive(Debug)]
pub struct Scored<'r, R> {
    elements: Elements<'r, R>,
    /// A score is eight bytes behind its member.
    is_binary: bool,
    score: Vec<u8>,
}

impl<'r, R: Read> Scored<'r, R> {
    pub(crate) fn begin(input: &'r mut Input<R>, source: ElementSource, is_binary: bool) -> Result<Self> {
        Ok(Self { elements: Elements::begin(input, source)?, is_binary, score: Vec::new() })
    }

    /// Reads the next member in the place of what `member` holds; its score, or `None` at the end.
    ///
    /// # Errors
    /// The bytes end or are malformed; a score is not a number.
    pub fn next_into(&mut self, member: &mut Vec<u8>) -> Result<Option<f64>> {
        if !self.elements.next_into(member)? {
            return Ok(None);
        }
        let score = match self.elements.source {
            ElementSource::Packed { .. } => {
                self.elements.next_of_pair(&mut self.score)?;
                number(&self.score)
            }
            _ if self.is_binary => Some(f64::from_le_bytes(self.elements.input.array()?)),
            _ => text_score(self.elements.input)?,
        };
        match score.filter(|score| !score.is_nan()) {
            Some(score) => Ok(Some(score)),
            None => self.elements.input.malformed("a score that is not a number"),
        }
    }
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A score behind its length, some of which stand for scores themselves.
fn text_score<R: Read>(input: &mut Input<R>) -> Result<Option<f64>> {
    let len = match input.byte()? {
        255 => return Ok(Some(f64::NEG_INFINITY)),
        254 => return Ok(Some(f64::INFINITY)),
        253 => return Ok(None),
        len => usize::from(len),
    };
    let mut text = [0; 253];
    for byte in &mut text[..len] {
        *byte = input.byte()?;
    }
    Ok(number(&text[..len]))
}

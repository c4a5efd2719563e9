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
    /// A time to live stands before each pair, or behind it where they are packed.
    are_mortal: bool,
    /// Fields that had a time to live.
    mortal_fields: u64,
    time: Vec<u8>,
}

impl<'r, R: Read> Pairs<'r, R> {
    pub(crate) fn begin(input: &'r mut Input<R>, source: ElementSource) -> Result<Self> {
        let elements = Elements::begin(input, source)?;
        Ok(Self { elements, are_mortal: false, mortal_fields: 0, time: Vec::new() })
    }

    /// Pairs with times to live, before which the earliest one is told, or not.
    pub(crate) fn begin_mortal(input: &'r mut Input<R>, source: ElementSource, tells_earliest: bool) -> Result<Self> {
        if tells_earliest {
            input.array::<8>()?;
        }
        Ok(Self { are_mortal: true, ..Self::begin(input, source)? })
    }

    /// Reads the next field and value in the place of what these hold; false at the end.
    ///
    /// # Errors
    /// The bytes end or are malformed.
    pub fn next_into(&mut self, field: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let is_packed = matches!(self.elements.source, ElementSource::Packed { .. });
        if self.are_mortal && !is_packed && self.elements.left > 0 {
            let time = self.elements.input.length()?;
            self.mortal_fields += u64::from(time != 0);
        }
        if !self.elements.next_into(field)? {
            return Ok(false);
        }
        self.elements.next_of_pair(value)?;
        if self.are_mortal && is_packed {
            self.elements.next_of_pair(&mut self.time)?;
            self.mortal_fields += u64::from(self.time != b"0");
        }
        Ok(true)
    }

    /// How many of the fields so far had a time to live, which is not told otherwise.
    pub fn mortal_fields(&self) -> u64 {
        self.mortal_fields
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

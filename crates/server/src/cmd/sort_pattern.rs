//! The patterns of SORT: which key, or which field of which hash, belongs to an element. Relies on the store for looking them up.

use std::ops::Range;

use quire_store::{DbId, Keyspace, StoreError, hash, string};

/// What is taken for each element.
#[derive(Clone, Copy, Debug)]
pub enum Pattern<'a> {
    /// The element itself.
    Element,
    /// Nothing: there is no place for the element in it.
    Constant,
    /// The value of a key, or of a hash's field.
    Key {
        /// In front of the element.
        prefix: &'a [u8],
        /// Behind it.
        suffix: &'a [u8],
        /// The field of the hash that the key is.
        field: Option<&'a [u8]>,
    },
}

/// Where `wanted` begins in `text`, before its first zero byte: as in C the text ends there.
fn position(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    text[..end].windows(wanted.len()).position(|part| part == wanted)
}

impl<'a> Pattern<'a> {
    /// Reads one.
    pub fn parse(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" || text.starts_with(b"#\0") {
            return Pattern::Element;
        }
        let Some(star) = position(text, b"*") else { return Pattern::Constant };
        let (prefix, rest) = (&text[..star], &text[star + 1..]);
        // An arrow with nothing behind it belongs to the key.
        match position(rest, b"->").filter(|at| rest.get(at + 2).is_some_and(|&byte| byte != 0)) {
            Some(at) => Pattern::Key { prefix, suffix: &rest[..at], field: Some(&rest[at + 2..]) },
            None => Pattern::Key { prefix, suffix: rest, field: None },
        }
    }

    /// Whether it is the same for each element.
    pub fn is_constant(text: &[u8]) -> bool {
        position(text, b"*").is_none()
    }

    /// What belongs to an element; `None` if there is nothing, or a value of another type. `name` is a buffer.
    pub fn look_up<'s>(
        &self,
        store: &'s mut Keyspace,
        db: DbId,
        element: &'s [u8],
        name: &mut Vec<u8>,
    ) -> Result<Option<&'s [u8]>, StoreError> {
        let (prefix, suffix, field) = match *self {
            Pattern::Element => return Ok(Some(element)),
            Pattern::Constant => return Ok(None),
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
        };
        name.clear();
        [prefix, element, suffix].into_iter().for_each(|part| name.extend_from_slice(part));
        let found = match field {
            Some(field) => hash::get(store, db, name, field),
            None => string::get(store, db, name),
        };
        match found {
            Err(StoreError::WrongType) => Ok(None),
            found => found,
        }
    }
}

/// Bytes one after the other, with the places of their parts.
#[derive(Debug, Default)]
pub struct Parts {
    bytes: Vec<u8>,
}

impl Parts {
    /// Adds bytes; returns where they lie.
    pub fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// The bytes of a part.
    pub fn get(&self, part: &Range<usize>) -> &[u8] {
        self.bytes.get(part.clone()).unwrap_or_default()
    }

    /// Bytes of all parts.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_fields_are_named_around_the_element() {
        let parts = |text: &'static [u8]| match Pattern::parse(text) {
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
            other => panic!("{other:?}"),
        };
        assert_eq!(parts(b"w_*"), (&b"w_"[..], &b""[..], None));
        assert_eq!(parts(b"w_*_*->f*"), (&b"w_"[..], &b"_*"[..], Some(&b"f*"[..])));
        assert_eq!(parts(b"a->*b->c->d"), (&b"a->"[..], &b"b"[..], Some(&b"c->d"[..])));
        assert_eq!(parts(b"*->"), (&b""[..], &b"->"[..], None));
        assert_eq!(parts(b"*->\0"), (&b""[..], &b"->\0"[..], None));
        assert!(matches!(Pattern::parse(b"#"), Pattern::Element));
        assert!(matches!(Pattern::parse(b"#x"), Pattern::Constant));
        assert!(matches!(Pattern::parse(b"\0*"), Pattern::Constant));
        assert!(Pattern::is_constant(b"nosort") && !Pattern::is_constant(b"x*"));
    }
}

//! Which keys a client must not take from a cache of its own any more, as a part of the message that tells it so. Relies on nothing.

use std::borrow::Cow;
use std::sync::Arc;

use crate::resp::Protocol;

/// Keys that are not valid any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvalidKeys {
    /// One.
    One(Box<[u8]>),
    /// Several, as the array of a reply.
    Array(Arc<[u8]>),
    /// All that there are.
    All,
}

impl InvalidKeys {
    /// Several keys.
    pub fn several<'k>(keys: impl Iterator<Item = &'k [u8]>, count: usize) -> Self {
        Self::Array(array_of(keys, count).into())
    }

    /// As a part of a message to a client of this protocol.
    pub fn encoded(&self, protocol: Protocol) -> Cow<'_, [u8]> {
        match self {
            Self::One(key) => Cow::Owned(array_of(std::iter::once(&**key), 1)),
            Self::Array(bytes) => Cow::Borrowed(bytes),
            Self::All if protocol == Protocol::Resp3 => Cow::Borrowed(b"_\r\n"),
            Self::All => Cow::Borrowed(b"$-1\r\n"),
        }
    }

    /// Memory that they take while they wait for a client.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::One(key) => size_of::<Self>() + key.len(),
            // Others may share it, but it may be one's alone.
            Self::Array(bytes) => size_of::<Self>() + bytes.len(),
            Self::All => size_of::<Self>(),
        }
    }
}

fn array_of<'k>(keys: impl Iterator<Item = &'k [u8]>, count: usize) -> Vec<u8> {
    let mut bytes = format!("*{count}\r\n").into_bytes();
    for key in keys {
        bytes.extend_from_slice(format!("${}\r\n", key.len()).as_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_the_null_of_the_protocol() {
        assert_eq!(&*InvalidKeys::All.encoded(Protocol::Resp2), b"$-1\r\n");
        assert_eq!(&*InvalidKeys::All.encoded(Protocol::Resp3), b"_\r\n");
        assert_eq!(&*InvalidKeys::One(Box::from(&b"a\r"[..])).encoded(Protocol::Resp3), b"*1\r\n$2\r\na\r\r\n");
    }
}

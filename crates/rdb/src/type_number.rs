//! The numbers of types and of entries, and what a file says of a key beside its value. Relies on nothing.

/// The number of a type of values, as it stands before the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TypeNumber(pub(crate) u8);

impl TypeNumber {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET_TEXT: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const ZSET: u8 = 5;
    pub(crate) const MODULE: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_ZIPLISTS: u8 = 14;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_LISTPACKS: u8 = 18;
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_3: u8 = 21;
    pub(crate) const HASH_TTL_EARLY: u8 = 22;
    pub(crate) const HASH_LISTPACK_TTL_EARLY: u8 = 23;
    pub(crate) const HASH_TTL: u8 = 24;
    pub(crate) const HASH_LISTPACK_TTL: u8 = 25;
    /// The highest.
    pub(crate) const LAST: u8 = Self::HASH_LISTPACK_TTL;
}

/// What stands before what.
pub(crate) mod opcode {
    pub(crate) const SLOT_INFO: u8 = 244;
    pub(crate) const FUNCTION: u8 = 245;
    /// As the release candidates of redis-server 7.0 wrote it.
    pub(crate) const FUNCTION_EARLY: u8 = 246;
    pub(crate) const MODULE_AUX: u8 = 247;
    pub(crate) const IDLE: u8 = 248;
    pub(crate) const FREQUENCY: u8 = 249;
    pub(crate) const AUX: u8 = 250;
    pub(crate) const RESIZE_DB: u8 = 251;
    pub(crate) const EXPIRE_MS: u8 = 252;
    pub(crate) const EXPIRE_S: u8 = 253;
    pub(crate) const SELECT_DB: u8 = 254;
    pub(crate) const END: u8 = 255;
}

/// What is known of a key beside its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyFacts {
    /// When it expires, in Unix milliseconds.
    pub expire_ms: Option<i64>,
    /// For how many seconds it was not used.
    pub idle_s: Option<u64>,
    /// How often it is used, on Redis' scale.
    pub frequency: Option<u8>,
}

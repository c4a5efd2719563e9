//! Settings of a store.

use quire_checkpoint::Codec;

use crate::limits::EncodingLimits;

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Most bytes that the arena may span, at most [`StoreConfig::MAX_MEMORY_BYTES`]. Beyond [`StoreConfig::USUAL_MEMORY_BYTES`] nodes of sorted sets are a
    /// sixteenth larger.
    pub max_memory_bytes: u64,
    /// An image that spans more than `max_memory_bytes` is not refused, but raises that limit to twice what it spans.
    pub raise_limit_for_image: bool,
    /// Most memory for pre-images of a snapshot, in bytes.
    pub budget_bytes: usize,
    /// Up to what size values are packed.
    pub limits: EncodingLimits,
    /// Databases, at most 16.
    pub databases: u8,
    /// Most bytes a second that a save in the background writes; 0 is no limit.
    pub max_save_bytes_per_s: u64,
    /// Most deltas over an image, until a save is a full image again; 0 if every save is one.
    pub max_deltas: u32,
    /// How saves compress regions, if they do.
    pub compression: Option<Codec>,
    /// What the hashes of a new store's tables and all that commands draw by chance follow from: for tests that must go alike each
    /// time. `None`, which any store needs that outsiders fill, has it from the system: who knows it can make keys that collide.
    pub seed: Option<u64>,
}

impl StoreConfig {
    /// What an arena may span at most: what handles can name.
    pub const MAX_MEMORY_BYTES: u64 = quire_arena::MAX_BYTES;
    /// What it spans if nothing else is asked for: what handles of 32 bits can name.
    pub const USUAL_MEMORY_BYTES: u64 = quire_arena::NARROW_BYTES;
}

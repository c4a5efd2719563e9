//! Settings of a store.

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Most bytes that the arena may span, at most 64 GiB.
    pub max_memory_bytes: u64,
    /// Most memory for pre-images of a snapshot, in bytes.
    pub budget_bytes: usize,
    /// Up to what size values are packed.
    pub limits: Limits,
    /// Databases, at most 16.
    pub databases: u8,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig { max_memory_bytes: 64 << 30, budget_bytes: 64 << 20, limits: Limits::default(), databases: 16 }
    }
}

/// Up to what size values are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A hash of more fields becomes a table (`hash-max-listpack-entries`).
    pub hash_max_packed_entries: usize,
    /// A hash with a longer field or value becomes a table (`hash-max-listpack-value`).
    pub hash_max_packed_value: usize,
    /// A set of more integers becomes a table (`set-max-intset-entries`).
    pub set_max_int_entries: usize,
    /// A set of more members becomes a table (`set-max-listpack-entries`).
    pub set_max_packed_entries: usize,
    /// A set with a longer member becomes a table (`set-max-listpack-value`).
    pub set_max_packed_value: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            hash_max_packed_entries: 128,
            hash_max_packed_value: 64,
            set_max_int_entries: 512,
            set_max_packed_entries: 128,
            set_max_packed_value: 64,
        }
    }
}

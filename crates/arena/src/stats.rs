//! How an arena uses its memory.

/// Figures of an arena, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// In slots and large objects that are in use, rounded up to their classes.
    pub allocated_bytes: u64,
    /// Objects in use.
    pub objects: u64,
    /// In pages that belong to slabs or large objects.
    pub used_bytes: u64,
    /// In free runs, whether backed or given back to the system.
    pub free_bytes: u64,
    /// Spanned from the base, descriptors included.
    pub committed_bytes: u64,
    /// Most that may be spanned.
    pub max_bytes: u64,
    /// In free runs that aren't backed: never used, or given back to the system.
    pub released_bytes: u64,
}

impl ArenaStats {
    /// Bytes held for each byte in use; 1 for an empty arena.
    pub fn fragmentation(&self) -> f64 {
        if self.allocated_bytes == 0 { 1.0 } else { self.backed_bytes() as f64 / self.allocated_bytes as f64 }
    }

    /// Bytes that the arena keeps from the system: all that it spans less what it gave back.
    pub fn backed_bytes(&self) -> u64 {
        self.used_bytes + self.free_bytes.saturating_sub(self.released_bytes)
    }
}

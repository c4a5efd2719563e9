//! How an image is restored.

use quire_snapshot::WriteBarrierConfig;

/// How to restore.
#[derive(Clone, Copy, Debug)]
pub struct RestoreOptions {
    /// Most bytes that the memory may ever span.
    pub max_bytes: u64,
    /// Settings of the barrier before the memory.
    pub barrier: WriteBarrierConfig,
    /// Use regions even if their bytes are not what was written.
    pub accept_damaged: bool,
}

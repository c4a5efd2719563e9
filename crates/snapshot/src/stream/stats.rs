//! What a barrier has done and what it has cost the writer.

/// Figures of a barrier since it was made, except where "now" says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBarrierStats {
    /// Cuts made.
    pub cuts: u64,
    /// Time the last cut kept the writer, in nanoseconds.
    pub last_cut_ns: u64,
    /// Pages that the writer copied before it changed them.
    pub preimage_pages: u64,
    /// Bytes of pre-images held now.
    pub preimage_bytes_now: u64,
    /// Most bytes of pre-images held at once in the current or last snapshot.
    pub preimage_bytes_peak: u64,
    /// Times the writer waited, for a page being copied or for a buffer.
    pub waits: u64,
    /// Total of these waits in nanoseconds.
    pub wait_total_ns: u64,
    /// Longest of these waits in nanoseconds.
    pub wait_longest_ns: u64,
    /// Waits because the budget of pre-images was used up (the others: the reader was copying the page).
    pub budget_waits: u64,
    /// Most bytes of pre-images allowed.
    pub budget_bytes: u64,
    /// Pages written for the first time since the last cut.
    pub pages_written: u64,
}

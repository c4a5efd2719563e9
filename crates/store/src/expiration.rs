//! Where the search for expired keys stands. Lives in ordinary memory: after a restart it begins anew.

use crate::root::DATABASES;

/// Progress of the active search through the expiring keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expiration {
    /// The database to go on with.
    pub(crate) db: usize,
    /// Cursor in each database's index.
    pub(crate) cursors: [u64; DATABASES],
    /// Running average of the time that keys have left.
    pub(crate) avg_ttl_ms: [u64; DATABASES],
}

impl Expiration {
    /// Takes a sample of times left into the average, weighing it as Redis does.
    pub(crate) fn sample(&mut self, db: usize, total_ms: u64, keys: u64) {
        let Some(now_ms) = total_ms.checked_div(keys) else { return };
        let average_ms = &mut self.avg_ttl_ms[db];
        *average_ms = if *average_ms == 0 { now_ms } else { *average_ms / 50 * 49 + now_ms / 50 };
    }
}

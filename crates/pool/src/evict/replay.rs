//! Plays a trace of page touches against a policy, as the pool would, and counts.

use std::collections::HashMap;

use super::{EvictOutcome, PolicyKind, ResidentPages};

/// How a trace went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayResult {
    /// Touches of pages that were in memory.
    pub hits: u64,
    /// All touches.
    pub touches: u64,
}

impl ReplayResult {
    /// Hits among all touches, 0 to 1.
    pub fn hit_ratio(self) -> f64 {
        self.hits as f64 / self.touches.max(1) as f64
    }
}

/// The pages in memory and how often each was touched.
struct Resident(HashMap<u64, u8>);

impl ResidentPages for Resident {
    fn touches(&mut self, page: u64) -> u8 {
        self.0.get(&page).copied().unwrap_or(0)
    }

    fn decay(&mut self, page: u64, most: u8) {
        if let Some(touches) = self.0.get_mut(&page) {
            *touches = (*touches).min(most);
        }
    }

    fn take(&mut self, page: u64) -> EvictOutcome {
        if self.0.remove(&page).is_some() { EvictOutcome::Evicted } else { EvictOutcome::Stale }
    }
}

/// Touches the pages of `trace` one after the other in a memory of `capacity` pages, evicting `batch` at a time.
pub fn replay(kind: PolicyKind, capacity: usize, batch: usize, trace: impl IntoIterator<Item = u64>) -> ReplayResult {
    let mut policy = kind.policy(capacity);
    let mut resident = Resident(HashMap::new());
    let mut outcome = ReplayResult { hits: 0, touches: 0 };
    for page in trace {
        outcome.touches += 1;
        if let Some(touches) = resident.0.get_mut(&page) {
            outcome.hits += 1;
            *touches = (*touches + 1).min(3);
            policy.touch(page);
            continue;
        }
        if resident.0.len() >= capacity {
            policy.evict(batch, &mut resident);
        }
        // The miss itself is no touch of its own: `end_read` counts none.
        resident.0.insert(page, 0);
        policy.insert(page);
    }
    outcome
}

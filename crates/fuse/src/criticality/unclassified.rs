//! Programs that wait for flushes although neither a hint nor a rule says anything of them.
//!
//! They get nothing from a policy that asks who is critical, so the operator is told of them: in the log, once for each program
//! and when it has flushed [`MANY`] times, and in the figures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many flushes are worth a hint.
const MANY: u64 = 100;
/// Most programs that are counted.
const MOST: usize = 64;

/// Flushes of such programs, by the short name of the process.
#[derive(Debug, Default)]
pub struct UnclassifiedPrograms {
    is_counting: AtomicBool,
    flushes: Mutex<BTreeMap<String, u64>>,
}

impl UnclassifiedPrograms {
    fn flushes(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count: the policy asks who is critical.
    pub fn start(&self) {
        self.is_counting.store(true, Relaxed);
    }

    /// This program waits for a flush, and nothing is known of it.
    pub fn note(&self, program: &str) {
        if !self.is_counting.load(Relaxed) {
            return;
        }
        let mut flushes = self.flushes();
        if flushes.len() >= MOST && !flushes.contains_key(program) {
            return;
        }
        let count = flushes.entry(program.to_owned()).or_insert(0);
        *count += 1;
        if *count == MANY {
            tracing::warn!(
                program,
                flushes = MANY,
                "no rule says who waits for this program, so its flushes wait for the slow device: mount with --critical NAME, \
                 add the rule `critical comm=NAME`, run `quire critical --comm NAME MOUNTPOINT`, or mount with --auto-critical"
            );
        }
    }

    /// A hint or a rule speaks of this program now.
    pub fn forget(&self, program: &str) {
        self.flushes().remove(program);
    }

    /// The programs that have flushed often, and how often.
    pub fn often(&self) -> Vec<(String, u64)> {
        let flushes = self.flushes();
        flushes.iter().filter(|(_, count)| **count >= MANY).map(|(name, count)| (name.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_of_from_the_hundredth_flush_on_until_something_is_said_of_them() {
        let unclassified = UnclassifiedPrograms::default();
        (0..MANY).for_each(|_| unclassified.note("app"));
        assert_eq!(unclassified.often(), [], "the policy does not ask");
        unclassified.start();
        (1..MANY).for_each(|_| unclassified.note("app"));
        assert_eq!(unclassified.often(), []);
        unclassified.note("app");
        unclassified.note("other");
        assert_eq!(unclassified.often(), [("app".to_owned(), MANY)]);
        unclassified.forget("app");
        assert_eq!(unclassified.often(), []);
    }

    #[test]
    fn no_more_programs_are_counted_than_there_is_room_for() {
        let unclassified = UnclassifiedPrograms::default();
        unclassified.start();
        (0..2 * MOST).for_each(|number| unclassified.note(&number.to_string()));
        assert_eq!(unclassified.flushes().len(), MOST);
        (0..MANY).for_each(|_| unclassified.note("0"));
        assert_eq!(unclassified.often(), [("0".to_owned(), MANY + 1)]);
    }
}

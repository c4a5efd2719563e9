//! Who is told when counting begins and ends, while a load runs.
//!
//! Relies on being told exactly once each, and on the load still running then.

use super::testbed::counters::CacheCounters;
use super::testbed::storage_stack::StorageStack;

/// Is told.
pub trait TrialObserver {
    /// From now on everything counts.
    ///
    /// # Errors
    /// When there is no sense in going on.
    fn begins(&mut self) -> anyhow::Result<()>;

    /// Nothing counts any more; the load is about to stop.
    ///
    /// # Errors
    /// When what was counted is worth nothing.
    fn ends(&mut self) -> anyhow::Result<()>;
}

/// Watches nothing.
#[cfg(test)]
#[derive(Debug, Default)]
pub struct NoObserver;

#[cfg(test)]
impl TrialObserver for NoObserver {
    fn begins(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Notes what the cache counts meanwhile, and makes the disks fast again at the end, so that the load can stop.
#[derive(Debug)]
pub struct CounterObserver<'a> {
    stack: &'a mut StorageStack,
    before: CacheCounters,
    between: CacheCounters,
}

impl<'a> CounterObserver<'a> {
    /// An observer of `stack`.
    pub fn new(stack: &'a mut StorageStack) -> Self {
        Self { stack, before: CacheCounters::default(), between: CacheCounters::default() }
    }

    /// What was counted.
    pub fn counted(self) -> CacheCounters {
        self.between
    }
}

impl TrialObserver for CounterObserver<'_> {
    fn begins(&mut self) -> anyhow::Result<()> {
        self.before = self.stack.counters()?;
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<()> {
        let after = self.stack.counters();
        self.stack.speed_up();
        self.between = after?.since(&self.before);
        Ok(())
    }
}

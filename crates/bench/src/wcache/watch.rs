//! Who is told when counting begins and ends, while a load runs.
//!
//! Relies on being told exactly once each, and on the load still running then.

use super::lab::counters::Counters;
use super::lab::stage::Stage;

/// Is told.
pub trait Watch {
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
pub struct Unwatched;

#[cfg(test)]
impl Watch for Unwatched {
    fn begins(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Notes what the cache counts meanwhile, and makes the disks fast again at the end, so that the load can stop.
#[derive(Debug)]
pub struct StageWatch<'a> {
    stage: &'a mut Stage,
    before: Counters,
    between: Counters,
}

impl<'a> StageWatch<'a> {
    /// A watch over `stage`.
    pub fn new(stage: &'a mut Stage) -> Self {
        Self { stage, before: Counters::default(), between: Counters::default() }
    }

    /// What was counted.
    pub fn counted(self) -> Counters {
        self.between
    }
}

impl Watch for StageWatch<'_> {
    fn begins(&mut self) -> anyhow::Result<()> {
        self.before = self.stage.counters()?;
        Ok(())
    }

    fn ends(&mut self) -> anyhow::Result<()> {
        let after = self.stage.counters();
        self.stage.speed_up();
        self.between = after?.since(&self.before);
        Ok(())
    }
}

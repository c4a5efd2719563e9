//! Ctrl-C and SIGTERM, noted instead of ending the process, so that mounts and loop devices are taken down in order.
//!
//! Relies on every wait asking [`Interrupt::check`] now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Whether a signal asked for the end of the experiment. Clones ask about the same.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on interrupts are noted.
    ///
    /// # Errors
    /// When signals can't be had.
    pub fn noted() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).context("waiting for interrupts")?;
        }
        Ok(interrupt)
    }

    /// Ends the experiment if a signal asked for that.
    ///
    /// # Errors
    /// When there was an interrupt.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits, unless there is an interrupt.
    ///
    /// # Errors
    /// When there was one.
    pub fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

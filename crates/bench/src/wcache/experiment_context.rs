//! What all parts of the experiment share.
//!
//! Relies on nothing but what it holds.

use std::path::PathBuf;

use super::scale::WcacheScale;
use super::testbed::interrupt::Interrupt;
use super::testbed::run_dir::RunDir;
use crate::progress::Progress;

/// The experiment's conditions.
#[derive(Debug)]
pub struct ExperimentContext {
    /// How much is done.
    pub scale: WcacheScale,
    /// Where.
    pub run_dir: RunDir,
    /// Whether a signal asked for its end.
    pub interrupt: Interrupt,
    /// Says what is going on.
    pub progress: Progress,
    /// The Quire binary.
    pub quire: PathBuf,
    /// First of the ports to use.
    pub port: u16,
}

//! All terminals at work on one database.
//!
//! Relies on a thread and a connection for each terminal; the server holds a process for each, as it does for any
//! client.

use std::path::Path;

use super::database_size::DatabaseSize;
use super::terminal;
use super::transaction::TransactionDeck;
use crate::wcache::load_phase;
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::storage_stack::TrialDuration;
use crate::wcache::trial_observer::TrialObserver;
use crate::wcache::trial_stats::TrialStats;

/// How the database is worked on.
#[derive(Clone, Copy, Debug)]
pub struct TerminalLoad<'a> {
    /// Where the server's socket is.
    pub sockets: &'a Path,
    /// The size of the database.
    pub size: DatabaseSize,
    /// How many terminals.
    pub terminals: usize,
    /// For how long.
    pub duration: TrialDuration,
    /// What all inputs follow from.
    pub seed: u64,
}

/// Runs the terminals; new orders are the operations that count.
///
/// # Errors
/// When the server fails, `observer` complains, or there was an interrupt.
pub fn run(
    drive: TerminalLoad<'_>,
    interrupt: &Interrupt,
    observer: &mut dyn TrialObserver,
) -> anyhow::Result<TrialStats> {
    load_phase::load(drive.terminals, drive.duration, interrupt, observer, |number, phase| {
        terminal::run(drive.sockets, TransactionDeck::new(drive.size, number as u32, drive.seed), phase)
    })
}

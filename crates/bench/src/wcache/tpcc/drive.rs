//! All terminals at work on one database.
//!
//! Relies on a thread and a connection for each terminal; the server holds a process for each, as it does for any
//! client.

use std::path::Path;

use super::input::Hand;
use super::size::Size;
use super::terminal;
use crate::wcache::lab::interrupt::Interrupt;
use crate::wcache::lab::stage::Span;
use crate::wcache::phase;
use crate::wcache::tally::Tally;
use crate::wcache::watch::Watch;

/// How the database is worked on.
#[derive(Clone, Copy, Debug)]
pub struct Drive<'a> {
    /// Where the server's socket is.
    pub sockets: &'a Path,
    /// The size of the database.
    pub size: Size,
    /// How many terminals.
    pub terminals: usize,
    /// For how long.
    pub span: Span,
    /// What all inputs follow from.
    pub seed: u64,
}

/// Runs the terminals; new orders are what the tally counts.
///
/// # Errors
/// When the server fails, `watch` complains, or there was an interrupt.
pub fn run(drive: Drive<'_>, interrupt: &Interrupt, watch: &mut dyn Watch) -> anyhow::Result<Tally> {
    phase::load(drive.terminals, drive.span, interrupt, watch, |number, phase| {
        terminal::run(drive.sockets, Hand::new(drive.size, number as u32, drive.seed), phase)
    })
}

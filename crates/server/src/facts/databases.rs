//! Facts of the databases commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

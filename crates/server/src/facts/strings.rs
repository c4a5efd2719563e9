//! Facts of the strings commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

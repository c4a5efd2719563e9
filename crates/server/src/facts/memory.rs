//! Facts of the memory commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

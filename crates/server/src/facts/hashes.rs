//! Facts of the hashes commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

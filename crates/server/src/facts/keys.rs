//! Facts of the keys commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

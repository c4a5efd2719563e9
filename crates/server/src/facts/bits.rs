//! Facts of the bits commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

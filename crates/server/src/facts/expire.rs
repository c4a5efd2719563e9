//! Facts of the expire commands.

use crate::table::*;

/// The facts.
pub static FACTS: &[CommandFacts] = &[];

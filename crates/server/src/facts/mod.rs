//! Command facts, one file per family. Each file exports `FACTS`, a slice of [`CommandFacts`].

use crate::table::CommandFacts;

pub mod bits;
pub mod connection;
pub mod databases;
pub mod expire;
pub mod hashes;
pub mod keys;
pub mod memory;
pub mod server;
pub mod strings;
pub mod transactions;

/// The facts of all families.
pub static ALL: &[&[CommandFacts]] = &[
    strings::FACTS,
    bits::FACTS,
    hashes::FACTS,
    keys::FACTS,
    expire::FACTS,
    databases::FACTS,
    memory::FACTS,
    connection::FACTS,
    transactions::FACTS,
    server::FACTS,
];

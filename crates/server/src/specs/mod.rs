//! Command specifications, one file per family. Each file exports `SPECS`, a slice of [`CommandSpec`].

use crate::table::CommandSpec;

pub mod acl;
pub mod bits;
pub mod cluster;
pub mod connection;
pub mod databases;
pub mod expire;
pub mod functions;
pub mod geo;
pub mod hash_expiry;
pub mod hashes;
pub mod hyperloglogs;
pub mod keys;
pub mod lists;
pub mod memory;
pub mod pubsub;
pub mod replication;
pub mod scripts;
pub mod server;
pub mod sets;
pub mod streams;
pub mod strings;
pub mod transactions;
pub mod zsets;

/// How commands differ that match names with a pattern.
const PATTERN_LENGTH: &str = "A pattern has at most 64 KiB.";
/// How commands differ that take away what they reply with.
const TAKEN_WITH_REPLY: &str =
    "Nothing is removed, and the command refused, if the reply would be larger than what a client may leave unread.";

/// The specifications of all families.
pub static ALL: &[&[CommandSpec]] = &[
    strings::SPECS,
    bits::SPECS,
    hashes::SPECS,
    hash_expiry::SPECS,
    sets::SPECS,
    lists::SPECS,
    zsets::SPECS,
    hyperloglogs::SPECS,
    geo::SPECS,
    streams::SPECS,
    keys::SPECS,
    expire::SPECS,
    databases::SPECS,
    memory::SPECS,
    connection::SPECS,
    transactions::SPECS,
    pubsub::SPECS,
    scripts::SPECS,
    functions::SPECS,
    server::SPECS,
    replication::SPECS,
    acl::SPECS,
    cluster::SPECS,
];

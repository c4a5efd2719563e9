//! The categories of commands, which follow from flags and family: what COMMAND INFO shows and what rules of users name.
//!
//! Relies on the table of command specifications.

use crate::table::*;

/// All categories, in the order in which ACL CAT tells them.
pub const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands of Redis that are not served. Rules of users may name them, so that users of Redis' files can be read.
pub const ABSENT: &[&str] = &["failover", "restore-asking"];

/// The category of this name, which has no `@`, whatever the case of its letters.
pub fn find(name: &[u8]) -> Option<&'static str> {
    CATEGORIES.iter().copied().find(|category| category.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a command is in a category, whose name has no `@`.
pub fn is_in(spec: &CommandSpec, category: &str) -> bool {
    categories(spec).iter().any(|name| name.strip_prefix('@') == Some(category))
}

/// The categories of a command, each with the `@` that rules put before it.
pub fn categories(spec: &CommandSpec) -> Vec<&'static str> {
    let mut names = Vec::new();
    if spec.has(WRITE) {
        names.push("@write");
    }
    // As in Redis: what reads no keys of its own is not in the category of readers, and neither is a script.
    if spec.has(READONLY) && spec.group != CommandGroup::Scripting {
        names.push("@read");
    }
    // What only holds subcommands belongs to no family.
    let is_container = !spec.subcommands.is_empty() && spec.arity < -1;
    match spec.group {
        _ if is_container => {}
        CommandGroup::Generic if spec.has(COLLECTIONS) => names.extend(["@set", "@sortedset", "@list"]),
        CommandGroup::Generic if spec.has(CONNECTION) => names.push("@connection"),
        CommandGroup::Generic => names.push("@keyspace"),
        CommandGroup::String => names.push("@string"),
        CommandGroup::Bitmap => names.push("@bitmap"),
        CommandGroup::Hash => names.push("@hash"),
        CommandGroup::Set => names.push("@set"),
        CommandGroup::List => names.push("@list"),
        CommandGroup::SortedSet => names.push("@sortedset"),
        CommandGroup::HyperLogLog => names.push("@hyperloglog"),
        CommandGroup::Geo => names.push("@geo"),
        CommandGroup::Stream => names.push("@stream"),
        CommandGroup::Transactions => names.push("@transaction"),
        CommandGroup::PubSub if spec.has(PUBSUB) => names.push("@pubsub"),
        CommandGroup::PubSub => {}
        CommandGroup::Scripting => {}
        CommandGroup::Connection => names.push("@connection"),
        CommandGroup::Cluster if spec.has(CONNECTION) => names.push("@connection"),
        CommandGroup::Cluster => {}
        CommandGroup::Server if spec.has(CONNECTION) => names.push("@connection"),
        CommandGroup::Server if spec.has(KEYSPACE) => names.push("@keyspace"),
        CommandGroup::Server => {}
    }
    let for_operators = spec.flags & (ADMIN | OPERATORS) != 0;
    if for_operators {
        names.push("@admin");
    }
    if for_operators || spec.has(DANGEROUS) {
        names.push("@dangerous");
    }
    if spec.has(BLOCKING) {
        names.push("@blocking");
    }
    names.push(if spec.has(FAST) { "@fast" } else { "@slow" });
    if spec.group == CommandGroup::Scripting && !is_container {
        names.push("@scripting");
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::specs;

    #[test]
    fn no_command_that_is_served_is_called_absent() {
        let registry = Registry::build(specs::ALL);
        for name in ABSENT {
            assert!(registry.find(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn each_command_is_in_known_categories_and_either_fast_or_slow() {
        for command in Registry::build(specs::ALL).all() {
            let names = categories(command.spec);
            assert!(names.iter().all(|name| find(&name.as_bytes()[1..]).is_some()), "{}: {names:?}", command.name);
            let speeds = names.iter().filter(|name| matches!(**name, "@fast" | "@slow")).count();
            assert_eq!(speeds, 1, "{}: {names:?}", command.name);
        }
    }
}

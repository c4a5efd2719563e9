//! Specifications of the transaction commands.

use crate::cmd::transactions;
use crate::table::*;

const ALWAYS: Flags = NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY;
const AT_ONCE: Flags = ALWAYS | NOT_QUEUED;

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("discard", 1, transactions::discard)
        .flags(AT_ONCE)
        .group(CommandGroup::Transactions, "2.0.0", "O(N), when N is the number of queued commands")
        .summary("Forgets the transaction."),
    CommandSpec::new("exec", 1, transactions::exec)
        .flags(NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG | NOT_QUEUED | RUNS_QUEUED)
        .group(CommandGroup::Transactions, "1.2.0", "Depends on commands in the transaction")
        .summary("Runs the transaction."),
    CommandSpec::new("multi", 1, transactions::multi)
        .flags(AT_ONCE)
        .group(CommandGroup::Transactions, "1.2.0", "O(1)")
        .summary("Begins a transaction: commands are queued until EXEC."),
    CommandSpec::new("unwatch", 1, transactions::unwatch)
        .flags(ALWAYS)
        .group(CommandGroup::Transactions, "2.2.0", "O(1)")
        .summary("Forgets which keys are watched."),
    CommandSpec::new("watch", -2, transactions::watch)
        .flags(AT_ONCE)
        .keys(&[KeySpec::range(1, -1, 1, RO)])
        .group(CommandGroup::Transactions, "2.2.0", "O(1) for every key.")
        .summary("Watches keys: EXEC runs nothing if one was changed.")
        .args(&[Arg::key("key").multiple()]),
];

//! Specifications of the commands about users and what they may do.

use crate::cmd::acl;
use crate::cmd::introspect::help;
use crate::table::*;

const OPEN: Flags = NOSCRIPT | LOADING | STALE;
const OPERATOR: Flags = ADMIN | OPEN;
const O_1: &str = "O(1)";
const O_USERS: &str = "O(N). Where N is the number of configured users.";
const USERNAME: Arg = Arg::string("username");
const ORDER: &str = "Rules about commands are told in the order in which they came, as in Redis 7.2.";

const fn users(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Server, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] =
    &[users(CommandSpec::container("acl", SUBCOMMANDS), "6.0.0", "Depends on subcommand.")
        .summary("Container of commands about users and what they may do.")];

static SUBCOMMANDS: &[CommandSpec] = &[
    users(CommandSpec::new("cat", -2, acl::cat), "6.0.0", "O(1) since the categories and commands are a fixed set.")
        .flags(OPEN)
        .summary("Tells the categories, or the commands of one.")
        .args(&[Arg::string("categoryname").optional()]),
    users(
        CommandSpec::new("deluser", -3, acl::deluser),
        "6.0.0",
        "O(1) amortized time considering the typical user.",
    )
    .flags(OPERATOR)
    .summary("Removes users, and closes their connections.")
    .args(&[USERNAME.multiple()]),
    users(CommandSpec::new("dryrun", -4, acl::dryrun), "7.0.0", "O(1).")
        .flags(OPERATOR)
        .summary("Tells whether a user may run a command.")
        .args(&[USERNAME, Arg::string("command"), Arg::string("arg").optional().multiple()]),
    users(CommandSpec::new("genpass", -2, acl::genpass), "6.0.0", O_1)
        .flags(OPEN)
        .summary("Makes a random password.")
        .args(&[Arg::int("bits").optional()]),
    users(
        CommandSpec::new("getuser", 3, acl::getuser),
        "6.0.0",
        "O(N). Where N is the number of password, command and pattern rules that the user has.",
    )
    .flags(OPERATOR)
    .summary("Tells the rules of a user.")
    .args(&[USERNAME])
    .differs(ORDER),
    users(CommandSpec::new("help", 2, help), "6.0.0", O_1)
        .flags(LOADING | STALE)
        .summary("Tells what the subcommands are."),
    users(CommandSpec::new("list", 2, acl::list), "6.0.0", O_USERS)
        .flags(OPERATOR)
        .summary("Tells the rules of all users.")
        .differs(ORDER),
    users(CommandSpec::new("load", 2, acl::load), "6.0.0", O_USERS)
        .flags(OPERATOR)
        .summary("Reads the file of users anew.")
        .differs(
            "Closes the connections of users that are gone, and those that listen to what their user may not use any more; others go \
             on, as in Redis 7.4. At most 32 faults are told.",
        ),
    users(CommandSpec::new("log", -2, acl::log), "6.0.0", "O(N) with N being the number of entries shown.")
        .flags(OPERATOR)
        .summary("Tells what was denied lately.")
        .args(&[Arg::one_of("operation", &[Arg::int("count"), Arg::word("reset", "RESET")]).optional()])
        .differs(
            "Entries have `entry-id`, `timestamp-created` and `timestamp-last-updated` besides, as in Redis 7.2. Of a name or a key \
             4 KiB are kept.",
        ),
    users(CommandSpec::new("save", 2, acl::save), "6.0.0", O_USERS)
        .flags(OPERATOR)
        .summary("Writes the file of users.")
        .differs("The file is durable when the reply comes."),
    users(CommandSpec::new("setuser", -3, acl::setuser), "6.0.0", "O(N). Where N is the number of rules provided.")
        .flags(OPERATOR)
        .summary("Makes a user, or changes its rules.")
        .args(&[USERNAME, Arg::string("rule").optional().multiple()])
        .differs(
            "A user has at most 4096 rules of a kind, and no password or pattern is longer than 64 KiB. Commands that only Redis has \
             may be named.",
        ),
    users(CommandSpec::new("users", 2, acl::users), "6.0.0", O_USERS)
        .flags(OPERATOR)
        .summary("Tells the names of all users."),
    users(CommandSpec::new("whoami", 2, acl::whoami), "6.0.0", O_1)
        .flags(OPEN)
        .summary("Tells which user the connection is."),
];

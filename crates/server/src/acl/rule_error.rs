//! Why a rule of a user is refused, in Redis' words. Relies on nothing.

/// Most patterns, first arguments, passwords or selectors of a user: each request may be held against all of them.
pub(super) const MOST_ENTRIES: usize = 4096;

/// Why a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// It names no command and no category.
    #[error("Unknown command or category name in ACL")]
    UnknownCommand,
    /// It is no rule.
    #[error("Syntax error")]
    Syntax,
    /// All keys are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    AfterAllKeys,
    /// All channels are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
         'resetchannels' to start with an empty list of channels"
    )]
    AfterAllChannels,
    /// The user has no such password.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// What should be a SHA-256 is none.
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    BadHash,
    /// Of a subcommand no single first argument can be allowed.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    /// What is checked for each request has to have an end.
    #[error("A user has too many rules of this kind")]
    TooMany,
    /// The password is longer than any may be.
    #[error("The password is too long")]
    LongPassword,
}

//! What rules of users have to know of commands; the registry of commands knows it. Relies on nothing.

/// A command that a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedCommand {
    /// Its number.
    pub number: u16,
    /// It is a subcommand.
    pub is_subcommand: bool,
    /// The numbers of its subcommands.
    pub subcommands: Vec<u16>,
}

/// All commands by name and category.
pub trait CommandCatalog {
    /// The command of a full name, `get` or `config|get`, whatever the case of its letters.
    fn named(&self, name: &[u8]) -> Option<NamedCommand>;

    /// The numbers of a category's commands, with all subcommands of those that have any; `None` if there is no such category.
    fn in_category(&self, category: &[u8]) -> Option<Vec<u16>>;

    /// Whether Redis has such a command and this server has not: rules about it are kept, and allow nothing.
    fn is_absent(&self, name: &[u8]) -> bool;
}

/// What rules are read by.
#[derive(Clone, Copy)]
pub struct RuleContext<'a> {
    /// All commands.
    pub commands: &'a dyn CommandCatalog,
    /// New users, and new selectors of users, may use all channels (`acl-pubsub-default`).
    pub all_channels: bool,
}

//! The settings of access control and their directives, named as in Redis, and the users that a configuration file declares, a line
//! each. Relies on `directive` and `value`; what the rules of users say is not known here.

use std::borrow::Cow;

use super::Config;
use super::directive::{Directive, Setting, directive};
use super::value::{self, RejectReason};

const FIXED: bool = false;
const MUTABLE: bool = true;
const CHANNELS: &[(&str, bool)] = &[("allchannels", true), ("resetchannels", false)];
/// The word that a line begins with which declares a user.
pub(super) const USER: &str = "user";

/// Which clients may connect, where users come from, and what is kept about denials.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AclSettings {
    /// The file of users; empty if there is none.
    pub file: String,
    /// Users that a configuration file declares: the name, then the rules.
    pub users: Vec<Vec<Vec<u8>>>,
    /// Entries that the log of denials keeps.
    pub log_max_len: u64,
    /// New users may use all channels.
    pub all_channels: bool,
    /// Clients of other machines are refused while the default user has no password.
    pub protected_mode: bool,
}

impl AclSettings {
    /// Takes a user that a line declares.
    pub(super) fn declare(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        let is_known = self.users.iter().any(|user| user.first() == words.first());
        if is_known {
            return Err("Duplicate user found. A user can only be defined once in config files".to_owned());
        }
        self.users.push(words.to_vec());
        Ok(())
    }
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    directive!(
        "aclfile",
        "",
        FIXED,
        "File of users, which ACL LOAD reads and ACL SAVE writes; there are no `user` lines in the configuration then.",
        |c| c.acl.file.clone(),
        |c, v| {
            c.acl.file = v.to_owned();
            Ok(())
        }
    ),
    directive!(
        "acllog-max-len",
        "128",
        MUTABLE,
        "Entries that the log of denials keeps (ACL LOG).",
        |c| c.acl.log_max_len.to_string(),
        |c, v| {
            c.acl.log_max_len = value::integer(v, 0, i64::MAX)? as u64;
            Ok(())
        }
    ),
    directive!(
        "acl-pubsub-default",
        "resetchannels",
        MUTABLE,
        "Which channels new users may use: none (resetchannels) or all (allchannels).",
        |c| value::choice_name(&c.acl.all_channels, CHANNELS),
        |c, v| {
            c.acl.all_channels = value::choice(v, CHANNELS)?;
            Ok(())
        }
    ),
];

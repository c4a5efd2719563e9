//! Which clients CLIENT KILL means.

use crate::acl::Acl;
use crate::client::{Client, ClientClass};
use crate::ctx::{Args, CmdError};

/// The conditions that a client must all meet.
#[derive(Default, Debug)]
pub(super) struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    /// Of this type; within it `None` is a type of which there are no clients.
    class: Option<Option<ClientClass>>,
    user: Option<&'a [u8]>,
    min_age_s: Option<u64>,
    skip_me: bool,
}

impl<'a> Filter<'a> {
    /// The old form: one address, the caller's own included.
    pub fn address(address: &'a [u8]) -> Self {
        Self { address: Some(address), ..Self::default() }
    }

    /// The new form: pairs of a condition and its value, from the third word on.
    pub fn parse(args: Args<'a>, acl: &Acl) -> Result<Self, CmdError> {
        let mut filter = Self { skip_me: true, ..Self::default() };
        let mut at = 2;
        while at < args.len() {
            let value = args.get(at + 1).ok_or(CmdError::SYNTAX)?;
            if args.is(at, "ID") {
                let id = args.int(at + 1).ok().filter(|id| *id > 0);
                filter.id = Some(id.ok_or(CmdError::fixed("ERR client-id should be greater than 0"))? as u64);
            } else if args.is(at, "TYPE") {
                filter.class = Some(class_of(value)?);
            } else if args.is(at, "ADDR") {
                filter.address = Some(value);
            } else if args.is(at, "LADDR") {
                filter.local_address = Some(value);
            } else if args.is(at, "USER") {
                if acl.find(value).is_none() {
                    return Err(CmdError::owned(format!("ERR No such user '{}'", args.text(at + 1))));
                }
                filter.user = Some(value);
            } else if args.is(at, "MAXAGE") {
                let age = args.int(at + 1);
                let age = age.map_err(|_| CmdError::fixed("ERR maxage is not an integer or out of range"))?;
                let age = u64::try_from(age).ok().filter(|age| *age > 0);
                filter.min_age_s = Some(age.ok_or(CmdError::fixed("ERR maxage should be greater than 0"))?);
            } else if args.is(at, "SKIPME") {
                filter.skip_me = match (args.is(at + 1, "YES"), args.is(at + 1, "NO")) {
                    (true, _) => true,
                    (_, true) => false,
                    _ => return Err(CmdError::SYNTAX),
                };
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 2;
        }
        Ok(filter)
    }

    /// Whether a client is meant; `me` tells that it is the caller.
    pub fn matches(&self, client: &Client, me: bool, now_ms: u64) -> bool {
        let age_s = now_ms.saturating_sub(client.peer.since_ms) / 1000;
        !(self.class.is_some_and(|class| class != Some(client.class()))
            || me && self.skip_me
            || self.id.is_some_and(|id| id != client.id)
            || self.address.is_some_and(|address| address != client.peer.address.as_bytes())
            || self.local_address.is_some_and(|address| address != client.peer.local_address.as_bytes())
            || self.user.is_some_and(|user| *user != *client.login.user().name)
            || self.min_age_s.is_some_and(|min_s| age_s < min_s))
    }
}

/// The class of clients that a type names; `None` for masters, of which there are none; an error if there is no such type.
pub(super) fn class_of(name: &[u8]) -> Result<Option<ClientClass>, CmdError> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("normal") {
        return Ok(Some(ClientClass::Normal));
    }
    if is("pubsub") {
        return Ok(Some(ClientClass::PubSub));
    }
    if is("replica") || is("slave") {
        return Ok(Some(ClientClass::Replica));
    }
    if is("master") {
        return Ok(None);
    }
    Err(CmdError::owned(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name))))
}

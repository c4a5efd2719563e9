//! Where users come from at the start, and what follows for clients when users change: their rights are looked at anew, and those whose
//! user is gone, or may not listen to what they listen to any more, are closed.
//!
//! Relies on `acl` for users and on `clients` for who is which of them.

use std::path::Path;

use crate::acl::{self, Acl, RuleContext, User};
use crate::client::{Client, CloseState};
use crate::clients::Slot;
use crate::config::Config;
use crate::ctx::Ctx;
use crate::pubsub::TopicKind;
use crate::registry::registry;
use crate::state::ServerState;

/// What rules are read by.
pub fn context(config: &Config) -> RuleContext<'static> {
    RuleContext { commands: registry(), all_channels: config.acl.all_channels }
}

/// The users that the configuration says.
///
/// # Errors
/// Why it says nothing that can be done, in words for people. No rules are among them: they may be passwords.
pub fn of_config(config: &Config) -> Result<Acl, String> {
    let mut acl = Acl::default();
    if !config.requirepass.is_empty() {
        acl.set_default_password(&config.requirepass);
    }
    let settings = &config.acl;
    if !settings.file.is_empty() {
        if !settings.users.is_empty() {
            return Err("there are users in the configuration and in a file of users (aclfile); which of them hold could not be \
                        told: declare them in one of the two"
                .to_owned());
        }
        acl.load(Path::new(&settings.file), context(config))?;
    }
    for words in &settings.users {
        acl.put(declared(words, context(config))?);
    }
    Ok(acl)
}

/// A user that a line of the configuration declares.
fn declared(words: &[Vec<u8>], context: RuleContext<'_>) -> Result<User, String> {
    let (name, rules) = words.split_first().ok_or("a user has no name")?;
    let shown = String::from_utf8_lossy(name);
    if !acl::is_user_name(name) {
        return Err(format!("a user may not be called '{shown}': a name has no spaces"));
    }
    let rules = acl::merge_selectors(rules.iter().map(Vec::as_slice))
        .map_err(|_| format!("user '{shown}': Unmatched parenthesis in selector definition"))?;
    let mut user = User::new(name, context);
    for (index, rule) in rules.iter().enumerate() {
        user.apply(context, rule).map_err(|error| format!("user '{shown}', rule {}: {error}", index + 1))?;
    }
    Ok(user)
}

/// The words of a configuration that make the present users again. None are needed for what `requirepass` says.
pub fn to_declare(config: &Config, acl: &Acl) -> Vec<Vec<Vec<u8>>> {
    if !config.acl.file.is_empty() {
        return Vec::new();
    }
    let mut plain = Acl::default();
    plain.set_default_password(&config.requirepass);
    let is_said = |user: &User| *user.name == *acl::DEFAULT_USER && user.describe() == plain.default_user().describe();
    let words = |user: &User| {
        let rules = user.describe();
        let rules = rules.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
        std::iter::once(user.name.to_vec()).chain(rules).collect::<Vec<_>>()
    };
    acl.iter().map(|user| &**user).filter(|user| !is_said(user)).map(words).collect()
}

/// Has other users from now on. Clients whose user is not among them are closed, and those that listen to what it may not use any more.
pub fn replace(ctx: &mut Ctx<'_>, acl: Acl) {
    let before = std::mem::replace(&mut ctx.server.clients.acl, acl);
    close_where(ctx, |client, acl| {
        let login = client.login.user();
        match (acl.find(&login.name), before.find(&login.name)) {
            (Some(now), Some(before)) => now.lacks_channels_of(before) && listens_beyond(client, now),
            (None, _) | (_, None) => true,
        }
    });
}

/// Adds a user, or changes one. Its clients that listen to channels which it may not use any more are closed.
pub fn put(ctx: &mut Ctx<'_>, user: User) {
    let before = ctx.server.clients.acl.find(&user.name).cloned();
    let lacks_channels = before.is_some_and(|before| user.lacks_channels_of(&before));
    let name = user.name.clone();
    ctx.server.clients.acl.put(user);
    close_where(ctx, |client, acl| {
        lacks_channels
            && client.login.user().name == name
            && acl.find(&name).is_some_and(|user| listens_beyond(client, user))
    });
}

/// Removes users, and closes their clients; how many there were.
pub fn remove<'n>(ctx: &mut Ctx<'_>, names: impl Iterator<Item = &'n [u8]>) -> usize {
    let removed = names.filter(|name| ctx.server.clients.acl.remove(name)).count();
    close_where(ctx, |client, acl| acl.find(&client.login.user().name).is_none());
    removed
}

/// Looks at the rights of all clients anew: the password of the default user has changed.
pub fn refresh(ctx: &mut Ctx<'_>) {
    close_where(ctx, |_, _| false);
}

/// Closes the clients of which `ends` says so, and looks at the rights of all anew.
fn close_where(ctx: &mut Ctx<'_>, ends: impl Fn(&Client, &Acl) -> bool) {
    let ServerState { clients, .. } = &mut *ctx.server;
    let doomed: Vec<Slot> =
        clients.iter().filter(|(_, one)| ends(&one.client, &clients.acl)).map(|(slot, _)| slot).collect();
    if ends(ctx.client, &clients.acl) {
        // It is told before it goes.
        ctx.client.closing = CloseState::AfterReply;
    }
    let acl = std::mem::take(&mut clients.acl);
    for (_, connection) in clients.iter_mut() {
        connection.client.login = acl.renewed(&connection.client.login);
    }
    ctx.client.login = acl.renewed(&ctx.client.login);
    clients.acl = acl;
    for slot in doomed {
        clients.doom(slot);
    }
}

/// Whether a client listens to what its user may not use.
fn listens_beyond(client: &Client, user: &User) -> bool {
    TopicKind::ALL.into_iter().any(|kind| {
        let is_pattern = kind == TopicKind::Pattern;
        client.subscriptions.names(kind).any(|name| !user.allows_channel(name, is_pattern))
    })
}

//! ACL and its subcommands: users, their rules, and what was denied. Relies on `acl` for both, and on `users` for what follows for
//! clients when users change.

use std::path::PathBuf;

use quire_store::numbers;

use crate::acl::{self, DEFAULT_USER, Denial, Selector, User};
use crate::categories;
use crate::ctx::{Args, CmdError, Ctx};
use crate::dispatch;
use crate::permission;
use crate::registry::registry;
use crate::resp::Reply;
use crate::users;

/// Entries that ACL LOG gives unless told.
const LOG_DEFAULT_COUNT: usize = 10;
/// Bits of a password that ACL GENPASS makes: unless told, and at most.
const DEFAULT_BITS: i64 = 256;
const MOST_BITS: i64 = 4096;
const NO_FILE: CmdError = CmdError::fixed(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and \
     then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis \
     configuration.",
);
const NOT_SAVED: CmdError = CmdError::fixed(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);

fn bad_subcommand(args: Args<'_>) -> CmdError {
    CmdError::subcommand_syntax(args.at(0), args.at(1))
}

/// ACL CAT [category]
pub fn cat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let names: Vec<&str> = match ctx.args.len() {
        2 => categories::CATEGORIES.to_vec(),
        3 => {
            let unknown = || CmdError::owned(format!("ERR Unknown category '{}'", ctx.args.text(2)));
            let category = categories::find(ctx.args.at(2)).ok_or_else(unknown)?;
            let commands = registry().all().iter().filter(|command| categories::is_in(command.spec, category));
            commands.map(|command| command.name).collect()
        }
        _ => return Err(bad_subcommand(ctx.args)),
    };
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk_str(name));
    Ok(())
}

/// ACL SETUSER name [rule …]
pub fn setuser(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let name = ctx.args.at(2);
    if !acl::is_user_name(name) {
        return Err(CmdError::fixed("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = acl::merge_selectors(ctx.args.from(3).iter()).map_err(|index| {
        let word = ctx.args.text(3 + index);
        CmdError::owned(format!("ERR Unmatched parenthesis in acl selector starting at '{word}'."))
    })?;
    let changed = ctx.server.clients.acl.changed(users::context(&ctx.server.config), name, rules);
    let user = changed.map_err(|(rule, error)| {
        let rule = String::from_utf8_lossy(&rule).into_owned();
        CmdError::owned(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
    })?;
    users::put(ctx, user);
    ctx.reply.ok();
    Ok(())
}

/// ACL DELUSER name …
pub fn deluser(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let names = ctx.args.from(2);
    if names.iter().any(|name| name == DEFAULT_USER) {
        return Err(CmdError::fixed("ERR The 'default' user cannot be removed"));
    }
    let removed = users::remove(ctx, names.iter());
    ctx.reply.int(removed as i64);
    Ok(())
}

/// ACL GETUSER name
pub fn getuser(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match ctx.server.clients.acl.find(ctx.args.at(2)) {
        Some(user) => write_user(ctx.reply, user),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn write_user(reply: &mut Reply, user: &User) {
    reply.map(6);
    reply.bulk_str("flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk_str(flag));
    reply.bulk_str("passwords");
    let passwords = user.password_texts();
    reply.array(passwords.len());
    passwords.for_each(|digits| reply.bulk_str(&digits));
    let mut selectors = user.selectors();
    if let Some(own) = selectors.next() {
        write_selector(reply, own);
    }
    let others: Vec<&Selector> = selectors.collect();
    reply.bulk_str("selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3);
        write_selector(reply, selector);
    }
}

fn write_selector(reply: &mut Reply, selector: &Selector) {
    for (name, rules) in [
        ("commands", selector.describe_commands()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ] {
        reply.bulk_str(name);
        reply.bulk(&rules);
    }
}

/// ACL LIST
pub fn list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let lines = ctx.server.clients.acl.lines();
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.bulk(line));
    Ok(())
}

/// ACL USERS
pub fn users(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let users = ctx.server.clients.acl.iter();
    ctx.reply.array(users.len());
    users.for_each(|user| ctx.reply.bulk(&user.name));
    Ok(())
}

/// ACL WHOAMI
pub fn whoami(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.bulk(&ctx.client.login.user().name);
    Ok(())
}

fn file(ctx: &Ctx<'_>) -> Result<PathBuf, CmdError> {
    let file = &ctx.server.config.acl.file;
    if file.is_empty() { Err(NO_FILE) } else { Ok(PathBuf::from(file)) }
}

/// ACL LOAD
pub fn load(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let path = file(ctx)?;
    let mut acl = acl::Acl::default();
    acl.load(&path, users::context(&ctx.server.config)).map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
    users::replace(ctx, acl);
    tracing::info!(file = %path.display(), "users read anew");
    ctx.reply.ok();
    Ok(())
}

/// ACL SAVE
pub fn save(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let path = file(ctx)?;
    if let Err(error) = ctx.server.clients.acl.save(&path) {
        tracing::warn!(file = %path.display(), %error, "the users can't be saved");
        return Err(NOT_SAVED);
    }
    ctx.reply.ok();
    Ok(())
}

/// ACL GENPASS [bits]
pub fn genpass(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let bits = match ctx.args.len() {
        2 => DEFAULT_BITS,
        3 => ctx.args.int(2)?,
        _ => return Err(bad_subcommand(ctx.args)),
    };
    if !(1..=MOST_BITS).contains(&bits) {
        return Err(CmdError::owned(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {MOST_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut random).map_err(|error| CmdError::owned(format!("ERR no randomness: {error}")))?;
    ctx.reply.bulk_str(&numbers::hex(&random)[..digits]);
    Ok(())
}

/// ACL LOG [count | RESET]
pub fn log(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = match ctx.args.len() {
        2 => LOG_DEFAULT_COUNT,
        3 if ctx.args.is(2, "RESET") => {
            ctx.server.monitoring.denials.reset();
            ctx.reply.ok();
            return Ok(());
        }
        3 => usize::try_from(ctx.args.int(2)?).unwrap_or(0),
        _ => return Err(bad_subcommand(ctx.args)),
    };
    let now_ms = ctx.server.clock.unix_ms;
    let entries = ctx.server.monitoring.denials.iter();
    let count = count.min(entries.len());
    let reply = &mut *ctx.reply;
    reply.array(count);
    for entry in entries.take(count) {
        reply.map(10);
        reply.bulk_str("count");
        reply.int(entry.count as i64);
        let texts = [("reason", entry.reason.name().as_bytes()), ("context", entry.context.name().as_bytes())];
        let names = [("object", &*entry.object), ("username", &*entry.user_name)];
        for (name, text) in texts.into_iter().chain(names) {
            reply.bulk_str(name);
            reply.bulk(text);
        }
        reply.bulk_str("age-seconds");
        reply.double((now_ms - entry.updated_ms) as f64 / 1000.0);
        reply.bulk_str("client-info");
        reply.bulk_str(&entry.client);
        let numbers = [
            ("entry-id", entry.id as i64),
            ("timestamp-created", entry.created_ms),
            ("timestamp-last-updated", entry.updated_ms),
        ];
        for (name, number) in numbers {
            reply.bulk_str(name);
            reply.int(number);
        }
    }
    Ok(())
}

/// ACL DRYRUN name command [arg …]
pub fn dryrun(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let Some(user) = ctx.server.clients.acl.find(ctx.args.at(2)) else {
        return Err(CmdError::owned(format!("ERR User '{}' not found", ctx.args.text(2))));
    };
    let request = ctx.args.from(3);
    let found = registry().find(request.at(0)).map(|command| command.id);
    let command = dispatch::resolve(registry(), found, request).map_err(|error| match found {
        // A container without a subcommand.
        Some(_) if request.len() == 1 => error,
        _ => CmdError::owned(format!("ERR Command '{}' not found", request.text(0))),
    })?;
    if !command.spec.takes(request.len()) {
        return Err(CmdError::wrong_args(command.name));
    }
    let what = match permission::denial(user, command, request) {
        None => {
            ctx.reply.ok();
            return Ok(());
        }
        Some(Denial::Command) => format!("run the '{}' command", command.name),
        Some(Denial::Key(at)) => format!("access the '{}' key", request.text(at)),
        Some(Denial::Channel(at)) => format!("access the '{}' channel", request.text(at)),
    };
    let text = format!("User {} has no permissions to {what}", ctx.args.text(2));
    ctx.reply.bulk_str(&text);
    Ok(())
}

//! Whether a client may send a request: it has logged in, and the rules of its user allow it. What is denied is noted.
//!
//! Asked for every request of a client that may not do everything, and again when a transaction runs it. Relies on `acl` for the
//! rules, and on commands' specifications for which words are keys and channels.

use crate::acl::{Denial, DenialContext, DenialEntry, DenialReason, RequestFacts, User};
use crate::ctx::{Args, CmdError, Ctx};
use crate::registry::Command;
use crate::table::{NO_AUTH, NO_MULTI, PROTECTED};

const NOAUTH: CmdError = CmdError::fixed("NOAUTH Authentication required.");
const PROTECTED_DEBUG: CmdError = CmdError::fixed(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
     connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// What of a request a user may not do, if anything.
pub fn denial(user: &User, command: &Command, args: Args<'_>) -> Option<Denial> {
    with_facts(user, command, args, |facts| user.denial(facts))
}

/// Whether a user may run a request that reads any keys, which it does not name.
fn reads_all_keys(user: &User, command: &Command, args: Args<'_>) -> bool {
    with_facts(user, command, args, |facts| user.reads_all_keys(facts))
}

fn with_facts<R>(user: &User, command: &Command, args: Args<'_>, ask: impl FnOnce(&RequestFacts<'_>) -> R) -> R {
    let spec = command.spec;
    let keys = if user.looks_at_keys() { spec.key_uses(args) } else { Vec::new() };
    ask(&RequestFacts { command: command.id.0, is_free: spec.has(NO_AUTH), args, keys: &keys, channels: spec.channels })
}

/// Why this request is refused to every client, or to every client of another machine, if so, before any user's rules are asked.
#[inline]
pub fn protection(ctx: &Ctx<'_>, command: &Command) -> Option<CmdError> {
    if command.spec.has(PROTECTED) { protection_of_debug(ctx) } else { None }
}

#[cold]
fn protection_of_debug(ctx: &Ctx<'_>) -> Option<CmdError> {
    let allowed = match ctx.server.config.enable_debug_command.as_str() {
        "yes" => true,
        "local" => ctx.client.peer.is_local,
        _ => false,
    };
    (!allowed).then_some(PROTECTED_DEBUG)
}

/// Why a client that may not do everything may not send this request, if so.
#[cold]
pub fn refusal(ctx: &mut Ctx<'_>, command: &Command) -> Option<CmdError> {
    if ctx.client.login.is_stranger() {
        return (!command.spec.has(NO_AUTH)).then_some(NOAUTH);
    }
    if ctx.client.multi.is_some() && command.spec.has(NO_MULTI) {
        // It is refused for that.
        return None;
    }
    let denied = denial(ctx.client.login.user(), command, ctx.args)?;
    let context = context_of(ctx);
    note(ctx, command, denied, context);
    Some(CmdError::owned(format!("NOPERM {}", reason_of(ctx, command, denied))))
}

/// What a client is told of what its user may not do; the key or the channel is not named.
fn reason_of(ctx: &Ctx<'_>, command: &Command, denied: Denial) -> String {
    match denied {
        Denial::Command => {
            let user = String::from_utf8_lossy(&ctx.client.login.user().name);
            format!("User {user} has no permissions to run the '{}' command", command.name)
        }
        Denial::Key(_) => "No permissions to access a key".to_owned(),
        Denial::Channel(_) => "No permissions to access a channel".to_owned(),
    }
}

/// Why a request that was queued may not run, if so: the rules may have changed since.
#[cold]
pub fn refusal_in_exec(ctx: &mut Ctx<'_>, command: &Command) -> Option<CmdError> {
    let denied = denial(ctx.client.login.user(), command, ctx.args)?;
    note(ctx, command, denied, DenialContext::Transaction);
    let reason = match denied {
        Denial::Command => "no permission to execute the command or subcommand",
        Denial::Key(_) => "no permission to touch the specified keys",
        Denial::Channel(_) => "no permission to access one of the channels used as arguments",
    };
    Some(CmdError::owned(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no \
         longer allowed for the following reason: {reason}"
    )))
}

/// Why a script may not call a command, if so.
#[cold]
pub fn refusal_in_script(ctx: &mut Ctx<'_>, command: &Command) -> Option<CmdError> {
    let denied = denial(ctx.client.login.user(), command, ctx.args)?;
    note(ctx, command, denied, DenialContext::Lua);
    Some(CmdError::owned(format!("ERR ACL failure in script: {}", reason_of(ctx, command, denied))))
}

/// Whether the client may read keys that its request, which it may send, does not name.
pub fn may_read_all_keys(ctx: &Ctx<'_>, command: Option<&Command>) -> bool {
    ctx.client.login.is_unrestricted()
        || command.is_some_and(|command| reads_all_keys(ctx.client.login.user(), command, ctx.args))
}

/// In which context a client sends a request: a transaction is being put together, or runs.
fn context_of(ctx: &Ctx<'_>) -> DenialContext {
    if ctx.client.multi.is_some() || ctx.client.in_exec { DenialContext::Transaction } else { DenialContext::TopLevel }
}

fn note(ctx: &mut Ctx<'_>, command: &Command, denied: Denial, context: DenialContext) {
    let (reason, object) = match denied {
        Denial::Command => (DenialReason::Command, command.name.as_bytes()),
        Denial::Key(at) => (DenialReason::Key, ctx.args.at(at)),
        Denial::Channel(at) => (DenialReason::Channel, ctx.args.at(at)),
    };
    let entry = DenialEntry::new((reason, context), object, &ctx.client.login.user().name, now_and_client(ctx));
    push(ctx, entry);
}

/// Notes that a client has given a wrong name or password.
#[cold]
pub fn note_wrong_password(ctx: &mut Ctx<'_>, name: &[u8]) {
    let what = (DenialReason::Auth, context_of(ctx));
    let entry = DenialEntry::new(what, ctx.args.at(0), name, now_and_client(ctx));
    push(ctx, entry);
}

fn now_and_client(ctx: &Ctx<'_>) -> (i64, String) {
    (
        ctx.server.clock.unix_ms,
        ctx.client.describe(ctx.server.clock_ms(), ctx.server.clients.tracking.of(ctx.client.id)),
    )
}

fn push(ctx: &mut Ctx<'_>, entry: DenialEntry) {
    let max = ctx.server.config.acl.log_max_len as usize;
    ctx.server.monitoring.denials.push(entry, max);
}

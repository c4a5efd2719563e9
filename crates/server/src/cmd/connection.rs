//! PING, ECHO, HELLO, AUTH, QUIT and RESET.

use quire_store::DbId;

use crate::COMPATIBLE_VERSION;
use crate::acl::DEFAULT_USER;
use crate::client::{Client, CloseState, ReplyMode};
use crate::ctx::{CmdError, Ctx};
use crate::permission;
use crate::resp::Protocol;
use quire_store::numbers::parse_i64;

const BAD_NAME: CmdError = CmdError::fixed("ERR Client names cannot contain spaces, newlines or special characters.");
const WRONG_PASSWORD: CmdError = CmdError::fixed("WRONGPASS invalid username-password pair or user is disabled.");
const NO_PASSWORD_SET: CmdError = CmdError::fixed(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration \
     is correct?",
);
const HELLO_NEEDS_AUTH: CmdError = CmdError::fixed(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// PING [message]
pub fn ping(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() <= 2 && ctx.client.subscriptions.any() && !ctx.reply.is_resp3() {
        // A client of RESP2 tells replies from messages by their form.
        ctx.reply.array(2);
        ctx.reply.bulk_str("pong");
        ctx.reply.bulk(ctx.args.get(1).unwrap_or_default());
        return Ok(());
    }
    match ctx.args.len() {
        1 => ctx.reply.raw(b"+PONG\r\n"),
        2 => ctx.reply.bulk(ctx.args.at(1)),
        _ => return Err(CmdError::wrong_args("ping")),
    }
    Ok(())
}

/// ECHO message
pub fn echo(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.bulk(ctx.args.at(1));
    Ok(())
}

/// QUIT
pub fn quit(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.client.closing = CloseState::AfterReply;
    ctx.reply.ok();
    Ok(())
}

/// RESET
pub fn reset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.watch.keys > 0 {
        ctx.store.unwatch_all(ctx.client.id);
    }
    let client = &mut *ctx.client;
    ctx.server.clients.pubsub.unsubscribe_all(client.id, &mut client.subscriptions);
    (client.watch.keys, client.watch.bytes) = (0, 0);
    client.watch.touched = false;
    client.multi = None;
    client.db = DbId(0);
    client.protocol = Protocol::Resp2;
    client.subscriptions.announced = true;
    client.identity.name = String::new();
    client.options.reply_mode = ReplyMode::On;
    client.options.no_evict = false;
    client.options.no_touch = false;
    client.options.monitors = false;
    ctx.server.clients.set_monitoring(client.id, false);
    if ctx.server.clients.tracking.end(client.id) {
        ctx.store.set_noting_key_events(ctx.server.wants_key_events());
    }
    client.login = ctx.server.clients.acl.first_login();
    ctx.store.set_touching(true);
    ctx.reply.set_protocol(Protocol::Resp2);
    ctx.reply.simple("RESET");
    Ok(())
}

/// AUTH [username] password
pub fn auth(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match ctx.args.len() {
        2 => {
            if ctx.server.clients.acl.default_user().takes_any_password() {
                return Err(NO_PASSWORD_SET);
            }
            log_in(ctx, DEFAULT_USER, ctx.args.at(1))?;
        }
        3 => log_in(ctx, ctx.args.at(1), ctx.args.at(2))?,
        _ => return Err(CmdError::SYNTAX),
    }
    ctx.reply.ok();
    Ok(())
}

fn log_in(ctx: &mut Ctx<'_>, name: &[u8], password: &[u8]) -> Result<(), CmdError> {
    let acl = &ctx.server.clients.acl;
    if let Some(user) = acl.log_in(name, password) {
        ctx.client.login = acl.login_as(user);
        return Ok(());
    }
    tracing::debug!(client = ctx.client.id, address = %ctx.client.peer.address, "wrong password");
    permission::note_wrong_password(ctx, name);
    Err(WRONG_PASSWORD)
}

/// Whether a text may be a client's name.
pub fn is_name(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Gives a client its name.
pub fn set_name(client: &mut Client, name: &[u8]) -> Result<(), CmdError> {
    if !is_name(name) {
        return Err(BAD_NAME);
    }
    client.identity.name = String::from_utf8_lossy(name).into_owned();
    Ok(())
}

/// HELLO [protocol [AUTH user password] [SETNAME name]]
pub fn hello(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut protocol = None;
    if let Some(version) = args.get(1) {
        protocol = Some(match parse_i64(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(CmdError::fixed("NOPROTO unsupported protocol version")),
            None => return Err(CmdError::fixed("ERR Protocol version is not an integer or out of range")),
        });
    }
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while let Some(option) = args.get(at) {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            name = Some(args.at(at + 1));
            if !is_name(args.at(at + 1)) {
                return Err(BAD_NAME);
            }
            at += 2;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(CmdError::owned(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if let Some((user, password)) = credentials {
        log_in(ctx, user, password)?;
    }
    if ctx.client.login.is_stranger() {
        return Err(HELLO_NEEDS_AUTH);
    }
    if let Some(name) = name {
        set_name(ctx.client, name)?;
    }
    if let Some(protocol) = protocol {
        ctx.client.protocol = protocol;
        ctx.client.subscriptions.announced = true;
        ctx.reply.set_protocol(protocol);
    }
    greet(ctx);
    Ok(())
}

fn greet(ctx: &mut Ctx<'_>) {
    let reply = &mut *ctx.reply;
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", COMPATIBLE_VERSION)] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    reply.bulk_str("proto");
    reply.int(if ctx.client.protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk_str("id");
    reply.int(ctx.client.id as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    reply.bulk_str("modules");
    reply.array(0);
}

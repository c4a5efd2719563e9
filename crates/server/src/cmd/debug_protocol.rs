//! DEBUG PROTOCOL: a reply of each type that RESP has, for the tests of clients and of scripts.

use crate::ctx::{CmdError, Ctx};

/// An integer of more than 64 bits.
const BIGNUM: &str = "1234567999999999999999999999999999999";

/// DEBUG PROTOCOL type
pub fn reply_as(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, reply) = (ctx.args, &mut *ctx.reply);
    if args.is(2, "string") {
        reply.bulk_str("Hello World");
    } else if args.is(2, "integer") {
        reply.int(12345);
    } else if args.is(2, "double") {
        // As Redis does; it is not meant to be pi.
        reply.double(3141.0 / 1000.0);
    } else if args.is(2, "null") {
        reply.null();
    } else if args.is(2, "array") {
        reply.array(3);
        (0..3).for_each(|number| reply.int(number));
    } else if args.is(2, "set") {
        reply.set(3);
        (0..3).for_each(|number| reply.int(number));
    } else if args.is(2, "map") {
        reply.map(3);
        for number in 0..3 {
            reply.int(number);
            reply.boolean(number == 1);
        }
    } else if args.is(2, "attrib") {
        attribute(ctx);
    } else if args.is(2, "push") {
        return push(ctx);
    } else if args.is(2, "true") {
        reply.boolean(true);
    } else if args.is(2, "false") {
        reply.boolean(false);
    } else if args.is(2, "verbatim") {
        reply.verbatim("txt", b"This is a verbatim\nstring");
    } else if args.is(2, "bignum") {
        reply.bignum(BIGNUM);
    } else {
        return Err(CmdError::fixed(
            "ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ));
    }
    Ok(())
}

/// A reply with an attribute, of which clients of RESP2 are told nothing.
fn attribute(ctx: &mut Ctx<'_>) {
    if ctx.reply.is_resp3() {
        ctx.reply.raw(b"|1\r\n");
        ctx.reply.bulk_str("key-popularity");
        ctx.reply.array(2);
        ctx.reply.bulk_str("key:123");
        ctx.reply.int(90);
    }
    ctx.reply.bulk_str("Some real reply following the attribute");
}

/// A push message, and the reply that a client waits for besides.
fn push(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if !ctx.reply.is_resp3() {
        return Err(CmdError::fixed("ERR RESP2 is not supported by this command"));
    }
    ctx.reply.push(2);
    ctx.reply.bulk_str("server-cpu-usage");
    ctx.reply.int(42);
    ctx.reply.bulk_str("Some real reply following the push reply");
    Ok(())
}

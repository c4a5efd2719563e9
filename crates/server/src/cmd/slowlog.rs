//! SLOWLOG and its subcommands.

use crate::ctx::{CmdError, Ctx};

const DEFAULT_COUNT: usize = 10;

/// SLOWLOG GET [count]
pub fn get(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = match ctx.args.len() {
        2 => DEFAULT_COUNT,
        3 => {
            let count = ctx.args.int(2).ok().filter(|count| *count >= -1);
            match count.ok_or(CmdError::fixed("ERR count should be greater than or equal to -1"))? {
                -1 => usize::MAX,
                count => count as usize,
            }
        }
        _ => return Err(CmdError::wrong_args("slowlog|get")),
    };
    let entries = ctx.server.monitoring.slowlog.entries();
    let count = count.min(entries.len());
    ctx.reply.array(count);
    for entry in entries.iter().take(count) {
        ctx.reply.array(6);
        ctx.reply.int(entry.id as i64);
        ctx.reply.int(entry.unix_s);
        ctx.reply.int(entry.duration_us as i64);
        ctx.reply.array(entry.words.len());
        for word in &entry.words {
            ctx.reply.bulk(word);
        }
        ctx.reply.bulk_str(&entry.address);
        ctx.reply.bulk_str(&entry.client_name);
    }
    Ok(())
}

/// SLOWLOG LEN
pub fn len(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.server.monitoring.slowlog.entries().len() as i64);
    Ok(())
}

/// SLOWLOG RESET
pub fn reset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.monitoring.slowlog.reset();
    ctx.reply.ok();
    Ok(())
}

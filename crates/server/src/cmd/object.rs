//! OBJECT: how a key's value is stored and when it was last used.

use crate::ctx::{CmdError, Ctx};

const NO_LFU: CmdError = CmdError::fixed(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
     policies at runtime LRU and LFU data will take some time to adjust.",
);

/// OBJECT ENCODING key
pub fn encoding(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match find(ctx)? {
        Some(name) => ctx.reply.bulk_str(name),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ key
pub fn freq(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if find(ctx)?.is_some() {
        return Err(NO_LFU);
    }
    ctx.reply.null();
    Ok(())
}

/// OBJECT IDLETIME key
pub fn idletime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    find(ctx)?;
    match ctx.store.idle_seconds(ctx.client.db, ctx.args.at(2))? {
        Some(seconds) => ctx.reply.int(seconds as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// OBJECT REFCOUNT key
pub fn refcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match find(ctx)? {
        // Nothing is shared between keys.
        Some(_) => ctx.reply.int(1),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// How the value is stored, if the key exists. Counts as a look-up but is no access, which would reset what is asked for.
fn find(ctx: &mut Ctx<'_>) -> Result<Option<&'static str>, CmdError> {
    let encoding = ctx.store.encoding(ctx.client.db, ctx.args.at(2))?;
    ctx.store.count_read(encoding.is_some());
    Ok(encoding)
}

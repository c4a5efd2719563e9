//! REPLCONF, SYNC and PSYNC: what replicas say to their master. There are no replicas: a client is sent the data once, as a file, if it has
//! said that it wants no more.
//!
//! Relies on `transfer_control` for the data as it is at a cut.

use quire_store::numbers;

use crate::blocked::BlockReason;
use crate::client::CloseState;
use crate::ctx::{CmdError, Ctx};
use crate::library_store;
use crate::rdb::send::libraries_in_frame;
use crate::resp::inline;
use crate::transfer::TransferFrame;
use crate::transfer_control;

/// A replica that was sent the data, and nothing after it, would believe that it has all that is written.
const NO_REPLICAS: CmdError = CmdError::fixed(
    "ERR Quire has no replicas yet: nothing would follow the data. For a copy of it use redis-cli --rdb, which says REPLCONF rdb-only 1 before \
     SYNC, or quire image export --rdb",
);
const FILTERED_NEEDS_EOF: CmdError = CmdError::fixed("ERR Filtered replica requires EOF capability");
const NO_FILTERS: CmdError = CmdError::fixed("ERR Missing rdb-filter-only values");
/// Longer addresses are no addresses.
const MOST_ADDRESS_BYTES: usize = 255;

/// REPLCONF [option value …]
pub fn replconf(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    if args.len().is_multiple_of(2) {
        return Err(CmdError::SYNTAX);
    }
    for at in (1..args.len()).step_by(2) {
        if args.is(at, "ack") || args.is(at, "getack") {
            // Words of replicas and of their masters, to which there is no reply.
            return Ok(());
        }
        set_option(ctx, at)?;
    }
    ctx.reply.ok();
    Ok(())
}

fn set_option(ctx: &mut Ctx<'_>, at: usize) -> Result<(), CmdError> {
    let (args, value) = (ctx.args, ctx.args.at(at + 1));
    let rdb = &mut ctx.client.options.rdb;
    if args.is(at, "listening-port") {
        args.int(at + 1)?;
    } else if args.is(at, "ip-address") {
        if value.len() > MOST_ADDRESS_BYTES {
            return Err(CmdError::owned(format!(
                "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                value.len()
            )));
        }
    } else if args.is(at, "capa") {
        // Others are of replicas.
        rdb.takes_end_mark |= value.eq_ignore_ascii_case(b"eof");
    } else if args.is(at, "rdb-only") {
        rdb.only_file = match args.int(at + 1)? {
            0 => false,
            1 => true,
            _ => return Err(CmdError::fixed("ERR value is out of range, value must between 0 and 1")),
        };
    } else if args.is(at, "rdb-filter-only") {
        let filters = inline::words(value).map_err(|_| NO_FILTERS)?;
        (rdb.keys, rdb.functions) = (false, false);
        for filter in filters {
            if !filter.eq_ignore_ascii_case(b"functions") {
                let shown = String::from_utf8_lossy(&filter);
                return Err(CmdError::owned(format!("ERR Unsupported rdb-filter-only option: {shown}")));
            }
            rdb.functions = true;
        }
    } else {
        return Err(CmdError::owned(format!("ERR Unrecognized REPLCONF option: {}", args.text(at))));
    }
    Ok(())
}

/// SYNC
pub fn sync(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    send_file(ctx, String::new())
}

/// PSYNC replicationid offset
pub fn psync(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.args.int(2)?;
    let head = format!("+FULLRESYNC {} 0\r\n", ctx.server.instance.run_id);
    send_file(ctx, head)
}

fn send_file(ctx: &mut Ctx<'_>, head: String) -> Result<(), CmdError> {
    if ctx.client.options.monitors {
        // As in Redis, where such a client is a kind of replica already.
        return Ok(());
    }
    let wanted = ctx.client.options.rdb;
    if !wanted.only_file {
        return Err(NO_REPLICAS);
    }
    if !wanted.keys && !wanted.takes_end_mark {
        return Err(FILTERED_NEEDS_EOF);
    }
    let end_mark = if wanted.takes_end_mark { Some(end_mark()?) } else { None };
    let frame = TransferFrame { head, end_mark };
    if wanted.keys {
        let begun = transfer_control::begin(ctx.store, ctx.server, ctx.client.id, frame);
        begun.map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
        ctx.block(BlockReason::Transfer, None);
        return Ok(());
    }
    let texts = if wanted.functions { library_store::read(ctx.store)? } else { Vec::new() };
    let file = libraries_in_frame(&texts, ctx.server.unix_s(), &frame);
    let file = file.map_err(|error| CmdError::owned(format!("ERR the file can't be made: {error}")))?;
    ctx.reply.raw(&file);
    ctx.client.closing = CloseState::AfterReply;
    Ok(())
}

/// Forty characters that no file has in it but by chance.
fn end_mark() -> Result<String, CmdError> {
    let mut random = [0; 20];
    getrandom::fill(&mut random).map_err(|error| CmdError::owned(format!("ERR no random numbers: {error}")))?;
    Ok(numbers::hex(&random))
}

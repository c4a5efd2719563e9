//! HyperLogLogs: strings that estimate how many different elements there were.
//!
//! Relies on `hyperloglog` for what stands in the strings, and on the store for the strings. How an addition is logged: as it came, but a
//! string that becomes dense by the limit is told to become so before, so that a replay, which knows no limit, makes the same bytes.

use quire_store::{DbId, ExpiryChange, Keyspace, string};

use crate::ctx::{CmdError, Ctx};
use crate::effects::EffectWord;
use crate::hyperloglog::{self as hll, Corrupted, HllLayout, REGISTERS};

const NO_HYPERLOGLOG: CmdError = CmdError::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPTED: CmdError = CmdError::fixed("INVALIDOBJ Corrupted HLL object detected");
const NO_KEY: CmdError = CmdError::fixed("ERR The specified key does not exist");
/// Elements with which PFSELFTEST compares the encodings.
const TESTED_ELEMENTS: u64 = 100_000;

impl From<Corrupted> for CmdError {
    fn from(_: Corrupted) -> CmdError {
        CORRUPTED
    }
}

/// A key's HyperLogLog and its encoding, if the key exists.
fn look_up<'a>(store: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<Option<(&'a [u8], HllLayout)>, CmdError> {
    string::get(store, db, key)?.map(with_encoding).transpose()
}

/// The same, for a command that changes it.
fn look_up_to_change<'a>(
    store: &'a mut Keyspace,
    db: DbId,
    key: &[u8],
) -> Result<Option<(&'a [u8], HllLayout)>, CmdError> {
    string::get_to_change(store, db, key)?.map(with_encoding).transpose()
}

fn with_encoding(bytes: &[u8]) -> Result<(&[u8], HllLayout), CmdError> {
    let encoding = hll::encoding(bytes).ok_or(NO_HYPERLOGLOG)?;
    if bytes.len() > hll::MOST_BYTES { Err(CORRUPTED) } else { Ok((bytes, encoding)) }
}

/// PFADD key [element …]
pub fn pfadd(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let changed = match look_up_to_change(ctx.store, ctx.client.db, ctx.args.at(1))? {
        Some((_, HllLayout::Dense)) => add_to_dense(ctx)?,
        Some((bytes, HllLayout::Sparse)) => {
            let bytes = bytes.to_vec();
            add_to_sparse(ctx, bytes, false)?
        }
        None => add_to_sparse(ctx, hll::empty(), true)?,
    };
    ctx.reply.int(i64::from(changed));
    Ok(())
}

/// Raises registers where they are.
fn add_to_dense(ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let places = || args.from(2).iter().map(hll::place_of);
    let bytes = string::get_to_change(ctx.store, db, args.at(1))?.unwrap_or_default();
    // Most elements change nothing.
    if bytes.len() != hll::DENSE_BYTES || !places().any(|(register, value)| hll::dense_get(bytes, register) < value) {
        return Ok(false);
    }
    let mut new = bytes.to_vec();
    let mut string = string::open_mut(ctx.store, db, args.at(1), hll::DENSE_BYTES)?;
    for (register, value) in places() {
        if hll::dense_get(&new, register) < value {
            hll::dense_set(&mut new, register, value);
            let (at, len) = hll::dense_span(register);
            string.write(at, &new[at..at + len])?;
        }
    }
    string.write(hll::STALE_AT, &[hll::stale(new[hll::STALE_AT])])?;
    Ok(true)
}

fn add_to_sparse(ctx: &mut Ctx<'_>, bytes: Vec<u8>, is_new: bool) -> Result<bool, CmdError> {
    let (args, limit_bytes) = (ctx.args, ctx.server.config.hll_sparse_max_bytes);
    let (mut bytes, mut changed, mut failed_at) = (bytes, is_new, None);
    for (number, element) in args.from(2).iter().enumerate() {
        let (register, value) = hll::place_of(element);
        match hll::raise(&mut bytes, register, value, limit_bytes) {
            Ok(raised) => changed |= raised,
            Err(Corrupted) => {
                failed_at = Some(number + 2);
                break;
            }
        }
    }
    if changed {
        bytes[hll::STALE_AT] = hll::stale(bytes[hll::STALE_AT]);
        string::set_raw(ctx.store, ctx.client.db, args.at(1), &bytes, ExpiryChange::Keep)?;
        if hll::encoding(&bytes) == Some(HllLayout::Dense) {
            say_dense(ctx, is_new, failed_at.unwrap_or(args.len()));
        } else if let Some(at) = failed_at {
            ctx.did_only(at);
        }
    }
    match failed_at {
        Some(_) => Err(CORRUPTED),
        None => Ok(changed),
    }
}

/// Says that the HyperLogLog of the first key became dense, and then what the first `words` words say was done.
fn say_dense(ctx: &mut Ctx<'_>, is_new: bool, words: usize) {
    let made_dense = [EffectWord::Bytes(b"PFDEBUG"), EffectWord::Bytes(b"TODENSE"), EffectWord::Arg(1)];
    if is_new {
        ctx.say_effect(&[EffectWord::Bytes(b"PFADD"), EffectWord::Arg(1)]);
        ctx.say_also(&made_dense);
    } else {
        ctx.say_effect(&made_dense);
    }
    let words: Vec<EffectWord<'_>> = (0..words).map(EffectWord::Arg).collect();
    ctx.say_also(&words);
}

/// PFCOUNT key …
pub fn pfcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    if args.len() > 2 {
        let mut registers = [0; REGISTERS];
        for key in args.from(1).iter() {
            if let Some((bytes, encoding)) = look_up(ctx.store, db, key)? {
                hll::raise_to(&mut registers, bytes, encoding)?;
            }
        }
        ctx.reply.int(hll::estimate(&hll::histogram_of(&registers)) as i64);
        return Ok(());
    }
    let Some((bytes, encoding)) = look_up(ctx.store, db, args.at(1))? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let estimate = match hll::kept_estimate(bytes) {
        Some(estimate) => estimate,
        None => {
            let (len, estimate) = (bytes.len(), hll::estimate(&hll::histogram(bytes, encoding)?));
            keep_estimate(ctx, len, estimate)?;
            estimate
        }
    };
    ctx.reply.int(estimate as i64);
    Ok(())
}

/// Writes the estimate into the header, as far as data may change now: to count is to read.
fn keep_estimate(ctx: &mut Ctx<'_>, len: usize, estimate: u64) -> Result<(), CmdError> {
    if ctx.server.config.read_only || ctx.server.log_state.writes_stopped || ctx.server.is_paused(true) {
        return Ok(());
    }
    let (at, bytes) = hll::estimate_field(estimate);
    string::open_mut(ctx.store, ctx.client.db, ctx.args.at(1), len)?.write(at, &bytes)?;
    ctx.say_changed();
    Ok(())
}

/// PFMERGE destination [source …]
pub fn pfmerge(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let (mut registers, mut any_dense) = ([0; REGISTERS], false);
    for key in args.from(1).iter() {
        if let Some((bytes, encoding)) = look_up(ctx.store, db, key)? {
            any_dense |= encoding == HllLayout::Dense;
            hll::raise_to(&mut registers, bytes, encoding)?;
        }
    }
    let old = look_up_to_change(ctx.store, db, args.at(1))?.map(|(bytes, _)| bytes.to_vec());
    let is_new = old.is_none();
    let mut bytes = old.unwrap_or_else(hll::empty);
    if any_dense {
        bytes = hll::to_dense(&bytes)?;
    }
    let limit_bytes = ctx.server.config.hll_sparse_max_bytes;
    for (register, &value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
        hll::raise(&mut bytes, register, value, limit_bytes)?;
    }
    bytes[hll::STALE_AT] = hll::stale(bytes[hll::STALE_AT]);
    string::set_raw(ctx.store, db, args.at(1), &bytes, ExpiryChange::Keep)?;
    if !any_dense && hll::encoding(&bytes) == Some(HllLayout::Dense) {
        say_dense(ctx, is_new, args.len());
    }
    ctx.reply.ok();
    Ok(())
}

/// PFDEBUG GETREG | DECODE | ENCODING | TODENSE key
pub fn pfdebug(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let (bytes, encoding) = look_up_to_change(ctx.store, db, args.at(2))?.ok_or(NO_KEY)?;
    if args.is(1, "ENCODING") {
        ctx.reply.simple(if encoding == HllLayout::Dense { "dense" } else { "sparse" });
    } else if args.is(1, "DECODE") {
        if encoding != HllLayout::Sparse {
            return Err(CmdError::fixed("ERR HLL encoding is not sparse"));
        }
        ctx.reply.bulk_str(&hll::runs_text(bytes));
    } else if args.is(1, "GETREG") || args.is(1, "TODENSE") {
        let dense = hll::to_dense(bytes)?;
        if encoding == HllLayout::Sparse {
            string::set_raw(ctx.store, db, args.at(2), &dense, ExpiryChange::Keep)?;
        }
        if args.is(1, "GETREG") {
            ctx.reply.array(REGISTERS);
            (0..REGISTERS).for_each(|register| ctx.reply.int(i64::from(hll::dense_get(&dense, register))));
        } else {
            ctx.reply.int(i64::from(encoding == HllLayout::Sparse));
        }
    } else {
        return Err(CmdError::owned(format!("ERR Unknown PFDEBUG subcommand '{}'", args.text(1))));
    }
    Ok(())
}

/// PFSELFTEST
pub fn pfselftest(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (mut sparse, mut dense) = (hll::empty(), hll::to_dense(&hll::empty())?);
    let mut checked = 1;
    for number in 1..=TESTED_ELEMENTS {
        let (register, value) = hll::place_of(&number.to_le_bytes());
        hll::raise(&mut sparse, register, value, ctx.server.config.hll_sparse_max_bytes)?;
        hll::raise(&mut dense, register, value, 0)?;
        if number < checked {
            continue;
        }
        checked *= 10;
        let encoding = hll::encoding(&sparse).ok_or(NO_HYPERLOGLOG)?;
        let estimate = hll::estimate(&hll::histogram(&dense, HllLayout::Dense)?);
        if hll::estimate(&hll::histogram(&sparse, encoding)?) != estimate {
            return Err(CmdError::fixed("TESTFAILED dense/sparse disagree"));
        }
        let error = estimate.abs_diff(number);
        // Six times the standard error of 1.04 / sqrt(16384).
        if error > 1 + number / 20 {
            return Err(CmdError::owned(format!("TESTFAILED Too big error. card:{number} abserr:{error}")));
        }
    }
    ctx.reply.ok();
    Ok(())
}

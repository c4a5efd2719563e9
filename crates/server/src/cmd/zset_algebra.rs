//! What is calculated with several sorted sets, or sets: unions, intersections and differences, shown, counted and kept.
//!
//! Relies on the store for everything but the request's words. A result that is shown is put in order in ordinary memory, which the
//! reply takes as well.

use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate, Operand, ScoredMembers};

use crate::cmd::zsets::write_pair;
use crate::ctx::{Args, CmdError, Ctx};

/// A command of this family.
struct Command {
    name: &'static str,
    how: SetOperation,
    /// Where the number of keys stands.
    count_at: usize,
    result: ResultUse,
}

/// What is done with what a combination comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultUse {
    Show,
    Count,
    Store,
}

/// The words behind the keys.
struct CombineOptions {
    aggregate: Aggregate,
    with_scores: bool,
    /// At how many members counting stops; 0 is nowhere.
    limit: u64,
}

impl CombineOptions {
    /// Reads the words from `at` on, and the weights into the operands.
    fn parse(args: Args<'_>, at: usize, command: &Command, operands: &mut [Operand]) -> Result<Self, CmdError> {
        let mut options = Self { aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let weighs = command.how != SetOperation::Difference && command.result != ResultUse::Count;
        let mut at = at;
        while at < args.len() {
            let left = args.len() - at;
            if weighs && left > operands.len() && args.is(at, "WEIGHTS") {
                for operand in &mut *operands {
                    at += 1;
                    operand.weight = args.float(at).map_err(|_| CmdError::fixed("ERR weight value is not a float"))?;
                }
            } else if weighs && left >= 2 && args.is(at, "AGGREGATE") {
                at += 1;
                options.aggregate = match args.at(at).to_ascii_uppercase().as_slice() {
                    b"SUM" => Aggregate::Sum,
                    b"MIN" => Aggregate::Min,
                    b"MAX" => Aggregate::Max,
                    _ => return Err(CmdError::SYNTAX),
                };
            } else if command.result == ResultUse::Show && args.is(at, "WITHSCORES") {
                options.with_scores = true;
            } else if command.result == ResultUse::Count && left >= 2 && args.is(at, "LIMIT") {
                at += 1;
                let limit = args.int(at).ok().and_then(|limit| u64::try_from(limit).ok());
                options.limit = limit.ok_or(CmdError::fixed("ERR LIMIT can't be negative"))?;
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn run(ctx: &mut Ctx<'_>, command: &Command) -> Result<(), CmdError> {
    let (args, db) = (ctx.args, ctx.client.db);
    let count = args.int(command.count_at)?;
    let count = usize::try_from(count)
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| CmdError::owned(format!("ERR at least 1 input key is needed for '{}' command", command.name)))?;
    let first = command.count_at + 1;
    let end = first.checked_add(count).filter(|&end| end <= args.len()).ok_or(CmdError::SYNTAX)?;
    // As in Redis, keys of another type are told before wrong options.
    let mut operands = zset::operands(ctx.store, db, args.iter().take(end).skip(first))?;
    let options = CombineOptions::parse(args, end, command, &mut operands)?;
    match command.result {
        ResultUse::Store => {
            let stored = zset::store_combination(ctx.store, db, args.at(1), command.how, options.aggregate, &operands)?;
            ctx.reply.int(stored as i64);
        }
        ResultUse::Count => {
            let mut counted = 0;
            zset::combine(ctx.store, command.how, options.aggregate, &operands, &mut |_, _| {
                counted += 1;
                options.limit == 0 || counted < options.limit
            })?;
            let counted = if options.limit == 0 { counted } else { counted.min(options.limit) };
            ctx.reply.int(counted as i64);
        }
        ResultUse::Show => {
            let room = ctx.reply.room().unwrap_or_default();
            let members = zset::collect(ctx.store, command.how, options.aggregate, &operands, room)?;
            let mut members = members.ok_or(CmdError::REPLY_TOO_LARGE)?;
            members.sort();
            show(ctx, &members, options.with_scores);
        }
    }
    Ok(())
}

fn show(ctx: &mut Ctx<'_>, members: &ScoredMembers, with_scores: bool) {
    let reply = &mut *ctx.reply;
    let nested = with_scores && reply.is_resp3();
    reply.array(if with_scores && !nested { 2 * members.len() } else { members.len() });
    for (score, member) in members.iter() {
        if with_scores {
            write_pair(reply, nested, score, member);
        } else {
            reply.bulk(member);
        }
    }
}

/// ZUNION numkeys key … [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
pub fn zunion(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zunion", how: SetOperation::Union, count_at: 1, result: ResultUse::Show })
}

/// ZINTER numkeys key … [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]
pub fn zinter(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zinter", how: SetOperation::Intersection, count_at: 1, result: ResultUse::Show })
}

/// ZDIFF numkeys key … [WITHSCORES]
pub fn zdiff(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zdiff", how: SetOperation::Difference, count_at: 1, result: ResultUse::Show })
}

/// ZINTERCARD numkeys key … [LIMIT limit]
pub fn zintercard(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zintercard", how: SetOperation::Intersection, count_at: 1, result: ResultUse::Count })
}

/// ZUNIONSTORE destination numkeys key … [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]
pub fn zunionstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zunionstore", how: SetOperation::Union, count_at: 2, result: ResultUse::Store })
}

/// ZINTERSTORE destination numkeys key … [WEIGHTS weight …] [AGGREGATE SUM|MIN|MAX]
pub fn zinterstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zinterstore", how: SetOperation::Intersection, count_at: 2, result: ResultUse::Store })
}

/// ZDIFFSTORE destination numkeys key …
pub fn zdiffstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    run(ctx, &Command { name: "zdiffstore", how: SetOperation::Difference, count_at: 2, result: ResultUse::Store })
}

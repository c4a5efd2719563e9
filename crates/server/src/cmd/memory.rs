//! MEMORY: what a key takes, how the arena uses its memory, and whether that is well.
//!
//! Relies on the arena's figures, which are exact, and on the kernel's for the process.

use std::fmt::Write as _;

use quire_store::{SaveStats, StoreStats};

use crate::ctx::{CmdError, Ctx};
use crate::resp::Reply;
use quire_units::redis::format_bytes;

/// Below this much data nothing can be said about fragmentation.
const ENOUGH_BYTES: u64 = 5 << 20;
/// Memory held for each byte in use from which on DOCTOR speaks of it.
const MUCH_FRAGMENTATION: f64 = 1.4;

/// MEMORY USAGE key [SAMPLES count]
pub fn usage(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    for at in (3..ctx.args.len()).step_by(2) {
        if !ctx.args.is(at, "SAMPLES") || at + 1 >= ctx.args.len() {
            return Err(CmdError::SYNTAX);
        }
        if ctx.args.int(at + 1)? < 0 {
            return Err(CmdError::SYNTAX);
        }
    }
    match ctx.store.memory_usage(ctx.client.db, ctx.args.at(2))? {
        Some(bytes) => ctx.reply.int(bytes as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// A figure of MEMORY STATS.
enum StatValue {
    Integer(i64),
    Ratio(f64),
}

fn write(reply: &mut Reply, figures: &[(&str, StatValue)]) {
    for (name, figure) in figures {
        reply.bulk_str(name);
        match figure {
            StatValue::Integer(value) => reply.int(*value),
            StatValue::Ratio(value) => reply.double(*value),
        }
    }
}

fn bytes(value: u64) -> StatValue {
    StatValue::Integer(value as i64)
}

/// How much larger `whole` is than `part`; 1 if nothing is.
fn ratio(whole: u64, part: u64) -> StatValue {
    StatValue::Ratio(if part == 0 { 1.0 } else { whole as f64 / part as f64 })
}

fn percent(part: u64, whole: u64) -> StatValue {
    StatValue::Ratio(if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

/// By how much `whole` is larger than `part`.
fn beyond(whole: u64, part: u64) -> StatValue {
    StatValue::Integer(whole as i64 - part as i64)
}

/// MEMORY STATS
pub fn stats(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let stats = ctx.store.stats();
    let peak_bytes = ctx.server.stats.used_memory_peak_bytes.max(stats.arena.allocated_bytes);
    let clients = ctx.server.clients.iter();
    let client_bytes: u64 =
        clients.map(|(_, c)| (c.client.stats.input_bytes + c.client.stats.output_bytes) as u64).sum();
    let first = [
        ("peak.allocated", bytes(peak_bytes)),
        ("total.allocated", bytes(stats.arena.allocated_bytes)),
        ("startup.allocated", bytes(0)),
        ("replication.backlog", bytes(0)),
        ("clients.slaves", bytes(0)),
        ("clients.normal", bytes(client_bytes)),
        ("cluster.links", bytes(0)),
        ("aof.buffer", bytes(0)),
        ("lua.caches", bytes(0)),
        ("functions.caches", bytes(ctx.server.scripts.functions.libraries.memory_bytes() as u64)),
    ];
    let used = stats.databases.iter().enumerate().filter(|(_, db)| db.keys > 0);
    let last = totals(&stats, peak_bytes);
    let own = own_figures(&stats, &ctx.store.save_stats());
    ctx.reply.map(first.len() + used.clone().count() + last.len() + own.len());
    write(ctx.reply, &first);
    for (number, db) in used {
        ctx.reply.bulk_str(&format!("db.{number}"));
        ctx.reply.map(3);
        let figures = [
            ("overhead.hashtable.main", bytes(db.overhead_bytes - db.expires_overhead_bytes)),
            ("overhead.hashtable.expires", bytes(db.expires_overhead_bytes)),
            ("overhead.hashtable.slot-to-keys", bytes(0)),
        ];
        write(ctx.reply, &figures);
    }
    write(ctx.reply, &last);
    write(ctx.reply, &own);
    Ok(())
}

/// The figures that Redis has, of all databases.
fn totals(stats: &StoreStats, peak_bytes: u64) -> [(&'static str, StatValue); 18] {
    let arena = &stats.arena;
    let (allocated, used, backed) = (arena.allocated_bytes, arena.used_bytes, arena.backed_bytes());
    let resident = quire_sys::proc::resident_bytes(None).unwrap_or(0);
    let keys: u64 = stats.databases.iter().map(|db| db.keys).sum();
    let dataset = allocated.saturating_sub(stats.overhead_bytes);
    [
        ("overhead.total", bytes(stats.overhead_bytes)),
        ("keys.count", bytes(keys)),
        ("keys.bytes-per-key", bytes(allocated.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", bytes(dataset)),
        ("dataset.percentage", percent(dataset, allocated)),
        ("peak.percentage", percent(allocated, peak_bytes)),
        ("allocator.allocated", bytes(allocated)),
        ("allocator.active", bytes(used)),
        ("allocator.resident", bytes(backed)),
        ("allocator-fragmentation.ratio", ratio(used, allocated)),
        ("allocator-fragmentation.bytes", beyond(used, allocated)),
        ("allocator-rss.ratio", ratio(backed, used)),
        ("allocator-rss.bytes", beyond(backed, used)),
        ("rss-overhead.ratio", ratio(resident, backed)),
        ("rss-overhead.bytes", beyond(resident, backed)),
        ("fragmentation", ratio(resident, allocated)),
        ("fragmentation.bytes", beyond(resident, allocated)),
        ("process.resident", bytes(resident)),
    ]
}

/// Figures of the arena and of saves.
fn own_figures(stats: &StoreStats, saves: &SaveStats) -> [(&'static str, StatValue); 6] {
    [
        ("arena.objects", bytes(stats.arena.objects)),
        ("arena.free", bytes(stats.arena.free_bytes)),
        ("arena.released", bytes(stats.arena.released_bytes)),
        ("snapshot.preimages", bytes(saves.preimage_bytes_now)),
        ("snapshot.preimages-budget", bytes(saves.budget_bytes)),
        ("lazyfree.pending-objects", bytes(stats.reclaim_pending)),
    ]
}

/// MEMORY MALLOC-STATS
pub fn malloc_stats(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let arena = ctx.store.arena().stats();
    let mut text = String::new();
    for (name, value) in [
        ("objects", arena.objects),
        ("allocated bytes", arena.allocated_bytes),
        ("bytes of pages in use", arena.used_bytes),
        ("bytes of free pages", arena.free_bytes),
        ("of these given back to the system", arena.released_bytes),
        ("bytes spanned", arena.committed_bytes),
        ("most bytes", arena.max_bytes),
    ] {
        let _ = writeln!(text, "{name}: {value}");
    }
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// MEMORY DOCTOR
pub fn doctor(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let text = diagnosis(ctx);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn diagnosis(ctx: &Ctx<'_>) -> String {
    let (arena, saves) = (ctx.store.arena().stats(), ctx.store.save_stats());
    if arena.allocated_bytes < ENOUGH_BYTES {
        return "There is too little data to say anything about memory.\n".to_owned();
    }
    let mut text = String::new();
    if arena.fragmentation() > MUCH_FRAGMENTATION {
        let advice = match ctx.server.config.defrag {
            defrag if !defrag.is_on => "With activedefrag yes what lives among them is moved together",
            _ if ctx.store.is_damaged() => {
                "activedefrag moves none of it: the image that the data comes from is damaged"
            }
            defrag if defrag.share_percent(arena.backed_bytes(), arena.allocated_bytes) == 0 => {
                "activedefrag moves none of it: the settings active-defrag-ignore-bytes and active-defrag-threshold-lower say from where on"
            }
            _ => "What lives among them is being moved together (activedefrag yes), as far as it can be",
        };
        let _ = writeln!(
            text,
            "* Fragmentation: {} are held for {} in use. What was deleted left holes; they are used again, and whole free \
             regions go back to the system. {advice}.",
            format_bytes(arena.backed_bytes()),
            format_bytes(arena.allocated_bytes)
        );
    }
    let peak_bytes = ctx.server.stats.used_memory_peak_bytes;
    if peak_bytes > arena.allocated_bytes + arena.allocated_bytes / 2 {
        let _ = writeln!(
            text,
            "* Peak: {} were in use once, {} are now.",
            format_bytes(peak_bytes),
            format_bytes(arena.allocated_bytes)
        );
    }
    if saves.waits > 0 && saves.wait_longest_ns > 10_000_000 {
        let _ = writeln!(
            text,
            "* Saves: a command waited {} ms for a page or a buffer. More memory for saves \
             (checkpoint-max-extra-memory, now {}) or a faster disk would help.",
            saves.wait_longest_ns / 1_000_000,
            format_bytes(saves.budget_bytes)
        );
    }
    if text.is_empty() {
        return "Nothing is wrong with this server's memory.\n".to_owned();
    }
    format!("What could be better:\n\n{text}")
}

/// MEMORY PURGE: what is done in steps otherwise is done at once.
pub fn purge(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    while ctx.store.reclaim_step(1 << 16)? > 0 {}
    while ctx.store.arena_mut().trim(64) > 0 {}
    ctx.reply.ok();
    Ok(())
}

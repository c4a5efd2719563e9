//! MEMORY: what a key takes, how the arena uses its memory, and whether that is well.
//!
//! Relies on the arena's figures, which are exact, and on the kernel's for the process.

use std::fmt::Write as _;

use crate::ctx::{CmdError, Ctx};
use crate::numbers::human_bytes;

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

/// MEMORY STATS
pub fn stats(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let stats = ctx.store.stats();
    let saves = ctx.store.save_stats();
    let arena = stats.arena;
    let keys: u64 = stats.databases.iter().map(|db| db.keys).sum();
    let used: Vec<(usize, u64)> = stats
        .databases
        .iter()
        .enumerate()
        .filter(|(_, db)| db.keys > 0)
        .map(|(number, db)| (number, db.overhead_bytes))
        .collect();
    let dataset_bytes = arena.allocated_bytes.saturating_sub(stats.overhead_bytes);
    let share = dataset_bytes as f64 * 100.0 / arena.allocated_bytes.max(1) as f64;
    let resident_bytes = quire_sys::proc::resident_bytes(None).unwrap_or(0);
    let integers = [
        ("peak.allocated", ctx.server.stats.used_memory_peak_bytes.max(arena.allocated_bytes)),
        ("total.allocated", arena.allocated_bytes),
        ("overhead.total", stats.overhead_bytes),
        ("keys.count", keys),
        ("keys.bytes-per-key", arena.allocated_bytes.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", dataset_bytes),
        ("allocator.allocated", arena.allocated_bytes),
        ("allocator.active", arena.used_bytes),
        ("allocator.resident", arena.backed_bytes()),
        ("allocator.free", arena.free_bytes),
        ("allocator.released", arena.released_bytes),
        ("snapshot.preimages", saves.preimage_bytes_now),
        ("snapshot.preimages-budget", saves.budget_bytes),
        ("lazyfree.pending-objects", stats.reclaim_pending),
        ("process.resident", resident_bytes),
    ];
    ctx.reply.map(integers.len() + used.len() + 2);
    for (name, value) in integers {
        ctx.reply.bulk_str(name);
        ctx.reply.int(value as i64);
    }
    for (number, overhead_bytes) in used {
        ctx.reply.bulk_str(&format!("db.{number}"));
        ctx.reply.map(1);
        ctx.reply.bulk_str("overhead.hashtable.main");
        ctx.reply.int(overhead_bytes as i64);
    }
    ctx.reply.bulk_str("dataset.percentage");
    ctx.reply.double(share);
    ctx.reply.bulk_str("allocator-fragmentation.ratio");
    ctx.reply.double(arena.fragmentation());
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
        let _ = writeln!(
            text,
            "* Fragmentation: {} are held for {} in use. What was deleted left holes; they are used again, and whole free \
             regions go back to the system.",
            human_bytes(arena.backed_bytes()),
            human_bytes(arena.allocated_bytes)
        );
    }
    let peak_bytes = ctx.server.stats.used_memory_peak_bytes;
    if peak_bytes > arena.allocated_bytes + arena.allocated_bytes / 2 {
        let _ = writeln!(
            text,
            "* Peak: {} were in use once, {} are now.",
            human_bytes(peak_bytes),
            human_bytes(arena.allocated_bytes)
        );
    }
    if saves.waits > 0 && saves.wait_longest_ns > 10_000_000 {
        let _ = writeln!(
            text,
            "* Saves: a command waited {} ms for a page or a buffer. More memory for saves \
             (checkpoint-max-extra-memory, now {}) or a faster disk would help.",
            saves.wait_longest_ns / 1_000_000,
            human_bytes(saves.budget_bytes)
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

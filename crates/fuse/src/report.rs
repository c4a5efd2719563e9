//! What a mount says of itself: figures and decisions, as JSON.
//!
//! The names in it are a contract with `quire stats` and the experiments. Relies on everything being counted elsewhere.

use std::sync::atomic::Ordering::Relaxed;

use quire_writecache::{
    AdmissionDecision, AdmissionReason, BLOCK_BYTES, CacheStats, ContentKind, WaitCause, WaitStats,
};
use serde_json::{Map, Value, json};

use crate::criticality::{CriticalityDecision, CriticalityTracker, LockWaitStats};
use crate::engine::{MountEngine, SYSTEM};

/// Longest value of an extended attribute, less something to be safe.
const MOST_BYTES: usize = 60_000;

/// Most losses that are named: the rest would leave no room for anything else.
const MOST_NAMED: usize = 100;

/// What doesn't change while mounted.
#[derive(Clone, Debug)]
pub struct MountInfo {
    /// The directory.
    pub backing: String,
    /// Where it appears.
    pub mount_point: String,
    /// The log.
    pub log: String,
}

/// All figures.
pub fn stats(engine: &MountEngine, criticality: &CriticalityTracker, info: &MountInfo) -> Value {
    let cache = engine.cache.stats();
    let progress = engine.cache.progress();
    let counts = &engine.counts;
    let lost = engine.cache.lost();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "backing": info.backing,
        "mount_point": info.mount_point,
        "log": info.log,
        "policy": cache.policy.name(),
        "requests": {
            "reads": counts.reads.load(Relaxed),
            "read_bytes": counts.read_bytes.load(Relaxed),
            "writes": counts.writes.load(Relaxed),
            "written_bytes": counts.written_bytes.load(Relaxed),
            "flushes": counts.flushes.load(Relaxed),
            "slow_syncs": counts.slow_syncs.load(Relaxed),
            "durable_writes": counts.durable_writes.load(Relaxed),
            "straight_bytes": counts.write_through_bytes.load(Relaxed),
        },
        "files_in_use": engine.inodes.map().len(),
        "cache": cache_json(&cache),
        "write_back": {
            "used_percent": progress.used_percent,
            "batches": progress.batches,
            "bytes_per_s": progress.bytes_per_s,
            "eta_ms": progress.eta_ms,
            "stuck": progress.stuck_on.is_some(),
            "refused_percent": progress.refused_percent,
        },
        "refused": engine.refused().into_iter().take(MOST_NAMED).collect::<Vec<_>>(),
        "lost": lost.iter().take(MOST_NAMED).map(ToString::to_string).collect::<Vec<_>>(),
        "lost_count": lost.len(),
        "hints": criticality.hints(),
        "auto_critical": criticality.confusion_matrix().map(confusion_matrix),
        "unruled": unclassified(criticality),
        "file_locks": criticality.lock_wait_stats().map(file_locks),
    })
}

/// Rules against observation, by flushes.
fn confusion_matrix(cells: [[u64; 2]; 2]) -> Value {
    let all: u64 = cells.iter().flatten().sum();
    let right = cells[0][0] + cells[1][1];
    json!({
        "flushes": all,
        "both_critical": cells[1][1],
        "neither": cells[0][0],
        "only_by_rule": cells[1][0],
        "only_observed": cells[0][1],
        "share_right": if all == 0 { None } else { Some(right as f64 / all as f64) },
    })
}

/// Programs that neither a hint nor a rule names.
fn unclassified(criticality: &CriticalityTracker) -> Value {
    criticality
        .unclassified()
        .into_iter()
        .map(|(program, flushes)| json!({ "program": program, "flushes": flushes }))
        .collect()
}

/// Who was found waiting for the lock of a file.
fn file_locks(figures: LockWaitStats) -> Value {
    let LockWaitStats { inherited, rounds, looks, refused } = figures;
    json!({ "inherited": inherited, "rounds": rounds, "looks": looks, "refused": refused })
}

/// Figures of a cache.
pub fn cache_json(stats: &CacheStats) -> Value {
    let reasons: Map<String, Value> = AdmissionReason::EVERY
        .iter()
        .map(|reason| {
            let count = stats.reasons[reason.index()];
            let fast = *reason < AdmissionReason::Asynchronous;
            let value =
                json!({ "decisions": count.decisions, "blocks": count.blocks, "fast": fast, "means": reason.words() });
            (format!("{reason:?}"), value)
        })
        .collect();
    let by_content = |blocks: [u64; 3]| -> Value {
        ContentKind::EVERY
            .iter()
            .map(|content| (content.name().to_owned(), json!(blocks[*content as usize])))
            .collect::<Map<_, _>>()
            .into()
    };
    json!({
        "block_bytes": BLOCK_BYTES,
        "written_bytes": stats.written_bytes,
        "logged_bytes": stats.logged_bytes,
        "fast_bytes": stats.fast_bytes,
        "direct_bytes": stats.direct_bytes,
        "written_back_bytes": stats.written_back_bytes,
        "absorbed_bytes": stats.absorbed_bytes,
        "unchanged_bytes": stats.unchanged_bytes,
        "relocated_bytes": stats.relocated_bytes,
        "refused_blocks": stats.refused_blocks,
        "slow_flushes": stats.slow_flushes,
        "critical_slow_uses": stats.critical_slow_uses,
        "cached_blocks": stats.cached_blocks,
        "log_used_bytes": stats.log_used_bytes,
        "log_bytes": stats.log_bytes,
        "pending_bytes": stats.pending_bytes,
        "open_truncations": stats.open_truncations,
        "stalls": stats.stalls,
        "discarded_flights": stats.discarded_flights,
        "cached_share": stats.cached_share(),
        "reasons": reasons,
        "critical_blocks": {
            "direct": by_content(stats.critical_writes.direct_blocks),
            "inherited": by_content(stats.critical_writes.inherited_blocks),
            "reissued": by_content(stats.critical_writes.reissued_blocks),
        },
        "critical_waits": waits(&stats.critical_waits),
        "other_waits": waits(&stats.other_waits),
    })
}

fn waits(waits: &[WaitStats]) -> Value {
    let one = |(cause, wait): (&WaitCause, &WaitStats)| {
        let value = json!({ "count": wait.count, "total_ns": wait.total_ns, "longest_ns": wait.longest_ns });
        (cause.name().to_owned(), value)
    };
    WaitCause::EVERY.iter().zip(waits).map(one).collect::<Map<_, _>>().into()
}

/// The last decisions, newest first, as many as there is room for.
pub fn trace(engine: &MountEngine, criticality: &CriticalityTracker) -> Value {
    let names: std::collections::HashMap<_, _> = engine
        .inodes
        .all()
        .into_iter()
        .filter_map(|inode| {
            let path = quire_sys::at::path_of(&*inode.file)?;
            let path = std::path::Path::new(&path);
            let inside = path.strip_prefix(&engine.backing_root.path).unwrap_or(path).display().to_string();
            Some((inode.volume()?, inside))
        })
        .collect();
    let mut bytes = 0;
    let mut list = Vec::new();
    for decision in engine.cache.trace().iter().rev() {
        let value = decision_json(decision, names.get(&decision.first.volume).map(String::as_str), criticality);
        bytes += value.to_string().len() + 1;
        if bytes > MOST_BYTES {
            break;
        }
        list.push(value);
    }
    Value::from(list)
}

fn decision_json(decision: &AdmissionDecision, file: Option<&str>, criticality: &CriticalityTracker) -> Value {
    let task = u32::try_from(decision.task).ok().filter(|&task| task != 0);
    let known = task.and_then(|task| criticality.described(task));
    let name = match (decision.task, &known) {
        (0, _) => Some("nobody".to_owned()),
        (task, _) if task == SYSTEM.0 => Some("mount".to_owned()),
        (_, Some((_, name, _))) => Some(name.clone()),
        _ => None,
    };
    let verdict = known.as_ref().map(|(_, _, verdict)| match verdict {
        CriticalityDecision::Critical => "critical",
        CriticalityDecision::Inherits => "inherits",
        CriticalityDecision::Log => "log",
        CriticalityDecision::Normal => "normal",
    });
    json!({
        "at_ms": decision.at_ns / 1_000_000,
        "file": file.map_or_else(|| decision.first.volume.to_string(), str::to_owned),
        "offset": decision.first.offset(),
        "blocks": decision.block_count,
        "fast": decision.reason < AdmissionReason::Asynchronous,
        "why": decision.reason.words(),
        "task": task,
        "name": name,
        "verdict": verdict,
    })
}

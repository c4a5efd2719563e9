//! What is counted beside operations: where pages came from, what the process read from the disk, and what is held, once and twice.
//!
//! Relies on the pool for what it knows, and on `/proc/self/io` for what came from the disk, by whatever way: reads through the page
//! cache that the cache could serve are not in it, readahead of the kernel is.

use quire_pool::{Map, Pool};

use crate::fastmap::pages::Counters;
use crate::fastmap::phase_stats::PhaseStats;
use crate::fastmap::testbed::PAGE_BYTES;

/// Names of the counters that figures are made of.
const HITS: &str = "pool_hits";
const MISSES: &str = "pool_misses";
const FROM_TIER: &str = "read_tier";
const FROM_CACHE: &str = "read_cached";
const ASKED: &str = "read_direct";
const DISK_BYTES: &str = "disk_read_bytes";
const CACHED_TWICE: &str = "cached_twice_bytes";
const TIER_TWICE: &str = "tier_twice_bytes";
/// Part of the records that were read before anything was measured, where all were to be.
pub const READ_BEFORE: &str = "read_before_share";

/// What has been counted so far.
pub fn counted(pool: &Pool) -> Counters {
    let stats = pool.stats();
    let paths = stats.paths;
    let sums = [
        (HITS, stats.hits),
        (MISSES, stats.misses),
        (FROM_TIER, paths.read_tier),
        (FROM_CACHE, paths.read_cached),
        (ASKED, paths.read_direct),
        ("tier_reclaimed", paths.tier_reclaimed),
        ("tier_ghost", paths.tier_ghost),
        ("evict_clean", paths.evict_clean),
        ("evict_kept", paths.evict_kept),
        ("evict_declined", paths.evict_declined),
        ("evict_dirty", paths.evict_dirty),
        ("write_direct", paths.write_direct),
    ];
    sums.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).chain(disk()).collect()
}

/// What this process has read from disks and written to them so far; empty where the kernel doesn't tell.
pub fn disk() -> Counters {
    let disk = disk_bytes(&std::fs::read_to_string("/proc/self/io").unwrap_or_default());
    let sums = [(DISK_BYTES, disk.map(|bytes| bytes[0])), ("disk_written_bytes", disk.map(|bytes| bytes[1]))];
    sums.into_iter().filter_map(|(name, bytes)| Some((name.to_owned(), bytes? as f64))).collect()
}

/// What is held now. Looks at all of the second tier.
pub fn held(pool: &Pool, map: &Map) -> Counters {
    let tier = pool.tier_stats();
    let mut held = Counters::new();
    let mut add = |name: &str, bytes: u64| held.insert(name.to_owned(), bytes as f64);
    add("pool_bytes", map.resident_pages() as u64 * PAGE_BYTES as u64);
    add("tier_limit_bytes", tier.limit_bytes);
    add("tier_held_bytes", tier.held_bytes);
    add("tier_resident_bytes", tier.resident_bytes);
    add("tier_entries", tier.entries);
    add(TIER_TWICE, tier.promoted_bytes);
    if let Some(bytes) = map.held_twice_bytes() {
        add(CACHED_TWICE, bytes);
    }
    held
}

/// Bytes that a process has read from disks and written to them.
fn disk_bytes(text: &str) -> Option<[u64; 2]> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some([of("read_bytes:")?, of("write_bytes:")?])
}

fn counter(stats: &PhaseStats, name: &str) -> f64 {
    stats.counters.get(name).copied().unwrap_or(f64::NAN)
}

/// Part of the uses of pages that found them in the pool; branches of the tree are uses, too.
pub fn pool_hit_ratio(stats: &PhaseStats) -> f64 {
    let hits = counter(stats, HITS);
    hits / (hits + counter(stats, MISSES))
}

/// Part of the pool's misses that the second tier or the page cache served.
pub fn second_hit_ratio(stats: &PhaseStats) -> f64 {
    // Stores of others don't tell.
    let misses = counter(stats, MISSES);
    if misses.is_nan() {
        return f64::NAN;
    }
    let misses = misses.max(1.0);
    let through = (counter(stats, ASKED) - disk_reads(stats)).max(0.0);
    // Those that the pool took out of the page cache itself are not asked of the device.
    let taken = stats.counters.get(FROM_CACHE).copied().unwrap_or(0.0);
    (counter(stats, FROM_TIER) + taken + through).min(misses) / misses
}

/// Pages read from the disk.
pub fn disk_reads(stats: &PhaseStats) -> f64 {
    counter(stats, DISK_BYTES) / PAGE_BYTES as f64
}

/// Part of the records that were read before anything was measured; NaN where none were.
pub fn read_before(stats: &PhaseStats) -> f64 {
    counter(stats, READ_BEFORE)
}

/// Bytes held by the pool and by the page cache, and by the pool and its second tier.
pub fn held_twice(stats: &PhaseStats) -> [f64; 2] {
    [counter(stats, CACHED_TWICE), counter(stats, TIER_TWICE)]
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A phase with counters of these values.
    pub fn phase(name: &str, per_s: f64, counters: &[(&str, f64)]) -> PhaseStats {
        let counters = counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        PhaseStats { name: name.to_owned(), ops: per_s as u64, elapsed_s: 1.0, counters, ..PhaseStats::default() }
    }

    #[test]
    fn hits_are_told_by_where_pages_came_from() {
        let direct = [(HITS, 60.0), (MISSES, 40.0), (ASKED, 40.0), (FROM_TIER, 0.0), (DISK_BYTES, 40.0 * 4096.0)];
        let direct = phase("b", 1.0, &direct);
        assert_eq!((pool_hit_ratio(&direct), second_hit_ratio(&direct), disk_reads(&direct)), (0.6, 0.0, 40.0));
        let tier = [(MISSES, 40.0), (ASKED, 10.0), (FROM_TIER, 30.0), (DISK_BYTES, 10.0 * 4096.0)];
        assert_eq!(second_hit_ratio(&phase("b", 1.0, &tier)), 0.75);
        // The page cache served what was asked for and not read.
        let cached = [(MISSES, 40.0), (ASKED, 40.0), (FROM_TIER, 0.0), (DISK_BYTES, 20.0 * 4096.0)];
        assert_eq!(second_hit_ratio(&phase("b", 1.0, &cached)), 0.5);
        let taken = [(MISSES, 40.0), (FROM_CACHE, 10.0), (ASKED, 30.0), (FROM_TIER, 0.0), (DISK_BYTES, 30.0 * 4096.0)];
        assert_eq!(second_hit_ratio(&phase("b", 1.0, &taken)), 0.25);
        assert!(second_hit_ratio(&phase("b", 1.0, &[(DISK_BYTES, 4096.0)])).is_nan());
    }

    #[test]
    fn what_the_process_read_is_found_in_the_kernel_s_account() {
        let text = "rchar: 7\nsyscr: 3\nread_bytes: 8192\nwrite_bytes: 4096\ncancelled_write_bytes: 0\n";
        assert_eq!(disk_bytes(text), Some([8192, 4096]));
        assert_eq!(disk_bytes(""), None);
    }
}

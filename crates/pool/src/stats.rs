//! A pool's figures at one moment, and as Prometheus text.
//!
//! Relies on nothing but the counters; figures taken while threads work need not fit together to the page.

use std::fmt::Write;

use crate::counters::{MERGED_BUCKETS, WaitCause};
use crate::tier::TierStats;

/// Waits for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStats {
    /// Why.
    pub cause: WaitCause,
    /// How often.
    pub count: u64,
    /// How long in all.
    pub total_ns: u64,
    /// How long at most.
    pub longest_ns: u64,
}

/// Transfers in flight, seen whenever some were submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DepthStats {
    /// On average.
    pub mean: f64,
    /// At most.
    pub most: u64,
}

/// Figures of a pool since it was made.
#[derive(Clone, Debug)]
pub struct PoolStats {
    /// Pages that the pool may hold; of a budget that both tiers share, those that the first one has now.
    pub budget_pages: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages that hold a credit: in memory, or on their way in or out.
    pub resident_pages: u64,
    /// Pages changed in memory and not being written.
    pub dirty_pages: u64,
    /// Maps.
    pub maps: u64,
    /// Uses of pages that were in memory; sampled, each thread reports 64 at a time.
    pub hits: u64,
    /// Pages that were not in the pool when a thread needed them, wherever they came from then.
    pub misses: u64,
    /// Pages that were not read because they were about to be overwritten.
    pub overwritten: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Pages evicted.
    pub evicted: u64,
    /// Batches that they went in.
    pub evict_batches: u64,
    /// Ranges of neighbours that they made.
    pub evict_ranges: u64,
    /// System calls that it took.
    pub evict_calls: u64,
    /// Pages written back.
    pub written: u64,
    /// Writes that they were merged to.
    pub writes: u64,
    /// Pages asked for ahead of their use.
    pub ahead: u64,
    /// Reads that they were merged to.
    pub ahead_reads: u64,
    /// Optimistic reads that had to be repeated.
    pub optimistic_retries: u64,
    /// Writes of 1, up to 2, up to 4, … pages.
    pub merged_writes: [u64; MERGED_BUCKETS],
    /// Reads ahead in flight.
    pub read_depth: DepthStats,
    /// Writes in flight.
    pub write_depth: DepthStats,
    /// Waits, by cause.
    pub waits: Vec<WaitStats>,
    /// Pages by the path that they took.
    pub paths: PathStats,
    /// Leases.
    pub leases: LeaseStats,
}

/// What leases hold, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Pages that leases pin.
    pub pinned_pages: u64,
    /// Pages that they may pin.
    pub limit_pages: u64,
    /// Writers that copied a leased page before they changed it.
    pub relocated: u64,
    /// Pages that were copied for a lease, since older bytes were leased at their addresses.
    pub copied: u64,
}

/// Pages by the path that they took between the tiers and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// *Read*: from the device, in pages that a thread waited for.
    pub read_direct: u64,
    /// *Read*: from the second tier.
    pub read_tier: u64,
    /// *Read*: from the system's page cache.
    pub read_cached: u64,
    /// Pages of these that the page cache didn't give up.
    pub cache_kept: u64,
    /// Pages that the second tier had an entry for but the kernel had taken.
    pub tier_reclaimed: u64,
    /// Pages that the second tier had let go for want of room, as far as it remembers: those that a larger one would have had.
    pub tier_ghost: u64,
    /// Looks of fault handlers that were given up, since another thread had the shard.
    pub tier_busy: u64,
    /// *Write-direct*: pages written that stay in the pool.
    pub write_direct: u64,
    /// *Evict-dirty*: pages written because threads needed memory.
    pub evict_dirty: u64,
    /// *Evict-clean*: victims copied to the second tier.
    pub evict_clean: u64,
    /// *Evict-clean*: victims whose bytes were there still, unchanged.
    pub evict_kept: u64,
    /// Victims that were dropped: the second tier had no room, or storing didn't pay.
    pub evict_declined: u64,
}

impl PoolStats {
    /// Waits for `cause`.
    pub fn wait(&self, cause: WaitCause) -> WaitStats {
        let none = WaitStats { cause, count: 0, total_ns: 0, longest_ns: 0 };
        self.waits.iter().find(|wait| wait.cause == cause).copied().unwrap_or(none)
    }

    /// The figures as Prometheus reads them.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let gauges = [
            ("budget_bytes", "Memory that pages may take.", self.budget_pages * self.page_bytes),
            ("resident_bytes", "Memory that pages take.", self.resident_pages * self.page_bytes),
            ("dirty_bytes", "Memory of pages that must be written.", self.dirty_pages * self.page_bytes),
            ("maps", "Mapped files.", self.maps),
            ("leased_bytes", "Memory that leases pin.", self.leases.pinned_pages * self.page_bytes),
            ("lease_limit_bytes", "Memory that leases may pin.", self.leases.limit_pages * self.page_bytes),
        ];
        for (name, help, value) in gauges {
            metric(&mut text, name, "gauge", help, value);
        }
        let counters = [
            ("hits_total", "Uses of pages in memory, sampled.", self.hits),
            ("misses_total", "Pages that a thread waited for.", self.misses),
            ("overwritten_total", "Pages not read as they were overwritten.", self.overwritten),
            ("failed_reads_total", "Reads that failed.", self.failed_reads),
            ("evicted_pages_total", "Pages evicted.", self.evicted),
            ("evict_batches_total", "Batches of evictions.", self.evict_batches),
            ("evict_ranges_total", "Ranges of neighbours evicted.", self.evict_ranges),
            ("evict_calls_total", "System calls for evictions.", self.evict_calls),
            ("written_pages_total", "Pages written back.", self.written),
            ("ahead_pages_total", "Pages read ahead.", self.ahead),
            ("ahead_reads_total", "Reads that these were merged to.", self.ahead_reads),
            ("optimistic_retries_total", "Optimistic reads repeated.", self.optimistic_retries),
            ("lease_relocated_total", "Leased pages copied before they were changed.", self.leases.relocated),
            ("lease_copied_total", "Pages copied for a lease.", self.leases.copied),
        ];
        for (name, help, value) in counters {
            metric(&mut text, name, "counter", help, value);
        }
        self.path_metrics(&mut text);
        self.histogram(&mut text);
        self.wait_metrics(&mut text);
        self.depth_metrics(&mut text);
        text
    }

    fn path_metrics(&self, text: &mut String) {
        let paths = self.paths;
        family(text, "path_pages_total", "counter", "Pages, by the path that they took.");
        let paths = [
            ("read_direct", paths.read_direct),
            ("read_tier", paths.read_tier),
            ("read_cached", paths.read_cached),
            ("write_direct", paths.write_direct),
            ("evict_dirty", paths.evict_dirty),
            ("evict_clean", paths.evict_clean),
            ("evict_kept", paths.evict_kept),
            ("evict_declined", paths.evict_declined),
        ];
        for (path, pages) in paths {
            let _ = writeln!(text, "quire_pool_path_pages_total{{path=\"{path}\"}} {pages}");
        }
        let reclaimed = self.paths.tier_reclaimed;
        metric(
            text,
            "tier_reclaimed_total",
            "counter",
            "Pages that the kernel had taken from the second tier.",
            reclaimed,
        );
        let ghosts = self.paths.tier_ghost;
        metric(text, "tier_ghost_total", "counter", "Pages that a larger second tier would have had.", ghosts);
        let kept = self.paths.cache_kept;
        metric(text, "cache_kept_total", "counter", "Pages read that the page cache didn't give up.", kept);
        let busy = self.paths.tier_busy;
        metric(text, "tier_busy_total", "counter", "Looks of fault handlers that were given up.", busy);
    }

    fn histogram(&self, text: &mut String) {
        family(text, "merged_write_pages", "histogram", "Pages of a write.");
        let name = "quire_pool_merged_write_pages";
        let mut sum = 0;
        for (bucket, count) in self.merged_writes.iter().enumerate().take(MERGED_BUCKETS - 1) {
            sum += count;
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {sum}", 1u64 << bucket);
        }
        sum += self.merged_writes[MERGED_BUCKETS - 1];
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", self.written, self.writes);
    }

    fn wait_metrics(&self, text: &mut String) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        family(text, "waits_total", "counter", "Waits, by cause.");
        self.each_wait(text, "waits_total", |wait| wait.count as f64);
        family(text, "wait_seconds_total", "counter", "Time waited, by cause.");
        self.each_wait(text, "wait_seconds_total", |wait| seconds(wait.total_ns));
        family(text, "wait_longest_seconds", "gauge", "The longest wait so far, by cause.");
        self.each_wait(text, "wait_longest_seconds", |wait| seconds(wait.longest_ns));
    }

    fn each_wait(&self, text: &mut String, name: &str, value: impl Fn(&WaitStats) -> f64) {
        for wait in &self.waits {
            let _ = writeln!(text, "quire_pool_{name}{{cause=\"{}\"}} {}", wait.cause.name(), value(wait));
        }
    }

    fn depth_metrics(&self, text: &mut String) {
        let queues = [("read", self.read_depth), ("write", self.write_depth)];
        family(text, "queue_depth_mean", "gauge", "Transfers in flight whenever some were submitted, on average.");
        for (queue, depth) in queues {
            let _ = writeln!(text, "quire_pool_queue_depth_mean{{queue=\"{queue}\"}} {}", depth.mean);
        }
        family(text, "queue_depth_most", "gauge", "Transfers in flight, at most.");
        for (queue, depth) in queues {
            let _ = writeln!(text, "quire_pool_queue_depth_most{{queue=\"{queue}\"}} {}", depth.most);
        }
    }
}

impl TierStats {
    /// The figures as Prometheus reads them; they go with [`PoolStats::prometheus`].
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let gauges = [
            ("tier_limit_bytes", "Memory that the second tier may take now.", self.limit_bytes),
            ("tier_held_bytes", "Memory of the second tier's segments.", self.held_bytes),
            ("tier_resident_bytes", "Memory of these that the kernel has not taken.", self.resident_bytes),
            ("tier_entries", "Pages in the second tier.", self.entries),
            ("tier_stored_bytes", "Bytes of these as they are stored.", self.stored_bytes),
            ("tier_twice_bytes", "Bytes of these that are in the first tier, too.", self.promoted_bytes),
        ];
        for (name, help, value) in gauges {
            metric(&mut text, name, "gauge", help, value);
        }
        text
    }
}

/// What a metric is; its samples follow, all of them together.
fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP quire_pool_{name} {help}\n# TYPE quire_pool_{name} {kind}");
}

fn metric(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    family(text, name, kind, help);
    let _ = writeln!(text, "quire_pool_{name} {value}");
}

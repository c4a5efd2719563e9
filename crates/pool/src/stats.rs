//! A pool's figures at one moment, and as Prometheus text.
//!
//! Relies on nothing but the counters; figures taken while threads work need not fit together to the page.

use std::fmt::Write;

use crate::counters::{MERGED_BUCKETS, WaitCause};

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
    /// Pages that the pool may hold.
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
    /// Pages read because a thread waited for them.
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
        ];
        for (name, help, value) in counters {
            metric(&mut text, name, "counter", help, value);
        }
        self.histogram(&mut text);
        self.wait_metrics(&mut text);
        self.depth_metrics(&mut text);
        text
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

/// What a metric is; its samples follow, all of them together.
fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP quire_pool_{name} {help}\n# TYPE quire_pool_{name} {kind}");
}

fn metric(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    family(text, name, kind, help);
    let _ = writeln!(text, "quire_pool_{name} {value}");
}

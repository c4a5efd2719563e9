//! Which figures with goals nothing physical bounds, and why. All others say their bound ([`Figure::bound`](crate::report::Figure::bound)).
//!
//! Relies on the names of figures being stable. A test compares this with every result that is kept in `docs/results`.

use crate::report::Report;

/// The figures of an experiment whose names begin so, or end so where the text begins with `*`, and why nothing bounds them.
type Unbounded = (&'static str, &'static [&'static str], &'static str);

const PERCENTILE: &str =
    "no least time of a request follows from the machine: a percentile is of what else the processors and disks do";
const CUT: &str = "no least time of a cut follows from the machine: it is the work that the mechanism has chosen to do";
const POLICIES: &str = "both are policies on the same devices, and how little the better one may wait follows from the load, not from them";
const COPIES: &str =
    "how much has to be copied follows from where writers write while a view lives, not from the machine";

const LAYERS: &str = "none is possible: it is how far from that the layers are";
const FLUSHES: &str = "what a remap costs other threads, and how often files change, follows from the load and the processors' caches of translations";

const UNBOUNDED: &[Unbounded] = &[
    ("server", &["cut_stall_us", "cut_stall_ratio"], CUT),
    ("server", &["p999_during_save_ratio"], PERCENTILE),
    ("server", &["save_extra_memory_mib"], COPIES),
    (
        "server",
        &["file_size_ratio"],
        "the values are random, so the bound of the memory by itself holds for the file, too",
    ),
    (
        "server",
        &["sadd_", "sismember_", "sinter_"],
        "what sockets allow is the bound of set_p1_ratio and set_p16_ratio; the part measures no server that does nothing",
    ),
    (
        "types",
        &["types_memory_"],
        "keys, elements and scores by themselves would be a bound, but what a server must know of each beside them is what is compared",
    ),
    ("types", &["fragmentation_vs_redis_defrag"], "a peer that can't defragment has no bound either"),
    ("ccow", &["ccow_unneeded_ratio"], COPIES),
    ("snapshot", &["*_stall_ratio", "barrier_stall_ns"], CUT),
    ("forkers", &["redis_p999_gain"], PERCENTILE),
    (
        "fastmap",
        &["ycsb_load_vs_mmap", "ycsb_mean_vs_mmap"],
        "pages are written in pieces of any size, so requests of one page bound nothing",
    ),
    ("wcache", &["pg_small", "pg_large", "pg_congested", "pi_gain", "ioi_gain", "redis_vs_all"], POLICIES),
    ("wcache", &["redis_p999_ms"], PERCENTILE),
    ("dbio", &["double_cached_share", "small_data_penalty"], LAYERS),
    (
        "dbio",
        &["tpcc_best_vs_best", "sqlite_tpcc_vs_stock"],
        "SQLite's own work on a transaction bounds both, and nothing runs it without reading and writing",
    ),
    ("dbio", &["ycsb_a_vs_rocksdb", "ycsb_b_vs_rocksdb"], "what the peer is not measured with has no bound either"),
    ("zread", &["lease_untouched_"], "no byte has to move: what is left is the work that a lease has chosen to do"),
    ("zread", &["zread_16k_t24", "mixed_worst_case", "videoserver_gain", "webserver_gain", "neighbour_"], FLUSHES),
    ("checkpoint", &["*_memory_growth", "server_"], COPIES),
    (
        "checkpoint",
        &["*_time_ratio"],
        "the time is of the peer's code and ours on one file system, whose part is small",
    ),
    // Of `cargo xtask test --write`.
    ("suite", &["runs_in_a_row"], "runs are counted, and more of them can always be made"),
];

/// Why nothing physical bounds the figure, if so.
pub fn why_none(experiment: &str, figure: &str) -> Option<&'static str> {
    let is_it = |pattern: &&str| match pattern.strip_prefix('*') {
        Some(end) => figure.ends_with(end),
        None => figure.starts_with(pattern),
    };
    let of_experiment = UNBOUNDED.iter().filter(|(name, ..)| *name == experiment);
    of_experiment.into_iter().find(|(_, patterns, _)| patterns.iter().any(is_it)).map(|(.., why)| *why)
}

/// Has each figure with a goal that says no bound say why.
pub fn explain(report: &mut Report) {
    for figure in report.results.iter_mut().filter(|figure| figure.bound.is_none()) {
        figure.no_bound = why_none(report.experiment, &figure.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BetterDirection, Figure};
    use serde_json::{Map, Value};
    use std::path::Path;

    /// Figures that say their bound now and did not when the results that are kept were measured.
    const BOUNDED_SINCE: &[&str] = &[
        "ccow_throughput_gain",
        "ccow_memory_overhead",
        "clone_first_read_ms",
        "clone_original_p999_ratio",
        "bfs_",
        "ycsb_c_vs_mmap",
        "rand_",
        "single_thread_queue_depth",
        "hit_cost_ns",
        "redis_throughput_gain",
        "memory_per_key_ratio",
        "set_p1",
        "get_p1",
        "restart_",
        "restore_time_ratio",
        "save_vs_disk_ratio",
        "set_memory_",
        "first_write_",
        "log_commit_",
        "mount_overhead",
        "longest_writer_wait_ms",
        "pg_cached_writes_saved",
        "redis_cached_writes_saved",
    ];

    #[test]
    fn every_result_that_is_kept_says_its_bound_or_there_is_a_reason_why_it_has_none() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let mut seen = 0;
        for entry in std::fs::read_dir(kept).unwrap() {
            let path = entry.unwrap().path();
            let Some(text) =
                std::fs::read_to_string(&path).ok().filter(|_| path.extension().is_some_and(|end| end == "json"))
            else {
                continue;
            };
            let value: Value = serde_json::from_str(&text).unwrap();
            let experiment = value["experiment"].as_str().unwrap_or_default();
            for figure in value["results"].as_array().into_iter().flatten().filter(|figure| figure["bound"].is_null()) {
                let name = figure["name"].as_str().unwrap();
                let is_since = BOUNDED_SINCE.iter().any(|since| name.starts_with(since));
                assert!(
                    is_since != why_none(experiment, name).is_some(),
                    "{}: {name} of {experiment} says no bound and there is no reason why, or both",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen} figures");
    }

    #[test]
    fn a_figure_without_a_bound_says_why_and_one_with_a_bound_does_not() {
        let figure = |name: &str| Figure::new(name, 1.0, "x", BetterDirection::Higher);
        let mut report = Report::new("snapshot", Map::new());
        report.results = vec![
            figure("uffd_vs_fork_stall_ratio"),
            figure("barrier_stall_ns").bound("a call", 1.0),
            figure("of_nothing_known"),
        ];
        explain(&mut report);
        let why: Vec<bool> = report.results.iter().map(|figure| figure.no_bound.is_some()).collect();
        assert_eq!(why, [true, false, false]);
        assert!(report.table().contains("no bound: no least time of a cut"), "{}", report.table());
    }
}

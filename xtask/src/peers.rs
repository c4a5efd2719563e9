//! The peer tests: other people's clients against the real binary, crashes, and the shape of the bench's JSON.
//!
//! Relies on the packages of [`crate::packages`] and on the release binary. The Python files close with
//! `N passed, N failed` and end every server that they start.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::output;
use crate::packages::PYTHON;
use crate::steps::{self, Tally};

/// The Python files of `folder`, sorted; those that begin with `_` are shared code.
pub fn python_files(folder: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if Path::new(folder).is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".py") && !name.starts_with('_') {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Runs one Python file against `quire`.
pub fn python(file: &Path, quire: &Path, limit: Duration) -> anyhow::Result<Tally> {
    let mut command = Command::new(PYTHON);
    command.arg("-B").arg(file).arg("--quire").arg(quire);
    steps::run(command, limit)
}

/// An experiment of `quire bench` whose JSON has a shape to keep.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Words that make it small enough for a test.
    words: &'static [&'static str],
    /// Result names that later experiments and people look for.
    names: &'static [&'static str],
}

/// The experiments that are run in small.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "server",
        words: &[],
        names: &[
            "set_p1_ratio",
            "get_p1_ratio",
            "set_p16_ratio",
            "get_p16_ratio",
            "cut_stall_us",
            "cut_stall_ratio",
            "save_extra_memory_mib",
            "save_vs_disk_ratio",
            "p999_during_save_ratio",
            "restart_first_read_ms",
            "restart_full_s",
            "restart_ratio",
            "restore_time_ratio",
            "restore_vs_disk_ratio",
            "file_size_ratio",
            "incremental_1pct_time_ratio",
            "memory_per_key_ratio",
        ],
    },
    Experiment {
        name: "types",
        words: &[],
        names: &[
            "types_p16_geomean_vs_redis",
            "types_p16_worst_vs_redis",
            "types_memory_geomean_vs_redis",
            "types_memory_worst_vs_redis",
            "eviction_hit_ratio_vs_redis",
            "steps_longest_wait_ms",
            "fragmentation_vs_redis",
            "fragmentation_vs_redis_defrag",
        ],
    },
    Experiment {
        name: "snapshot",
        words: &["--sizes", "8,16"],
        names: &[
            "scoot_vs_fork_stall_ratio",
            "uffd_vs_fork_stall_ratio",
            "barrier_stall_ns",
            "first_write_vs_fork_ratio",
            "first_write_vs_fork_ratio_barrier",
            "first_write_vs_fork_ratio_uffd",
        ],
    },
    Experiment {
        name: "ccow",
        words: &["--sizes", "16"],
        names: &["ccow_throughput_gain", "ccow_memory_overhead", "ccow_unneeded_ratio"],
    },
    Experiment { name: "forkers", words: &[], names: &["redis_throughput_gain", "redis_p999_gain"] },
    Experiment {
        name: "checkpoint",
        words: &["--mib", "64"],
        names: &[
            "mdc_fork_memory_growth",
            "mdc_memory_growth",
            "checkpoint_time_ratio",
            "throughput_during_ratio",
            "longest_writer_wait_ms",
        ],
    },
    Experiment {
        name: "clone",
        words: &["--keys", "20000", "--seconds", "1"],
        names: &["clone_first_read_ms", "clone_original_p999_ratio"],
    },
    Experiment {
        name: "fastmap",
        words: &[],
        names: &[
            "rand_read_vs_mmap_t1",
            "rand_read_vs_mmap_t16",
            "rand_write_vs_mmap_t16",
            "ycsb_load_vs_mmap",
            "ycsb_c_vs_mmap",
            "ycsb_mean_vs_mmap",
            "bfs_guard_vs_mmap",
            "bfs_transparent_vs_mmap",
            "single_thread_queue_depth",
            "hit_cost_ns",
        ],
    },
    Experiment {
        name: "dbio",
        words: &[],
        names: &[
            "ycsb_b_same_pool_vs_buffered",
            "ycsb_b_same_pool_vs_direct",
            "ycsb_b_best_vs_best_buffered",
            "ycsb_b_best_vs_best_direct",
            "ycsb_a_same_pool_vs_buffered",
            "ycsb_a_same_pool_vs_direct",
            "ycsb_a_best_vs_best_buffered",
            "ycsb_a_best_vs_best_direct",
            "double_cached_share",
            "small_data_penalty",
            "auto_split_vs_best_swept",
            "ycsb_b_vs_rocksdb",
            "tpcc_best_vs_best",
            "sqlite_tpcc_vs_stock",
        ],
    },
    Experiment {
        name: "zread",
        words: &["--file", "16", "--rounds", "1"],
        names: &[
            "lease_vs_pread_4k",
            "lease_vs_pread_64k",
            "lease_untouched_vs_pread_4k",
            "lease_untouched_vs_pread_64k",
            "zread_16k_t24",
            "zread_1m_untouched",
            "zread_1m_touched",
            "zread_4m_touched",
            "mixed_worst_case",
            "videoserver_gain",
            "webserver_gain",
            "neighbour_slowdown_read",
            "neighbour_slowdown_zread",
        ],
    },
    Experiment {
        name: "wcache",
        words: &["--policies", "ALL,CP+PI+IOI", "--seconds", "2"],
        names: &[
            "pg_small_cache_vs_all",
            "pg_large_cache_vs_all",
            "pg_congested_vs_all",
            "pg_cached_writes_saved",
            "pi_gain_over_cp",
            "ioi_gain_over_pi",
            "redis_vs_all",
            "redis_cached_writes_saved",
            "redis_p999_ms",
            "log_commit_vs_redis_aof",
            "log_commit_vs_redis_aof_c1",
            "log_commit_vs_redis_aof_c50",
            "mount_overhead",
        ],
    },
];

/// Runs a quick bench and checks that its JSON keeps the contract; the figures themselves are not judged.
pub fn bench_shape(quire: &Path, experiment: &Experiment) -> anyhow::Result<Tally> {
    let dir = steps::target_dir()?.join("xtask");
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let file = dir.join(format!("bench-{}.json", experiment.name));
    let mut command = Command::new(quire);
    command.args(["bench", experiment.name, "--quick", "--json"]).arg(&file).arg("--dir").arg(&dir);
    command.args(experiment.words);
    let mut tally = steps::run(command, Duration::from_secs(300))?;
    if tally.failed == 0 {
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        match check_contract(&text, experiment) {
            Ok(()) => tally.passed += 1,
            Err(error) => {
                output::line(format_args!("bench: {error:#}"));
                tally.failed += 1;
            }
        }
    }
    Ok(tally)
}

/// Runs `quire measure` in small: the table of all mechanisms with its JSON, and the proof. Mechanisms that this kernel
/// refuses are no fault; figures are not judged.
pub fn measure(quire: &Path) -> anyhow::Result<Tally> {
    let dir = steps::target_dir()?.join("xtask");
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let file = dir.join("measure.json");
    let mut table = Command::new(quire);
    table.args(["measure", "-m", "all", "-s", "8", "-p", "--thp", "--coverage", "--repeat", "2", "--json"]).arg(&file);
    let mut proof = Command::new(quire);
    proof.args(["measure", "-m", "all", "-s", "8", "-p", "-x", "snap", "-t"]);
    let mut tally = Tally::default();
    for command in [table, proof] {
        tally += steps::run(command, Duration::from_secs(60))?;
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let report: Value = serde_json::from_str(&text).context("the figures are not JSON")?;
    let rows = report["results"].as_array().map_or(0, Vec::len);
    ensure!(report["experiment"] == "measure" && rows == 6, "{rows} mechanisms in the figures, not 6");
    Ok(tally)
}

fn check_contract(text: &str, experiment: &Experiment) -> anyhow::Result<()> {
    let report: Value = serde_json::from_str(text).context("the figures are not JSON")?;
    ensure!(report["experiment"] == experiment.name, "the experiment is not named");
    ensure!(report["machine"].is_object(), "the machine is not described");
    let results = report["results"].as_array().context("there are no results")?;
    for name in experiment.names {
        let figure = results.iter().find(|figure| figure["name"] == *name);
        let figure = figure.with_context(|| format!("{name} is missing"))?;
        // What this kernel has not got can't be measured.
        let is_told = |value: &Value| value.is_number() || value.is_null();
        ensure!(figure.get("value").is_some_and(is_told), "{name} has no value");
        ensure!(figure["unit"].is_string(), "{name} has no unit");
        ensure!(figure["goal"].is_number() || figure["goal"].is_null(), "the goal of {name} is no number");
        ensure!(matches!(figure["better"].as_str(), Some("higher" | "lower")), "{name} has no direction");
        let peers = figure["peer"].as_object().with_context(|| format!("{name} has no peers"))?;
        ensure!(peers.values().all(is_told), "a peer of {name} has no number");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_contract_is_checked_for_shape_and_names() {
        let figure =
            |name: &&str| json!({"name": name, "value": 1.0, "unit": "x", "goal": null, "better": "lower", "peer": {}});
        let experiment = &EXPERIMENTS[0];
        let results: Vec<Value> = experiment.names.iter().map(figure).collect();
        let report = |results: &[Value]| json!({"experiment": "server", "machine": {}, "results": results}).to_string();
        check_contract(&report(&results), experiment).unwrap();
        assert!(check_contract(&report(&results[1..]), experiment).unwrap_err().to_string().contains("set_p1_ratio"));
        assert!(check_contract("no", experiment).is_err());
    }
}

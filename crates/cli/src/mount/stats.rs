//! `quire stats`: a mount's figures, as a table for people or as JSON.
//!
//! Relies on the attributes of the mount's root; the names in them are those of `quire_fuse::report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;
use quire_sys::xattr;
use serde_json::Value;

/// Prints figures or decisions.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let path: &PathBuf = matches.get_one("mountpoint").context("a mount point")?;
    print(path, matches.get_flag("trace"), matches.get_flag("json"))
}

/// The figures of the mount at `path`.
///
/// # Errors
/// There is none.
pub fn of(path: &Path) -> anyhow::Result<Value> {
    attribute(path, "user.quire.stats")
}

fn attribute(path: &Path, name: &str) -> anyhow::Result<Value> {
    let none = || format!("{} is no root of a mount of quire", path.display());
    let bytes = xattr::get_at(path, name).with_context(none)?;
    serde_json::from_slice(&bytes).context("reading the figures")
}

/// Prints the figures, or the trace.
pub fn print(path: &Path, trace: bool, json: bool) -> anyhow::Result<ExitCode> {
    let value = if trace { attribute(path, "user.quire.trace")? } else { of(path)? };
    let text = match (json, trace) {
        (true, _) => format!("{value:#}\n"),
        (false, true) => trace_table(&value),
        (false, false) => table(&value),
    };
    quire_sys::out!("{text}")?;
    Ok(ExitCode::SUCCESS)
}

fn number(value: &Value, path: &[&str]) -> u64 {
    path.iter().fold(value, |value, name| &value[name]).as_u64().unwrap_or(0)
}

fn bytes(value: &Value, path: &[&str]) -> String {
    quire_units::format_bytes(number(value, path))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("?")
}

fn table(stats: &Value) -> String {
    let mut out = format!(
        "{} at {}, policy {}, log {}\n\n",
        text(stats, "backing"),
        text(stats, "mount_point"),
        text(stats, "policy"),
        text(stats, "log"),
    );
    out += &traffic(stats);
    out += "\nblocks     why they went there\n";
    for (_, reason) in stats["cache"]["reasons"].as_object().into_iter().flatten() {
        let blocks = number(reason, &["blocks"]);
        if blocks > 0 {
            let place = if reason["fast"] == true { "log" } else { "directory" };
            out += &format!("{blocks:>9}  {place:<9} {}\n", text(reason, "means"));
        }
    }
    out += &critical_table(&stats["cache"]["critical_blocks"]);
    out += &waits_table(&stats["cache"]);
    if let Some(auto) = stats["auto_critical"].as_object() {
        let share = auto["share_right"].as_f64().unwrap_or(0.0) * 100.0;
        out += &format!("\nobservation agrees with the rules in {share:.1} % of {} flushes\n", auto["flushes"]);
    }
    out + &unruled_programs(stats) + &file_locks(stats) + &losses(stats)
}

/// Requests, the log and the directory in bytes.
fn traffic(stats: &Value) -> String {
    let of = |path: &[&str]| bytes(stats, path);
    let count = |path: &[&str]| number(stats, path);
    let mut out = format!(
        "requests   {} reads ({}), {} writes ({}), {} flushes, {} of them to the directory\n",
        count(&["requests", "reads"]),
        of(&["requests", "read_bytes"]),
        count(&["requests", "writes"]),
        of(&["requests", "written_bytes"]),
        count(&["requests", "flushes"]),
        count(&["requests", "slow_syncs"]),
    );
    out += &format!(
        "log        {} of {} used, {} logged ({:.1} % of blocks), {} replaced there, {} unchanged\n",
        of(&["cache", "log_used_bytes"]),
        of(&["cache", "log_bytes"]),
        of(&["cache", "logged_bytes"]),
        stats["cache"]["cached_share"].as_f64().unwrap_or(0.0) * 100.0,
        of(&["cache", "absorbed_bytes"]),
        of(&["cache", "unchanged_bytes"]),
    );
    out += &format!(
        "directory  {} straight, {} with new files, {} written back, {} flushes, {} pending, {} stalls\n",
        of(&["cache", "direct_bytes"]),
        of(&["requests", "straight_bytes"]),
        of(&["cache", "written_back_bytes"]),
        count(&["cache", "slow_flushes"]),
        of(&["cache", "pending_bytes"]),
        count(&["cache", "stalls"]),
    );
    let refused = number(&stats["cache"], &["refused_blocks"]);
    if refused > 0 {
        out += &format!(
            "refused    the log holds {refused} blocks ({} %) for files that can't be written to, and has moved {} along\n",
            count(&["write_back", "refused_percent"]),
            of(&["cache", "relocated_bytes"]),
        );
    }
    if let Some(eta_ms) = stats["write_back"]["eta_ms"].as_u64() {
        out += &format!("           writing everything back would take {} s\n", eta_ms.div_ceil(1000));
    }
    out
}

/// Programs that no rule names though their flushes waited for the slow device, with a cure.
fn unruled_programs(stats: &Value) -> String {
    let mut out = String::new();
    for unruled in stats["unruled"].as_array().into_iter().flatten() {
        // Every user chooses the names of their processes: nothing in them may steer a terminal or a shell. In patterns `?`
        // stands for any character.
        let harmless = |c: char| if c.is_ascii_alphanumeric() || "-_.+:".contains(c) { c } else { '?' };
        let program: String = text(unruled, "program").chars().map(harmless).collect();
        out += &format!(
            "\n{} flushes of {program} waited for the slow device: no rule names it. If requests wait for it, mount with --critical \
             '{program}' or --auto-critical,\nadd `critical comm={program}` to the file of --rules, or run `quire critical --comm \
             '{program}' {}` now\n",
            unruled["flushes"],
            text(stats, "mount_point"),
        );
    }
    out
}

/// What the daemon sees of tasks that sleep on a file's lock.
fn file_locks(stats: &Value) -> String {
    match stats["file_locks"].as_object() {
        Some(locks) if locks["refused"].as_u64() > Some(0) => {
            "\nwho sleeps on a file's lock is not seen for some threads: the daemon may not look at them; run it as root\n".into()
        }
        Some(locks) => {
            format!("\nhelped because a critical task slept on their file's lock: {}\n", locks["inherited"])
        }
        None => {
            "\nwho sleeps on a file's lock is not seen here (policies cp+pi and cp+pi+ioi, where /proc tells it)\n".into()
        }
    }
}

/// Files that are refused, and bytes that are gone.
fn losses(stats: &Value) -> String {
    let mut out = String::new();
    for path in stats["refused"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        out += &format!(
            "\nREFUSED what the log holds for it, so it can't be used: {path} (why: see the mount's messages)\n"
        );
    }
    for lost in stats["lost"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        out += &format!("\nLOST with the fast device: {lost}\n");
    }
    out
}

fn critical_table(blocks: &Value) -> String {
    let mut out = format!("\n{:<34} {:>9} {:>9} {:>9}\n", "logged for critical tasks", "data", "log", "meta");
    for (name, words) in [
        ("direct", "it waited itself"),
        ("inherited", "it depended on the writer"),
        ("reissued", "they were under way already"),
    ] {
        let of = |content| number(blocks, &[name, content]);
        out += &format!("  {words:<32} {:>9} {:>9} {:>9}\n", of("data"), of("log"), of("meta"));
    }
    out
}

fn waits_table(cache: &Value) -> String {
    let mut out = format!("\n{:<16} {:>10} {:>10} {:>10}\n", "waits", "count", "mean ms", "longest");
    for (who, waits) in [("critical", &cache["critical_waits"]), ("others", &cache["other_waits"])] {
        for (cause, wait) in waits.as_object().into_iter().flatten() {
            let count = number(wait, &["count"]);
            if count > 0 {
                let ms = |name: &str| number(wait, &[name]) as f64 / 1e6;
                let (mean, longest) = (ms("total_ns") / count as f64, ms("longest_ns"));
                out += &format!("{who:<9} {cause:<13} {count:>9} {mean:>10.2} {longest:>10.1}\n");
            }
        }
    }
    out
}

fn trace_table(trace: &Value) -> String {
    let mut out =
        format!("{:>10}  {:<9} {:>6} {:>12}  {:<20} {:<16} why\n", "ms", "to", "blocks", "offset", "file", "who");
    for decision in trace.as_array().into_iter().flatten() {
        let place = if decision["fast"] == true { "log" } else { "directory" };
        let who = match (decision["name"].as_str(), decision["task"].as_u64()) {
            (Some(name), Some(task)) => format!("{name} {task}"),
            (Some(name), None) => name.to_owned(),
            _ => "?".to_owned(),
        };
        out += &format!(
            "{:>10}  {place:<9} {:>6} {:>12}  {:<20} {who:<16} {}\n",
            number(decision, &["at_ms"]),
            number(decision, &["blocks"]),
            number(decision, &["offset"]),
            text(decision, "file"),
            text(decision, "why"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_become_a_table_without_what_is_zero() {
        let wait = json!({ "count": 2, "total_ns": 4_000_000, "longest_ns": 3_000_000 });
        let stats = json!({
            "backing": "/slow", "mount_point": "/mnt", "policy": "CP", "log": "/fast",
            "requests": { "writes": 3, "written_bytes": 12288 },
            "cache": {
                "log_bytes": 1 << 20,
                "cached_share": 0.25,
                "reasons": {
                    "CriticalTask": { "blocks": 1, "fast": true, "means": "a critical task waits for it" },
                    "Full": { "blocks": 0, "fast": false, "means": "the cache is full" },
                },
                "critical_waits": { "log_write": wait },
            },
        });
        let table = table(&stats);
        assert!(table.contains("25.0 % of blocks") && table.contains("a critical task waits for it"), "{table}");
        assert!(!table.contains("no rule names it"), "{table}");
        assert!(!table.contains("the cache is full") && table.contains("2.00"), "{table}");
    }

    #[test]
    fn programs_that_no_rule_names_are_named_with_a_cure() {
        let unruled = json!([{ "program": "my app';\u{1b}c", "flushes": 470 }]);
        let table = table(&json!({ "mount_point": "/mnt", "unruled": unruled }));
        assert!(table.contains("470 flushes of my?app???c waited"), "{table}");
        assert!(table.contains("--critical 'my?app???c' or --auto-critical"), "{table}");
        assert!(table.contains("quire critical --comm 'my?app???c' /mnt"), "{table}");
    }
}

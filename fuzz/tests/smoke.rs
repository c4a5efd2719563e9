//! A short run of every fuzz target from a fixed seed, as part of `cargo test`.
//!
//! Relies on a count of inputs, not on time, so that the same inputs are tried everywhere.

use std::time::Duration;

use quire_fuzz::smoke::{Until, smoke};
use quire_fuzz::{TARGETS, Target};

fn short_run(name: &str) {
    let target: &Target = TARGETS.iter().find(|target| target.name == name).expect("the target exists");
    assert_eq!(smoke(target, 2026, Until { iterations: target.inputs, time: Duration::MAX }), target.inputs);
}

#[test]
fn resp_parser_reads_mutated_requests_alike_in_any_pieces() {
    short_run("resp_parser");
}

#[test]
fn image_files_are_refused_or_read_however_damaged() {
    short_run("image_reader");
}

#[test]
fn deltas_are_refused_or_read_however_damaged() {
    short_run("delta_reader");
}

#[test]
fn logs_are_read_without_gaps_or_refused_however_damaged() {
    short_run("log_reader");
}

#[test]
fn image_contents_are_used_without_panic_however_damaged() {
    short_run("image_contents");
}

#[test]
fn logs_of_the_write_cache_are_refused_or_recovered_however_damaged() {
    short_run("wcache_log");
}

#[test]
fn configuration_files_are_refused_or_rewritten_to_the_same_settings() {
    short_run("config_file");
}

#[test]
fn patterns_match_what_a_plain_matcher_matches() {
    short_run("glob_pattern");
}

#[test]
fn libraries_of_scripts_take_any_bytes_and_scripts_end() {
    short_run("lua_libraries");
}

#[test]
fn rules_of_a_mount_are_refused_by_line_or_applied() {
    short_run("mount_rules");
}

#[test]
fn checkpoints_of_forked_children_are_refused_or_read_however_damaged() {
    short_run("mdc_reader");
}

#[test]
fn files_of_users_are_refused_or_read_back_alike() {
    short_run("acl_file");
}

#[test]
fn every_target_has_its_entry_for_a_fuzzing_engine() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut entries: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    entries.sort();
    names.sort_unstable();
    assert_eq!(entries, names);
}

#[test]
fn files_and_payloads_of_redis_are_refused_or_give_sound_data() {
    short_run("rdb_reader");
}

#[test]
fn restored_values_are_refused_or_sound_under_every_command() {
    short_run("restored_values");
}

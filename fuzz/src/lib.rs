//! Fuzz targets: each takes any bytes and panics only when Quire breaks a promise.
//!
//! Relies on the public interfaces of the crates under test. [`smoke`] drives the targets without any fuzzing engine.

#![forbid(unsafe_code)]

pub mod config;
pub mod contents;
mod contents_streams;
pub mod delta;
pub mod glob;
pub mod image;
pub mod log;
pub mod lua;
pub mod mdc;
pub mod mutate;
pub mod rdb;
pub mod resp;
pub mod restored;
pub mod rules;
pub mod smoke;
pub mod users;
pub mod wcache;

/// A fuzz target: its name, its function, and valid inputs to start from.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name, as `fuzz_targets/` has it.
    pub name: &'static str,
    /// Takes any bytes; panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Makes the inputs that mutation starts from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Inputs of a short run. It goes by them and not by time, so that a fast machine tries what a slow one does.
    pub inputs: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "resp_parser", run: resp::run, seeds: resp::seeds, inputs: 20_000 },
    Target { name: "image_reader", run: image::run, seeds: image::seeds, inputs: 300 },
    Target { name: "delta_reader", run: delta::run, seeds: delta::seeds, inputs: 200 },
    Target { name: "log_reader", run: log::run, seeds: log::seeds, inputs: 1_000 },
    Target { name: "image_contents", run: contents::run, seeds: contents::seeds, inputs: 1_000 },
    Target { name: "wcache_log", run: wcache::run, seeds: wcache::seeds, inputs: 1_500 },
    Target { name: "config_file", run: config::run, seeds: config::seeds, inputs: 10_000 },
    Target { name: "glob_pattern", run: glob::run, seeds: glob::seeds, inputs: 50_000 },
    Target { name: "lua_libraries", run: lua::run, seeds: lua::seeds, inputs: 5_000 },
    Target { name: "mount_rules", run: rules::run, seeds: rules::seeds, inputs: 3_000 },
    Target { name: "mdc_reader", run: mdc::run, seeds: mdc::seeds, inputs: 2_000 },
    Target { name: "acl_file", run: users::run, seeds: users::seeds, inputs: 10_000 },
    Target { name: "rdb_reader", run: rdb::run, seeds: rdb::seeds, inputs: 3_000 },
    Target { name: "restored_values", run: restored::run, seeds: restored::seeds, inputs: 1_000 },
];

//! The model checks: the tests whose files begin with `loom`, of all crates that have some.
//!
//! Relies on `--cfg loom`, with which the crates take loom's atomics instead of the standard ones. Their own folder keeps the
//! other builds warm.

use std::time::Duration;

use crate::steps::{self, Tally, cargo};

/// Builds and runs all of them, in one build.
pub fn run(limit: Duration) -> anyhow::Result<Tally> {
    let mut command = cargo();
    command.args(["test", "--release", "--no-fail-fast"]);
    for (package, models) in models()? {
        command.args(["--package", &package]);
        for model in models {
            command.args(["--test", &model]);
        }
    }
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", steps::target_dir()?.join("loom"));
    // What the linker would still gain is less than what it takes, and no debugger looks at these programs.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    steps::run(command, limit)
}

/// Crates with model checks, and those.
fn models() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir("crates")? {
        let folder = folder?;
        let Ok(files) = std::fs::read_dir(folder.path().join("tests")) else { continue };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut models: Vec<String> = names
            .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
            .filter(|name| name.starts_with("loom"))
            .collect();
        models.sort();
        if !models.is_empty() {
            found.push((format!("quire-{}", folder.file_name().display()), models));
        }
    }
    found.sort();
    Ok(found)
}

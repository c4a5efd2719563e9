//! Says what `cargo test` leaves to `cargo xtask test`: no test itself, so that its words are shown.
//!
//! Relies on `harness = false`, as the test harness would keep the output of a passing test to itself.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("\nnot run by `cargo test`, but by `cargo xtask test` (they need the release binary or other programs):");
    for folder in ["tests/clients", "tests/compat", "tests/docs", "tests/crash", "tests/preload"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let mut names: Vec<String> =
            entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(".py") && !name.starts_with('_'));
        names.sort();
        for name in names {
            println!("  {folder}/{name}");
        }
    }
    println!(
        "  crates/capi/tests/c (the C API, in C), crates/snapshot/tests/loom.rs (model checks), `quire bench server --quick` and `forkers` (their JSON), a longer fuzz run\n"
    );
}

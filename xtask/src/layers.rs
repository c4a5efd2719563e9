//! `layers`: a crate depends only on rows below its own, and the modules of a crate have no cycles.
//!
//! Relies on `cargo metadata` for crates; for modules it reads `crate::…` and `super::…` paths in the sources, where a
//! module stands for its top level (`crate::net::listener` counts as `net`), and again inside each folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::graph::Graph;
use crate::rows::row_of;
use crate::sources;

/// Runs both checks and says what is wrong.
pub fn run() -> anyhow::Result<()> {
    let mut faults = crate_faults(&metadata()?);
    for (crate_dir, files) in files_by_crate()? {
        faults.extend(module_faults(&crate_dir, &files)?);
    }
    if faults.is_empty() {
        println!("layers: every crate depends on lower rows only, no module cycles");
        return Ok(());
    }
    bail!("layers:\n  {}", faults.join("\n  "))
}

/// What cargo knows of the packages of the workspace.
pub fn metadata() -> anyhow::Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("running cargo metadata")?;
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}

fn crate_faults(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut faults = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(row) = row_of(name) else {
            faults.push(format!("{name} has no row: give it one in xtask/src/rows.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        for target in dependencies.filter_map(|dependency| dependency["name"].as_str()) {
            if names.contains(target) && row_of(target).is_none_or(|below| below >= row) {
                faults.push(format!("{name} (row {row}) depends on {target}, which is not on a lower row"));
            }
        }
    }
    faults
}

fn files_by_crate() -> anyhow::Result<BTreeMap<PathBuf, Vec<PathBuf>>> {
    let mut crates: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in sources::rust_files()? {
        if let Some(src) = file.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "src")) {
            crates.entry(src.to_owned()).or_default().push(file.clone());
        }
    }
    Ok(crates)
}

fn module_faults(src: &Path, files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let modules: Vec<(Vec<String>, String)> = files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            Ok((module_path(src, file), without_tests(&sources::code_only(&text))))
        })
        .collect::<anyhow::Result<_>>()?;
    let known: BTreeSet<Vec<String>> = modules.iter().map(|(path, _)| path.clone()).collect();
    let mut graphs: BTreeMap<Vec<String>, Graph> = BTreeMap::new();
    for (path, code) in &modules {
        for target in used_modules(path, code, &known) {
            // The edge lies where the two paths part: between siblings of one folder.
            let shared = path.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (path.get(shared), target.get(shared)) {
                graphs.entry(path[..shared].to_vec()).or_default().add(from, to);
            }
        }
    }
    let name = src.parent().unwrap_or(src).display().to_string();
    let cycles = graphs.iter().filter_map(|(folder, graph)| Some((folder, graph.cycle()?)));
    Ok(cycles
        .map(|(folder, cycle)| {
            let inside = if folder.is_empty() { String::new() } else { format!(" in {}", folder.join("::")) };
            format!("{name}{inside}: modules depend on each other: {}", cycle.join(" -> "))
        })
        .collect())
}

/// `src/net/listener.rs` and `src/net/listener/mod.rs` are both `net::listener`; the crate's root is empty.
fn module_path(src: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(src).unwrap_or(file).with_extension("");
    let mut path: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") || (path.len() == 1 && (path[0] == "lib" || path[0] == "main")) {
        path.pop();
    }
    path
}

/// Test modules may look wherever they like.
fn without_tests(code: &str) -> String {
    match code.find("#[cfg(test)]\nmod ") {
        Some(at) if !code[at..].lines().nth(1).unwrap_or_default().trim_end().ends_with(';') => code[..at].to_owned(),
        _ => code.to_owned(),
    }
}

fn used_modules(from: &[String], code: &str, known: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        for path in paths_after(&code[at + "crate::".len()..]) {
            used.extend(longest_known(Vec::new(), &path, known));
        }
    }
    for (at, _) in code.match_indices("super::") {
        let before = &code[..at];
        // Only the first `super` of a chain starts a path.
        if before.ends_with("super::") || before.as_bytes().last().is_some_and(|&byte| is_word(byte)) {
            continue;
        }
        let (mut rest, mut base) = (&code[at..], from.to_vec());
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        for path in paths_after(rest) {
            used.extend(longest_known(base.clone(), &path, known));
        }
    }
    used
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The paths that `text` begins with: `a::b` or, for `a::{b, c::d}`, each of its branches.
fn paths_after(text: &str) -> Vec<Vec<String>> {
    let mut path = Vec::new();
    let mut rest = text;
    loop {
        let length = rest.bytes().take_while(|&byte| is_word(byte)).count();
        if length > 0 {
            path.push(rest[..length].to_owned());
            match rest[length..].strip_prefix("::") {
                Some(after) => rest = after,
                None => return vec![path],
            }
        } else if let Some(inside) = rest.strip_prefix('{') {
            return branches(inside)
                .into_iter()
                .flat_map(paths_after)
                .map(|tail| path.iter().cloned().chain(tail).collect())
                .collect();
        } else {
            return vec![path];
        }
    }
}

/// The comma-separated parts of a brace group whose opening brace has been passed.
fn branches(inside: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => {
                parts.push(inside[start..at].trim());
                break;
            }
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

fn longest_known(mut base: Vec<String>, path: &[String], known: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    base.extend(path.iter().cloned());
    while !base.is_empty() && !known.contains(&base) {
        base.pop();
    }
    (!base.is_empty()).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(path: &str) -> Vec<String> {
        path.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn a_dependency_on_the_same_row_or_above_is_a_fault() {
        let package = |name: &str, target: &str| json!({"name": name, "dependencies": [{"name": target}]});
        let metadata = |packages: Vec<Value>| json!({ "packages": packages });
        let good = metadata(vec![package("quire-arena", "quire-snapshot"), package("quire-snapshot", "libc")]);
        assert!(crate_faults(&good).is_empty());
        let same = metadata(vec![package("quire-arena", "quire-checkpoint"), package("quire-checkpoint", "libc")]);
        assert_eq!(crate_faults(&same).len(), 1);
        assert_eq!(crate_faults(&metadata(vec![package("quire-new", "libc")])).len(), 1);
    }

    #[test]
    fn used_modules_are_read_from_plain_grouped_and_relative_paths() {
        let known: BTreeSet<_> = ["a", "b", "b::c", "b::d"].map(words).into();
        let code = "use crate::{a::X, b::{c, d::Y}};\nuse super::d;\nfn f() { my_crate::a::x() }";
        let used = used_modules(&words("b::c"), code, &known);
        assert_eq!(used, ["a", "b::c", "b::d"].map(words).into());
    }

    #[test]
    fn module_paths_follow_the_file_tree() {
        let src = Path::new("x/src");
        assert_eq!(module_path(src, Path::new("x/src/net/mod.rs")), ["net"]);
        assert_eq!(module_path(src, Path::new("x/src/net/listener.rs")), ["net", "listener"]);
        assert!(module_path(src, Path::new("x/src/lib.rs")).is_empty());
    }
}

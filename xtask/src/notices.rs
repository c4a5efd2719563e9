//! The licences of the crates that are linked into what is shipped.
//!
//! Relies on `cargo metadata`, and on crates that carry their licence's text in a file whose name says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::steps::cargo;

/// The packages that are shipped.
const SHIPPED: [&str; 4] = ["quire", "quire-capi", "quire-preload", "quire-sqlite"];
/// Licences under which a crate may be linked, as its manifest names them; of alternatives one is enough.
const ACCEPTED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unlicense",
    "CC0-1.0",
    "BSL-1.0",
    "Unicode-3.0",
    "0BSD",
];

/// Names, versions and licences of all of them, then each text once.
///
/// # Errors
/// When a crate names no licence that is accepted.
pub fn text() -> anyhow::Result<String> {
    let metadata = metadata()?;
    let crates = linked(&metadata)?;
    let mut text =
        String::from("Crates of others that are linked into the binaries, by name, version and licence:\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &crates {
        let word = |name: &str| package[name].as_str().unwrap_or_default();
        let title = format!("{} {}", word("name"), word("version"));
        let license = word("license");
        if !is_accepted(license) {
            bail!("{title} has the licence {license:?}: look whether it may be linked, and add it to the list");
        }
        let _ = writeln!(text, "{title}: {license}, {}", word("repository"));
        for found in license_texts(Path::new(word("manifest_path")))? {
            texts.entry(found).or_default().push(title.clone());
        }
    }
    for (license, titles) in texts {
        let _ = write!(text, "\n----\n{}:\n\n{license}\n", titles.join(", "));
    }
    Ok(text)
}

/// What cargo knows of all packages, as `Cargo.lock` has them.
pub fn metadata() -> anyhow::Result<Value> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output().context("starting cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}

/// The packages of other authors that the shipped ones need to run, each once, by name.
pub fn linked(metadata: &Value) -> anyhow::Result<Vec<&Value>> {
    let list = |value: &'static str| metadata[value].as_array().with_context(|| format!("no {value}"));
    let packages: BTreeMap<&str, &Value> =
        list("packages")?.iter().filter_map(|one| Some((one["id"].as_str()?, one))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("no nodes")?;
    let nodes: BTreeMap<&str, &Value> = nodes.iter().filter_map(|one| Some((one["id"].as_str()?, one))).collect();
    let is_shipped = |one: &Value| one["source"].is_null() && SHIPPED.iter().any(|name| one["name"] == *name);
    let mut waiting: Vec<&str> = packages.iter().filter(|(_, one)| is_shipped(one)).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        let needed = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        // Of its kinds, null is what is linked; the others build and test.
        let is_linked = |one: &&Value| {
            one["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        waiting.extend(needed.filter(is_linked).filter_map(|one| one["pkg"].as_str()));
    }
    let mut found: Vec<&Value> =
        seen.iter().filter_map(|id| packages.get(id).copied()).filter(|one| !one["source"].is_null()).collect();
    found.sort_by_key(|one| (one["name"].as_str(), one["version"].as_str()));
    Ok(found)
}

/// Whether one of the alternatives is accepted; of licences that hold together all must be.
pub fn is_accepted(license: &str) -> bool {
    let accepted = |word: &str| word.split(" AND ").all(|part| ACCEPTED.contains(&part.trim_matches(['(', ')', ' '])));
    license.replace('/', " OR ").split(" OR ").any(accepted)
}

/// The licence files beside a manifest.
fn license_texts(manifest: &Path) -> anyhow::Result<Vec<String>> {
    let folder = manifest.parent().context("a manifest lies in a folder")?;
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
        if path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE", "NOTICE"]
                .iter()
                .any(|word| name.starts_with(word))
        {
            texts.push(std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        }
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_of_several_alternatives_is_enough_and_all_of_what_holds_together() {
        assert!(
            is_accepted("MIT OR GPL-3.0")
                && is_accepted("Unlicense/MIT")
                && is_accepted("(MIT OR Apache-2.0) AND Unicode-3.0")
        );
        assert!(!is_accepted("GPL-3.0") && !is_accepted("MIT AND GPL-3.0") && !is_accepted(""));
    }

    #[test]
    fn only_what_is_linked_is_named() {
        let package = |id: &str, source: Value| json!({"id": id, "name": id, "version": "1", "source": source});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("quire", Value::Null), package("a", json!("r")), package("b", json!("r")), package("c", json!("r"))],
            "resolve": {"nodes": [
                {"id": "quire", "deps": [dep("a", Value::Null), dep("b", json!("dev"))]},
                {"id": "a", "deps": [dep("c", Value::Null)]},
            ]},
        });
        let names: Vec<&str> = linked(&metadata).unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }
}

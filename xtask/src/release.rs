//! `release`: what stands between this tree and a release: versions, the changelog, the tree itself, and crates that others link.
//!
//! Relies on git and `cargo metadata`. It changes nothing and publishes nothing. Of `cargo publish --dry-run` it checks what can be checked
//! before the crates below a crate are published: cargo itself asks the registry for these.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::notices;

/// Crates that programs of others depend on; those that they need are looked at, too.
const LINKED_BY_OTHERS: [&str; 2] = ["quire-snapshot", "quire-pool"];
const CHANGELOG: &str = "CHANGELOG.md";

/// Says what blocks a release.
pub fn run() -> anyhow::Result<()> {
    let metadata = notices::metadata()?;
    let version = env!("CARGO_PKG_VERSION");
    let changelog = std::fs::read_to_string(CHANGELOG).with_context(|| format!("reading {CHANGELOG}"))?;
    let own = own_packages(&metadata);
    let mut blocks = version_faults(&own, version);
    blocks.extend(changelog_fault(&changelog, version));
    blocks.extend(tree_faults(version)?);
    let order = order(&own)?;
    println!("release: {version}; crates for others, in the order of publishing: {}", order.join(", "));
    for name in &order {
        blocks.extend(publish_faults(own[name.as_str()]));
    }
    if blocks.is_empty() {
        println!(
            "release: nothing blocks {version}: tag it (git tag v{version}), then `cargo publish -p CRATE` in that order"
        );
        return Ok(());
    }
    bail!("release: {} things block {version}:\n  {}", blocks.len(), blocks.join("\n  "))
}

/// The packages of the workspace, by name.
fn own_packages(metadata: &Value) -> BTreeMap<&str, &Value> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["source"].is_null())
        .filter_map(|package| Some((package["name"].as_str()?, package)))
        .collect()
}

fn version_faults(own: &BTreeMap<&str, &Value>, version: &str) -> Vec<String> {
    let other = own.iter().filter(|(_, package)| package["version"] != version);
    other.map(|(name, package)| format!("{name} has version {}, and not {version}", package["version"])).collect()
}

/// The changelog's section of the version has a day and says something.
fn changelog_fault(changelog: &str, version: &str) -> Option<String> {
    let heading = format!("## {version}");
    let Some(section) =
        changelog.split("\n## ").skip(1).find(|section| section.split([' ', '\n']).next() == Some(version))
    else {
        return Some(format!("{CHANGELOG} has no section {heading:?}"));
    };
    let (first, rest) = section.split_once('\n').unwrap_or((section, ""));
    if first.to_ascii_lowercase().contains("unreleased") {
        return Some(format!("{CHANGELOG}: {version} is still called unreleased; write the day"));
    }
    (rest.trim().is_empty()).then(|| format!("{CHANGELOG}: the section of {version} says nothing"))
}

fn tree_faults(version: &str) -> anyhow::Result<Vec<String>> {
    let git = |words: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git").args(words).output().context("starting git")?;
        if !output.status.success() {
            bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut faults = Vec::new();
    let changed = git(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        faults.push(format!("the tree has {} files that are not committed", changed.lines().count()));
    }
    if !git(&["tag", "--list", &format!("v{version}")])?.is_empty() {
        faults.push(format!("the tag v{version} is there already: raise the version in Cargo.toml"));
    }
    Ok(faults)
}

/// The crates that others link and what they need of ours, each after those that it needs.
fn order(own: &BTreeMap<&str, &Value>) -> anyhow::Result<Vec<String>> {
    let (mut order, mut waiting) = (Vec::new(), LINKED_BY_OTHERS.map(|name| (name.to_owned(), false)).to_vec());
    let mut seen = BTreeSet::new();
    waiting.reverse();
    while let Some((name, is_ready)) = waiting.pop() {
        if is_ready {
            order.push(name);
            continue;
        }
        if !seen.insert(name.clone()) {
            continue;
        }
        let package = own.get(name.as_str()).with_context(|| format!("there is no crate {name}"))?;
        waiting.push((name, true));
        waiting.extend(needed(package).filter(|below| own.contains_key(below)).map(|below| (below.to_owned(), false)));
    }
    Ok(order)
}

/// What a package needs to be built by others; what only its tests need is not asked for.
fn needed(package: &Value) -> impl Iterator<Item = &str> {
    let needs = package["dependencies"].as_array().into_iter().flatten();
    needs.filter(|need| need["kind"] != "dev").filter_map(|need| need["name"].as_str())
}

/// Why the registry, or its readers, would not take a package.
fn publish_faults(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    if package["publish"].as_array().is_some_and(Vec::is_empty) {
        faults.push(format!("{name}: its manifest says `publish = false`"));
    }
    for field in ["description", "license", "repository", "readme"] {
        let text = package[field].as_str().unwrap_or_default();
        // Cargo finds a README.md beside the manifest by itself.
        if text.is_empty() {
            faults.push(format!("{name}: the manifest has no {field}"));
        } else if text.contains("example.invalid") {
            faults.push(format!("{name}: {field} is {text}, which leads nowhere"));
        }
    }
    let needs = package["dependencies"].as_array().into_iter().flatten();
    for need in needs.filter(|need| need["kind"] != "dev" && need["path"].is_string() && need["req"] == "*") {
        faults.push(format!(
            "{name}: needs {} by its path only; name a version, too",
            need["name"].as_str().unwrap_or_default()
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_needs_a_section_with_a_day_and_words() {
        let fault = |changelog: &str| changelog_fault(changelog, "0.2.0").unwrap_or_default();
        assert!(fault("# Changelog\n\n## 0.1.0 (2026-11-01)\n\n- a\n").contains("no section"));
        assert!(fault("# Changelog\n\n## 0.2.0 (unreleased)\n\n- a\n").contains("unreleased"));
        assert!(fault("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n## 0.1.0\n\n- a\n").contains("says nothing"));
        assert_eq!(fault("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- a\n"), "");
    }

    #[test]
    fn crates_come_after_those_that_they_need() {
        let need = |name: &str| json!({"name": name, "kind": null});
        let package = |name: &str, needs: Vec<Value>| json!({"name": name, "dependencies": needs});
        let test_only = json!({"name": "quire-rng", "kind": "dev"});
        let all = [
            package("quire-snapshot", vec![need("quire-sys"), test_only]),
            package("quire-pool", vec![need("quire-device"), need("quire-sys"), need("libc")]),
            package("quire-device", vec![need("quire-sys")]),
            package("quire-sys", vec![]),
            package("quire-rng", vec![]),
        ];
        let own: BTreeMap<&str, &Value> = all.iter().map(|one| (one["name"].as_str().unwrap(), one)).collect();
        assert_eq!(order(&own).unwrap(), ["quire-sys", "quire-snapshot", "quire-device", "quire-pool"]);
        assert!(order(&BTreeMap::new()).unwrap_err().to_string().contains("no crate"));
    }

    #[test]
    fn what_the_registry_would_refuse_is_named() {
        let by_path = json!({"name": "quire-sys", "kind": null, "path": "/x", "req": "*"});
        let package = json!({
            "name": "a", "publish": [], "description": "d", "license": "MIT", "repository": "https://example.invalid/q",
            "readme": null, "dependencies": [by_path]
        });
        let found = publish_faults(&package).join("\n");
        for part in ["publish = false", "leads nowhere", "no readme", "quire-sys by its path only"] {
            assert!(found.contains(part), "{part}: {found}");
        }
        let good = json!({"name": "a", "description": "d", "license": "MIT", "repository": "https://b", "readme": "README.md", "dependencies": []});
        assert_eq!(publish_faults(&good), [""; 0]);
    }
}

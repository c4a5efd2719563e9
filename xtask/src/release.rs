//! `release`: what stands between this tree and a release: versions, the changelog, the tree itself, crates that others link, and known weaknesses
//! of the crates of others.
//!
//! Relies on git, `cargo metadata` and `cargo publish --dry-run`, which packs all crates for others together and builds them from their
//! packages. It changes nothing and publishes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{audit, notices, package, steps};

/// Crates that programs of others depend on; those that they need are looked at, too.
const LINKED_BY_OTHERS: [&str; 2] = ["quire-snapshot", "quire-pool"];
const CHANGELOG: &str = "CHANGELOG.md";
/// An address that leads nowhere: what the manifests have until the project has a place of its own.
const NOWHERE: &str = "example.invalid";
const PUBLISH_LIMIT: Duration = Duration::from_secs(1200);

/// What to look at.
#[derive(clap::Args)]
pub struct Choice {
    /// Leave out the trial of `cargo publish`, which builds the crates from their packages, and known weaknesses, which take the network
    #[arg(long)]
    quick: bool,
}

/// Says what blocks a release.
pub fn run(choice: &Choice) -> anyhow::Result<()> {
    let metadata = notices::metadata()?;
    let version = env!("CARGO_PKG_VERSION");
    let changelog = std::fs::read_to_string(CHANGELOG).with_context(|| format!("reading {CHANGELOG}"))?;
    let own = own_packages(&metadata);
    let mut blocks = version_faults(&own, version);
    blocks.extend(changelog_fault(&changelog, version));
    blocks.extend(tree_faults(version)?);
    let order = order(&own)?;
    println!("release: {version}; crates for others, in the order of publishing: {}", order.join(", "));
    let for_others: Vec<&Value> = order.iter().map(|name| own[name.as_str()]).collect();
    blocks.extend(place_fault(&for_others));
    blocks.extend(maintainer_fault(package::MAINTAINER));
    for package in &for_others {
        blocks.extend(publish_faults(package));
    }
    if !choice.quick {
        blocks.extend(trial_fault(&order)?);
        blocks.extend(audit::fault()?);
    }
    if blocks.is_empty() {
        if choice.quick {
            println!("release: what --quick leaves out was not looked at");
        }
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
        return Some(format!(
            "{CHANGELOG} has no section of this version; write a line \"{heading} (YYYY-MM-DD)\" and below it what changes"
        ));
    };
    let (first, rest) = section.split_once('\n').unwrap_or((section, ""));
    if first.to_ascii_lowercase().contains("unreleased") {
        return Some(format!(
            "{CHANGELOG}: the line \"## {first}\" becomes \"{heading} (YYYY-MM-DD)\", with the day of the release"
        ));
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

/// What has to be in the registry before a package. Of what only its tests need the registry asks for that which has a version.
fn needed(package: &Value) -> impl Iterator<Item = &str> {
    let needs = package["dependencies"].as_array().into_iter().flatten();
    needs.filter(|need| need["kind"] != "dev" || need["req"] != "*").filter_map(|need| need["name"].as_str())
}

/// All crates have the repository of the workspace, so that one fault stands for all.
fn place_fault(packages: &[&Value]) -> Option<String> {
    let place =
        packages.iter().filter_map(|package| package["repository"].as_str()).find(|place| place.contains(NOWHERE))?;
    Some(format!(
        "Cargo.toml: the line repository = \"{place}\" of [workspace.package] leads nowhere; write the address at which others get the sources \
         (all crates have it from there)"
    ))
}

/// Users of the package write to this address.
fn maintainer_fault(maintainer: &str) -> Option<String> {
    maintainer.contains(NOWHERE).then(|| {
        format!("xtask/src/package.rs: MAINTAINER is \"{maintainer}\"; write the name and the address of who answers for the Debian package")
    })
}

/// Has cargo do all of publishing but the upload.
fn trial_fault(order: &[String]) -> anyhow::Result<Option<String>> {
    let mut command = steps::cargo();
    // What is not committed has a line of its own.
    command.args(["publish", "--dry-run", "--allow-dirty"]);
    command.args(order.iter().flat_map(|name| ["-p", name.as_str()]));
    let failed = steps::run(command, PUBLISH_LIMIT)?.failed > 0;
    Ok(failed.then(|| "`cargo publish --dry-run` fails, see above".to_owned()))
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
        assert!(
            fault("# Changelog\n\n## 0.1.0 (2026-11-01)\n\n- a\n")
                .contains("no section of this version; write a line \"## 0.2.0 (YYYY-MM-DD)\"")
        );
        let told = "the line \"## 0.2.0 (unreleased)\" becomes \"## 0.2.0 (YYYY-MM-DD)\"";
        assert!(fault("# Changelog\n\n## 0.2.0 (unreleased)\n\n- a\n").contains(told));
        assert!(fault("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n## 0.1.0\n\n- a\n").contains("says nothing"));
        assert_eq!(fault("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- a\n"), "");
    }

    #[test]
    fn crates_come_after_those_that_they_need() {
        let need = |name: &str| json!({"name": name, "kind": null});
        let package = |name: &str, needs: Vec<Value>| json!({"name": name, "dependencies": needs});
        let for_tests = |name: &str, req: &str| json!({"name": name, "kind": "dev", "req": req});
        let tests = [for_tests("quire-mdc", "*"), for_tests("quire-rng", "^0.1.0")];
        let all = [
            package("quire-snapshot", [vec![need("quire-sys")], tests.into()].concat()),
            package("quire-pool", vec![need("quire-device"), need("quire-sys"), need("libc")]),
            package("quire-device", vec![need("quire-sys")]),
            package("quire-sys", vec![]),
            package("quire-rng", vec![]),
            package("quire-mdc", vec![]),
        ];
        let own: BTreeMap<&str, &Value> = all.iter().map(|one| (one["name"].as_str().unwrap(), one)).collect();
        assert_eq!(order(&own).unwrap(), ["quire-rng", "quire-sys", "quire-snapshot", "quire-device", "quire-pool"]);
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
        for part in ["publish = false", "no readme", "quire-sys by its path only"] {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(
            place_fault(&[&package, &package])
                .unwrap()
                .contains("repository = \"https://example.invalid/q\" of [workspace.package] leads nowhere")
        );
        assert!(maintainer_fault("Q <q@example.invalid>").unwrap().contains("MAINTAINER is \"Q <q@example.invalid>\""));
        assert_eq!(maintainer_fault("Q <q@example.org>"), None);
        let good = json!({"name": "a", "description": "d", "license": "MIT", "repository": "https://b", "readme": "README.md", "dependencies": []});
        assert_eq!((publish_faults(&good), place_fault(&[&good])), (vec![], None));
    }
}

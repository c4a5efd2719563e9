//! `licences`: what cargo-deny looks at, as far as it takes no network: licences, where crates come from, versions that are there twice.
//!
//! Relies on `cargo metadata` and `Cargo.lock`. Known weaknesses are not looked at: that takes the list of RustSec ([`crate::audit`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::{audit, install, notices};

/// The only place that crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences of crates that only build, generate or test: nothing of them is in what is shipped.
const ACCEPTED_FOR_TOOLS: &[&str] = &["MPL-2.0"];

/// What to write.
#[derive(clap::Args, Default)]
pub struct Choice {
    /// Write the names and licences of all crates that are linked, with their texts, to this file
    #[arg(long, value_name = "FILE", value_parser = install::absolute)]
    write: Option<PathBuf>,
}

/// Looks at all crates of others; writes their notices if that was asked for.
pub fn run(choice: &Choice) -> anyhow::Result<()> {
    let metadata = notices::metadata()?;
    let crates = of_others(&metadata);
    let linked = notices::linked(&metadata)?;
    let faults = faults(&crates, &linked);
    if !faults.is_empty() {
        bail!("licences:\n  {}", faults.join("\n  "));
    }
    let linked = linked.len();
    println!(
        "licences: {} crates of others, {linked} of them linked; all from crates.io, all with accepted licences",
        crates.len()
    );
    for name in twice(&crates) {
        println!("licences: there twice: {name}");
    }
    println!("licences: known weaknesses are not looked at; `cargo audit` does that (`{}`)", audit::INSTALL);
    if let Some(file) = &choice.write {
        std::fs::write(file, notices::text()?).with_context(|| format!("writing {}", file.display()))?;
        println!("licences: {}", file.display());
    }
    Ok(())
}

fn of_others(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(|package| !package["source"].is_null()).collect()
}

fn title(package: &Value) -> String {
    let word = |name: &str| package[name].as_str().unwrap_or_default();
    format!("{} {}", word("name"), word("version"))
}

fn faults(crates: &[&Value], linked: &[&Value]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in crates {
        let source = package["source"].as_str().unwrap_or_default();
        if source != REGISTRY {
            faults.push(format!("{} comes from {source}, and not from crates.io", title(package)));
        }
        match package["license"].as_str() {
            Some(license) if notices::is_accepted(license) => {}
            Some(license) if ACCEPTED_FOR_TOOLS.contains(&license) && !linked.contains(package) => {}
            Some(license) => {
                faults.push(format!("{} has the licence {license:?}, which is not accepted", title(package)))
            }
            None => faults.push(format!("{} names no licence", title(package))),
        }
    }
    faults
}

/// Crates of which several versions are there.
fn twice(crates: &[&Value]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in crates {
        let word = |name: &str| package[name].as_str().unwrap_or_default();
        versions.entry(word("name")).or_default().push(word("version"));
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    several.map(|(name, versions)| format!("{name} {}", versions.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_licence_that_is_refused_and_a_crate_from_elsewhere_are_faults() {
        let package = |name: &str, license: Value, source: &str| json!({"name": name, "version": "1.0.0", "license": license, "source": source});
        let all = [
            package("good", json!("MIT OR Apache-2.0"), REGISTRY),
            package("copyleft", json!("GPL-3.0"), REGISTRY),
            package("silent", Value::Null, REGISTRY),
            package("tool", json!("MPL-2.0"), REGISTRY),
            package("library", json!("MPL-2.0"), REGISTRY),
            package("forked", json!("MIT"), "git+https://example.com/forked"),
        ];
        let found = faults(&all.iter().collect::<Vec<_>>(), &[&all[4]]).join("\n");
        assert!(found.contains("library 1.0.0 has the licence") && !found.contains("tool"), "{found}");
        assert!(
            found.contains("copyleft 1.0.0 has the licence") && found.contains("silent 1.0.0 names no licence"),
            "{found}"
        );
        assert!(found.contains("forked 1.0.0 comes from git") && !found.contains("good"), "{found}");
    }

    #[test]
    fn a_crate_that_is_there_twice_is_named_with_its_versions() {
        let package = |version: &str| json!({"name": "a", "version": version});
        let all = [package("1.0.0"), package("2.0.0"), json!({"name": "b", "version": "1.0.0"})];
        assert_eq!(twice(&all.iter().collect::<Vec<_>>()), ["a 1.0.0, 2.0.0"]);
    }
}

//! `tidy`: the house rules that no compiler checks.
//!
//! Relies on [`sources::code_only`] to tell code from comments and strings. Each fault names file and line, so that an
//! editor can jump there.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::file_size::FileSizes;
use crate::impls::{self, Impls};
use crate::{book, links, shape, sources, test_programs, words};

/// Crates that may hold `unsafe`.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/sys/",
    "crates/snapshot/",
    "crates/arena/",
    "crates/mdc/",
    "crates/pool/",
    "crates/preload/",
    "crates/capi/",
    "crates/sqlite/",
    "crates/peers/",
    "crates/lua/",
];
/// Where people read which crates these are.
const CONTRIBUTING: &str = "CONTRIBUTING.md";
/// Crates that may make system calls.
const CALLS_ALLOWED: &[&str] = &["crates/sys/"];
/// Ways to the system that go round `quire-sys`.
const CALL_PATHS: &[&str] = &["libc::", "rustix::", "io_uring::", "nix::"];
const CALL_CRATES: &[&str] = &["libc", "rustix", "io-uring", "nix"];
/// Marks of unfinished work; spelled in parts, or this file would be at fault.
const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const UNFINISHED_TEXT: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X:")];
/// An argument that only refers to another one; spelled in parts, too.
const NO_ARGUMENT: &[&str] = &[
    concat!("SAFETY", ": as above"),
    concat!("SAFETY", ": as before"),
    concat!("SAFETY", ": see "),
    concat!("SAFETY", ": same as"),
    concat!("SAFETY", ": the caller's promise"),
];
/// How far above an unsafe block its argument may begin.
const SAFETY_REACH: usize = 12;

/// Runs all checks and says what is wrong.
pub fn run() -> anyhow::Result<()> {
    let (mut faults, mut all_impls, mut sizes) = (Vec::new(), Impls::default(), FileSizes::default());
    let files = sources::rust_files()?;
    for file in &files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let (name, code) = (file.to_string_lossy(), sources::code_only(&text));
        faults.extend(file_faults(&name, &text, &code));
        all_impls.add(&name, &code);
        sizes.add(&name, &code);
    }
    faults.extend(all_impls.faults());
    faults.extend(sizes.faults());
    for manifest in manifests()? {
        let text = std::fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
        faults.extend(manifest_faults(&manifest, &text));
    }
    faults.extend(paper_faults());
    faults.extend(words::document_faults()?);
    faults.extend(links::faults()?);
    faults.extend(book::faults()?);
    faults.extend(test_programs::faults()?);
    let rules = std::fs::read_to_string(CONTRIBUTING).with_context(|| format!("reading {CONTRIBUTING}"))?;
    faults.extend(contributing_fault(&rules));
    if faults.is_empty() {
        println!("tidy: {} files keep the house rules", files.len());
        return Ok(());
    }
    bail!("tidy:\n  {}", faults.join("\n  "))
}

fn file_faults(name: &str, text: &str, code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.starts_with("//!") && !text.starts_with("#![no_main]") {
        faults.push(format!("{name}:1: does not open with //! saying what it is and what it relies on"));
    }
    faults.extend(shape::faults(name, code));
    faults.extend(words::word_faults(name, text));
    faults.extend(impls::wildcards(name, code));
    let lines: Vec<&str> = text.lines().collect();
    for (index, (code, raw)) in code.lines().zip(&lines).enumerate() {
        let at = format!("{name}:{}", index + 1);
        faults.extend(line_faults(name, &at, code, raw));
        if opens_unsafe(code) && !argued(&lines, index) {
            faults.push(format!("{at}: unsafe without a // SAFETY: comment that argues"));
        }
    }
    faults
}

fn line_faults(name: &str, at: &str, code: &str, raw: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if has_word(code, "unsafe") && !within(name, UNSAFE_ALLOWED) {
        faults.push(format!("{at}: unsafe outside {}", unsafe_allowed()));
    }
    if !within(name, CALLS_ALLOWED)
        && let Some(path) = CALL_PATHS.iter().find(|path| has_path(code, path))
    {
        faults.push(format!("{at}: {path} outside crates/sys"));
    }
    if let Some(mark) = UNFINISHED_CODE.iter().find(|mark| code.contains(**mark)) {
        faults.push(format!("{at}: {mark} is unfinished work"));
    }
    if let Some(mark) = UNFINISHED_TEXT.iter().find(|mark| raw.contains(**mark)) {
        faults.push(format!("{at}: {mark} is unfinished work"));
    }
    if NO_ARGUMENT.iter().any(|words| raw.contains(words)) {
        faults.push(format!("{at}: an argument that only refers to another one; say which promise, of which function, and why it holds here"));
    }
    if code.contains("#[ignore]") {
        faults.push(format!("{at}: a test is ignored without a reason"));
    }
    faults
}

/// The crates that may hold `unsafe`, as CONTRIBUTING lists them.
fn unsafe_allowed() -> String {
    let mut names: Vec<String> = UNSAFE_ALLOWED
        .iter()
        .map(|folder| format!("`{}`", folder.trim_start_matches("crates/").trim_end_matches('/')))
        .collect();
    let last = names.pop().unwrap_or_default();
    format!("{} and {last}", names.join(", "))
}

/// Whether CONTRIBUTING tells people what is checked here.
fn contributing_fault(text: &str) -> Option<String> {
    let allowed = unsafe_allowed();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let agrees = words.contains(&format!("`unsafe` is allowed in {allowed}."));
    (!agrees).then(|| format!("{CONTRIBUTING}: does not say that `unsafe` is allowed in {allowed}"))
}

fn within(name: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| name.starts_with(folder))
}

/// Whether `code` holds `word` as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(word).any(|(at, _)| {
        let (before, after) = (code[..at].bytes().next_back(), code[at + word.len()..].bytes().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether `code` holds `path` from its first segment on (`my_libc::` is another crate).
fn has_path(code: &str, path: &str) -> bool {
    code.match_indices(path).any(|(at, _)| {
        !code[..at].bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':')
    })
}

/// Blocks and impls need an argument; an `unsafe fn` states duties in its docs instead, which clippy checks.
fn opens_unsafe(code: &str) -> bool {
    code.contains("unsafe {") || code.contains("unsafe impl")
}

fn argued(lines: &[&str], index: usize) -> bool {
    lines[index.saturating_sub(SAFETY_REACH)..=index].iter().any(|line| line.contains("SAFETY:"))
}

fn manifests() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("xtask/Cargo.toml")];
    for entry in std::fs::read_dir("crates").context("listing crates")? {
        found.push(entry?.path().join("Cargo.toml"));
    }
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

fn manifest_faults(manifest: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let dir = manifest.parent().unwrap_or(manifest);
    match std::fs::read_to_string(dir.join("README.md")) {
        Ok(readme) if !readme.contains("Must not know:") => {
            faults.push(format!("{}/README.md: no line \"Must not know: …\"", dir.display()));
        }
        Ok(_) => {}
        Err(_) => faults.push(format!("{}: no README.md", dir.display())),
    }
    if !dir.ends_with("sys") {
        let named = text.lines().filter_map(|line| line.split(['=', '.', ' ']).next());
        for call_crate in named.filter(|name| CALL_CRATES.contains(name)) {
            faults.push(format!("{}: depends on {call_crate}; only crates/sys may", manifest.display()));
        }
    }
    faults
}

fn paper_faults() -> Vec<String> {
    let mut faults = Vec::new();
    for paper in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/format.md"] {
        if !Path::new(paper).is_file() {
            faults.push(format!("{paper} is missing"));
        }
    }
    let license = std::fs::read_to_string("LICENSE").unwrap_or_default();
    if !license.contains("Apache License") || !license.contains("Version 2.0, January 2004") {
        faults.push("LICENSE is not the text of the Apache License 2.0".into());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(name: &str, text: &str) -> Vec<String> {
        file_faults(name, text, &sources::code_only(text))
    }

    #[test]
    fn a_clean_file_has_no_faults() {
        assert!(
            faults_of("crates/store/src/a.rs", "//! A thing.\nfn f() {} // unsafe libc:: in a comment\n").is_empty()
        );
    }

    #[test]
    fn contributing_and_the_check_agree_about_unsafe() {
        assert!(contributing_fault("`unsafe` is allowed in `sys`, `snapshot` and `arena`.").is_some());
        let said = include_str!("../../CONTRIBUTING.md");
        assert_eq!(contributing_fault(said), None);
    }

    #[test]
    fn one_build_makes_the_command_and_all_libraries() {
        let workspace = include_str!("../../Cargo.toml");
        let built = workspace.lines().find(|line| line.starts_with("default-members")).unwrap();
        for member in ["crates/cli", "crates/capi", "crates/preload", "crates/sqlite"] {
            assert!(built.contains(&format!("{member:?}")), "{member} is not in {built}");
        }
        // More than one program would make `cargo run` ask which is meant.
        assert!(!built.contains("xtask") && !built.contains("fuzz") && !built.contains('*'));
    }

    #[test]
    fn each_house_rule_is_checked() {
        let faults = |name: &str, text: &str| faults_of(name, text).join("\n");
        assert!(faults("crates/store/src/a.rs", "fn f() {}\n").contains("does not open with"));
        assert!(faults("crates/store/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n").contains("unsafe outside"));
        assert!(faults("crates/arena/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n").contains("SAFETY"));
        let argued = "//! A.\n// SAFETY: as C promises.\n#[unsafe(no_mangle)]\nfn f() { unsafe { g() } }\n";
        assert!(faults("crates/capi/src/a.rs", argued).is_empty());
        assert!(
            faults("crates/arena/src/a.rs", "//! A.\n// SAFETY: g is fine.\nfn f() { unsafe { g() } }\n").is_empty()
        );
        let referring = concat!("//! A.\n// SAFETY", ": as above.\nfn f() { unsafe { g() } }\n");
        assert!(faults("crates/arena/src/a.rs", referring).contains("only refers to another one"));
        assert!(faults("crates/device/src/a.rs", "//! A.\nuse libc::c_int;\n").contains("libc:: outside"));
        assert!(faults("crates/device/src/a.rs", "//! A.\nuse quire_sys::libc::c;\n").is_empty());
        assert!(faults("crates/sys/src/a.rs", "//! A.\nfn f() { todo!() }\n").contains("unfinished"));
        assert!(faults("crates/sys/src/a.rs", "//! A.\n#[ignore]\nfn f() {}\n").contains("ignored"));
    }
}

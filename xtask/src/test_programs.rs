//! The programs that `cargo test` makes of the files below `tests`. A file that no program has is never run, and one that two
//! have runs twice.
//!
//! Relies on `cargo metadata` for the programs. A crate with many files has one program of most of them: its root,
//! `tests/main.rs`, declares each by `mod NAME;`.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::{layers, sources};

/// A program of tests.
struct TestProgram {
    /// Its first file.
    root: PathBuf,
    /// The modules that this file declares.
    modules: Vec<String>,
}

impl TestProgram {
    fn new(root: PathBuf, text: &str) -> Self {
        let code = sources::code_only(text);
        let declared = |line: &str| Some(line.trim().strip_prefix("mod ")?.strip_suffix(';')?.trim().to_owned());
        Self { root, modules: code.lines().filter_map(declared).collect() }
    }

    /// Whether it has `file`: as its root, or as a module of the root beside it.
    fn has(&self, file: &Path) -> bool {
        let is_beside = file.parent() == self.root.parent();
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        self.root == file || is_beside && stem.is_some_and(|stem| self.modules.iter().any(|module| module == stem))
    }
}

/// The files of all crates that no program has, or that two have.
pub fn faults() -> anyhow::Result<Vec<String>> {
    let (metadata, here) = (layers::metadata()?, std::env::current_dir()?);
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = Path::new(package["manifest_path"].as_str().context("a package without a manifest")?);
        let mut programs = Vec::new();
        for target in package["targets"].as_array().into_iter().flatten() {
            if target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test")) {
                let root = Path::new(target["src_path"].as_str().context("a test without a file")?);
                let text = std::fs::read_to_string(root).with_context(|| format!("reading {}", root.display()))?;
                programs.push(TestProgram::new(below(&here, root), &text));
            }
        }
        let files = files(&manifest.with_file_name("tests"))?;
        let files: Vec<PathBuf> = files.iter().map(|file| below(&here, file)).collect();
        faults.extend(faults_of(&files, &programs));
    }
    Ok(faults)
}

fn below(here: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

/// The files of which cargo would make programs by itself.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path.join("main.rs"));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.retain(|file| file.is_file());
    found.sort();
    Ok(found)
}

fn faults_of(files: &[PathBuf], programs: &[TestProgram]) -> Vec<String> {
    let fault = |file: &PathBuf| match programs.iter().filter(|program| program.has(file)).count() {
        0 => Some(format!(
            "{}: no program has these tests: declare the file in tests/main.rs, or give it a [[test]] in Cargo.toml",
            file.display()
        )),
        1 => None,
        count => Some(format!("{}: {count} programs have these tests", file.display())),
    };
    files.iter().filter_map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[&str], programs: &[(&str, &str)]) -> String {
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let programs: Vec<_> = programs.iter().map(|(root, text)| TestProgram::new(root.into(), text)).collect();
        faults_of(&files, &programs).join("\n")
    }

    #[test]
    fn each_file_of_tests_has_to_be_in_one_program() {
        let suite = ("t/main.rs", "//! All.\nmod a;\n#[path = \"x/mod.rs\"]\nmod common;\n// mod c;\n");
        let files = ["t/main.rs", "t/a.rs", "t/b.rs", "t/d/main.rs"];
        assert_eq!(faults(&files, &[suite, ("t/b.rs", ""), ("t/d/main.rs", "")]), "");
        assert!(faults(&files, &[suite, ("t/d/main.rs", "")]).starts_with("t/b.rs: no program"));
        // A module of another program's folder is another file.
        assert!(faults(&files, &[suite, ("t/b.rs", ""), ("t/d/e.rs", "mod main;")]).is_empty());
        assert!(faults(&["t/c.rs"], &[suite]).starts_with("t/c.rs: no program"), "a comment declares nothing");
        assert!(faults(&["t/d/main.rs"], &[suite]).starts_with("t/d/main.rs: no program"));
        assert!(faults(&["t/a.rs"], &[suite, ("t/a.rs", "")]).contains("2 programs"));
    }

    #[test]
    fn cargo_is_asked_for_the_files_that_it_would_find_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let tests = folder.path().join("tests");
        assert!(files(&tests).unwrap().is_empty());
        for name in ["own", "common"] {
            std::fs::create_dir_all(tests.join(name)).unwrap();
        }
        for name in ["a.rs", "own/main.rs", "own/part.rs", "common/mod.rs", "notes.txt"] {
            std::fs::write(tests.join(name), "").unwrap();
        }
        assert_eq!(files(&tests).unwrap(), [tests.join("a.rs"), tests.join("own/main.rs")]);
    }
}

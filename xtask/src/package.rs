//! `package`: a Debian package, one with its debug symbols, and a tarball of the same files.
//!
//! Relies on binutils, dpkg-deb, gzip and tar, on a release build, and on that build's own `quire docs` for manual pages and completions. Files
//! belong to root in the packages, whichever user makes them.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::install::{self, Places};
use crate::{notices, packages, steps};

const NAME: &str = "quire";
/// Who answers for the package.
pub const MAINTAINER: &str = "Quire maintainers <maintainers@example.invalid>";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where gdb looks for symbols that were taken out of a file.
const SYMBOLS: &str = "usr/lib/debug";
const DEBIAN_LICENSE: &str = "\
Files: *
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The licences of the crates that are linked are in /usr/share/doc/quire/THIRD-PARTY.
";
/// Documents of users beside those in `docs`, to which these link.
const PAGES: [&str; 8] = [
    "README.md",
    "COMPAT.md",
    "SECURITY.md",
    "crates/capi/README.md",
    "crates/pool/README.md",
    "crates/preload/README.md",
    "crates/snapshot/README.md",
    "crates/sqlite/README.md",
];
const RESULTS: &str = "docs/results";
/// The test that installs the package, and what it takes.
const TRIAL: &str = "tests/package/install.py";
const TRIAL_TOOLS: [&str; 8] =
    ["dpkg-deb", "objcopy", "xz", "unshare", "systemd-analyze", "cc", "curl", "redis-benchmark"];

/// What to pack.
#[derive(clap::Args)]
pub struct Choice {
    /// Folder of what was built [default: a release build, which is made]
    #[arg(long, value_parser = install::absolute)]
    from: Option<PathBuf>,
    /// Where the packages go
    #[arg(long, value_parser = install::absolute, default_value = "target/package")]
    out: PathBuf,
    /// The package's revision: a later one replaces an earlier one of the same version
    #[arg(long, default_value_t = 1)]
    revision: u32,
}

/// Makes the packages.
pub fn run(choice: &Choice) -> anyhow::Result<()> {
    let built = match &choice.from {
        Some(folder) => folder.clone(),
        None => steps::release_binary()?.parent().context("the binary lies in no folder")?.to_owned(),
    };
    // A folder that is this run's own: whatever else lies in the output folder stays.
    let work = choice.out.join(format!(".quire-package-{}", std::process::id()));
    std::fs::create_dir_all(&choice.out).with_context(|| format!("making {}", choice.out.display()))?;
    std::fs::create_dir(&work).with_context(|| format!("making {}", work.display()))?;
    let (root, symbols) = (work.join(NAME), work.join("quire-dbgsym"));
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let places = Places::packed(&root, Path::new("/usr/lib").join(triplet));
    install::run_from(&built, &places)?;
    for file in binaries(&root)? {
        separate(&root, &symbols, &file)?;
    }
    let archive = places.library("libquire.a");
    run_tool("strip", &["--strip-debug", text(&archive)?])?;
    documents(&root, &built.join("quire"))?;
    settings(&root)?;
    let version = format!("{VERSION}-{}", choice.revision);
    let package = Control { name: NAME, version: &version, depends: depends(&root)?, root: &root };
    package.write(
        &[("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)],
        "/etc/quire/quire.conf\n/etc/logrotate.d/quire\n",
    )?;
    let depends = format!("quire (= {version})");
    Control { name: "quire-dbgsym", version: &version, depends, root: &symbols }.write(&[], "")?;
    for folder in [&root, &symbols] {
        run_tool("dpkg-deb", &["--root-owner-group", "-Zxz", "-z3", "--build", text(folder)?, text(&choice.out)?])?;
    }
    tarball(&root, &choice.out)?;
    std::fs::remove_dir_all(&work)?;
    println!("package: apt install {}/{NAME}_{version}_{}.deb", choice.out.display(), architecture()?);
    Ok(())
}

/// What the test in `file` lacks here; nothing if it can run.
pub fn lacks(file: &Path) -> Option<String> {
    if file != Path::new(TRIAL) {
        return None;
    }
    if !packages::is_root() {
        return Some("it takes root, for a root directory of its own".into());
    }
    let missing: Vec<&str> = TRIAL_TOOLS.into_iter().filter(|tool| !packages::on_path(tool)).collect();
    if !missing.is_empty() {
        return Some(format!("there is no {}", missing.join(", ")));
    }
    // Containers may refuse it even to root.
    let made = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "true"])
        .stderr(std::process::Stdio::null())
        .status();
    (!made.is_ok_and(|status| status.success())).then(|| "this system refuses namespaces of their own".into())
}

/// A package's description.
struct Control<'a> {
    name: &'a str,
    version: &'a str,
    depends: String,
    root: &'a Path,
}

impl Control<'_> {
    /// Writes the folder DEBIAN: the description, the scripts and which files are the administrator's own.
    fn write(&self, scripts: &[(&str, u32)], conffiles: &str) -> anyhow::Result<()> {
        let folder = self.root.join("DEBIAN");
        put(&folder.join("control"), self.text()?, 0o644)?;
        if !conffiles.is_empty() {
            put(&folder.join("conffiles"), conffiles, 0o644)?;
        }
        for (name, mode) in scripts {
            put(&folder.join(name), read(&Path::new("packaging/debian").join(name))?, *mode)?;
        }
        Ok(())
    }

    fn text(&self) -> anyhow::Result<String> {
        let installed_kib = bytes_below(self.root)?.div_ceil(1024);
        let about = match self.name {
            NAME => {
                "in-memory database server with snapshots that do not stall\n It speaks the Redis protocol, saves without fork, and serves \
                 again right after a\n restart. The package also has a write cache for directories (quire mount), a library\n of snapshots and \
                 file pages for C, a preload library and an SQLite extension."
            }
            _ => "debug symbols of quire",
        };
        let more = if self.name == NAME { "Recommends: redis-tools\nSuggests: fuse3, logrotate\n" } else { "" };
        Ok(format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
             Depends: {}\n{more}Section: database\nPriority: optional\nInstalled-Size: {installed_kib}\nDescription: {about}\n",
            self.name,
            self.version,
            architecture()?,
            self.depends,
        ))
    }
}

/// Every program and shared library below `root`, links aside.
fn binaries(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = files_below(root)?;
    found.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !file.is_symlink() && (file.parent().is_some_and(|folder| folder.ends_with("bin")) || name.contains(".so"))
    });
    Ok(found)
}

/// Moves the debug symbols of a file to `symbols`, where gdb finds them by the note that stays.
fn separate(root: &Path, symbols: &Path, file: &Path) -> anyhow::Result<()> {
    let place = file.strip_prefix(root)?;
    let debug = symbols.join(SYMBOLS).join(format!("{}.debug", place.display()));
    std::fs::create_dir_all(debug.parent().context("a folder")?)?;
    run_tool("objcopy", &["--only-keep-debug", text(file)?, text(&debug)?])?;
    std::fs::set_permissions(&debug, PermissionsExt::from_mode(0o644))?;
    run_tool("strip", &["--strip-unneeded", text(file)?])?;
    run_tool("objcopy", &[&format!("--add-gnu-debuglink={}", text(&debug)?), text(file)?])
}

/// Manual pages, completions, licences, the documents.
fn documents(root: &Path, quire: &Path) -> anyhow::Result<()> {
    let (manual, completions) = (root.join("usr/share/man/man1"), root.join("completions"));
    for (name, folder) in [("man", &manual), ("completions", &completions)] {
        std::fs::create_dir_all(folder)?;
        run_tool(text(quire)?, &["docs", name, "--out", text(folder)?])?;
    }
    for page in files_below(&manual)? {
        run_tool("gzip", &["-9n", text(&page)?])?;
    }
    let shells = [
        ("quire.bash", "usr/share/bash-completion/completions/quire"),
        ("_quire", "usr/share/zsh/vendor-completions/_quire"),
        ("quire.fish", "usr/share/fish/vendor_completions.d/quire.fish"),
    ];
    for (name, place) in shells {
        put(&root.join(place), read(&completions.join(name))?, 0o644)?;
    }
    std::fs::remove_dir_all(&completions)?;
    let folder = root.join("usr/share/doc/quire");
    put(&folder.join("copyright"), DEBIAN_LICENSE, 0o644)?;
    put(&folder.join("THIRD-PARTY"), notices::text()?, 0o644)?;
    put(&folder.join("changelog"), read(Path::new("CHANGELOG.md"))?, 0o644)?;
    run_tool("gzip", &["-9n", text(&folder.join("changelog"))?])?;
    let documents = crate::sources::documents()?;
    let kept = |page: &&PathBuf| page.starts_with("docs") || PAGES.iter().any(|name| page.as_path() == Path::new(name));
    for page in documents.iter().filter(kept) {
        put(&folder.join(page), read(page)?, 0o644)?;
    }
    // What `quire report` makes its page from, and what the pages show.
    for file in files_below(Path::new(RESULTS))? {
        let is_raw = file.extension().is_some_and(|ending| ending == "json" || ending == "svg");
        if is_raw && file.parent() == Some(Path::new(RESULTS)) {
            put(&folder.join(&file), read(&file)?, 0o644)?;
        }
    }
    Ok(())
}

/// What an administrator changes, and what starts the server.
fn settings(root: &Path) -> anyhow::Result<()> {
    let files = [
        ("quire.conf", "etc/quire/quire.conf", 0o640),
        ("quire.logrotate", "etc/logrotate.d/quire", 0o644),
        ("systemd/quire.service", "usr/lib/systemd/system/quire.service", 0o644),
        ("systemd/quire-mount@.service", "usr/lib/systemd/system/quire-mount@.service", 0o644),
        ("monitoring/grafana-dashboard.json", "usr/share/quire/monitoring/grafana-dashboard.json", 0o644),
        ("monitoring/grafana-dashboard-mount.json", "usr/share/quire/monitoring/grafana-dashboard-mount.json", 0o644),
        ("monitoring/prometheus-alerts.yml", "usr/share/quire/monitoring/prometheus-alerts.yml", 0o644),
    ];
    for (from, to, mode) in files {
        put(&root.join(to), read(&Path::new("packaging").join(from))?, mode)?;
    }
    std::fs::create_dir_all(root.join("etc/quire/mounts"))?;
    Ok(())
}

/// The packages of Debian that the programs need.
fn depends(root: &Path) -> anyhow::Result<String> {
    let mut needed = (0, 0);
    for file in binaries(root)? {
        let output = Command::new("objdump").args(["-T", text(&file)?]).output().context("starting objdump")?;
        needed = needed.max(c_library(&String::from_utf8_lossy(&output.stdout)));
    }
    Ok(format!("libc6 (>= {}.{}), libgcc-s1, passwd", needed.0, needed.1))
}

/// The newest version of the C library that a table of dynamic symbols names.
fn c_library(symbols: &str) -> (u32, u32) {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let mut numbers = rest.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    versions.max().unwrap_or_default()
}

fn tarball(root: &Path, out: &Path) -> anyhow::Result<()> {
    let file = out.join(format!("{NAME}-{VERSION}-{}-linux.tar.xz", std::env::consts::ARCH));
    let owner = ["--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--exclude=./DEBIAN"];
    let mut words = vec!["-C", text(root)?];
    words.extend(owner);
    words.extend(["-cJf", text(&file)?, "."]);
    run_tool("tar", &words)?;
    println!("package: {}", file.display());
    Ok(())
}

fn architecture() -> anyhow::Result<String> {
    let output = Command::new("dpkg").arg("--print-architecture").output().context("starting dpkg")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn bytes_below(root: &Path) -> anyhow::Result<u64> {
    let sizes = files_below(root)?.into_iter().map(|file| file.symlink_metadata().map_or(0, |found| found.len()));
    Ok(sizes.sum())
}

fn files_below(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).with_context(|| format!("listing {}", root.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() { found.extend(files_below(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn put(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path)).with_context(|| format!("making {}", path.display()))?;
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))?;
    Ok(std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}

fn run_tool(name: &str, words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(name).args(words).status();
    let status =
        status.with_context(|| format!("starting {name}, which makes packages: install binutils, dpkg, xz-utils"))?;
    if status.success() {
        return Ok(());
    }
    let mut shown = name.to_owned();
    words.iter().for_each(|word| _ = write!(shown, " {word}"));
    bail!("{shown} ended with {status}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_c_library_that_a_symbol_asks_for_counts() {
        let symbols = "DF *UND* (GLIBC_2.9) a\nDF *UND* (GLIBC_2.34) b\nDF *UND* (GLIBC_2.4) c\nGLIBC_PRIVATE";
        assert_eq!(c_library(symbols), (2, 34));
        assert_eq!(c_library(""), (0, 0));
    }
}

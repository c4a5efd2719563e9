//! `install`: puts what was built where programs and compilers look for it.
//!
//! Relies on a release build: as this is often run by root, it builds nothing itself. Files are written beside their place
//! and renamed, so that programs that run the old ones are left in peace.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::{header, steps};

const TEMPLATE: &str = "crates/capi/quire.pc.in";
/// All packages are of one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Libraries that other programs load.
const LOADED: [&str; 2] = ["libquire_preload.so", "libquire_sqlite.so"];
const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");

/// Where things go.
#[derive(clap::Args)]
pub struct Places {
    /// Folder with bin, lib and include
    #[arg(long, value_parser = absolute, default_value = "/usr/local")]
    prefix: PathBuf,
    /// Folder of the libraries, such as /usr/lib/x86_64-linux-gnu [default: PREFIX/lib]
    #[arg(long, value_parser = absolute)]
    libdir: Option<PathBuf>,
    /// Put everything below this folder instead of /, for makers of packages
    #[arg(long, value_parser = absolute)]
    destdir: Option<PathBuf>,
}

/// Words on the command line are relative to where the user is; tasks run elsewhere.
pub fn absolute(word: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(word)
}

impl Places {
    /// All below `prefix`.
    pub fn below(prefix: PathBuf) -> Self {
        Self { prefix, libdir: None, destdir: None }
    }

    /// Those of a distribution's package, with all files below `root` meanwhile.
    pub fn packed(root: &Path, libdir: PathBuf) -> Self {
        Self { prefix: "/usr".into(), libdir: Some(libdir), destdir: Some(root.to_owned()) }
    }

    /// Where a library lies now.
    pub fn library(&self, name: &str) -> PathBuf {
        self.real(&self.lib().join(name))
    }

    fn lib(&self) -> PathBuf {
        self.libdir.clone().unwrap_or_else(|| self.prefix.join("lib"))
    }

    /// Where `path` is while packages are made.
    fn real(&self, path: &Path) -> PathBuf {
        match &self.destdir {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }
}

/// Installs everything.
pub fn run(places: &Places) -> anyhow::Result<()> {
    run_from(&steps::target_dir()?.join("release"), places)
}

/// Installs what was built in `built`.
pub fn run_from(built: &Path, places: &Places) -> anyhow::Result<()> {
    check(built, &[&["quire", "libquire.so", "libquire.a"], &LOADED[..]].concat())?;
    put(&built.join("quire"), &places.real(&places.prefix.join("bin/quire")), 0o755)?;
    library_from(built, places)?;
    for name in LOADED {
        put(&built.join(name), &places.library(name), 0o755)?;
    }
    if places.destdir.is_none() && places.lib().starts_with("/usr") {
        println!("run ldconfig now, so that programs find libquire.so.{MAJOR}");
    }
    Ok(())
}

/// Installs what programs are compiled with.
pub fn library(places: &Places) -> anyhow::Result<()> {
    library_from(&steps::target_dir()?.join("release"), places)
}

fn library_from(built: &Path, places: &Places) -> anyhow::Result<()> {
    check(built, &["libquire.so", "libquire.a"])?;
    let lib = places.real(&places.lib());
    let name = format!("libquire.so.{VERSION}");
    put(&built.join("libquire.so"), &lib.join(&name), 0o755)?;
    link(&name, &lib.join(format!("libquire.so.{MAJOR}")))?;
    link(&name, &lib.join("libquire.so"))?;
    put(&built.join("libquire.a"), &lib.join("libquire.a"), 0o644)?;
    put(Path::new(header::FILE), &places.real(&places.prefix.join("include/quire.h")), 0o644)?;
    let template = std::fs::read_to_string(TEMPLATE).with_context(|| format!("reading {TEMPLATE}"))?;
    write(&lib.join("pkgconfig/quire.pc"), pkg_config(&template, places)?.as_bytes(), 0o644)
}

fn check(built: &Path, names: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = names.iter().copied().filter(|name| !built.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("{} not found in {}: build first, not as root:\n  cargo build --release", missing.join(", "), built.display())
}

/// The template with its places filled in.
fn pkg_config(template: &str, places: &Places) -> anyhow::Result<String> {
    let below_prefix = |path: &Path| match path.strip_prefix(&places.prefix) {
        Ok(rest) => Path::new("${prefix}").join(rest),
        Err(_) => path.to_owned(),
    };
    let mut text = template.replace("@version@", VERSION);
    let folders = [
        ("@prefix@", places.prefix.clone()),
        ("@libdir@", below_prefix(&places.lib())),
        ("@includedir@", "${prefix}/include".into()),
    ];
    for (mark, path) in folders {
        let path = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
        text = text.replace(mark, &path.replace(' ', "\\ "));
    }
    if text.contains('@') {
        bail!("{TEMPLATE} has a mark that `install` does not fill in");
    }
    Ok(text)
}

fn put(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let content = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    write(to, &content, mode)
}

fn write(to: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let beside = beside(to)?;
    std::fs::write(&beside, content).with_context(|| format!("writing {}", beside.display()))?;
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(mode))?;
    settle(&beside, to)
}

fn link(target: &str, to: &Path) -> anyhow::Result<()> {
    let beside = beside(to)?;
    let _ = std::fs::remove_file(&beside);
    std::os::unix::fs::symlink(target, &beside).with_context(|| format!("making {}", beside.display()))?;
    settle(&beside, to)
}

/// A new name in the folder of `to`, which is made.
fn beside(to: &Path) -> anyhow::Result<PathBuf> {
    let (folder, name) = to.parent().zip(to.file_name()).with_context(|| format!("{} is no file", to.display()))?;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder.join(format!(".{}.new", name.to_string_lossy())))
}

fn settle(beside: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::rename(beside, to).with_context(|| format!("writing {}", to.display()))?;
    println!("installed {}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "prefix=@prefix@\nlibdir=@libdir@\nincludedir=@includedir@\nVersion: @version@\n";

    #[test]
    fn paths_below_the_prefix_are_told_by_it() {
        let places = Places::below("/opt/my quire".into());
        let expected = format!(
            "prefix=/opt/my\\ quire\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\nVersion: {VERSION}\n"
        );
        assert_eq!(pkg_config(TEXT, &places).unwrap(), expected);
        let places = Places { libdir: Some("/lib64".into()), ..Places::below("/usr".into()) };
        assert!(pkg_config(TEXT, &places).unwrap().contains("libdir=/lib64\n"));
        assert!(pkg_config("@other@", &places).is_err());
    }

    #[test]
    fn packages_are_made_below_another_root() {
        let places = Places { destdir: Some("/tmp/root".into()), ..Places::below("/usr".into()) };
        assert_eq!(places.real(&places.lib()), Path::new("/tmp/root/usr/lib"));
        assert_eq!(Places::below("/usr".into()).real(Path::new("/usr/lib")), Path::new("/usr/lib"));
    }

    #[test]
    fn without_a_library_nothing_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built");
        std::fs::create_dir(&built).unwrap();
        for name in ["quire", "libquire.so", "libquire.a", "libquire_preload.so"] {
            std::fs::write(built.join(name), name).unwrap();
        }
        let prefix = dir.path().join("prefix");
        let error = run_from(&built, &Places::below(prefix.clone())).unwrap_err().to_string();
        assert!(error.starts_with("libquire_sqlite.so not found in ") && !prefix.exists(), "{error}");
    }

    #[test]
    fn what_is_not_built_is_named_with_the_command_that_builds_it() {
        let error = check(Path::new("/nowhere"), &["quire", "libquire.a"]).unwrap_err().to_string();
        assert!(error.contains("quire, libquire.a not found") && error.contains("cargo build"), "{error}");
    }
}

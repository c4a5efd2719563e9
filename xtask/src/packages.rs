//! The Debian packages that the peer tests need: found, installed as root, or named.
//!
//! Relies on apt and dpkg. What counts is whether the program (or Python module) is there, so machines that have it from
//! elsewhere are left alone. No service is ever started or stopped by the installation: `RUNLEVEL=1` and
//! `SYSTEMD_OFFLINE=1` make the packages' scripts skip that.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The interpreter that Debian's Python packages belong to.
pub const PYTHON: &str = "/usr/bin/python3";

/// What a package is needed for.
enum Proof {
    /// A program on the PATH.
    Program(&'static str),
    /// A module of [`PYTHON`].
    Module(&'static str),
    /// A program of PostgreSQL's server, which Debian keeps off the PATH.
    Postgres(&'static str),
}

const NEEDED: &[(&str, Proof)] = &[
    ("redis-server", Proof::Program("redis-server")),
    ("redis-tools", Proof::Program("redis-benchmark")),
    ("redis-tools", Proof::Program("redis-cli")),
    ("python3", Proof::Program("python3")),
    ("python3-redis", Proof::Module("redis")),
    ("python3-prometheus-client", Proof::Module("prometheus_client")),
    ("prometheus-redis-exporter", Proof::Program("prometheus-redis-exporter")),
    ("fio", Proof::Program("fio")),
    ("openssl", Proof::Program("openssl")),
    ("curl", Proof::Program("curl")),
    ("faketime", Proof::Program("faketime")),
    ("e2fsprogs", Proof::Program("mkfs.ext4")),
    ("fuse3", Proof::Program("fusermount3")),
    ("postgresql", Proof::Postgres("initdb")),
    ("gcc", Proof::Program("cc")),
    ("attr", Proof::Program("setfattr")),
    ("acl", Proof::Program("setfacl")),
    ("sqlite3", Proof::Program("sqlite3")),
    ("nginx", Proof::Program("nginx")),
    ("pkg-config", Proof::Program("pkg-config")),
    // Lays out the page of results: tests/docs/report.py.
    ("chromium", Proof::Program("chromium")),
];

/// Makes sure that everything is there; installs it when this is root on Debian.
pub fn ensure() -> anyhow::Result<()> {
    let missing = missing();
    if missing.is_empty() {
        println!("packages: all there");
        return Ok(());
    }
    println!("packages: missing {}", missing.join(", "));
    if !is_root() || !on_path("apt-get") {
        bail!("install these packages first (as root: apt-get install {})", missing.join(" "));
    }
    println!("packages: asking for the newest lists (apt-get update)");
    // A stale list or a mirror that is away for a moment only matters if the installation then fails.
    if let Err(error) = apt(&["update", "-qq"]) {
        println!("packages: {error:#}; trying the installation all the same");
    }
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(&missing);
    println!("packages: installing them (apt-get install); this may take minutes");
    apt(&words)?;
    let still = self::missing();
    if still.is_empty() { Ok(()) } else { bail!("installed, but still not usable: {}", still.join(", ")) }
}

fn missing() -> Vec<&'static str> {
    let absent = NEEDED.iter().filter(|(_, proof)| match proof {
        Proof::Program(name) => !on_path(name),
        Proof::Module(name) => !has_module(name),
        Proof::Postgres(name) => !has_postgres(name),
    });
    let mut packages: Vec<_> = absent.map(|(package, _)| *package).collect();
    packages.dedup();
    packages
}

/// Whether a program called `name` is on the PATH.
pub fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Whether some version of the server is installed.
fn has_postgres(name: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    on_path(name) || versions.map(|version| version.path().join("bin").join(name)).any(|path| path.is_file())
}

fn has_module(name: &str) -> bool {
    let import = Command::new(PYTHON).args(["-c", &format!("import {name}")]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success())
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    // The owner of our own /proc folder is who we are.
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}

fn apt(words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .env("SYSTEMD_OFFLINE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("starting apt-get")?;
    if status.success() { Ok(()) } else { bail!("apt-get {} failed ({status})", words.join(" ")) }
}

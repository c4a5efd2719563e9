//! A mount in directories of its own, which ends with the test. Where FUSE is missing tests say so and pass, but not in CI.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{Device, DeviceError, Layer, LayeredDevice};
use quire_fuse::{Mount, MountConfig};
pub use quire_sys::testing::skipped;
use quire_writecache::{AdmissionPolicy, TaskGraph};
use serde_json::Value;
use tempfile::TempDir;

/// Whether mounts can be made here; says so if not.
pub fn possible() -> bool {
    let works = quire_sys::mounts::try_fuse();
    if let Err(error) = &works {
        skipped(format!("/dev/fuse can't be used here ({error})"));
    }
    works.is_ok()
}

/// Directories for a mount, and how it is set up.
pub struct Place {
    pub dir: TempDir,
    pub config: MountConfig,
}

impl Place {
    pub fn new(policy: AdmissionPolicy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("slow")).unwrap();
        std::fs::create_dir(at("mnt")).unwrap();
        let mut config = MountConfig::new(at("slow"), at("mnt"), at("log"));
        config.cache.policy = policy;
        config.cache.capacity_bytes = 16 << 20;
        config.cache.tasks = TaskGraph::global();
        Self { dir, config }
    }

    pub fn mount(&self) -> Running {
        Running { mounted: Some(Mount::start(&self.config).unwrap()), path: self.config.mount_point.clone() }
    }

    pub fn slow(&self, name: &str) -> PathBuf {
        self.config.backing.join(name)
    }
}

const SERVE: &str = "QUIRE_TEST_SERVE";
/// Milliseconds that a truncation of a file of the directory takes in a mount that another process serves.
const CUT_MS: &str = "QUIRE_TEST_CUT_MS";

/// Makes files shorter after a while.
struct SlowCuts(Duration);

impl Layer for SlowCuts {
    fn set_len(&self, inner: &dyn Device, len: u64) -> Result<(), DeviceError> {
        if inner.len()? > len {
            std::thread::sleep(self.0);
        }
        inner.set_len(len)
    }
}

/// What a test program does that was started again to serve a mount.
///
/// A process that maps files of a mount must not serve it: a page that is brought in holds the process's memory, and to
/// bring it the server may need that.
pub fn serve_if_asked() {
    let Ok(words) = std::env::var(SERVE) else { return };
    let words: Vec<&str> = words.split(' ').collect();
    let mut config = MountConfig::new(words[0], words[1], words[2]);
    config.cache.policy = words[3].parse().unwrap();
    config.cache.capacity_bytes = 16 << 20;
    // The first letters of the test program's name, which the kernel cuts.
    config.critical = vec!["fsx*".into(), "crash*".into()];
    config.allow_other = quire_sys::task::user_of(std::process::id()) == Some(0);
    if let Some(ms) = std::env::var(CUT_MS).ok().and_then(|ms| ms.parse().ok()) {
        config.wrap_slow =
            Some(Arc::new(move |device| LayeredDevice::new(device, SlowCuts(Duration::from_millis(ms)))));
    }
    // A refusal may be what the test is after, so it is told without a panic's words.
    let mounted = Mount::start(&config).unwrap_or_else(|error| {
        println!("\nrefused: {error}");
        std::process::exit(1)
    });
    let found = mounted.recovered();
    println!("\nserving, {} files, {} lost", found.files, found.lost.len());
    std::io::stdout().flush().unwrap();
    mounted.finish((words[4] == "drain").then_some(&mut |_| {})).unwrap();
}

impl Place {
    /// Has another process serve the mount. The test program must have a test `serve_if_asked`, in no module.
    pub fn serve(&self, drain: bool) -> Daemon {
        self.serve_under(&[], drain)
    }

    /// As [`Place::serve`], begun by this command.
    pub fn serve_under(&self, starter: &[&str], drain: bool) -> Daemon {
        let config = &self.config;
        let words = [&config.backing, &config.mount_point, &config.log].map(|path| path.display().to_string());
        let end = if drain { "drain" } else { "keep" };
        let program = std::env::current_exe().unwrap();
        let (first, rest) =
            starter.split_first().map_or((program.to_str().unwrap(), &[][..]), |(first, rest)| (*first, rest));
        let mut child = Command::new(first)
            .args(rest)
            .args((!starter.is_empty()).then_some(&program))
            .args(["--exact", "serve_if_asked", "--nocapture"])
            .env(SERVE, format!("{} {} {end}", words.join(" "), config.cache.policy))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("serving") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended: {:?}", child.wait());
        }
        Daemon { child, mnt: config.mount_point.clone(), line: line.trim_end().to_owned(), stdout }
    }
}

/// A mount that another process serves.
pub struct Daemon {
    child: Child,
    mnt: PathBuf,
    pub line: String,
    #[expect(dead_code, reason = "held: the test listens to the end")]
    stdout: BufReader<ChildStdout>,
}

impl Daemon {
    pub fn at(&self, name: &str) -> PathBuf {
        self.mnt.join(name)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn unmount(mut self) {
        // A process that another test is starting has this one's open files until it runs its own program.
        let end = Instant::now() + Duration::from_secs(10);
        while let Err(error) = quire_sys::mounts::unmount(&self.mnt, false) {
            assert!(error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if quire_sys::mounts::is_orphaned(&self.mnt) {
            let _ = quire_sys::mounts::unmount(&self.mnt, true);
        }
    }
}

/// A mount that is served by this process.
pub struct Running {
    mounted: Option<Mount>,
    path: PathBuf,
}

impl Running {
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn root(&self) -> &Path {
        &self.path
    }

    pub fn mounted(&self) -> &Mount {
        self.mounted.as_ref().unwrap()
    }

    /// Unmounts; with `drain` everything reaches the directory. Returns the last figures.
    pub fn end(mut self, drain: bool) -> Value {
        let mounted = self.mounted.take().unwrap();
        // A child that another test has just forked holds our open files until it runs its program.
        let limit = Instant::now() + Duration::from_secs(10);
        while let Err(error) = mounted.unmounter().remove(false) {
            assert!(error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < limit, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted.finish(drain.then_some(&mut |_| {})).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmounter().remove(true);
            // The test has failed already; what counts is that nothing stays mounted.
            let _ = mounted.finish(None);
        }
    }
}

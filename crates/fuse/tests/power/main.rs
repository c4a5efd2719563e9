//! Power cuts under a mount. Both disks are block devices that remember every write and flush; after each flush of either,
//! and right before it, power may go. What the disks hold then (each what it has flushed, and any part of the rest) is
//! given to ext4 and to a new mount, and everything that had been acknowledged by then has to be there.
//!
//! `QUIRE_POWER_CUTS` sets how many of the cuts are tried (default 16, spread over all; `all` for all), `QUIRE_POWER_SEED`
//! what becomes of unflushed sectors. Needs root and loop devices; where there are none it says so and passes.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;
mod failures;
mod lab;
mod recorder;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quire_rng::SplitMix64;

use common::{possible, skipped};
use lab::{FileSystem, Loop, empty_file_system};
use quire_fuse::{Mount, MountConfig};
use quire_writecache::{AdmissionPolicy, TaskGraph};
use recorder::{History, Recording};

const DISK_BYTES: u64 = 24 << 20;
const LOG_BYTES: u64 = 16 << 20;
const ROUNDS: u64 = 24;
const BLOCK: u64 = 5000;
const PAGES: u64 = 16;
const PAGE: u64 = 4096;

/// What a program was told, and when.
struct Promise {
    since: usize,
    /// When the program itself began to change that again.
    until: usize,
    what: What,
}

enum What {
    /// The log has so many blocks.
    Logged(u64),
    /// `current` is this version, or a later one.
    Current(u64),
    /// The page of `data` has this version, or a later one.
    Page(u64, u64),
    /// `cut` is exactly so long.
    Cut(u64),
    /// There is no such name.
    Gone(String),
    /// There is, with so many bytes of this version.
    There(String, u64),
}

/// For one test at a time. A command that another test of this process starts holds copies of all descriptors until its
/// `exec`: the mount would be busy and its directory still locked.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn version(version: u64, len: u64) -> Vec<u8> {
    vec![version as u8 + 1; len as usize]
}

/// A program that keeps a log, replaces a file, writes pages and flushes them later, cuts, links and removes.
struct Program<'a> {
    root: &'a Path,
    history: &'a History,
    promises: Vec<Promise>,
}

impl Program<'_> {
    fn told(&mut self, what: What) {
        self.promises.push(Promise { since: self.history.now(), until: usize::MAX, what });
    }

    /// What was promised of `cut` is about to change.
    fn void_cuts(&mut self) {
        let now = self.history.now();
        let cuts = self.promises.iter_mut().filter(|promise| matches!(promise.what, What::Cut(_)));
        cuts.for_each(|promise| promise.until = promise.until.min(now));
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn sync_root(&self) {
        File::open(self.root).unwrap().sync_all().unwrap();
    }

    fn run(&mut self) {
        let log = File::create(self.at("log")).unwrap();
        let data = File::create(self.at("data")).unwrap();
        let cut = File::create(self.at("cut")).unwrap();
        for round in 0..ROUNDS {
            log.write_all_at(&version(round, BLOCK), round * (BLOCK - 500)).unwrap();
            if round % 2 == 0 { log.sync_data() } else { log.sync_all() }.unwrap();
            self.told(What::Logged(round + 1));
            for page in 0..PAGES / 2 {
                data.write_all_at(&version(round, PAGE), (round + page) % PAGES * PAGE).unwrap();
            }
            if round % 3 == 2 {
                data.sync_all().unwrap();
                for page in 0..PAGES / 2 {
                    self.told(What::Page((round + page) % PAGES, round));
                }
            }
            match round % 4 {
                0 => self.replace(round),
                1 => {
                    let len = 30_000 - round * 1000;
                    self.void_cuts();
                    cut.write_all_at(&[9; 20_000], 15_000).unwrap();
                    cut.set_len(len).unwrap();
                    cut.sync_all().unwrap();
                    self.told(What::Cut(len));
                }
                2 => self.link_and_remove(round),
                _ => {}
            }
        }
    }

    fn replace(&mut self, round: u64) {
        let file = File::create(self.at("next")).unwrap();
        file.write_all_at(&version(round, 10_000), 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs::rename(self.at("next"), self.at("current")).unwrap();
        self.sync_root();
        self.told(What::Current(round));
    }

    fn link_and_remove(&mut self, round: u64) {
        let (old, new) = (format!("old-{round}"), format!("new-{round}"));
        let file = File::create(self.at(&old)).unwrap();
        file.write_all_at(&version(round, 9_000), 0).unwrap();
        fs::hard_link(self.at(&old), self.at(&new)).unwrap();
        file.sync_all().unwrap();
        fs::remove_file(self.at(&old)).unwrap();
        self.sync_root();
        self.told(What::Gone(old));
        self.told(What::There(new, round));
    }
}

/// Whether everything that was promised by then is there.
fn check(root: &Path, promises: &[Promise], cut: usize) -> Result<(), String> {
    for promise in promises.iter().filter(|promise| promise.since <= cut && cut <= promise.until) {
        keeps(root, &promise.what)?;
    }
    Ok(())
}

fn keeps(root: &Path, what: &What) -> Result<(), String> {
    let read = |name: &str| fs::read(root.join(name)).map_err(|error| format!("{name}: {error}"));
    let all = |bytes: &[u8], wanted: u64| bytes.iter().all(|&byte| byte == wanted as u8 + 1);
    let verdict = |holds: bool, words: String| if holds { Ok(()) } else { Err(words) };
    match what {
        What::Logged(blocks) => {
            let bytes = read("log")?;
            let step = (BLOCK - 500) as usize;
            let holds = (0..*blocks).all(|block| {
                let from = block as usize * step;
                bytes.get(from..from + step).is_some_and(|bytes| all(bytes, block))
            });
            verdict(holds, format!("{blocks} blocks of the log were acknowledged, {} bytes are there", bytes.len()))
        }
        What::Current(wanted) => {
            let bytes = read("current")?;
            let found = u64::from(*bytes.first().ok_or("current is empty")?) - 1;
            let holds = found >= *wanted && bytes.len() == 10_000 && all(&bytes, found);
            verdict(holds, format!("current is of version {found} and {} bytes, not {wanted}", bytes.len()))
        }
        What::Page(page, wanted) => {
            let bytes = read("data")?;
            let from = (page * PAGE) as usize;
            let bytes = bytes.get(from..from + PAGE as usize).ok_or_else(|| format!("no page {page}"))?;
            // What came later may be there in part: pages are written over without a promise.
            let holds = bytes.iter().all(|&byte| u64::from(byte) > *wanted);
            verdict(holds, format!("page {page} is of version {}, not {wanted}", i64::from(bytes[0]) - 1))
        }
        What::Cut(len) => {
            let bytes = read("cut")?;
            let (zeros, rest) = bytes.split_at(bytes.len().min(15_000));
            let holds = bytes.len() as u64 == *len && zeros.iter().all(|&byte| byte == 0);
            verdict(holds && rest.iter().all(|&byte| byte == 9), format!("cut has {} bytes, not {len}", bytes.len()))
        }
        What::Gone(name) => verdict(!root.join(name).exists(), format!("{name} is there again")),
        What::There(name, wanted) => {
            let bytes = read(name)?;
            verdict(bytes.len() == 9_000 && all(&bytes, *wanted), format!("{name} has {} bytes", bytes.len()))
        }
    }
}

struct Bench {
    scratch: tempfile::TempDir,
    start: [Vec<u8>; 2],
    policy: AdmissionPolicy,
}

impl Bench {
    fn new(policy: AdmissionPolicy) -> Result<Self, String> {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        for name in ["disks", "fs", "mnt"] {
            fs::create_dir(scratch.path().join(name)).map_err(|error| error.to_string())?;
        }
        let slow = empty_file_system(scratch.path(), DISK_BYTES)?;
        Ok(Self { scratch, start: [slow, vec![0; LOG_BYTES as usize]], policy })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn mount(&self, log: &Loop) -> Result<Mount, String> {
        let backing = self.at("fs").join("data");
        fs::create_dir_all(&backing).map_err(|error| error.to_string())?;
        let mut config = MountConfig::new(backing, self.at("mnt"), &log.device);
        config.cache.policy = self.policy;
        config.cache.capacity_bytes = LOG_BYTES;
        config.cache.tasks = TaskGraph::new();
        config.critical = vec!["*".into()];
        Mount::start(&config).map_err(|error| error.to_string())
    }

    /// Has the program run over disks that remember. `None` if such disks can't be had here.
    fn record(&self) -> Result<(History, Vec<Promise>), String> {
        let recording = Recording::start(&self.at("disks"), &self.start);
        let (slow, fast) = (Loop::over(&recording.disk(0))?, Loop::over(&recording.disk(1))?);
        let system = FileSystem::on(&slow, &self.at("fs"))?;
        let mounted = self.mount(&fast)?;
        let root = self.at("mnt");
        let mut program = Program { root: &root, history: &recording.history, promises: Vec::new() };
        program.run();
        let promises = program.promises;
        mounted.unmounter().remove(false).map_err(|error| error.to_string())?;
        mounted.finish(None).map_err(|error| error.to_string())?;
        drop(system);
        Ok((recording.history.clone(), promises))
    }

    /// Mounts what a power cut has left, and looks.
    fn recover(&self, disks: &[Vec<u8>; 2], promises: &[Promise], cut: usize) -> Result<(), String> {
        let told = |error: std::io::Error| error.to_string();
        let files = ["slow-image", "fast-image"].map(|name| self.at(name));
        for (file, bytes) in files.iter().zip(disks) {
            fs::write(file, bytes).map_err(told)?;
        }
        let (slow, fast) = (Loop::over(&files[0])?, Loop::over(&files[1])?);
        let _system = FileSystem::on(&slow, &self.at("fs"))?;
        let mounted = self.mount(&fast)?;
        let seen = check(&self.at("mnt"), promises, cut);
        mounted.unmounter().remove(false).map_err(told)?;
        mounted.finish(Some(&mut |_| {})).map_err(|error| error.to_string())?;
        seen?;
        check(&self.at("fs").join("data"), promises, cut).map_err(|error| format!("in the directory: {error}"))
    }
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn cut_power(policy: AdmissionPolicy, share: usize) {
    let bench = match Bench::new(policy) {
        Ok(bench) if quire_sys::task::user_of(std::process::id()) == Some(0) => bench,
        Ok(_) => return skipped("block devices take root"),
        Err(error) => return skipped(&error),
    };
    let (history, promises) = match bench.record() {
        Err(error) if error.contains("losetup") => return skipped(&error),
        recorded => recorded.unwrap(),
    };
    let seed = setting("QUIRE_POWER_SEED").and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = SplitMix64::new(seed);
    let cuts = history.cuts();
    let wanted = match setting("QUIRE_POWER_CUTS").as_deref() {
        Some("all") => cuts.len(),
        Some(text) => text.parse().unwrap(),
        None => share,
    };
    let wanted = wanted.clamp(1, cuts.len());
    for number in 0..wanted {
        // Another one of each stretch every time the seed changes.
        let stretch = cuts.len() / wanted;
        let cut = cuts[number * cuts.len() / wanted + rng.below(stretch as u64) as usize];
        let disks = history.after_cut(&bench.start, cut, &mut rng);
        if let Err(error) = bench.recover(&disks, &promises, cut) {
            panic!("{policy}, seed {seed}, power cut after event {cut} of {}: {error}", history.now());
        }
    }
    println!("{policy}: {wanted} of {} power cuts, {} promises kept", cuts.len(), promises.len());
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_flush() {
    if !possible() {
        return;
    }
    let _alone = alone();
    cut_power(AdmissionPolicy::CriticalProcessIo, 8);
    cut_power(AdmissionPolicy::All, 8);
}

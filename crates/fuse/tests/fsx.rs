//! Random operations on a few files of a mount, compared with plain arrays of bytes after each, in the manner of `fsx`: reads,
//! writes, mapped stores, cuts, growth, zeroed ranges, flushes, renames, closing and opening, and now and then a remount, or the end of the daemon
//! by SIGKILL.
//!
//! `QUIRE_FSX_OPS` sets how many (default 300 a policy), `QUIRE_FSX_SEED` where to begin.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use quire_rng::SplitMix64;

use common::{Daemon, Place, possible};
use quire_sys::shared_map::SharedMap;
use quire_writecache::AdmissionPolicy;

const FILES: usize = 3;
const MOST_LEN: u64 = 300_000;
const PAGE: u64 = 4096;

struct Model {
    name: String,
    bytes: Vec<u8>,
    file: Option<File>,
}

impl Model {
    fn file(&mut self, run: &Daemon) -> &File {
        let path = run.at(&self.name);
        self.file.get_or_insert_with(|| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        })
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn check(&mut self, run: &Daemon, what: &str) {
        let mut got = vec![0; self.bytes.len() + 100];
        let file = self.file(run);
        let mut len = 0;
        loop {
            match file.read_at(&mut got[len..], len as u64).unwrap() {
                0 => break,
                read => len += read,
            }
        }
        assert_eq!(len, self.bytes.len(), "{what}: length of {}", self.name);
        if let Some(at) = got[..len].iter().zip(&self.bytes).position(|(got, wanted)| got != wanted) {
            panic!("{what}: {} differs at {at}: {} instead of {}", self.name, got[at], self.bytes[at]);
        }
    }
}

fn step(rng: &mut SplitMix64, run: &Daemon, files: &mut [Model], number: u64) -> String {
    let index = rng.below(FILES as u64) as usize;
    let model = &mut files[index];
    let len = model.bytes.len() as u64;
    let offset = if rng.below(2) == 0 { rng.below(MOST_LEN) } else { rng.below(len + 1) };
    let size = if rng.below(4) == 0 { rng.below(60_000) } else { rng.below(9_000) } as usize + 1;
    match rng.below(16) {
        0..=4 => {
            let bytes = rng.bytes(size);
            model.file(run).write_all_at(&bytes, offset).unwrap();
            model.write(offset as usize, &bytes);
            format!("write {size} at {offset}")
        }
        5 => {
            // Whole pages, as databases write them.
            let bytes = rng.bytes(2 * PAGE as usize);
            let offset = offset / PAGE * PAGE;
            model.file(run).write_all_at(&bytes, offset).unwrap();
            model.write(offset as usize, &bytes);
            format!("write two pages at {offset}")
        }
        6 | 7 => {
            let len = if rng.below(2) == 0 { offset } else { rng.below(len + 1) };
            model.file(run).set_len(len).unwrap();
            model.bytes.resize(len as usize, 0);
            format!("cut to {len}")
        }
        8 | 9 => store_mapped(rng, run, model),
        10 => {
            model.file(run).sync_all().unwrap();
            "flush".into()
        }
        11 => {
            model.file(run).sync_data().unwrap();
            "flush data".into()
        }
        12 => {
            let name = format!("renamed-{number}");
            model.file(run);
            fs::rename(run.at(&model.name), run.at(&name)).unwrap();
            model.name = name;
            "rename".into()
        }
        13 => punch(run, model, offset, size as u64),
        14 => {
            model.file = None;
            "close".into()
        }
        _ => {
            let mut got = vec![0; size];
            let read = model.file(run).read_at(&mut got, offset).unwrap();
            let end = (offset as usize + read).min(model.bytes.len());
            assert!(offset >= len || got[..read] == model.bytes[offset as usize..end], "read {size} at {offset}");
            format!("read {size} at {offset}")
        }
    }
}

/// Makes a hole, within the file's length.
fn punch(run: &Daemon, model: &mut Model, offset: u64, size: u64) -> String {
    let size = size.min((model.bytes.len() as u64).saturating_sub(offset));
    if size > 0 {
        quire_sys::map::punch_hole(model.file(run), offset, size).unwrap();
        model.bytes[offset as usize..(offset + size) as usize].fill(0);
    }
    format!("punch {size} at {offset}")
}

/// Stores words through a mapping, within the file's length.
fn store_mapped(rng: &mut SplitMix64, run: &Daemon, model: &mut Model) -> String {
    let words = model.bytes.len() / 8;
    if words == 0 {
        return "nothing to map".into();
    }
    let pages = model.bytes.len().next_multiple_of(PAGE as usize);
    let map = SharedMap::new(model.file(run), pages).unwrap();
    let from = rng.below(words as u64) as usize;
    let count = (rng.below(2_000) as usize + 1).min(words - from);
    for at in from..from + count {
        let value = rng.below(u64::MAX);
        map.words()[at].store(value, Ordering::Relaxed);
        model.bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }
    if rng.below(2) == 0 {
        map.sync(0..pages).unwrap();
    }
    format!("store {count} words at {}", from * 8)
}

/// How a mount ends now and then.
#[derive(Clone, Copy, PartialEq)]
enum MountEnd {
    /// Unmounted, with or without draining.
    Unmounted,
    /// Killed after a flush of all files, while the directory lags behind with truncations.
    KilledWhileCutsLag,
}

fn run(policy: AdmissionPolicy, seed: u64, ops: u64, ending: MountEnd) {
    let place = Place::new(policy);
    let mut rng = SplitMix64::new(seed);
    let mut drain = true;
    let lag = ["env", "QUIRE_TEST_CUT_MS=100"];
    let starter = if ending == MountEnd::KilledWhileCutsLag { &lag[..] } else { &[] };
    let mut run = place.serve_under(starter, drain);
    let mut files: Vec<Model> =
        (0..FILES).map(|number| Model { name: format!("file-{number}"), bytes: Vec::new(), file: None }).collect();
    for model in &mut files {
        model.file(&run);
    }
    let mut history = Vec::new();
    for number in 0..ops {
        let done = step(&mut rng, &run, &mut files, number);
        history.push(done);
        if rng.below(10) == 0 {
            let what =
                format!("{policy}, seed {seed}, after {number}: {:?}", &history[history.len().saturating_sub(8)..]);
            files.iter_mut().for_each(|model| model.check(&run, &what));
        }
        if ending == MountEnd::KilledWhileCutsLag && rng.below(30) == 0 {
            for model in &mut files {
                model.file(&run).sync_all().unwrap();
                model.file = None;
            }
            run.kill();
            run = place.serve_under(starter, drain);
            history.push("kill".into());
        }
        if rng.below(150) == 0 {
            files.iter_mut().for_each(|model| model.file = None);
            run.unmount();
            if drain {
                compare(&place, &files, &format!("{policy}, seed {seed}, drained after {number}"));
            }
            drain = rng.below(2) == 0;
            run = place.serve_under(starter, drain);
            history.push("remount".into());
        }
    }
    files.iter_mut().for_each(|model| model.check(&run, &format!("{policy}, seed {seed}, at the end")));
    files.iter_mut().for_each(|model| model.file = None);
    run.unmount();
    place.serve(true).unmount();
    compare(&place, &files, &format!("{policy}, seed {seed}, in the directory"));
}

fn compare(place: &Place, files: &[Model], what: &str) {
    for model in files {
        assert!(fs::read(place.slow(&model.name)).unwrap() == model.bytes, "{what}: {} differs", model.name);
    }
}

/// Nothing by itself: this is what the process does that serves the mount.
#[test]
fn serve_if_asked() {
    common::serve_if_asked();
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_operations_leave_what_an_array_of_bytes_would_hold() {
    if !possible() {
        return;
    }
    let (ops, seed) = (setting("QUIRE_FSX_OPS", 300), setting("QUIRE_FSX_SEED", 1));
    for (index, policy) in
        [AdmissionPolicy::All, AdmissionPolicy::Sync, AdmissionPolicy::CriticalProcessIo].into_iter().enumerate()
    {
        run(policy, seed + index as u64, ops, MountEnd::Unmounted);
    }
}

#[test]
fn random_operations_outlive_a_killed_daemon_while_the_directory_lags_behind_with_truncations() {
    if !possible() {
        return;
    }
    let (ops, seed) = (setting("QUIRE_FSX_OPS", 300), setting("QUIRE_FSX_SEED", 1));
    for (index, policy) in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo].into_iter().enumerate() {
        run(policy, seed + 10 + index as u64, ops, MountEnd::KilledWhileCutsLag);
    }
}

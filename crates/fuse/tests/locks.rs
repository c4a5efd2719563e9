//! A critical task that wants a file which another one flushes, over a slow device that is stuck until the test frees it: it
//! sleeps in the kernel on the file's lock, and gets on because the task that holds it inherits.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use quire_device::IoGate;
use quire_fuse::CriticalityRules;
use quire_writecache::{AdmissionPolicy, TaskGraph};

use crate::common::{Place, Running, possible, skipped};

/// Lets a test that fails end.
struct FreedByPanic<'a>(&'a IoGate);

impl Drop for FreedByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.open();
        }
    }
}

const MIB: usize = 1 << 20;

struct Scene {
    place: Place,
    run: Running,
    gate: IoGate,
}

/// A mount with a file that is all there, and a slow device that is stuck from now on.
fn scene(rules: &str) -> Option<Scene> {
    if !possible() {
        return None;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    place.config.cache.tasks = TaskGraph::new();
    place.config.rules = CriticalityRules::parse(rules).unwrap();
    let gate = IoGate::default();
    let same = gate.clone();
    place.config.wrap_slow = Some(Arc::new(move |inner| same.before(inner)));
    let run = place.mount();
    if run.mounted().stats()["file_locks"].is_null() {
        skipped("the system doesn't tell what threads sleep in");
        return None;
    }
    std::fs::create_dir(run.at("pg_wal")).unwrap();
    for name in ["table", "pg_wal/1"] {
        let file = File::create(run.at(name)).unwrap();
        file.write_all_at(&[1; MIB], 0).unwrap();
        file.sync_all().unwrap();
    }
    gate.close();
    Some(Scene { place, run, gate })
}

impl Scene {
    fn open(&self, name: &str) -> File {
        File::options().write(true).open(self.run.at(name)).unwrap()
    }

    fn flushes(&self) -> u64 {
        self.run.mounted().stats()["requests"]["flushes"].as_u64().unwrap()
    }

    fn inherited(&self) -> u64 {
        self.run.mounted().stats()["file_locks"]["inherited"].as_u64().unwrap()
    }

    /// Writes all of a file and flushes it in a thread of this name, while `wanted` is done as soon as it is being flushed.
    fn while_flushed(&self, by: &str, name: &str, wanted: impl FnOnce()) {
        let file = self.open(name);
        let before = self.flushes();
        thread::scope(|threads| {
            let flush = move || {
                file.write_all_at(&[2; MIB], 0).unwrap();
                file.sync_all().unwrap();
            };
            thread::Builder::new().name(by.into()).spawn_scoped(threads, flush).unwrap();
            while self.flushes() == before {
                thread::yield_now();
            }
            let _free = FreedByPanic(&self.gate);
            wanted();
        });
    }

    /// Everything got on while the slow device was stuck; it works again, and the file ends up there.
    fn end(self, name: &str, first: u8) {
        self.gate.open();
        self.run.end(true);
        let bytes = std::fs::read(self.place.slow(name)).unwrap();
        assert_eq!((bytes[0], bytes[4096], bytes.len()), (first, 2, MIB));
    }
}

fn as_critical(work: impl FnOnce() + Send) {
    thread::scope(|threads| {
        thread::Builder::new().name("critical".into()).spawn_scoped(threads, work).unwrap();
    });
}

#[test]
fn a_critical_thread_gets_the_lock_of_a_file_that_another_flushes_to_a_stuck_device() {
    let Some(scene) = scene("critical thread=critical") else { return };
    let file = scene.open("table");
    scene.while_flushed("checkpointer", "table", || {
        as_critical(|| {
            // It is known only once it has asked for something.
            let _known = scene.open("table");
            file.write_all_at(&[3; 4096], 0).unwrap();
            file.sync_all().unwrap();
        });
    });
    assert!(scene.inherited() > 0);
    drop(file);
    scene.end("table", 3);
}

#[test]
fn a_critical_process_that_has_only_just_opened_the_file_gets_its_lock() {
    let Some(scene) = scene("critical comm=dd") else { return };
    let into = format!("of={}", scene.run.at("table").display());
    scene.while_flushed("checkpointer", "table", || {
        let words = ["if=/dev/zero", &into, "bs=4k", "count=1", "conv=notrunc,fdatasync", "status=none"];
        assert!(Command::new("dd").args(words).status().unwrap().success());
    });
    assert!(scene.inherited() > 0);
    scene.end("table", 0);
}

#[test]
fn others_make_way_while_a_critical_thread_flushes_a_directory() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    place.config.cache.tasks = TaskGraph::new();
    place.config.rules = CriticalityRules::parse("critical thread=critical").unwrap();
    let run = place.mount();
    std::fs::create_dir(run.at("folder")).unwrap();
    let folder = File::open(run.at("folder")).unwrap();
    let uses = || run.mounted().stats()["cache"]["critical_slow_uses"].as_u64().unwrap();
    let before = uses();
    folder.sync_all().unwrap();
    assert_eq!(uses(), before, "this thread is not critical");
    as_critical(|| folder.sync_all().unwrap());
    assert_eq!(uses(), before + 1);
    drop(folder);
    run.end(true);
}

#[test]
fn a_task_that_counts_at_logs_flushes_one_fast_and_other_files_when_a_critical_one_waits() {
    let Some(scene) = scene("log thread=checkpointer\ncritical thread=critical\nwal path~\"^pg_wal/\"") else { return };
    scene.while_flushed("checkpointer", "pg_wal/1", || ());
    assert_eq!(scene.inherited(), 0, "no thread had to wait");
    let file = scene.open("table");
    scene.while_flushed("checkpointer", "table", || {
        as_critical(|| {
            let _known = scene.open("table");
            file.write_all_at(&[3; 4096], 0).unwrap();
        });
    });
    assert!(scene.inherited() > 0);
    drop(file);
    scene.end("table", 3);
}

//! Hundreds of requests that wait for a slow device which is stuck: the mount goes on serving all other programs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quire_device::IoGate;
use quire_fuse::CriticalityRules;
use quire_writecache::{AdmissionPolicy, TaskGraph};

use crate::common::{Place, possible};

/// More than there are readers and helpers for requests that wait.
const CLIENTS: usize = 300;

#[test]
fn what_does_not_wait_for_the_device_is_served_while_hundreds_of_flushes_wait_for_it() {
    if !possible() {
        return;
    }
    let mut place = Place::new(AdmissionPolicy::CriticalProcessIo);
    place.config.cache.tasks = TaskGraph::new();
    place.config.rules = CriticalityRules::parse("critical thread=critical").unwrap();
    let gate = IoGate::default();
    let same = gate.clone();
    place.config.wrap_slow = Some(Arc::new(move |inner| same.before(inner)));
    let run = place.mount();
    let file = |name: &str| {
        let file = File::create(run.at(name)).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    let files: Vec<File> = (0..CLIENTS).map(|number| file(&format!("f{number}"))).collect();
    let critical = file("critical");
    drop(file("idle"));
    gate.close();
    let flushes = || run.mounted().stats()["requests"]["flushes"].as_u64().unwrap();
    let (before, ended) = (flushes(), AtomicUsize::new(0));
    thread::scope(|threads| {
        for file in &files {
            let ended = &ended;
            threads.spawn(move || {
                file.write_all_at(&[2; 4096], 0).unwrap();
                file.sync_all().unwrap();
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let _free = Freed(&gate);
        let limit = Instant::now() + Duration::from_secs(120);
        // So many are served at a time; all are asked for.
        while flushes() < before + 256 {
            assert!(Instant::now() < limit, "{} flushes of {CLIENTS}", flushes() - before);
            thread::sleep(Duration::from_millis(5));
        }
        // Each of these would hang if the readers did, and the test with it.
        assert_eq!(fs::read_dir(run.root()).unwrap().count(), CLIENTS + 2);
        assert_eq!(fs::metadata(run.at("f7")).unwrap().len(), 4096);
        fs::rename(run.at("idle"), run.at("renamed")).unwrap();
        fs::create_dir(run.at("dir")).unwrap();
        assert!(quire_sys::xattr::get_at(run.root(), "user.quire.stats").unwrap().starts_with(b"{"));
        let wants = || {
            critical.write_all_at(&[3; 4096], 0).unwrap();
            critical.sync_all().unwrap();
            File::open(run.at("dir")).unwrap().sync_all().unwrap();
        };
        thread::scope(|inner| drop(thread::Builder::new().name("critical".into()).spawn_scoped(inner, wants).unwrap()));
        assert_eq!(ended.load(Ordering::Relaxed), 0, "the device was stuck all the time");
    });
    assert_eq!(ended.load(Ordering::Relaxed), CLIENTS);
    drop((files, critical));
    run.end(true);
    assert_eq!(fs::read(place.slow("critical")).unwrap(), [3; 4096]);
    assert_eq!(fs::read(place.slow("f7")).unwrap(), [2; 4096]);
    assert_eq!(fs::read(place.slow("renamed")).unwrap(), [1; 4096]);
}

/// The device works again, whether the test goes on or fails.
struct Freed<'a>(&'a IoGate);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

//! A daemon that is killed at any time (`kill -9`) loses no flushed byte: the next mount finds them all.
//!
//! The daemon is this test program, started again to serve. `QUIRE_KILL_ROUNDS` sets how often it is killed (default 3).

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Place, possible};
use quire_writecache::AdmissionPolicy;

const POLICIES: [AdmissionPolicy; 3] =
    [AdmissionPolicy::All, AdmissionPolicy::Sync, AdmissionPolicy::CriticalProcessIo];

/// Nothing by itself: this is what the daemon of the other tests does.
#[test]
fn serve_if_asked() {
    common::serve_if_asked();
}

/// Writes numbered blocks, each flushed, to a file of its own until the mount is gone; returns how many were acknowledged.
fn write_until_killed(path: &Path, begun: &AtomicBool) -> u64 {
    let Ok(file) = File::options().create(true).truncate(false).write(true).open(path) else { return 0 };
    let mut done = 0;
    loop {
        let block = [(done as u8).wrapping_add(1); 5000];
        // One length every time, at odd places, so that blocks are written over and grow.
        if file.write_all_at(&block, done * 4500).is_err() || file.sync_data().is_err() {
            return done;
        }
        done += 1;
        begun.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_killed_daemon_loses_no_flushed_byte() {
    if !possible() {
        return;
    }
    let rounds = std::env::var("QUIRE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for round in 0..rounds {
        let place = Place::new(POLICIES[round % POLICIES.len()]);
        let mut daemon = place.serve(false);
        let begun: Vec<AtomicBool> = (0..3).map(|_| AtomicBool::new(false)).collect();
        let acknowledged: Vec<u64> = std::thread::scope(|scope| {
            let write = |number: usize| {
                let path = place.config.mount_point.join(format!("file-{number}"));
                let begun = &begun[number];
                scope.spawn(move || write_until_killed(&path, begun))
            };
            let writers: Vec<_> = (0..3).map(write).collect();
            while !begun.iter().all(|begun| begun.load(Ordering::Relaxed)) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50 + 40 * round as u64 % 400));
            daemon.kill();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let daemon = place.serve(false);
        assert!(daemon.line.ends_with(" 0 lost"), "{}", daemon.line);
        check(&place.config.mount_point, &acknowledged, round);
        daemon.unmount();
    }
}

fn check(mnt: &Path, acknowledged: &[u64], round: usize) {
    for (number, &done) in acknowledged.iter().enumerate() {
        let bytes = fs::read(mnt.join(format!("file-{number}"))).unwrap();
        for block in 0..done {
            let (at, value) = (block as usize * 4500, (block as u8).wrapping_add(1));
            // The rest may be the next block's already.
            let whole = bytes.len() >= at + 4500 && bytes[at..at + 4500].iter().all(|&byte| byte == value);
            assert!(whole, "round {round}: block {block} of {done} in file {number}");
        }
        assert!(done > 0 && bytes.len() as u64 >= (done - 1) * 4500 + 5000);
    }
}

#[test]
fn files_that_were_renamed_linked_cut_or_removed_are_found_as_they_were() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let mut daemon = place.serve(false);
    let at = |name: &str| place.config.mount_point.join(name);
    let write = |name: &str, len: usize| {
        let file = File::create(at(name)).unwrap();
        file.write_all_at(&vec![3; len], 0).unwrap();
        file.sync_all().unwrap();
        file
    };
    write("a", 10_000);
    fs::rename(at("a"), at("b")).unwrap();
    write("c", 10_000).set_len(5_000).unwrap();
    let cut = File::options().write(true).open(at("c")).unwrap();
    cut.sync_all().unwrap();
    write("d", 10_000);
    fs::hard_link(at("d"), at("e")).unwrap();
    fs::remove_file(at("d")).unwrap();
    write("gone", 10_000);
    fs::remove_file(at("gone")).unwrap();
    daemon.kill();
    drop(cut);
    let daemon = place.serve(false);
    assert!(daemon.line.ends_with(" 0 lost"), "{}", daemon.line);
    let len = |name: &str| fs::read(at(name)).map(|bytes| (bytes.len(), bytes.iter().all(|&byte| byte == 3)));
    assert_eq!(len("b").unwrap(), (10_000, true));
    assert_eq!(len("c").unwrap(), (5_000, true));
    assert_eq!(len("e").unwrap(), (10_000, true));
    let mut names: Vec<_> = fs::read_dir(at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "c", "e"]);
    daemon.unmount();
}

//! Bytes that the slow disk refuses after a program has closed its file: the program that flushes that file hears of it,
//! once, whatever became of the file's name, of what the mount remembers, and of the mount.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use quire_fuse::{Mount, MountError};
use quire_writecache::AdmissionPolicy;

use super::common::{possible, skipped};
use super::lab::{FileSystem, Loop};
use super::recorder::{History, Recording};
use super::{Bench, alone};

const REFUSED: u8 = 0xa5;

/// Flushes a file as a program does that opens it for that.
fn flush(path: &Path) -> io::Result<()> {
    File::options().write(true).open(path).unwrap().sync_all()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes files that the disk refuses, and waits until no program has them in use.
fn lose(root: &Path, mounted: &Mount, history: &History, names: &[String]) {
    history.refuse(Some(REFUSED));
    names.iter().for_each(|name| fs::write(root.join(name), [REFUSED; 8192]).unwrap());
    all_closed(mounted);
    history.refuse(None);
}

/// The kernel tells of a file's closing when that is over.
fn all_closed(mounted: &Mount) {
    let in_use = || mounted.stats()["files_in_use"].as_u64().unwrap();
    wait_until("the files are in use", || in_use() == 0);
}

fn end(mounted: Mount) -> Result<(), MountError> {
    mounted.unmounter().remove(false).unwrap();
    mounted.finish(None).map(drop)
}

/// A program closes a file while the mount flushes that on its own; the flush fails later.
fn close_during_a_flush(mounted: &Mount, history: &History, path: &Path) {
    history.hold(true);
    history.refuse(Some(REFUSED));
    let mut file = File::create(path).unwrap();
    file.write_all(&[REFUSED; 8192]).unwrap();
    wait_until("no thread flushes the file", || history.waiting() > 0);
    drop(file);
    // The kernel tells the mount of the closing soon.
    for _ in 0..20 {
        if mounted.stats()["files_in_use"] == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    history.hold(false);
    all_closed(mounted);
    history.refuse(None);
    assert!(flush(path).is_err(), "closed during a flush that failed");
    all_closed(mounted);
}

#[test]
fn a_program_that_flushes_a_closed_file_hears_that_its_bytes_are_lost() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let bench = match Bench::new(AdmissionPolicy::CriticalProcessIo) {
        Ok(bench) if quire_sys::task::user_of(std::process::id()) == Some(0) => bench,
        Ok(_) => return skipped("block devices take root"),
        Err(error) => return skipped(&error),
    };
    let recording = Recording::start(&bench.at("disks"), &bench.start);
    let (slow, fast) = match Loop::over(&recording.disk(0)) {
        Ok(slow) => (slow, Loop::over(&recording.disk(1)).unwrap()),
        Err(error) => return skipped(&error),
    };
    let _system = FileSystem::on(&slow, &bench.at("fs")).unwrap();
    let root = bench.at("mnt");
    let mounted = bench.mount(&fast).unwrap();
    // Few are flushed one by one, many at once.
    for (kind, count) in [("few", 3), ("many", 24)] {
        let names: Vec<String> = (0..count).map(|number| format!("{kind}-{number}")).collect();
        lose(&root, &mounted, &recording.history, &names);
        fs::rename(root.join(&names[0]), root.join(format!("{kind}-renamed"))).unwrap();
        assert!(flush(&root.join(format!("{kind}-renamed"))).is_err(), "renamed, of {kind}");
        fs::remove_file(root.join(&names[1])).unwrap();
        fs::write(root.join(&names[1]), b"another file").unwrap();
        flush(&root.join(&names[1])).unwrap();
        for name in &names[2..] {
            assert!(flush(&root.join(name)).is_err(), "{name}");
        }
        all_closed(&mounted);
        for name in &names[2..] {
            assert!(flush(&root.join(name)).is_ok(), "{name}, of which a program has been told");
        }
    }
    // Closed while the mount flushes it, which fails then.
    close_during_a_flush(&mounted, &recording.history, &root.join("closed"));
    // No program asks before the mount ends: that says so, and the next mount tells.
    let names = ["left".to_owned(), "removed".to_owned()];
    lose(&root, &mounted, &recording.history, &names);
    fs::remove_file(root.join("removed")).unwrap();
    let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(root.join(name)).unwrap());
    let left = inode("left");
    match end(mounted) {
        Err(MountError::Untold { files }) => assert!(files.contains(&format!("inode {left}")), "{files:?}"),
        ended => panic!("{ended:?}"),
    }
    let mounted = bench.mount(&fast).unwrap();
    assert!(flush(&root.join("left")).is_err(), "after a new mount");
    all_closed(&mounted);
    assert!(flush(&root.join("left")).is_ok());
    end(mounted).unwrap();
}

//! More files than the daemon may have open: listings are whole, every file is found again, and new ones can be made.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

use quire_writecache::AdmissionPolicy;

use crate::common::{Daemon, Place, possible, skipped};

const FILES: usize = 1200;

/// Has a daemon serve that may have 160 files open, and lacks these capabilities besides that of raising the limit.
fn serve(place: &Place, without: &str) -> Daemon {
    let bounds = format!("--bounding-set=-sys_resource{without}");
    place.serve_under(&["prlimit", "--nofile=160:160", "setpriv", &bounds], true)
}

fn can_be_limited() -> bool {
    let is_root = quire_sys::task::user_of(std::process::id()) == Some(0);
    let tried = || Command::new("setpriv").args(["--bounding-set=-sys_resource", "true"]).status();
    is_root && tried().is_ok_and(|status| status.success())
}

fn use_many(without: &str) {
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    for number in 0..FILES {
        fs::write(place.slow(&format!("old-{number}")), format!("{number}")).unwrap();
    }
    let daemon = serve(&place, without);
    let names = |prefix: &str| {
        let entries = fs::read_dir(daemon.at("")).unwrap().map(|entry| entry.unwrap());
        entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(prefix)).collect::<Vec<_>>()
    };
    // With the attributes of all, as `ls -l` asks for them; twice, so that the kernel knows them all.
    for _ in 0..2 {
        let entries = names("old-");
        assert_eq!(entries.len(), FILES);
        for entry in entries {
            let facts = entry.metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert_eq!((facts.len() as usize, facts.ino()), (name.len() - 4, entry_ino(&place, &name)), "{name}");
        }
    }
    fs::create_dir(daemon.at("sub")).unwrap();
    for number in 0..FILES / 4 {
        fs::write(daemon.at(&format!("sub/new-{number}")), vec![number as u8; 100 + number]).unwrap();
    }
    // Larger ones, which go through the cache.
    for number in 0..100_u32 {
        fs::write(daemon.at(&format!("big-{number}")), vec![number as u8; 70_000]).unwrap();
    }
    // Zeros are written, which makes these files volumes, too.
    let zeros = "for n in $(seq 600 799); do fallocate --zero-range --offset 70000 --length 9 old-$n || exit 1; done";
    assert!(Command::new("sh").args(["-c", zeros]).current_dir(daemon.at("")).status().unwrap().success());
    assert_eq!(fs::metadata(daemon.at("old-799")).unwrap().len(), 70_009);
    make_directories_that_can_not_be_removed(&daemon);
    fs::rename(daemon.at("sub"), daemon.at("other")).unwrap();
    for number in (0..FILES / 4).rev() {
        assert_eq!(fs::read(daemon.at(&format!("other/new-{number}"))).unwrap(), vec![number as u8; 100 + number]);
    }
    // Names come and go while no program has the files open.
    for number in 0..FILES / 4 {
        let (old, new) = (daemon.at(&format!("old-{number}")), daemon.at(&format!("moved-{number}")));
        match number % 3 {
            0 => fs::remove_file(&old).unwrap(),
            1 => fs::rename(&old, &new).unwrap(),
            _ => fs::hard_link(&old, &new).unwrap(),
        }
    }
    let open = File::open(daemon.at("big-0")).unwrap();
    fs::remove_file(daemon.at("big-0")).unwrap();
    assert_eq!((names("old-").len(), names("moved-").len()), (FILES - FILES / 6, FILES / 6));
    for entry in names("moved-") {
        let text = fs::read_to_string(entry.path()).unwrap();
        assert_eq!(format!("moved-{text}"), entry.file_name().to_str().unwrap());
    }
    let mut byte = [7; 1];
    open.read_exact_at(&mut byte, 69_999).unwrap();
    assert_eq!((byte, open.metadata().unwrap().nlink()), ([0], 0));
    drop(open);
    daemon.unmount();
    assert_eq!(fs::read(place.slow("big-99")).unwrap(), vec![99; 70_000]);
}

/// Directories that keep their names need not stay open.
fn make_directories_that_can_not_be_removed(daemon: &Daemon) {
    for number in 0..FILES / 4 {
        let full = daemon.at(&format!("full-{number}"));
        fs::create_dir(&full).unwrap();
        fs::create_dir(full.join("in")).unwrap();
        let refused = fs::remove_dir(&full).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{refused}");
    }
}

fn entry_ino(place: &Place, name: &str) -> u64 {
    fs::metadata(place.slow(name)).unwrap().ino()
}

#[test]
fn a_daemon_that_may_open_few_files_serves_many_and_leaves_none_out() {
    if !possible() {
        return;
    }
    if !can_be_limited() {
        return skipped("only root can take a daemon's rights away");
    }
    use_many("");
}

#[test]
fn directories_that_a_daemon_may_not_list_keep_it_from_no_file_elsewhere() {
    if !possible() {
        return;
    }
    if !can_be_limited() {
        return skipped("only root can take a daemon's rights away");
    }
    let place = Place::new(AdmissionPolicy::All);
    for hidden in ["a", "z"] {
        let path = place.slow(hidden);
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let starter = ["setpriv", "--bounding-set=-dac_read_search,-dac_override"];
    let mut daemon = place.serve_under(&starter, true);
    fs::create_dir(daemon.at("m")).unwrap();
    for name in ["m/f", "gone"] {
        let file = File::create(daemon.at(name)).unwrap();
        // The first goes straight to the directory.
        for byte in [1, 2] {
            file.write_all_at(&[byte; 5000], 0).unwrap();
            file.sync_all().unwrap();
        }
    }
    daemon.kill();
    drop(daemon);
    let mut daemon = place.serve_under(&starter, false);
    assert_eq!(daemon.line, "serving, 2 files, 0 lost");
    assert_eq!(fs::read(daemon.at("m/f")).unwrap(), [2; 5000]);
    for name in ["m/f", "gone"] {
        let file = File::options().write(true).open(daemon.at(name)).unwrap();
        file.write_all_at(&[3; 5000], 0).unwrap();
        file.sync_all().unwrap();
    }
    daemon.kill();
    drop(daemon);
    // Behind the mount's back: it may be in one of those, and is not given up.
    fs::rename(place.slow("gone"), place.slow("z/gone")).unwrap();
    let limited = || drop(place.serve_under(&starter, false));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(limited)).is_err(), "it was mounted");
    let daemon = place.serve(true);
    assert!(daemon.line.ends_with("0 lost"), "{}", daemon.line);
    assert_eq!(fs::read(daemon.at("z/gone")).unwrap(), [3; 5000]);
    daemon.unmount();
}

#[test]
fn so_does_one_that_may_not_use_file_handles() {
    if !possible() {
        return;
    }
    if !can_be_limited() {
        return skipped("only root can take a daemon's rights away");
    }
    use_many(",-dac_read_search");
}

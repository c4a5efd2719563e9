//! Several at once: users who may not, processes that append to one file, names that change under open files, cuts among
//! writes, mapped stores among writes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use quire_rng::SplitMix64;
use quire_sys::shared_map::SharedMap;
use quire_writecache::AdmissionPolicy;

use crate::common::{Place, possible, skipped};

/// A user without any rights.
const UNPRIVILEGED: u32 = 65_534;

fn sh(script: &str, dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What a user without rights tries, and why it fails.
const FORBIDDEN: [(&str, &str); 16] = [
    ("cat secret", "Permission denied"),
    ("echo x > secret", "Permission denied"),
    ("echo x >> open", "Permission denied"),
    ("echo x > new", "Permission denied"),
    ("rm open", "Permission denied"),
    ("rm -f sticky/ours", "Operation not permitted"),
    ("mv sticky/ours sticky/mine", "Operation not permitted"),
    ("chmod 777 open", "Operation not permitted"),
    ("chown 65534 open", "Operation not permitted"),
    ("truncate -s 0 open", "Permission denied"),
    ("ln secret sticky/way-in && cat sticky/way-in", "Permission denied|Operation not permitted"),
    ("ls .quire", "No such file"),
    ("cat .quire/lock", "No such file"),
    ("mkdir .quire", "Permission denied"),
    ("ls sticky/../.quire", "No such file"),
    ("setfattr -n user.quire.critical -v 1 .", "Permission denied"),
];

#[test]
fn other_users_get_what_permissions_give_them_and_no_more() {
    if !possible() {
        return;
    }
    if quire_sys::task::user_of(std::process::id()) != Some(0) {
        return skipped("only root can be another user");
    }
    let mut place = Place::new(AdmissionPolicy::All);
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.config.allow_other = true;
    let run = place.mount();
    let mode = |name: &str, mode| fs::set_permissions(run.at(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(run.at("secret"), b"x").unwrap();
    mode("secret", 0o600);
    fs::write(run.at("open"), b"x").unwrap();
    fs::create_dir(run.at("sticky")).unwrap();
    mode("sticky", 0o1777);
    fs::write(run.at("sticky/ours"), b"x").unwrap();
    fs::create_dir(run.at("group")).unwrap();
    mode("group", 0o2777);
    let may = |script: &str| sh(script, run.root()).uid(UNPRIVILEGED).gid(UNPRIVILEGED).status().unwrap().success();
    for allowed in [
        "cat open",
        "echo theirs > sticky/theirs",
        "echo more >> sticky/theirs && cat sticky/theirs",
        "mkdir sticky/folder && ln -s open sticky/link && mkfifo sticky/pipe",
        "echo x > group/file",
        "cd sticky && mv theirs theirs-too && ln theirs-too third && rm third",
    ] {
        assert!(may(allowed), "{allowed}");
    }
    assert!(place.slow(".quire/lock").exists(), "the directory has what the mount hides");
    // A command that is not there, or that no user could do, would fail as well: it counts why one fails.
    let refusal = |script: &str| {
        let output =
            sh(script, run.root()).uid(UNPRIVILEGED).gid(UNPRIVILEGED).stderr(Stdio::piped()).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    for (forbidden, why) in FORBIDDEN {
        let (worked, said) = refusal(forbidden);
        assert!(!worked && why.split('|').any(|why| said.contains(why)), "{forbidden}: {said}");
    }
    let facts = |name: &str| fs::metadata(run.at(name)).unwrap();
    assert_eq!((facts("sticky/theirs-too").uid(), facts("sticky/theirs-too").gid()), (UNPRIVILEGED, UNPRIVILEGED));
    assert_eq!((facts("group/file").uid(), facts("group/file").gid()), (UNPRIVILEGED, 0));
    // Written by another user, a program no longer runs in its owner's name.
    fs::write(run.at("tool"), b"x").unwrap();
    mode("tool", 0o4777);
    assert!(may("echo y >> tool"));
    assert_eq!(facts("tool").mode() & 0o7777, 0o777);
    assert_eq!(fs::metadata(place.slow("tool")).unwrap().mode() & 0o7777, 0o777);
    run.end(true);
}

#[test]
fn what_was_mounted_at_the_mount_point_before_is_there_afterwards() {
    if !possible() {
        return;
    }
    if quire_sys::task::user_of(std::process::id()) != Some(0) {
        return skipped("only root can mount something else there");
    }
    let place = Place::new(AdmissionPolicy::All);
    let below = &place.config.mount_point;
    let mounted = Command::new("mount").args(["-t", "tmpfs", "below"]).arg(below).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("a file system can't be mounted here");
    }
    fs::write(below.join("below"), b"x").unwrap();
    let run = place.mount();
    let covered = !run.at("below").exists();
    run.end(true);
    let is_there = below.join("below").exists();
    if is_there {
        quire_sys::mounts::unmount(below, false).unwrap();
    }
    assert!(covered && is_there, "covered {covered}, there afterwards {is_there}");
}

#[test]
fn two_processes_append_to_one_file_and_no_line_is_lost_or_torn() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    let run = place.mount();
    let script = |name: &str| format!("i=0; while [ $i -lt 400 ]; do echo {name} $i; i=$((i+1)); done >> lines");
    let mut writers: Vec<_> =
        ["one", "two"].map(|name| sh(&script(name), run.root()).stdout(Stdio::null()).spawn()).into();
    writers.iter_mut().for_each(|writer| assert!(writer.as_mut().unwrap().wait().unwrap().success()));
    let check = |bytes: String| {
        for name in ["one", "two"] {
            let numbers: Vec<u32> =
                bytes.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok()).collect();
            assert!(numbers.iter().copied().eq(0..400), "{name}: {} lines", numbers.len());
        }
    };
    check(fs::read_to_string(run.at("lines")).unwrap());
    run.end(true);
    check(fs::read_to_string(place.slow("lines")).unwrap());
}

#[test]
fn names_change_under_open_files_and_each_keeps_its_bytes() {
    if !possible() {
        return;
    }
    let place = Place::new(AdmissionPolicy::All);
    let mut daemon = place.serve(false);
    let open =
        |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(daemon.at(name)).unwrap();
    let (old, new) = (open("name"), open("other"));
    old.write_all_at(&[1; 9000], 0).unwrap();
    new.write_all_at(&[2; 7000], 0).unwrap();
    new.sync_all().unwrap();
    fs::rename(daemon.at("other"), daemon.at("name")).unwrap();
    // The one that was replaced lives on without a name; both are written to.
    old.write_all_at(&[3; 100], 0).unwrap();
    old.sync_all().unwrap();
    new.write_all_at(&[4; 100], 7000).unwrap();
    new.sync_all().unwrap();
    let read = |file: &File| {
        let mut bytes = vec![0; 10_000];
        let len = file.read_at(&mut bytes, 0).unwrap();
        (len, bytes[0], bytes[len - 1])
    };
    assert_eq!((read(&old), read(&new)), ((9000, 3, 1), (7100, 2, 4)));
    assert_eq!((old.metadata().unwrap().nlink(), new.metadata().unwrap().nlink()), (0, 1));
    fs::hard_link(daemon.at("name"), daemon.at("link")).unwrap();
    let link = open("link");
    link.write_all_at(&[5; 10], 0).unwrap();
    assert_eq!((read(&new), new.metadata().unwrap().nlink()), ((7100, 5, 4), 2));
    link.sync_all().unwrap();
    fs::remove_file(daemon.at("name")).unwrap();
    File::open(daemon.at("")).unwrap().sync_all().unwrap();
    drop((old, new, link));
    daemon.kill();
    let daemon = place.serve(true);
    assert!(daemon.line.ends_with(" 0 lost"), "{}", daemon.line);
    assert_eq!(fs::read_dir(daemon.at("")).unwrap().count(), 1);
    assert_eq!(read(&File::open(daemon.at("link")).unwrap()), (7100, 5, 4));
    daemon.unmount();
}

#[test]
fn cuts_among_writes_and_reads_leave_a_length_on_which_all_agree() {
    if !possible() {
        return;
    }
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let place = Place::new(policy);
        let run = place.mount();
        let path = run.at("f");
        drop(File::create(&path).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let (path, done) = (&path, &done);
                scope.spawn(move || {
                    let file = File::options().read(true).write(true).open(path).unwrap();
                    let mut rng = SplitMix64::new(seed);
                    let mut bytes = vec![0; 30_000];
                    while !done.load(Ordering::Relaxed) {
                        let offset = rng.below(200_000);
                        file.write_all_at(&vec![seed as u8; rng.below(20_000) as usize + 1], offset).unwrap();
                        let read = file.read_at(&mut bytes, rng.below(200_000)).unwrap();
                        assert!(bytes[..read].iter().all(|&byte| byte < 4));
                        if rng.below(8) == 0 {
                            file.sync_data().unwrap();
                        }
                    }
                });
            }
            let file = File::options().write(true).open(&path).unwrap();
            let mut rng = SplitMix64::new(9);
            for _ in 0..150 {
                file.set_len(rng.below(150_000)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(100_001).unwrap();
        drop(file);
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len(), fs::metadata(&path).unwrap().len()), (100_001, 100_001));
        run.end(true);
        assert!(fs::read(place.slow("f")).unwrap() == bytes, "{policy}");
    }
}

#[test]
fn stores_through_two_mappings_and_writes_between_them_survive_the_daemon() {
    if !possible() {
        return;
    }
    const PAGE: usize = 4096;
    let place = Place::new(AdmissionPolicy::CriticalProcessIo);
    let mut daemon = place.serve(false);
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(daemon.at("f")).unwrap();
    let files = [open(), open()];
    files[0].set_len(64 * PAGE as u64).unwrap();
    let maps = [0, 1].map(|number| SharedMap::new(&files[number], 64 * PAGE).unwrap());
    std::thread::scope(|scope| {
        for (number, map) in maps.iter().enumerate() {
            let file = &files[number];
            scope.spawn(move || {
                for page in (number..64).step_by(4) {
                    map.words()[page * PAGE / 8].store(page as u64 + 1, Ordering::Relaxed);
                    file.write_all_at(&[page as u8 + 1; 8], ((page + 2) * PAGE) as u64 % (64 * PAGE) as u64).unwrap();
                }
                map.sync(0..64 * PAGE).unwrap();
                file.sync_all().unwrap();
            });
        }
    });
    // What one stores the other sees, and so does a program that reads.
    let wanted = fs::read(daemon.at("f")).unwrap();
    let word = |page: usize| u64::from_le_bytes(wanted[page * PAGE..page * PAGE + 8].try_into().unwrap());
    for page in 0..64 {
        assert_eq!(maps[page % 2].words()[page * PAGE / 8].load(Ordering::Relaxed), word(page));
        assert!(word(page) != 0, "page {page}");
    }
    drop(maps);
    drop(files);
    daemon.kill();
    let daemon = place.serve(true);
    assert!(fs::read(daemon.at("f")).unwrap() == wanted);
    daemon.unmount();
}

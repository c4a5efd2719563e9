//! Access control lists, and what running a file gives: the mount does what the directory's own file system would do.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use quire_writecache::AdmissionPolicy;

use crate::common::{Place, possible, skipped};

const UNPRIVILEGED: u32 = 65_534;
const FRIEND: u32 = 12_345;
/// `cap_net_raw=ep`, as the kernel writes it.
const CAPABILITIES: &str = "0x0100000200200000000000000000000000000000";

/// A place that other users may enter; `None` where the tests can't be done.
fn place(policy: AdmissionPolicy) -> Option<Place> {
    if !possible() {
        return None;
    }
    if quire_sys::task::user_of(std::process::id()) != Some(0) {
        skipped("only root can be another user");
        return None;
    }
    let mut place = Place::new(policy);
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    place.config.allow_other = true;
    let works = Command::new("setfacl").args(["-m", "u:1:r"]).arg(place.dir.path()).status();
    if !works.is_ok_and(|status| status.success()) {
        skipped("access control lists can't be set here (package acl)");
        return None;
    }
    Some(place)
}

/// What a script prints to either, and how it ended.
fn run(script: &str, dir: &Path, user: u32, group: u32) -> (String, bool) {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(dir).env("LC_ALL", "C").uid(user).gid(group);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

fn as_root(script: &str, dir: &Path) -> String {
    let (text, worked) = run(&format!("set -e; {script}"), dir, 0, 0);
    assert!(worked, "{script}: {text}");
    text
}

#[test]
fn a_list_decides_who_may_read_and_write() {
    let Some(place) = place(AdmissionPolicy::CriticalProcessIo) else { return };
    let slow = place.slow("");
    as_root(
        "echo x > denied; chmod 644 denied; setfacl -m u:65534:--- denied
         echo x > granted; chmod 600 granted; setfacl -m u:65534:rw granted
         echo x > grouped; chgrp 12345 grouped; chmod 640 grouped; setfacl -m u:1:rw,g::---,m::rw grouped
         mkdir closed; chmod 755 closed; echo x > closed/f; setfacl -m u:65534:--- closed
         echo x > masked; chmod 600 masked; setfacl -m u:65534:rw,m::r masked",
        &slow,
    );
    let mount = place.mount();
    // Whether it may; what fails for another reason than a missing permission fails the test.
    let may = |script: &str, user: u32, group: u32| {
        let (said, worked) = run(script, mount.root(), user, group);
        let why = ["Permission denied", "Operation not permitted"];
        assert!(worked || why.iter().any(|why| said.contains(why)), "{script}: {said}");
        worked
    };
    assert!(!may("cat denied", UNPRIVILEGED, UNPRIVILEGED) && may("cat denied", FRIEND, FRIEND));
    assert!(may("cat granted && echo y >> granted", UNPRIVILEGED, UNPRIVILEGED) && !may("cat granted", FRIEND, FRIEND));
    assert!(!may("cat grouped", FRIEND, FRIEND) && !may("echo y >> grouped", FRIEND, FRIEND));
    assert!(
        !may("cat closed/f", UNPRIVILEGED, UNPRIVILEGED)
            && !may("ls closed", UNPRIVILEGED, UNPRIVILEGED)
            && may("cat closed/f", FRIEND, FRIEND)
    );
    assert!(may("cat masked", UNPRIVILEGED, UNPRIVILEGED) && !may("echo y >> masked", UNPRIVILEGED, UNPRIVILEGED));
    // What changes through the mount holds at once.
    as_root("setfacl -x u:65534 denied; setfacl -m m::rw masked; chmod g-rw granted", mount.root());
    assert!(may("cat denied", UNPRIVILEGED, UNPRIVILEGED) && may("echo y >> masked", UNPRIVILEGED, UNPRIVILEGED));
    assert!(!may("cat granted", UNPRIVILEGED, UNPRIVILEGED));
    assert!(!may("setfacl -m u:65534:rw grouped", UNPRIVILEGED, UNPRIVILEGED), "it is not theirs");
    mount.end(true);
}

/// Makes and changes things in a directory with and without a default list.
const MAKING: &str = "
umask 027
touch a; mkdir b; mkfifo c; ln -s a d; ln a e
cd list; touch a; mkdir b; touch b/f; mkdir b/g; mkfifo c; ln -s a d
umask 077; touch h; mkdir i; touch i/k
umask 0; touch l; mkdir m
chmod 751 a b; chmod g=s,o= m
install -m 600 a n; install -d -m 2755 o; touch o/p
cp -a a q; cp -a b r; setfacl -m u:7:rx,g:9:w a; setfacl -d -m u:8:rwx b; touch b/z
setfacl -b h; setfacl -k i; touch i/y
getfacl a | setfacl --set-file=- l
";

#[test]
fn what_is_made_inherits_as_in_the_directory_itself() {
    let Some(place) = place(AdmissionPolicy::CriticalProcessIo) else { return };
    let mount = place.mount();
    let here = place.dir.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::create_dir(mount.at("there")).unwrap();
    for (user, group) in [(0, 0), (UNPRIVILEGED, FRIEND)] {
        let [own, other] = [here.clone(), mount.at("there")].map(|dir| {
            let dir = dir.join(user.to_string());
            let lists = "u:1:rwx,g:2:rx,g::rw,m::rwx,o::r";
            let script = "mkdir \"$DIR\"; chmod 777 \"$DIR\"; mkdir \"$DIR/list\"; chmod 2777 \"$DIR/list\"; chgrp 4 \"$DIR/list\"";
            as_root(&format!("DIR={}; {script}; setfacl -d -m {lists} $DIR/list", dir.display()), Path::new("/"));
            let (told, _) = run(MAKING, &dir, user, group);
            assert_eq!(told, "", "user {user}");
            as_root("getfacl --recursive --physical --numeric .; ls -lnR --time-style=+ . | grep -v total", &dir)
        });
        assert_eq!(own, other, "user {user}");
        assert!(own.contains("default:user:8:rwx"), "{own}");
    }
    // A copy of the tree that was made through the mount is the same behind it.
    let list = |dir: &Path| as_root("getfacl --recursive --physical --numeric .", dir);
    let before = list(&mount.at("there"));
    mount.end(true);
    assert_eq!(list(&place.slow("there")), before);
}

#[test]
fn names_of_trusted_attributes_are_for_administrators() {
    let Some(place) = place(AdmissionPolicy::CriticalProcessIo) else { return };
    as_root(
        "echo x > f; chmod 644 f; setfattr -n trusted.secret -v 1 f; setfattr -n user.open -v 1 f",
        &place.slow(""),
    );
    let mount = place.mount();
    let names = |user| run("getfattr -m - f", mount.root(), user, user).0;
    assert!(names(0).contains("trusted.secret") && names(0).contains("user.open"), "{}", names(0));
    assert!(
        !names(UNPRIVILEGED).contains("trusted") && names(UNPRIVILEGED).contains("user.open"),
        "{}",
        names(UNPRIVILEGED)
    );
    mount.end(true);
}

#[test]
fn a_write_takes_a_files_capabilities_and_a_late_write_does_not() {
    for policy in [AdmissionPolicy::All, AdmissionPolicy::CriticalProcessIo] {
        let Some(place) = place(policy) else { return };
        let mount = place.mount();
        let give = format!("setfattr -n security.capability -v {CAPABILITIES} tool");
        let capabilities = |dir: &Path| run("getfattr -m security --dump -e hex tool", dir, 0, 0).0;
        as_root(&format!("head -c 300000 /dev/zero > tool; {give}; chmod 6755 tool"), mount.root());
        let limit = Instant::now() + Duration::from_secs(120);
        while mount.mounted().stats()["files_in_use"].as_u64() > Some(0) {
            assert!(Instant::now() < limit, "the file is in use");
            std::thread::sleep(Duration::from_millis(50));
        }
        for dir in [mount.root(), &place.slow("")] {
            assert!(capabilities(dir).contains(CAPABILITIES), "{policy}: {}", capabilities(dir));
            assert_eq!(fs::metadata(dir.join("tool")).unwrap().mode() & 0o7777, 0o6755);
        }
        as_root("echo x >> tool", mount.root());
        for dir in [mount.root(), &place.slow("")] {
            assert_eq!(capabilities(dir), "", "{policy}");
        }
        // Given again while bytes are pending, and recovered with them.
        as_root(&format!("{give}; sync tool"), mount.root());
        mount.end(false);
        let mount = place.mount();
        mount.end(true);
        assert!(capabilities(&place.slow("")).contains(CAPABILITIES), "{policy}");
    }
}

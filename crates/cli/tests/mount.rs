//! `quire mount` and its companions as an operator uses them. Where FUSE is missing these tests say so and pass.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{complaint, quire, run};

fn possible() -> bool {
    let works = quire_sys::mounts::try_fuse();
    if let Err(error) = &works {
        println!("skipped: /dev/fuse can't be used here ({error})");
    }
    works.is_ok()
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["slow", "mnt"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    fn mount(&self, words: &[&str]) -> Daemon {
        let (slow, mnt, log) = (self.text("slow"), self.text("mnt"), self.text("log"));
        let mut all = vec!["mount", &slow, &mnt, "--log", &log, "--capacity", "16MiB"];
        all.extend(words);
        let mut child = quire(&all).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted "), "{line:?}");
        Daemon { child, stdout, mnt: self.at("mnt"), line }
    }
}

struct Daemon {
    child: Child,
    stdout: BufReader<ChildStdout>,
    mnt: PathBuf,
    line: String,
}

impl Daemon {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn ended(mut self) -> String {
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if quire_sys::mounts::is_orphaned(&self.mnt) {
            let _ = quire_sys::mounts::unmount(&self.mnt, true);
        }
    }
}

#[test]
fn an_operator_mounts_looks_hints_and_unmounts() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount(&["--policy", "cp"]);
    assert!(daemon.line.contains("policy CP") && daemon.line.contains("new"), "{}", daemon.line);
    let mnt = place.text("mnt");
    fs::write(place.at("mnt/f"), b"bytes").unwrap();
    let own = std::process::id().to_string();
    assert!(run(&["critical", &own, &mnt]).status.success());
    assert!(run(&["critical", "--comm", "post*", &mnt]).status.success());
    // A plain directory would take it as an attribute of its own.
    assert!(complaint(&run(&["critical", &own, &place.text("slow")])).contains("no root of a mount"));
    let hints = String::from_utf8(run(&["critical", &mnt]).stdout).unwrap();
    assert_eq!(hints, format!("{own}\ncomm:post*\n"));
    assert!(run(&["critical", "--forget", &own, &mnt]).status.success());
    assert!(complaint(&run(&["critical", "/"])).contains("no root of a mount"));
    let file = File::open(place.at("mnt/f")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let table = String::from_utf8(run(&["stats", &mnt]).stdout).unwrap();
    assert!(table.contains("policy CP") && table.contains("requests"), "{table}");
    let json = run(&["mount", "--stats", &mnt, "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["pid"], daemon.child.id());
    let unmounted = run(&["unmount", &mnt]);
    assert!(unmounted.status.success(), "{}", complaint(&unmounted));
    assert!(daemon.ended().contains("unmounted"));
    assert_eq!(fs::read(place.at("slow/f")).unwrap(), b"bytes");
    assert!(complaint(&run(&["unmount", &mnt])).contains("no mount of quire"));
}

#[test]
fn a_signal_unmounts_and_drains() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount(&["--policy", "all", "--drain"]);
    fs::write(place.at("mnt/f"), vec![5; 100_000]).unwrap();
    File::open(place.at("mnt/f")).unwrap().sync_all().unwrap();
    daemon.signal("TERM");
    assert!(daemon.ended().contains("everything is in the directory"));
    assert_eq!(fs::read(place.at("slow/f")).unwrap(), vec![5; 100_000]);
}

#[test]
fn a_mount_in_the_background_is_ended_by_unmount_and_leaves_its_log_for_the_next() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let (slow, mnt, log) = (place.text("slow"), place.text("mnt"), place.text("log"));
    let all = ["mount", &slow, &mnt, "--log", &log, "--capacity", "16MiB", "--policy", "all"];
    let started = run(&[&all[..], &["--daemon"]].concat());
    let said = String::from_utf8(started.stdout).unwrap();
    assert!(said.starts_with("mounted ") && said.contains("in the background, process "), "{said}");
    fs::write(place.at("mnt/f"), b"bytes").unwrap();
    File::open(place.at("mnt/f")).unwrap().sync_all().unwrap();
    assert!(run(&["unmount", &mnt]).status.success());
    // What is wrong is said even so.
    let refused = run(&["mount", &slow, &place.text("none"), "--log", &log, "--daemon"]);
    assert!(!refused.status.success() && complaint(&refused).contains("cannot mount"), "{}", complaint(&refused));
    let daemon = place.mount(&["--drain"]);
    assert!(daemon.line.contains("kept from last time"), "{}", daemon.line);
    assert_eq!(fs::read(place.at("mnt/f")).unwrap(), b"bytes");
    assert!(run(&["unmount", &mnt]).status.success());
    assert!(daemon.ended().contains("everything is in the directory"));
}

#[test]
fn a_mount_whose_daemon_was_killed_is_unmounted_at_once() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.mount(&[]);
    // The kernel knows the root's attributes, and answers from them.
    fs::metadata(place.at("mnt")).unwrap();
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let unmounted = run(&["unmount", &place.text("mnt")]);
    assert!(unmounted.status.success(), "{}", complaint(&unmounted));
    assert!(String::from_utf8(unmounted.stdout).unwrap().contains("nobody served it"));
}

#[test]
fn a_log_may_be_a_block_device() {
    if !possible() {
        return;
    }
    let place = Place::new();
    File::create(place.at("disk")).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(place.at("disk")).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        return println!("skipped: no loop device can be made here");
    };
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    for round in 0..2 {
        let (slow, mnt) = (place.text("slow"), place.text("mnt"));
        let all = ["mount", &slow, &mnt, "--log", &device, "--policy", "all", "--daemon"];
        let started = run(&all);
        assert!(started.status.success(), "{}", complaint(&started));
        assert_eq!(fs::read(place.at("mnt/f")).unwrap_or_default(), vec![7; 50_000 * round]);
        fs::write(place.at("mnt/f"), vec![7; 50_000]).unwrap();
        File::open(place.at("mnt/f")).unwrap().sync_all().unwrap();
        assert!(run(&["unmount", &mnt]).status.success());
    }
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
}

#[test]
fn what_is_wrong_with_a_command_is_said_with_a_cure() {
    let place = Place::new();
    let (slow, mnt, log) = (place.text("slow"), place.text("mnt"), place.text("log"));
    let said = |words: &[&str]| complaint(&run(words));
    assert!(said(&["mount", "/no/such", &mnt, "--log", &log]).contains("slow device"));
    assert!(said(&["mount", &slow, &mnt, "--log", &log, "--capacity", "much"]).contains("256MiB"));
    assert!(said(&["mount", &slow, &mnt, "--log", &log, "--capacity", "4k"]).contains("too small"));
    fs::write(place.at("rules"), "critical\n").unwrap();
    let rules = place.text("rules");
    assert!(said(&["mount", &slow, &mnt, "--log", &log, "--rules", &rules]).contains("line 1"));
    assert!(said(&["critical", "x", &mnt]).contains("process number"));
}

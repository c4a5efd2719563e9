//! `quire mount` and its companions as an operator uses them. Where FUSE is missing these tests say so and pass.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{complaint, quire, run};

/// Runs `quire` with these words, which must succeed.
fn succeeds(words: &[&str]) {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", complaint(&output));
}

fn possible() -> bool {
    let works = quire_sys::mounts::try_fuse();
    if let Err(error) = &works {
        quire_sys::testing::skipped(format!("/dev/fuse can't be used here ({error})"));
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
    succeeds(&["critical", &own, &mnt]);
    succeeds(&["critical", "--comm", "post*", &mnt]);
    // A plain directory would take it as an attribute of its own.
    assert!(complaint(&run(&["critical", &own, &place.text("slow")])).contains("no root of a mount"));
    let hints = String::from_utf8(run(&["critical", &mnt]).stdout).unwrap();
    assert_eq!(hints, format!("{own}\ncomm:post*\n"));
    succeeds(&["critical", "--forget", &own, &mnt]);
    assert!(complaint(&run(&["critical", "/"])).contains("no root of a mount"));
    let file = File::open(place.at("mnt/f")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let table = String::from_utf8(run(&["stats", &mnt]).stdout).unwrap();
    assert!(table.contains("policy CP") && table.contains("requests"), "{table}");
    let json = run(&["mount", "--stats", &mnt, "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["pid"], daemon.child.id());
    for words in [&["stats", &mnt][..], &["mount", "--stats", &mnt, "--json"], &["critical", &mnt]] {
        common::ends_quietly_on_a_closed_pipe(words);
        common::reports_a_full_device(words);
    }
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

/// As by `mount`, but the test does not wait until it says that it is mounted.
fn begin_mount(place: &Place) -> Child {
    let (slow, mnt, log) = (place.text("slow"), place.text("mnt"), place.text("log"));
    let words = ["mount", &slow, &mnt, "--log", &log, "--capacity", "16MiB"];
    quire(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Asks the kernel's table, since a mount answers nothing until it is served.
fn is_listed(mnt: &str) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {mnt} "))
}

#[test]
fn a_signal_while_a_mount_begins_leaves_no_mount_without_its_process() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let mnt = place.text("mnt");
    for round in 0..8 {
        let mut child = begin_mount(&place);
        // Right when the kernel has it, and then at other moments of the beginning.
        until("the mount", || is_listed(&mnt) || round > 4);
        std::thread::sleep(Duration::from_millis(if round > 4 { 5 << (2 * (round - 5)) } else { 0 }));
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap();
        let left = is_listed(&mnt);
        if left {
            let _ = quire_sys::mounts::unmount(&place.at("mnt"), true);
        }
        assert!(!left, "round {round}: the mount point answers ENOTCONN");
    }
    let daemon = place.mount(&[]);
    daemon.signal("TERM");
    assert!(daemon.ended().contains("unmounted"));
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < limit, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes and flushes a file, and once more: a new file's bytes go to the directory with its name, later ones to the log.
fn put(path: &Path, bytes: &[u8]) {
    for _ in 0..2 {
        let mut file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    }
}

#[test]
fn a_signal_to_a_busy_mount_leaves_it_there_until_its_last_user_has_gone() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let log = place.text("messages");
    let daemon = place.mount(&["--policy", "all", "--log-file", &log]);
    let held = File::create(place.at("mnt/held")).unwrap();
    daemon.signal("TERM");
    let own = format!("{} (", std::process::id());
    until("the line about its user", || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("stays mounted while it is in use by") && said.contains(&own)
    });
    assert!(complaint(&run(&["unmount", "--drain", &place.text("mnt")])).contains(&own));
    // Nothing lands in the directory below.
    put(&place.at("mnt/later"), b"through the mount");
    assert!(quire_sys::mounts::is_mount_point(&place.at("mnt")));
    drop(held);
    assert!(daemon.ended().contains("are in the log only"), "the refused unmount drains nothing");
    assert_eq!(fs::read_dir(place.at("mnt")).unwrap().count(), 0);
    let daemon = place.mount(&["--drain"]);
    assert_eq!(fs::read(place.at("mnt/later")).unwrap(), b"through the mount");
    daemon.signal("INT");
    assert!(daemon.ended().contains("everything is in the directory"));
}

#[test]
fn a_second_signal_ends_a_busy_mount_and_nothing_can_be_written_in_its_place() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let log = place.text("messages");
    let mut daemon = place.mount(&["--log-file", &log]);
    put(&place.at("mnt/f"), b"flushed");
    let held = File::open(place.at("mnt/f")).unwrap();
    daemon.signal("TERM");
    until("the line about its user", || fs::read_to_string(&log).unwrap().contains("stays mounted"));
    daemon.signal("TERM");
    assert_eq!(daemon.child.wait().unwrap().code(), Some(1));
    let refused = fs::write(place.at("mnt/f"), b"past the log").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
    drop(held);
    let daemon = place.mount(&[]);
    assert_eq!(fs::read(place.at("mnt/f")).unwrap(), b"flushed");
    succeeds(&["unmount", &place.text("mnt")]);
    drop(daemon);
}

#[test]
fn unmount_can_bring_everything_back_and_a_lost_log_is_missed_by_name() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let (slow, mnt, log) = (place.text("slow"), place.text("mnt"), place.text("log"));
    let file = vec![5; 100_000];
    for drains in [true, false] {
        let daemon = place.mount(&["--policy", "all"]);
        put(&place.at("mnt/f"), &file);
        let words = if drains { &["unmount", "--drain", &mnt][..] } else { &["unmount", &mnt] };
        let unmounted = run(words);
        assert!(unmounted.status.success(), "{}", complaint(&unmounted));
        assert_eq!(daemon.ended().contains("everything is in the directory"), drains);
        fs::rename(&log, place.at(if drains { "old" } else { "kept" })).unwrap();
        // Drained, the directory needs no log: the next round begins with a new one.
        if drains {
            assert_eq!(fs::read(place.at("slow/f")).unwrap(), file);
        }
    }
    let said = complaint(&run(&["mount", &slow, &mnt, "--log", &log]));
    assert!(said.contains(&log) && said.contains("slow/.quire/witness") && said.contains("holds none"), "{said}");
    assert!(!place.at("log").exists(), "no empty log is left behind");
    fs::rename(place.at("old"), &log).unwrap();
    let said = complaint(&run(&["mount", &slow, &mnt, "--log", &log]));
    assert!(said.contains(&log) && said.contains("give the right one"), "{said}");
    fs::write(&log, b"notes").unwrap();
    let said = complaint(&run(&["mount", &slow, &mnt, "--log", &log]));
    assert!(said.contains("no write cache") && fs::read(&log).unwrap() == b"notes", "{said}");
    // A log is as large as it was made; the command asks for no other size.
    fs::rename(place.at("kept"), &log).unwrap();
    let messages = place.text("messages");
    let started = run(&["mount", &slow, &mnt, "--log", &log, "--daemon", "--log-file", &messages]);
    assert!(started.status.success(), "{}", complaint(&started));
    assert_eq!(fs::read(place.at("mnt/f")).unwrap(), file);
    succeeds(&["unmount", "--drain", &mnt]);
    assert_eq!(fs::read_to_string(&messages).unwrap(), "");
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
    succeeds(&["unmount", &mnt]);
    // What is wrong is said even so.
    let refused = run(&["mount", &slow, &place.text("none"), "--log", &log, "--daemon"]);
    assert!(!refused.status.success() && complaint(&refused).contains("cannot mount"), "{}", complaint(&refused));
    let daemon = place.mount(&["--drain"]);
    assert!(daemon.line.contains("kept from last time"), "{}", daemon.line);
    assert_eq!(fs::read(place.at("mnt/f")).unwrap(), b"bytes");
    succeeds(&["unmount", &mnt]);
    assert!(daemon.ended().contains("everything is in the directory"));
}

/// From now on the process can write no byte of a file from this one on, as if its devices failed there.
fn limit_files(process: u64, bytes: u64) {
    let limit = [format!("--pid={process}"), format!("--fsize={bytes}:")];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
}

#[test]
fn unmount_fails_and_says_why_if_not_everything_could_be_made_durable() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let (slow, mnt, log, messages) = (place.text("slow"), place.text("mnt"), place.text("log"), place.text("messages"));
    let started =
        run(&["mount", &slow, &mnt, "--log", &log, "--daemon", "--log-file", &messages, "--capacity", "16MiB"]);
    assert!(started.status.success(), "{}", complaint(&started));
    let file = place.at("mnt/f");
    put(&file, &vec![5; 100_000]);
    let figures: serde_json::Value = serde_json::from_slice(&run(&["stats", &mnt, "--json"]).stdout).unwrap();
    limit_files(figures["pid"].as_u64().unwrap(), 8192);
    File::options().write(true).open(&file).unwrap().write_all(&[6; 100_000]).unwrap();
    let unmounted = run(&["unmount", &mnt]);
    let said = complaint(&unmounted);
    assert!(!unmounted.status.success() && said.contains("but: volume 2 failed"), "{said}");
    assert!(!quire_sys::mounts::is_mount_point(&place.at("mnt")));
    let noted = fs::read_to_string(&messages).unwrap();
    assert!(noted.contains("unmounted, but: volume 2 failed"), "{noted}");
}

#[test]
fn no_file_is_made_longer_than_the_directory_takes() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let [slow, mnt, log] = ["slow", "mnt", "log"].map(|name| place.text(name));
    // As on a file system whose files can have so many bytes and no more.
    let most = 64 << 20;
    let mut started = Command::new("prlimit");
    started.arg(format!("--fsize={most}")).arg(env!("CARGO_BIN_EXE_quire"));
    started.args(["mount", &slow, &mnt, "--log", &log, "--capacity", "16MiB", "--policy", "all", "--daemon"]);
    assert!(started.status().unwrap().success());
    put(&place.at("mnt/f"), &[5; 10_000]);
    let file = File::options().write(true).open(place.at("mnt/f")).unwrap();
    let is_refused = |result: std::io::Result<()>| result.unwrap_err().kind() == ErrorKind::FileTooLarge;
    assert!(is_refused(file.set_len(most + 1)));
    assert!(is_refused(file.write_all_at(&[6], most)));
    let allocated = Command::new("fallocate").args(["-l", "100000000"]).arg(place.at("mnt/f")).output().unwrap();
    assert!(complaint(&allocated).contains("File too large"), "{}", complaint(&allocated));
    // Nothing of that is in a writer's way.
    file.write_all_at(&[6; 10_000], 10_000).unwrap();
    file.sync_all().unwrap();
    file.set_len(most).unwrap();
    file.set_len(20_000).unwrap();
    put(&place.at("mnt/g"), &[7; 10_000]);
    drop(file);
    succeeds(&["unmount", &mnt]);
    let daemon = place.mount(&["--drain"]);
    assert_eq!(fs::read(place.at("mnt/f")).unwrap(), [[5; 10_000], [6; 10_000]].concat());
    assert_eq!(fs::read(place.at("mnt/g")).unwrap(), [7; 10_000]);
    succeeds(&["unmount", &mnt]);
    drop(daemon);
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
    assert!(String::from_utf8(unmounted.stdout).unwrap().contains("no daemon served it"));
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
        return quire_sys::testing::skipped("no loop device can be made here");
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
        succeeds(&["unmount", &mnt]);
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
    assert!(said(&["mount", &slow, &mnt, "--log", &log, "--memory", "1"]).contains("16 MiB"));
    assert!(!place.at("log").exists(), "what can't be mounted leaves no log");
    fs::write(place.at("rules"), "critical\n").unwrap();
    let rules = place.text("rules");
    assert!(said(&["mount", &slow, &mnt, "--log", &log, "--rules", &rules]).contains("line 1"));
    assert!(said(&["critical", "x", &mnt]).contains("process number"));
}

#[test]
fn a_mount_tells_prometheus_of_itself_and_a_port_that_is_taken_mounts_nothing() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (slow, mnt, log) = (place.text("slow"), place.text("mnt"), place.text("log"));
    let refused = run(&["mount", &slow, &mnt, "--log", &log, "--metrics-port", &port]);
    assert!(
        !refused.status.success() && complaint(&refused).contains("cannot serve metrics"),
        "{}",
        complaint(&refused)
    );
    drop(taken);
    let daemon = place.mount(&["--metrics-port", &port]);
    fs::write(place.at("mnt/f"), b"bytes").unwrap();
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    for line in [
        "HTTP/1.1 200",
        "quire_mount_writes_total 1",
        "quire_mount_log_bytes ",
        "quire_mount_critical_waits_total{cause=",
    ] {
        assert!(answer.contains(line), "{line}\n{answer}");
    }
    // The endpoint does not hold the mount up at its end.
    succeeds(&["unmount", &mnt]);
    assert!(daemon.ended().contains("unmounted"));
}

//! `quire serve --clone` as a process: what it says, and how it lives and ends beside the original.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use quire_sys::deny::{SyscallFilter, calls};
use quire_sys::thread::{self, ThreadId};

use crate::common::{PATIENCE, Served, complaint, quire, run, serve, serve_to};

const DEBUG: [&str; 2] = ["--enable-debug-command", "local"];

/// Waits until a field of INFO has this value.
fn eventually(server: &Served, line: &str) {
    let end = std::time::Instant::now() + PATIENCE;
    while !server.call("INFO persistence").contains(line) {
        assert!(std::time::Instant::now() < end, "in vain waited for {line}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_clone_outlives_a_killed_original_and_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut original = serve(dir.path(), &["--save", "", "--enable-debug-command", "local"]);
    assert_eq!(original.call("DEBUG POPULATE 50000 k 200\r\nSAVE"), "+OK\r\n+OK\r\n");
    let digest = original.call("DEBUG DIGEST");
    let image = dir.path().canonicalize().unwrap().join("dump.quire");
    let clone = serve_to(
        &["--clone", image.to_str().unwrap(), "--read-only", "--enable-debug-command", "local"],
        Stdio::null(),
    );
    original.call("SET later 1\r\nBGSAVE");
    original.signal("KILL");
    original.ended();
    for part in ["clone of   ", "mapped     50000 keys", " ago): an image without deltas", "saves      never"] {
        assert!(clone.banner.contains(part), "{part} in {}", clone.banner);
    }
    assert!(!clone.banner.contains("  data "), "{}", clone.banner);
    eventually(&clone, "clone_verified:1");
    assert_eq!(clone.call("DEBUG DIGEST"), digest);
    assert!(clone.call("SET a b").starts_with("-READONLY "));
    let restarted = serve(dir.path(), &["--save", "", "--enable-debug-command", "local"]);
    assert_eq!(restarted.call("DBSIZE"), ":50000\r\n", "the original's image is what it was");
}

#[test]
fn a_clone_whose_image_is_cut_short_says_so_before_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &["--save", "", "--enable-debug-command", "local"]);
    original.call("DEBUG POPULATE 20000 k 200\r\nSAVE");
    let image = dir.path().join("dump.quire");
    let told = dir.path().join("stderr");
    let stderr = File::create(&told).unwrap();
    let mut clone = serve_to(&["--clone", image.to_str().unwrap(), "--enable-debug-command", "local"], stderr);
    eventually(&clone, "clone_verified:1");
    File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    let mut stream = clone.connect();
    std::io::Write::write_all(&mut stream, b"DEBUG DIGEST\r\n").unwrap();
    assert_eq!(clone.ended().signal(), Some(7), "SIGBUS");
    let told = std::fs::read_to_string(&told).unwrap();
    assert!(told.contains("dump.quire is lost") && told.contains("has cut the file short"), "{told}");
}

#[test]
fn what_a_clone_cannot_be_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &["--save", ""]);
    original.call("SET a 1\r\nSAVE");
    let image = dir.path().join("dump.quire");
    let image = image.to_str().unwrap();
    let (data, port) = (dir.path().to_str().unwrap(), original.port.to_string());
    let cases: &[(&[&str], &str)] = &[
        (&["--clone", "none/dump.quire"], "cannot clone none/dump.quire: No such file"),
        (&["--clone", data], "name the image in it"),
        (&["--clone", image, "--dir", data], "must not replace"),
        (&["--clone", image, "--include", "original.conf"], "a clone takes no --include"),
        (&["--clone", image, "--save", "60 1"], "save needs one"),
        (
            &["--clone", image, "--port", &port, "--bind", "127.0.0.1"],
            "another program listens there; choose another with --port",
        ),
    ];
    for (words, expected) in cases {
        let output = run(&[&["serve"], *words].concat());
        let text = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("quire: ") && last.contains(expected), "{words:?}: {text}");
    }
}

/// `HOST:PORT` of a server.
fn address(server: &Served) -> String {
    format!("127.0.0.1:{}", server.port)
}

/// A field of INFO.
fn info(server: &Served, name: &str) -> String {
    let text = server.call("INFO persistence");
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_clone_of_a_server_has_what_was_written_before_and_one_of_its_newest_image_has_not() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &[&["--save", "", "--checkpoint-incremental", "yes"], &DEBUG[..]].concat());
    original.call("DEBUG POPULATE 20000 k 200\r\nSAVE\r\nSET just written");
    let named = address(&original);
    let older = serve_to(&["--clone", &named, "--clone-max-age", "3600"], Stdio::null());
    assert_eq!((older.call("GET just"), info(&original, "rdb_saves")), ("$-1\r\n".into(), "1".into()));
    let clone = serve_to(&[&["--clone", &named, "--clone-max-age", "0"], &DEBUG[..]].concat(), Stdio::null());
    assert_eq!((clone.call("GET just"), info(&original, "rdb_saves")), ("$7\r\nwritten\r\n".into(), "2".into()));
    assert_eq!((info(&clone, "clone_of"), info(&clone, "clone_deltas")), (named, "1".into()));
    assert!(info(&clone, "clone_data_age_seconds").parse::<u64>().unwrap() < 3600);
    assert_eq!(clone.call("DEBUG DIGEST"), original.call("DEBUG DIGEST"));
    assert_eq!(info(&original, "image_path"), dir.path().join("dump.quire").display().to_string());
    let own = tempfile::tempdir().unwrap();
    let of_clone = run(&["serve", "--port", "0", "--dir", own.path().to_str().unwrap(), "--clone", &address(&clone)]);
    assert!(complaint(&of_clone).contains("does not save: ERR this server is a clone"), "{}", complaint(&of_clone));
}

/// What becomes of a clone of `named` that does not start.
fn refused(named: &str, words: &[&str], password: Option<&str>) -> String {
    let mut command = quire(&[&["serve", "--port", "0", "--clone", named], words].concat());
    if let Some(password) = password {
        command.env("QUIRE_CLONE_PASSWORD", password);
    }
    let output: Output = command.output().unwrap();
    let text = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_password_comes_from_the_environment_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &["--save", "", "--requirepass", "se cret"]);
    let named = address(&original);
    let file = dir.path().join("password");
    let file = file.to_str().unwrap();
    assert!(refused(&named, &[], None).contains("asks for a password: set QUIRE_CLONE_PASSWORD"));
    assert!(refused(&named, &[], Some("wrong")).contains("refuses the password"));
    assert!(refused(&named, &["--clone-user", "me"], None).contains("a user needs a password"));
    assert!(refused(&named, &["--clone-password-file", file], None).contains("cannot read the password"));
    std::fs::write(file, "se cret\n").unwrap();
    let clone = serve_to(&["--clone", &named, "--clone-password-file", file], Stdio::null());
    assert_eq!(clone.call("DBSIZE"), ":0\r\n");
    let watched = run(&["image", "watch", &named, "--clone-password-file", file]);
    let text = String::from_utf8(watched.stdout).unwrap();
    assert!(watched.status.success() && text.starts_with("no save is running; the last save wrote "), "{text}");
}

/// A server that answers each command whose name is listed, for one connection after the other; returns its address.
fn scripted(replies: Vec<(&'static str, Vec<String>)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut replies) = (stream.unwrap(), replies.clone());
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
                let Some((_, texts)) = replies.iter_mut().find(|(name, _)| request.contains(name)) else { return };
                // The last one is said again and again.
                let text = if texts.len() > 1 { texts.remove(0) } else { texts[0].clone() };
                stream.write_all(text.as_bytes()).unwrap();
            }
        }
    });
    named
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn servers_that_cannot_be_cloned_are_told_from_those_that_fail() {
    let redis = scripted(vec![("INFO", vec![bulk("redis_version:7.0.15\r\n")])]);
    assert!(refused(&redis, &[], None).contains("no Quire but a Redis 7.0.15"));
    let web = scripted(vec![("INFO", vec!["HTTP/1.1 400 Bad Request\r\n".into()])]);
    assert!(refused(&web, &[], None).contains("no server of Redis' protocol"));
    let silent = scripted(Vec::new());
    assert!(refused(&silent, &[], None).contains("the server has closed it"));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert!(refused(&gone, &[], None).contains("cannot connect"));
    let dir = tempfile::tempdir().unwrap();
    serve(dir.path(), &["--save", ""]).call("SET a 1\r\nSAVE");
    let tell = |path: &str, fields: &str| {
        let path = dir.path().join(path);
        bulk(&format!(
            "quire_version:9\r\nserver_time_usec:99999999999999999\r\nimage_path:{}\r\n{fields}\r\n",
            path.display()
        ))
    };
    let ended = |saves: u32, status: &str| {
        let identity = "image_history:00000000000000aa\r\nimage_epoch:7\r\nimage_checksum:00000000000000bb";
        format!("rdb_saves:{saves}\r\nrdb_last_bgsave_status:{status}\r\nrdb_last_bgsave_error:no room\r\n{identity}")
    };
    let saving = |path: &str, last: &str| {
        let begun = vec!["+Background saving started\r\n".to_owned()];
        let running = tell(path, "rdb_saves:3\r\nrdb_bgsave_in_progress:1\r\ncurrent_save_pages_total:10");
        scripted(vec![("INFO", vec![tell(path, &ended(3, "ok")), running, tell(path, last)]), ("BGSAVE", begun)])
    };
    let older = refused(&saving("dump.quire", "rdb_saves:4\r\nrdb_last_bgsave_status:ok"), &[], None);
    assert!(older.contains("is an older version"), "{older}");
    let missing = refused(&saving("none.quire", &ended(4, "ok")), &[], None);
    assert!(missing.contains("run the clone as a user, and in a container, that can read it"), "{missing}");
    assert!(refused(&saving("dump.quire", &ended(3, "err")), &[], None).contains("could not save: no room"));
    assert!(refused(&saving("dump.quire", &ended(3, "ok")), &[], None).contains("was cancelled"));
    let stopped = vec!["-MISCONF no\r\n".to_owned()];
    let refusing = scripted(vec![("INFO", vec![tell("dump.quire", "")]), ("BGSAVE", stopped)]);
    assert!(refused(&refusing, &[], None).contains("does not save: MISCONF no"));
}

/// Which save a server's image is, as INFO tells it, with another epoch and checksum by so much.
fn told(server: &Served, more: u64) -> String {
    let number = |name: &str, radix: u32| u64::from_str_radix(&info(server, name), radix).unwrap();
    format!(
        "image_path:{}\r\nimage_history:{:016x}\r\nimage_epoch:{}\r\nimage_checksum:{:016x}\r\n",
        info(server, "image_path"),
        number("image_history", 16),
        number("image_epoch", 10).wrapping_add(more),
        number("image_checksum", 16).wrapping_add(more)
    )
}

#[test]
fn an_image_is_the_server_s_by_what_it_is_and_not_by_where_it_lies() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [server, other] = [0, 1].map(|number: usize| {
        let server = serve(dirs[number].path(), &["--save", ""]);
        assert_eq!(server.call(&format!("SET which {number}\r\nSAVE\r\nSAVE")), "+OK\r\n+OK\r\n+OK\r\n");
        server
    });
    // A tunnel: the server that answers has its image at the path of another one on this machine.
    let path = format!("image_path:{}\r\n", info(&server, "image_path"));
    let elsewhere = format!("{path}{}", told(&other, 0));
    let answering = |texts: &[String]| {
        let texts = texts.iter().map(|text| bulk(&format!("quire_version:9\r\n{text}"))).collect();
        scripted(vec![("INFO", texts)])
    };
    let young = ["--clone-max-age", "3600"];
    let reason = refused(&answering(&[elsewhere]), &young, None);
    let (here, there) = (info(&server, "image_history"), info(&other, "image_history"));
    assert!(
        reason.contains("is not that server's image") && reason.contains(&here) && reason.contains(&there),
        "{reason}"
    );
    // The same data, but another save of it, as a copy of the directory has that went on elsewhere.
    for branch in
        [vec![told(&server, 1)], vec![told(&server, u64::MAX)], vec![told(&server, u64::MAX), told(&server, 1)]]
    {
        let reason = refused(&answering(&branch), &young, None);
        assert!(reason.contains("is save 2 (") && reason.contains("is not that server's image"), "{reason}");
    }
    for same in [vec![told(&server, 0)], vec![told(&server, u64::MAX), told(&server, 0)]] {
        let named = answering(&same);
        let clone = serve_to(&[&["--clone", &named], &young[..]].concat(), Stdio::null());
        assert_eq!(clone.call("GET which"), "$1\r\n0\r\n");
    }
}

#[test]
fn a_clone_with_the_settings_of_its_original_leaves_alone_what_leads_to_the_original() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, pidfile, socket, log) = (path("quire.conf"), path("pid"), path("socket"), path("log"));
    let own_log = own.path().join("stderr");
    let settings = format!("dir {}\nsave \"\"\npidfile {pidfile}\nunixsocket {socket}\n", dir.path().display());
    std::fs::write(&file, format!("{settings}logfile {log}\n")).unwrap();
    let _original = serve_to(&["--", &file], Stdio::null());
    let by_socket = |lines: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(format!("{lines}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(by_socket("SET which original\r\nSAVE"), "+OK\r\n+OK\r\n+OK\r\n");
    let pid = std::fs::read_to_string(&pidfile).unwrap();
    let is_left_alone = || {
        let lines = std::fs::read_to_string(&log).unwrap();
        assert_eq!(lines.matches("ready to accept connections").count(), 1, "{lines}");
        assert_eq!(std::fs::read_to_string(&pidfile).unwrap(), pid);
        assert_eq!(by_socket("GET which"), "$8\r\noriginal\r\n+OK\r\n");
    };
    let (image, place) = (path("dump.quire"), own.path().to_str().unwrap());
    let words = ["--clone", &image, "--dir", place, "--", &file];
    let mut clone = serve_to(&words, File::create(&own_log).unwrap());
    assert_eq!(clone.call("SET which clone\r\nSAVE"), "+OK\r\n+OK\r\n");
    let told = std::fs::read_to_string(&own_log).unwrap();
    assert!(told.contains("this logfile of the configuration is the original's") && told.contains(&log), "{told}");
    is_left_alone();
    clone.signal("TERM");
    assert!(clone.ended().success());
    is_left_alone();
    std::fs::remove_file(own.path().join("dump.quire")).unwrap();
    // Told to use the file, it does so when it runs, and not before.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let told = [&["serve", "--bind", "127.0.0.1", "--port", &port, "--pidfile", &pidfile], &words[..]].concat();
    assert!(complaint(&run(&told)).contains("another program listens there"));
    is_left_alone();
    assert!(complaint(&run(&["serve", "--port", "0", "--clone", &image, "--", &file])).contains("must not replace"));
    is_left_alone();
}

#[test]
fn a_save_that_runs_is_watched_to_its_end() {
    let line =
        |saves: u8, progress: &str| bulk(&format!("rdb_saves:{saves}\r\nlast_image_bytes:1048576\r\n{progress}\r\n"));
    let running = line(
        0,
        "rdb_bgsave_in_progress:1\r\nrdb_last_bgsave_status:ok\r\ncurrent_save_pages_done:3\r\ncurrent_save_pages_total:9",
    );
    let cases = [
        (1, "ok", 0, "the last save wrote 1 MiB"),
        (0, "err", 1, "the last save failed: no room"),
        (0, "ok", 1, "was cancelled"),
    ];
    for (saves, status, code, told) in cases {
        let idle = line(0, "rdb_last_bgsave_status:ok");
        let ended = line(saves, &format!("rdb_last_bgsave_status:{status}\r\nrdb_last_bgsave_error:no room"));
        let server = scripted(vec![("INFO", vec![idle, running.clone(), running.clone(), ended])]);
        let output = run(&["image", "watch", "--wait", &server]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_save_that_is_over_between_two_looks_is_seen() {
    let idle = |saves: u8, status| {
        bulk(&format!(
            "rdb_saves:{saves}\r\nrdb_last_bgsave_status:{status}\r\nlast_image_bytes:1048576\r\nrdb_last_bgsave_error:no room"
        ))
    };
    for (saves, status, code, told) in
        [(3, "ok", 0, "the last save wrote 1 MiB"), (2, "err", 1, "the last save failed: no room")]
    {
        let server = scripted(vec![("INFO", vec![idle(2, "ok"), idle(2, "ok"), idle(saves, status)])]);
        let output = run(&["image", "watch", "--wait", &server]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_clone_for_reading_runs_behind_other_programs_and_one_that_takes_writes_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &["--save", ""]);
    original.call("SET a 1\r\nSAVE");
    let image = dir.path().join("dump.quire").to_str().unwrap().to_owned();
    let nice = |server: &Served| {
        let pid = server.call("INFO server").lines().find_map(|line| line.strip_prefix("process_id:")?.parse().ok());
        thread::nice_of(ThreadId::from_raw(pid.unwrap()).unwrap()).unwrap()
    };
    let own = nice(&original);
    let clone = |words: &[&str]| serve_to(&[&["--clone", &image], words].concat(), Stdio::null());
    assert_eq!(nice(&clone(&["--read-only"])), (own + 10).min(19));
    assert_eq!(nice(&clone(&["--read-only", "--clone-nice", "3"])), (own + 3).min(19));
    assert_eq!(nice(&clone(&["--read-only", "--clone-nice", "0"])), own);
    assert_eq!(nice(&clone(&[])), own);
    let server = serve(tempfile::tempdir().unwrap().path(), &["--save", "", "--read-only"]);
    assert_eq!(nice(&server), own, "it is no clone");
}

#[test]
fn an_image_is_copied_with_its_deltas_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &[&["--save", "", "--checkpoint-incremental", "yes"], &DEBUG[..]].concat());
    original.call("DEBUG POPULATE 20000 k 200\r\nSAVE\r\nSET a 1\r\nSAVE\r\nSET a 2\r\nSAVE");
    let digest = original.call("DEBUG DIGEST");
    let target = tempfile::tempdir().unwrap();
    let (image, to) = (dir.path().join("dump.quire"), target.path().to_str().unwrap());
    let words = ["image", "copy", image.to_str().unwrap(), to];
    let output = run(&words);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        output.status.success() && text.starts_with("copied dump.quire and 2 deltas over it"),
        "{text}{}",
        complaint(&output)
    );
    assert!(complaint(&run(&words)).contains("is there already"));
    let none = target.path().join("none");
    assert!(complaint(&run(&["image", "copy", words[2], none.to_str().unwrap()])).contains("make it first"));
    drop(original);
    let used = tempfile::tempdir().unwrap();
    let server = serve(used.path(), &["--save", ""]);
    let refused = complaint(&run(&["image", "copy", words[2], used.path().to_str().unwrap()]));
    assert!(refused.contains("a server uses"), "{refused}");
    assert_eq!(server.call("SAVE"), "+OK\r\n");
    let restarted = serve(target.path(), &[&["--save", ""], &DEBUG[..]].concat());
    assert_eq!((restarted.call("DEBUG DIGEST"), info(&restarted, "restore_mode")), (digest, "map".into()));
}

#[test]
fn a_pidfile_that_cannot_be_written_is_told_before_an_original_is_asked_for_a_save() {
    let dir = tempfile::tempdir().unwrap();
    let original = serve(dir.path(), &["--save", ""]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for pidfile in [path("no-such-directory/pid"), path("")] {
        let refused = complaint(&run(&["serve", "--port", "0", "--clone", &address(&original), "--pidfile", &pidfile]));
        assert!(refused.contains(&format!("cannot write the pidfile {pidfile}")), "{refused}");
    }
    assert_eq!(info(&original, "rdb_saves"), "0");
    // One that is there stays as it is when the start fails for another reason.
    std::fs::write(path("pid"), "1").unwrap();
    let refused = run(&["serve", "--port", "0", "--clone", &path("no-such-image"), "--pidfile", &path("pid")]);
    assert!(complaint(&refused).contains("cannot clone"));
    assert_eq!(std::fs::read_to_string(path("pid")).unwrap(), "1");
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_str().unwrap().contains(".tmp-")), "{names:?}");
}

/// This process runs for a file system whose locks fail with this error number.
const LOCKS_FAIL: &str = "TEST_LOCKS_FAIL";

#[test]
fn where_a_file_system_has_no_locks_servers_and_copies_say_so_and_go_on() {
    let (unsupported, broken) = (95, 5);
    let Ok(number) = std::env::var(LOCKS_FAIL) else {
        // Processes of their own, whose children inherit that.
        for number in [unsupported, broken] {
            let this = std::env::args_os().next().unwrap();
            let name = "clone::where_a_file_system_has_no_locks_servers_and_copies_say_so_and_go_on";
            let mut command = std::process::Command::new(this);
            let output = command.args([name, "--exact"]).env(LOCKS_FAIL, number.to_string()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        return;
    };
    let (dir, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (place, to) = (dir.path().to_str().unwrap(), target.path().to_str().unwrap());
    let image = dir.path().join("dump.quire");
    let (log, image) = (dir.path().join("stderr"), image.to_str().unwrap());
    let errno = number.parse().unwrap();
    quire_sys::deny::deny(SyscallFilter { call: calls::SYS_flock, argument: None, errno }).unwrap();
    if errno == broken {
        let refused = complaint(&run(&["serve", "--port", "0", "--dir", place]));
        assert!(refused.contains("cannot tell whether another server uses the image"), "{refused}");
        let refused = complaint(&run(&["image", "copy", image, to]));
        assert!(refused.contains("cannot tell whether a server uses"), "{refused}");
        return;
    }
    let server = serve_to(&["--dir", place, "--save", "", "--appendonly", "yes"], File::create(&log).unwrap());
    assert_eq!(server.call("SET a 1\r\nSAVE"), "+OK\r\n+OK\r\n");
    let told = std::fs::read_to_string(&log).unwrap();
    for lock in [".dump.quire.lock", ".quire-log.lock"] {
        let is_told = |line: &str| line.contains("has no locks") && line.contains(lock);
        assert!(told.lines().any(is_told), "{lock}: {told}");
    }
    // What looks like a leftover may be what another copy is writing.
    let left = target.path().join("dump.quire.tmp-4194999000");
    std::fs::write(&left, "half").unwrap();
    let copied = run(&["image", "copy", image, to]);
    let told = complaint(&copied);
    assert!(
        copied.status.success() && told.contains("has no locks") && told.contains("dump.quire.tmp-4194999000"),
        "{told}"
    );
    assert!(left.exists());
}

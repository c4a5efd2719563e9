//! `quire serve` with a log, killed at any instant: what was acknowledged is there afterwards, transactions are whole. And
//! `quire log`, which shows what is in it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, complaint, run, serve};

const WRITERS: u64 = 3;
const ROUNDS: u64 = 10;
const ALWAYS: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--log-segment-bytes", "1mb"];

/// Sends inline commands, and reads as many lines of reply as it is told to. `None` when the server is gone.
fn ask(stream: &mut BufReader<TcpStream>, commands: &str, lines: usize) -> Option<Vec<String>> {
    stream.get_mut().write_all(commands.as_bytes()).ok()?;
    let mut replies = Vec::new();
    for _ in 0..lines {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        replies.push(line.trim_end().to_owned());
    }
    Some(replies)
}

/// Writes until the server is gone; returns the last round that was acknowledged.
fn write(mut stream: BufReader<TcpStream>, writer: u64, from: u64, done: &AtomicU64) -> u64 {
    for number in from.. {
        // One write alone, several in a row, and a transaction of which both halves must be there or none.
        let text = format!(
            "SET w{writer} {number}\r\nSET k{writer}:{number} v\r\nMULTI\r\nINCR a{writer}\r\nINCR b{writer}\r\nEXEC\r\n"
        );
        match ask(&mut stream, &text, 8) {
            Some(replies) => assert_eq!(replies[..2], ["+OK", "+OK"]),
            None => return number - 1,
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the numbers do not end")
}

fn number(stream: &mut BufReader<TcpStream>, command: &str) -> u64 {
    let reply = ask(stream, &format!("{command}\r\n"), 1).unwrap().remove(0);
    if reply == "$-1" {
        return 0;
    }
    ask(stream, "", 1).unwrap()[0].parse().unwrap()
}

#[test]
fn a_killed_server_has_lost_nothing_that_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = vec![0; WRITERS as usize];
    for round in 0..ROUNDS {
        let mut server = serve(dir.path(), ALWAYS);
        let mut stream = BufReader::new(server.connect());
        for writer in 0..WRITERS {
            let known = acknowledged[writer as usize];
            let last = number(&mut stream, &format!("GET w{writer}"));
            assert!(last == known || last == known + 1, "round {round}: {last} of {known}");
            for index in 1..=known {
                let exists = ask(&mut stream, &format!("EXISTS k{writer}:{index}\r\n"), 1).unwrap();
                assert_eq!(exists, [":1"], "round {round}: {index} of {known}");
            }
            let (a, b) =
                (number(&mut stream, &format!("GET a{writer}")), number(&mut stream, &format!("GET b{writer}")));
            assert_eq!(a, b, "round {round}: half a transaction");
            assert!(a >= known);
        }
        if round % 4 == 3 {
            // Some rounds begin with a new image and an old log.
            ask(&mut stream, "BGREWRITEAOF\r\n", 1).unwrap();
        }
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (stream, done) = (BufReader::new(server.connect()), Arc::clone(&done));
                let from = acknowledged[writer as usize] + 1;
                std::thread::spawn(move || write(stream, writer, from, &done))
            })
            .collect();
        while done.load(Ordering::Relaxed) < 20 + round * 7 {
            std::thread::yield_now();
        }
        server.signal("KILL");
        server.ended();
        for (writer, thread) in writers.into_iter().enumerate() {
            acknowledged[writer] = thread.join().unwrap();
        }
    }
}

fn log(dir: &Path, words: &[&str]) -> (bool, String) {
    let mut all = vec!["log"];
    all.extend_from_slice(words);
    all.push(dir.to_str().unwrap());
    let output = run(&all);
    let text = String::from_utf8(output.stdout.clone()).unwrap() + &complaint(&output);
    (output.status.success(), text)
}

#[test]
fn the_banner_counts_what_the_log_has_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), ALWAYS);
    server.call("SET a 1\r\nSET b 1\r\nSET a 2");
    server.signal("KILL");
    server.ended();
    let server = serve(dir.path(), ALWAYS);
    assert!(server.banner.contains("restored   2 keys"), "{}", server.banner);
    assert!(
        server.banner.contains("replayed   3 commands of the log on top of the image's 0 keys"),
        "{}",
        server.banner
    );
}

#[test]
fn a_damaged_header_is_told_and_with_leave_the_log_is_read_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), ALWAYS);
    server.call("SET a 1\r\nSET b 2");
    server.signal("KILL");
    server.ended();
    let path = dir.path().join("quire-log-00000001");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[50] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let start =
        |more: &[&str]| run(&[&["serve", "--port", "0", "--dir", dir.path().to_str().unwrap()], ALWAYS, more].concat());
    let output = start(&[]);
    let told = complaint(&output);
    assert!(!output.status.success() && told.contains("quire-log-00000001 is damaged at byte 0"), "{told}");
    assert!(told.contains("--accept-damaged-log") && std::fs::read(&path).unwrap() == bytes);
    let verify = format!("quire log verify {}", dir.path().display());
    assert!(told.contains(&verify), "{told}");
    let (ok, text) = log(dir.path(), &["verify"]);
    assert!(!ok && text.contains("damaged at byte 0") && text.contains("readable: 2 records"), "{text}");
    let (_, text) = log(dir.path(), &["info"]);
    assert!(text.lines().any(|line| line.contains("quire-log-00000001") && line.contains("damaged")), "{text}");
    let mut server = serve(dir.path(), &[ALWAYS, &["--accept-damaged-log"]].concat());
    assert!(server.banner.contains("restored   2 keys"), "{}", server.banner);
    server.signal("TERM");
    server.ended();
    let kept = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.to_string_lossy().contains(".damaged-")).collect();
    assert!(kept.len() == 1 && std::fs::read(&kept[0]).unwrap() == bytes, "{kept:?}");
}

#[test]
fn a_log_that_was_begun_over_a_save_which_is_lost_is_refused_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let words = ["--save", "", "--checkpoint-incremental", "yes", "--enable-debug-command", "local"];
    let mut server = serve(dir.path(), &words);
    server.call("DEBUG POPULATE 20000 k 200\r\nSET a image\r\nSAVE");
    assert_eq!(server.call("SET a delta\r\nSAVE"), "+OK\r\n+OK\r\n");
    // In no save but the next, which the log begins with.
    server.call("SET a last\r\nCONFIG SET appendonly yes");
    let end = std::time::Instant::now() + common::PATIENCE;
    while !dir.path().join("dump.quire.delta-2").exists() || !server.call("INFO persistence").contains("aof_enabled:1")
    {
        assert!(std::time::Instant::now() < end, "the log does not come in force");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(server.call("SET b 1\r\nWAITAOF 1 0 0").starts_with("+OK"));
    server.signal("KILL");
    server.ended();
    let sound = serve(dir.path(), &words);
    assert_eq!(sound.call("GET a\r\nGET b"), "$4\r\nlast\r\n$1\r\n1\r\n");
    drop(sound);
    for damaged in ["dump.quire.delta-2", "dump.quire.delta-1"] {
        let path = dir.path().join(damaged);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let accepting = [&["serve", "--port", "0", "--dir", place, "--accept-damaged-image"], &words[..]].concat();
        let refused = complaint(&run(&accepting));
        let left = if damaged.ends_with('2') { "save 2" } else { "save 1" };
        assert!(refused.contains("continues save 3") && refused.contains(left), "{refused}");
        assert!(refused.contains("--accept-damaged-log") && refused.contains("quire-log-"), "{refused}");
    }
    let log = dir.path().join("stderr");
    let stderr = std::fs::File::create(&log).unwrap();
    let accepting = ["--dir", place, "--accept-damaged-image", "--accept-damaged-log"];
    let server = common::serve_to(&[&accepting[..], &words].concat(), stderr);
    assert_eq!(server.call("GET a\r\nGET b"), "$5\r\nimage\r\n$1\r\n1\r\n");
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(
        told.contains("continues a later save") && told.contains("base=3") && told.contains("restored=1"),
        "{told}"
    );
}

#[test]
fn a_log_is_shown_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(log(dir.path(), &["verify"]), (true, "there is no log\n".to_owned()));
    let mut server = serve(dir.path(), ALWAYS);
    // One is durable when the other comes, which says so.
    server.call("SET a \"b\\n c\"");
    server.call("SELECT 3\r\nMULTI\r\nINCR n\r\nINCR n\r\nEXEC");
    server.signal("KILL");
    server.ended();
    let (ok, text) = log(dir.path(), &["info"]);
    assert!(ok && text.contains("quire-log-00000001") && text.contains("in force"), "{text}");
    let (ok, text) = log(dir.path(), &["info", "--json"]);
    assert!(ok && text.contains("\"first_record\":1"), "{text}");
    let (ok, text) = log(dir.path(), &["verify"]);
    assert!(ok && text.starts_with("ok: 2 records with 3 commands in 1 segments"), "{text}");
    let (ok, text) = log(dir.path(), &["dump"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(ok && lines[0].ends_with("db0 \"SET\" \"a\" \"b\\n c\"") && lines[0].starts_with("1 "), "{text}");
    assert!(lines[1].ends_with("db3 \"INCR\" \"n\"") && lines[2].starts_with("2 ") && lines.len() == 3, "{text}");
    let (_, text) = log(dir.path(), &["dump", "--from", "2"]);
    assert_eq!(text.lines().count(), 2);
    // A byte of a record that others follow.
    let path = dir.path().join("quire-log-00000001");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 45] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (ok, text) = log(dir.path(), &["verify"]);
    assert!(!ok && text.contains("damaged at byte 4096: record 1"), "{text}");
}

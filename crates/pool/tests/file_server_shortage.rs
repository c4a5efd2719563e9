//! The example that sends leased pages, in a process that may have few files open: it goes on when there are descriptors again.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::file_server_example::FileServer;

/// Set in the process that has the limit.
const ROLE: &str = "QUIRE_TEST_FEW_FILES";
const NAME: &str = "file_server_shortage::a_server_without_descriptors_takes_connections_later";

#[test]
fn a_server_without_descriptors_takes_connections_later() {
    if std::env::var_os(ROLE).is_some() {
        return use_up_descriptors();
    }
    let this = std::env::current_exe().unwrap();
    let limited = Command::new("sh")
        .args(["-c", r#"ulimit -n 64 && exec "$0" "$@""#])
        .arg(this)
        .args(["--exact", NAME, "--nocapture"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&limited.stdout);
    assert!(limited.status.success() && said.contains("1 passed"), "{limited:?}");
}

fn use_up_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small"), "a few bytes").unwrap();
    let server = FileServer::new(folder.path(), 1 << 20).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.serve(&listener)
    });
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(64).collect();
    assert!(held.len() < 64, "the limit does not hold");
    // One is the client's; the server may have one for the next connection already, or take it first.
    let mut client = loop {
        assert!(held.pop().is_some(), "no descriptor for a client");
        if let Ok(client) = TcpStream::connect(address) {
            break client;
        }
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.shortages.load(Ordering::Relaxed) == 0 {
        assert!(!serving.is_finished() && Instant::now() < deadline, "it has ended, or met no shortage");
        std::thread::yield_now();
    }
    drop(held);
    client.write_all(b"GET /small HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("a few bytes"), "{answer}");
}

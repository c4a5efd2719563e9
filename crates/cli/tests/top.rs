//! `quire top` in front of servers: one frame, a pipe, a password, a server that goes away.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::common::{complaint, quire, run, serve};

#[test]
fn one_frame_tells_of_the_server_without_codes_of_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--appendonly", "yes", "--save", ""]);
    server.call("SET a 1\r\nGET a\r\nGET b");
    let named = format!("127.0.0.1:{}", server.port);
    let output = run(&["top", &named, "--once", "--interval", "100"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    for part in [&named, "commands/s", "used", "changes since", "records", "\nset ", "\nget ", "50.0 % hits"] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "{shown}");
}

#[test]
fn a_pipe_is_told_of_the_flag_that_prints_a_frame() {
    let output = run(&["top", "127.0.0.1:1"]);
    assert!(!output.status.success() && complaint(&output).contains("--once"), "{}", complaint(&output));
}

#[test]
fn a_password_is_taken_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--requirepass", "secret"]);
    let named = format!("127.0.0.1:{}", server.port);
    let words = ["top", &named, "--once", "--interval", "100"];
    assert!(complaint(&run(&words)).contains("asks for a password"));
    let output = quire(&words).env("QUIRE_CLONE_PASSWORD", "secret").output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn a_server_that_goes_away_is_told_and_ends_the_view() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 256];
        assert!(stream.read(&mut asked).unwrap() > 0);
        stream.write_all(b"$25\r\nuptime_in_seconds:1\r\n\x1b[2J\r\n").unwrap();
    });
    let output = run(&["top", &named, "--once", "--interval", "100"]);
    served.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains(&format!("the connection to {named} failed")), "{}", complaint(&output));
}

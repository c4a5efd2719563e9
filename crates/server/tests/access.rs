//! Which clients may connect, and what they may do without the password: passwords, protected mode, Unix sockets.

use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use crate::common::{Client, Value, request, start};

const NOAUTH: &str = "NOAUTH Authentication required.";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn without_the_password_nothing_works() {
    let server = start(&[("requirepass", "secret")]);
    let mut client = server.client();
    for line in ["PING", "GET a", "MULTI", "CONFIG GET *", "SHUTDOWN", "DEBUG SLEEP 1", "CLIENT ID"] {
        assert_eq!(client.text(line), NOAUTH, "{line}");
    }
    assert!(client.text("HELLO 3").starts_with("NOAUTH HELLO must be called with the client already authenticated"));
    assert_eq!(client.text("AUTH wrong"), WRONGPASS);
    assert_eq!(client.text("AUTH other secret"), WRONGPASS);
    assert_eq!(client.text("AUTH a b c"), "ERR syntax error");
    assert_eq!(client.text("AUTH secret"), "OK");
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(client.text("AUTH wrong"), WRONGPASS);
    assert_eq!(client.text("PING"), "PONG", "a later mistake does not log out");
    assert_eq!(client.text("RESET"), "RESET");
    assert_eq!(client.text("PING"), NOAUTH);
    assert!(matches!(client.call("HELLO 3 AUTH default secret"), Value::Map(_)));
}

#[test]
fn commands_behind_the_password_in_one_pipeline_are_run() {
    let server = start(&[("requirepass", "secret")]);
    let mut client = server.client();
    let pipeline = [request("GET a"), request("AUTH secret"), request("SET a 1").repeat(100), request("GET a")];
    client.send(pipeline.concat());
    assert_eq!(client.reply().text(), NOAUTH);
    for _ in 0..101 {
        assert_eq!(client.reply().text(), "OK");
    }
    assert_eq!(client.reply().text(), "1");
}

#[test]
fn strangers_may_send_short_requests_only() {
    let server = start(&[("requirepass", "secret")]);
    for (bytes, reason) in [
        ("*11\r\n", "unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(client.reply().text(), format!("ERR Protocol error: {reason}"));
        assert_eq!(client.try_reply(), None);
    }
}

#[test]
fn a_password_may_come_and_go_while_running() {
    let server = start(&[]);
    let mut first = server.client();
    assert!(first.text("AUTH x").starts_with("ERR AUTH <password> called without any password configured"));
    assert_eq!(first.text("AUTH default anything"), "OK");
    assert_eq!(first.text("CONFIG SET requirepass new"), "OK");
    let mut second = server.client();
    assert_eq!((first.text("PING"), second.text("PING")), ("PONG".into(), NOAUTH.into()));
    assert_eq!(first.words(&[b"CONFIG", b"SET", b"requirepass", b""]).text(), "OK");
    assert_eq!(second.text("PING"), "PONG");
}

#[test]
fn passwords_do_not_appear_in_the_slow_log() {
    let server = start(&[("slowlog-log-slower-than", "0")]);
    let mut client = server.client();
    client.text("CONFIG SET requirepass secret");
    client.text("AUTH secret");
    client.call("HELLO 2 AUTH default secret");
    let log = format!("{:?}", client.call("SLOWLOG GET -1"));
    assert!(!log.contains(&format!("{:?}", b"secret".to_vec())), "{log}");
    assert!(log.contains(&format!("{:?}", b"(redacted)".to_vec())), "{log}");
}

/// An address of this machine that is not the loopback.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing; the system only chooses a route.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[test]
fn protected_mode_refuses_other_machines() {
    let Some(outer) = outer_address() else {
        return quire_sys::testing::skipped_even_in_ci("this machine has no address but the loopback");
    };
    let server = start(&[("bind", "0.0.0.0")]);
    let call = || Client::over(TcpStream::connect((outer, server.port)).unwrap());
    let mut refused = call();
    let Value::Error(line) = refused.reply() else { panic!("an error") };
    assert!(line.starts_with("DENIED Redis is running in protected mode"), "{line}");
    assert_eq!(refused.try_reply(), None);
    let mut local = server.client();
    assert_eq!(local.text("PING"), "PONG");
    local.text("CONFIG SET protected-mode no");
    let mut client = call();
    assert_eq!(client.text("PING"), "PONG");
    assert!(client.text("DEBUG SLEEP 0").starts_with("ERR DEBUG command not allowed"));
    assert_eq!(local.text("DEBUG SLEEP 0"), "OK");
    local.text("CONFIG SET protected-mode yes requirepass secret");
    assert_eq!(call().text("PING"), NOAUTH);
}

#[test]
fn a_unix_socket_serves_and_is_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quire.sock");
    // One that a killed server has left behind is in the way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut server = start(&[("unixsocket", path.to_str().unwrap()), ("unixsocketperm", "700")]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let mut client = Client::over(UnixStream::connect(&path).unwrap());
    assert_eq!(client.text("SET a 1"), "OK");
    let line = client.text("CLIENT INFO");
    assert!(line.contains(&format!("addr={}:0 ", path.display())) && line.contains("flags=U"), "{line}");
    client.send(request("SHUTDOWN NOSAVE"));
    assert_eq!(client.try_reply(), None);
    assert!(server.ended());
    assert!(!path.exists());
}

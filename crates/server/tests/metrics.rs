//! The metrics' endpoint of a server: what it serves, and that INFO and the table of metrics agree.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use quire_server::metrics::table::FIELDS;

use crate::common::{self, PATIENCE, Running, Value, free_port, start};

fn serve(more: &[(&str, &str)]) -> (Running, u16) {
    let port = free_port();
    let text = port.to_string();
    let mut settings = vec![("metrics-port", text.as_str())];
    settings.extend_from_slice(more);
    (start(&settings), port)
}

fn scrape(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: quire\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

/// The number behind this name and these labels.
fn number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn every_metric_of_the_table_is_served() {
    let (server, port) = serve(&[("appendonly", "yes")]);
    server.client().call("SET k v EX 100");
    let text = scrape(port);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
    for field in FIELDS {
        let ending = if field.kind.name() == "counter" { "_total" } else { "" };
        assert!(number(&text, &format!("{}{ending}", field.name)).is_some(), "{} is not served", field.name);
    }
    assert_eq!(number(&text, "quire_db_keys{db=\"0\"}"), Some(1.0));
    assert_eq!(number(&text, "quire_db_keys_expiring{db=\"0\"}"), Some(1.0));
}

#[test]
fn commands_are_counted_with_their_durations_and_errors_by_their_code() {
    let (server, port) = serve(&[]);
    let mut client = server.client();
    for _ in 0..3 {
        client.call("SET k v");
    }
    client.call("LPUSH k v");
    let text = scrape(port);
    assert_eq!(number(&text, "quire_command_calls_total{command=\"set\"}"), Some(3.0));
    assert_eq!(number(&text, "quire_command_failed_total{command=\"lpush\"}"), Some(1.0));
    assert_eq!(number(&text, "quire_errors_total{code=\"WRONGTYPE\"}"), Some(1.0));
    assert_eq!(number(&text, "quire_command_duration_seconds_count{command=\"set\"}"), Some(3.0));
    assert_eq!(number(&text, "quire_command_duration_seconds_bucket{le=\"+Inf\",command=\"set\"}"), Some(3.0));
    let Value::Array(reply) = client.call("LATENCY HISTOGRAM set nosuchcommand") else { panic!("no array") };
    assert_eq!(reply[0], Value::Bulk(b"set".to_vec()));
    let Value::Array(set) = &reply[1] else { panic!("{reply:?}") };
    assert_eq!((&set[0], &set[1]), (&Value::Bulk(b"calls".to_vec()), &Value::Int(3)));
    let Value::Array(ranges) = &set[3] else { panic!("{set:?}") };
    assert_eq!(ranges.last(), Some(&Value::Int(3)), "the last range counts all runs");
}

#[test]
fn what_users_are_denied_is_counted_by_the_reason() {
    let (server, port) = serve(&[]);
    let mut client = server.client();
    client.call("ACL SETUSER limited on >secret +get ~a:*");
    client.call("AUTH limited wrong");
    client.call("AUTH limited secret");
    client.call("SET a:1 x");
    client.call("GET b");
    client.call("GET b");
    let text = scrape(port);
    for (reason, count) in [("auth", 1.0), ("command", 1.0), ("key", 2.0), ("channel", 0.0)] {
        let name = format!("quire_access_denied_total{{reason=\"{reason}\"}}");
        assert_eq!(number(&text, &name), Some(count), "{reason}");
    }
}

#[test]
fn the_endpoint_is_asked_for_while_clients_keep_the_server_busy() {
    let (server, port) = serve(&[]);
    let mut client = server.client();
    for _ in 0..20 {
        client.send(b"PING\r\n".repeat(1000));
        assert!(scrape(port).ends_with("# EOF\n"));
    }
}

#[test]
fn without_a_port_there_is_no_endpoint_and_a_taken_one_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let reason = common::refused(common::config_in(dir.path(), &[("metrics-port", &port)]));
    assert!(reason.contains("cannot serve metrics on 127.0.0.1:"), "{reason}");
}

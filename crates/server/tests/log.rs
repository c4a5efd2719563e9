//! The log of writes as clients see it: what they wait for, what happens when its disk stalls or fails.

use std::sync::Arc;

use quire_device::{
    DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, IoGate, MemoryDirectory, errno,
};
use tempfile::TempDir;

use crate::common::{
    self, Client, Running, Value, config_in, eventually, refused, request, start, start_in, start_logging, start_with,
};

const ALWAYS: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always"), ("log-segment-bytes", "1mb")];

/// Opens its gate at the end, so that a test which fails can end its server.
struct GateGuard(IoGate);

impl std::ops::Deref for GateGuard {
    type Target = IoGate;
    fn deref(&self) -> &IoGate {
        &self.0
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A server whose log lies behind a gate.
fn gated(settings: &[(&str, &str)]) -> (Running, GateGuard, TempDir) {
    let (gate, dir) = (IoGate::default(), tempfile::tempdir().unwrap());
    let server = start_logging(dir.path(), settings, gate.before_all(Arc::new(MemoryDirectory::new())));
    (server, GateGuard(gate), dir)
}

#[test]
fn a_write_is_replied_to_when_it_is_durable_and_reads_never_wait() {
    let (server, gate, _dir) = gated(ALWAYS);
    let (mut writer, mut second, mut reader) = (server.client(), server.client(), server.client());
    assert_eq!(writer.text("SET a 0"), "OK");
    assert_eq!(reader.text("GET a"), "0");
    gate.close();
    writer.send([request("SET a 1"), request("GET a"), request("INCR n")].concat());
    second.send(request("SET b 2"));
    assert!(writer.is_silent() && second.is_silent());
    // Reading shows what is not durable yet, and doesn't wait for it.
    eventually("the write is done", || reader.text("GET b") == "2");
    assert_eq!((reader.text("GET a"), reader.text("PING")), ("1".into(), "PONG".into()));
    assert_eq!(reader.info("aof_pending_bio_fsync"), "1");
    assert!(writer.is_silent());
    gate.open();
    assert_eq!((writer.reply().text(), writer.reply().text(), writer.reply().int()), ("OK".into(), "1".into(), 1));
    assert_eq!(second.reply().text(), "OK");
    eventually("all is durable", || reader.info("aof_pending_bio_fsync") == "0");
}

#[test]
fn a_write_that_changes_nothing_waits_for_what_it_has_found() {
    let (server, gate, _dir) = gated(ALWAYS);
    let (mut writer, mut second, mut reader) = (server.client(), server.client(), server.client());
    assert_eq!(writer.text("SET a 0"), "OK");
    assert_eq!(second.call("SETNX a 1"), Value::Int(0), "all is durable");
    gate.close();
    writer.send(request("SET b 1"));
    eventually("the write is done", || reader.text("GET b") == "1");
    second.send(request("SETNX b 2"));
    assert!(second.is_silent() && writer.is_silent());
    gate.open();
    assert_eq!((second.reply().int(), writer.reply().text()), (0, "OK".into()));
}

#[test]
fn settings_may_change_within_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), ALWAYS);
    let mut client = server.client();
    let mut transaction = |lines: &[&str]| {
        client.text("MULTI");
        lines.iter().for_each(|line| assert_eq!(client.text(line), "QUEUED"));
        client.call("EXEC").items().to_vec()
    };
    transaction(&["INCR a", "CONFIG SET appendfsync everysec", "INCR a", "CONFIG SET appendfsync always", "INCR a"]);
    let replies = transaction(&["INCR a", "BGSAVE", "BGREWRITEAOF", "DEBUG RELOAD", "INCR a"]);
    assert_eq!(replies[1].text(), "Background saving scheduled");
    assert_eq!(replies[2].text(), "Background append only file rewriting scheduled");
    assert!(replies[3].text().contains("not possible inside a transaction"));
    // The transaction that ends the log isn't in it, neither of its halves.
    transaction(&["INCR a", "CONFIG SET appendonly no", "INCR a"]);
    drop(server);
    let server = start_in(dir.path(), ALWAYS);
    let a = server.client().text("GET a");
    assert!(a == "5" || a == "7", "{a}");
}

#[test]
fn what_changes_nothing_is_not_logged() {
    let server = start(ALWAYS);
    let mut client = server.client();
    for number in 0..50 {
        assert_eq!(client.text(&format!("SET k {number}")), "OK");
    }
    assert_eq!(client.info("log_appended_record"), "50");
    // Reads and writes that change nothing are not logged.
    client.text("GET k");
    client.text("DEL nothing");
    client.text("EXPIRE nothing 10");
    assert_eq!(client.info("log_appended_record"), "50");
    assert_eq!(client.info("log_durable_record"), "50");
}

#[test]
fn many_pipelined_writes_share_their_commits() {
    let server = start(ALWAYS);
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send((0..200).flat_map(|index| request(&format!("SET k{number}:{index} v"))).collect::<Vec<_>>());
    }
    for client in &mut clients {
        for _ in 0..200 {
            assert_eq!(client.reply().text(), "OK");
        }
    }
    let commits: u64 = clients[0].info("log_commits").parse().unwrap();
    assert!(commits < 800, "{commits} commits for 1600 writes");
    assert_eq!(clients[0].info("log_durable_record"), "1600");
}

#[test]
fn with_everysec_a_stalled_disk_holds_writes_up_only_after_a_while_and_never_reads() {
    let (server, gate, _dir) = gated(&[("appendonly", "yes"), ("log-segment-bytes", "1mb")]);
    let (mut writer, mut other, mut reader) = (server.client(), server.client(), server.client());
    gate.close();
    for number in 0..20 {
        assert_eq!(writer.text(&format!("SET a {number}")), "OK");
    }
    // A first batch is on its way to the disk; later ones wait for it, in the end for too long.
    eventually("the disk is behind", || {
        if reader.info("log_behind") == "1" {
            return true;
        }
        // It may have to wait already.
        other.send(request("INCR n"));
        false
    });
    writer.send(request("SET a behind"));
    assert!(writer.is_silent());
    assert_eq!(reader.text("GET a"), "19");
    assert_eq!(reader.info("aof_delayed_fsync"), "1");
    gate.open();
    assert_eq!(writer.reply().text(), "OK");
    eventually("it has caught up", || reader.info("log_behind") == "0");
}

/// A server whose log's disk fails at everything of this kind from number `from` on.
fn failing(fsync: &str, action: DeviceOperation, from: u64) -> (Running, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let rules = vec![(FaultTrigger::From(action, from), InjectedFault::Error(errno::EIO))];
    let directory: Arc<dyn Directory> = Arc::new(FaultInjector::new(Arc::new(MemoryDirectory::new()), rules));
    let settings = [("appendonly", "yes"), ("appendfsync", fsync), ("log-segment-bytes", "1mb")];
    (start_logging(dir.path(), &settings, directory), dir)
}

/// The log has failed, all clients are told, and one that can do without may go on.
fn is_refused_with_the_reason(reader: &mut Client) {
    eventually("the failure is known", || reader.info("aof_last_write_status") == "err");
    let refused = reader.text("SET a 1");
    assert!(refused.starts_with("MISCONF Errors writing to the log") && refused.contains("error 5"), "{refused}");
    assert!(reader.text("PING").starts_with("MISCONF"));
    assert_ne!(reader.info("log_refused_writes"), "0");
    assert!(reader.info("log_last_error").contains("error 5"), "{}", reader.info("log_last_error"));
    assert_eq!(reader.text("CONFIG SET appendonly no"), "OK");
    assert_eq!((reader.text("SET a 1"), reader.text("PING")), ("OK".into(), "PONG".into()));
}

#[test]
fn after_a_failed_write_writes_are_refused_with_the_reason() {
    for fsync in ["always", "everysec"] {
        let (server, _dir) = failing(fsync, DeviceOperation::DurableWrite, 3);
        let (mut writer, mut reader) = (server.client(), server.client());
        let mut acknowledged = 0;
        // The client that waits for the write that fails is not told yes: its effect is not known.
        loop {
            writer.send([request("INCR n"), request("WAITAOF 1 0 0")].concat());
            match (writer.try_reply(), writer.try_reply()) {
                (Some(Value::Int(count)), Some(Value::Array(_))) => acknowledged = count,
                _ => break,
            }
        }
        assert!(acknowledged > 0, "{fsync}");
        assert!(reader.text("GET n").parse::<i64>().unwrap() >= acknowledged, "{fsync}");
        is_refused_with_the_reason(&mut reader);
    }
}

#[test]
fn after_a_failed_flush_writes_are_refused_with_the_reason() {
    // The first flush is that of the new file.
    let (server, _dir) = failing("everysec", DeviceOperation::Flush, 1);
    eventually("the flush fails", || match server.client().try_call("INCR n") {
        Some(Value::Error(error)) => error.starts_with("MISCONF"),
        // A client that comes in the very moment isn't told yes.
        _ => false,
    });
    is_refused_with_the_reason(&mut server.client());
}

/// What `n` is when the log has failed.
fn counted_when_the_log_has_failed(client: &mut Client) -> i64 {
    eventually("the failure is known", || client.info("aof_last_write_status") == "err");
    client.text("GET n").parse().unwrap()
}

#[test]
fn a_server_whose_log_has_failed_takes_an_image_before_it_ends() {
    for (fsync, end) in [("always", "SHUTDOWN"), ("everysec", "SHUTDOWN"), ("everysec", "SHUTDOWN NOSAVE")] {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryDirectory::new();
        let rules = vec![(FaultTrigger::From(DeviceOperation::DurableWrite, 3), InjectedFault::Error(errno::EIO))];
        let settings = [("appendonly", "yes"), ("appendfsync", fsync), ("log-segment-bytes", "1mb")];
        let failing: Arc<dyn Directory> = Arc::new(FaultInjector::new(Arc::new(memory.clone()), rules));
        let mut server = start_logging(dir.path(), &settings, failing);
        let mut writer = server.client();
        while let Some(Value::Int(_)) = writer.try_call("INCR n") {}
        let mut client = server.client();
        let count = counted_when_the_log_has_failed(&mut client);
        client.send(request(end));
        assert!(server.ended(), "{fsync}, {end}");
        // The log that is left is older than the image, and both belong together.
        let server = start_logging(dir.path(), &settings, Arc::new(memory));
        let mut client = server.client();
        assert_eq!(client.call("INCR n"), Value::Int(count + 1), "{fsync}, {end}");
    }
}

#[test]
fn a_server_whose_log_has_failed_stays_if_it_can_not_take_an_image() {
    let (mut server, dir) = failing("everysec", DeviceOperation::DurableWrite, 3);
    let mut writer = server.client();
    while let Some(Value::Int(_)) = writer.try_call("INCR n") {}
    let mut client = server.client();
    let count = counted_when_the_log_has_failed(&mut client);
    std::fs::remove_file(dir.path().join("dump.quire")).unwrap();
    std::fs::create_dir(dir.path().join("dump.quire")).unwrap();
    for end in ["SHUTDOWN", "SHUTDOWN NOSAVE"] {
        assert_eq!(client.text(end), "ERR Errors trying to SHUTDOWN. Check logs.");
    }
    assert_eq!(client.text("GET n"), count.to_string());
    client.send(request("SHUTDOWN NOSAVE FORCE"));
    assert!(server.ended());
}

#[test]
fn a_log_that_fails_as_it_is_switched_off_acknowledges_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, memory) = (IoGate::default(), MemoryDirectory::new());
    let rules = vec![(FaultTrigger::From(DeviceOperation::DurableWrite, 2), InjectedFault::Error(errno::EIO))];
    let faulty: Arc<dyn Directory> = Arc::new(FaultInjector::new(Arc::new(memory), rules));
    let server = start_logging(dir.path(), ALWAYS, gate.before_all(faulty));
    let gate = GateGuard(gate);
    let (mut writer, mut second, mut admin) = (server.client(), server.client(), server.client());
    assert_eq!(writer.text("SET a 1"), "OK");
    gate.close();
    writer.send(request("SET a 2"));
    second.send(request("SET b 2"));
    // If this machine is so slow that the device counts as stalled before the second write comes, that one is held back.
    let mut second_is_done = false;
    eventually("both are done or held back", || {
        let is_held_back = admin.info("aof_delayed_fsync") != "0";
        second_is_done = admin.text("GET b") == "2";
        admin.text("GET a") == "2" && (second_is_done || is_held_back)
    });
    admin.send([request("SET c 2"), request("CONFIG SET appendonly no")].concat());
    assert!(admin.is_silent());
    gate.open();
    assert_eq!(writer.try_reply(), None, "neither yes nor no would be true");
    if second_is_done {
        assert_eq!(second.try_reply(), None, "neither yes nor no would be true");
    }
    // If the failure was known before the command came, that was refused.
    let reply = admin.try_reply();
    assert!(
        reply.is_none() || matches!(&reply, Some(Value::Error(error)) if error.starts_with("MISCONF")),
        "{reply:?}"
    );
    eventually("it goes on without a log", || server.client().text("SET d 1") == "OK");
}

#[test]
fn waitaof_waits_for_what_its_client_has_written() {
    let server = start(&[]);
    let mut client = server.client();
    let no_log = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    assert_eq!(client.text("WAITAOF 1 0 0"), no_log);
    assert_eq!(client.call("WAITAOF 0 0 0"), Value::Array(vec![Value::Int(0), Value::Int(0)]));
    for (line, error) in [
        ("WAITAOF 2 0 0", "ERR value is out of range, value must between 0 and 1"),
        ("WAITAOF 0 -1 0", "ERR value is out of range, must be positive"),
        ("WAITAOF 0 0 -1", "ERR timeout is negative"),
        ("WAITAOF 0 0 x", "ERR timeout is not an integer or out of range"),
    ] {
        assert_eq!(client.text(line), error, "{line}");
    }
    let none = Value::Array(vec![Value::Int(0), Value::Int(0)]);
    assert_eq!(client.call("WAITAOF 0 1 20"), none, "there are no replicas");
    drop(client);
    let (server, gate, _dir) = gated(&[("appendonly", "yes"), ("log-segment-bytes", "1mb")]);
    let (mut client, mut other) = (server.client(), server.client());
    let durable = |local| Value::Array(vec![Value::Int(local), Value::Int(0)]);
    assert_eq!(client.call("WAITAOF 1 0 0"), durable(1), "nothing to wait for");
    client.text("SET a 1");
    assert_eq!(client.call("WAITAOF 1 0 0"), durable(1), "at once, not at the next second's end");
    gate.close();
    client.text("SET a 2");
    client.send([request("WAITAOF 1 0 0"), request("PING")].concat());
    assert!(client.is_silent());
    assert_eq!(other.info("blocked_clients"), "1");
    assert_eq!(other.call("WAITAOF 1 0 0"), durable(1), "it has written nothing");
    gate.open();
    assert_eq!((client.reply(), client.reply().text()), (durable(1), "PONG".into()));
    assert_eq!(client.call("WAITAOF 0 1 20"), durable(1), "there are no replicas");
    client.text("MULTI");
    client.text("WAITAOF 1 1 0");
    assert_eq!(client.call("EXEC").items().len(), 1, "a transaction does not wait");
    client.send([request("CLIENT REPLY OFF"), request("WAITAOF 0 1 20"), request("CLIENT REPLY ON")].concat());
    assert_eq!(client.reply().text(), "OK", "the reply to the last one is the first");
    // A client that waits for a log that is switched off waits in vain.
    gate.close();
    client.text("SET a 3");
    client.send(request("WAITAOF 1 1 0"));
    eventually("it waits", || other.info("blocked_clients") == "1");
    gate.open();
    assert_eq!(other.text("CONFIG SET appendonly no"), "OK");
    assert_eq!(client.reply().text(), no_log);
}

#[test]
fn logging_can_be_switched_on_and_off() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("log-segment-bytes", "1mb"), ("enable-protected-configs", "yes")];
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    client.text("SET before 1");
    assert_eq!(client.text("CONFIG SET appendfsync always"), "OK");
    assert_eq!(client.text("CONFIG SET appendonly yes"), "OK");
    assert_eq!(client.info("aof_enabled"), "1");
    client.text("SET during 2");
    eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
    client.text("SET later 3");
    let moved = client.text(&format!("CONFIG SET dir {}", std::env::temp_dir().display()));
    assert!(moved.contains("CONFIG SET appendonly no first"), "{moved}");
    let digest = client.text("DEBUG DIGEST");
    drop(server);
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    client.text("CONFIG SET appendonly yes");
    eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
    client.text("SET logged 4");
    assert_eq!(client.text("CONFIG SET appendonly no"), "OK");
    client.text("SET lost 5");
    drop(server);
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert_eq!((client.text("GET logged"), client.text("GET lost")), ("4".into(), "(nil)".into()));
}

#[test]
fn what_was_written_while_logging_comes_in_force_outlives_the_end_of_the_server() {
    // All in one turn, so that the end comes before the log's first image.
    let on = ["SET before 1", "CONFIG SET appendonly yes", "SET after 2"];
    let on_off_on = ["CONFIG SET appendonly yes", "CONFIG SET appendonly no", "SET before 1"];
    let on_off_on = [&on_off_on[..], &["CONFIG SET appendonly yes", "SET after 2"]].concat();
    for (switches, end) in [(&on[..], "SHUTDOWN"), (&on, "SHUTDOWN NOSAVE"), (&on_off_on, "SHUTDOWN")] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = start_in(dir.path(), &[("log-segment-bytes", "1mb")]);
        let mut client = server.client();
        let lines = switches.iter().chain([&end]).map(|line| request(line));
        client.send(lines.collect::<Vec<_>>().concat());
        for line in switches {
            assert_eq!(client.reply().text(), "OK", "{line}");
        }
        assert!(server.ended());
        let server = start_in(dir.path(), ALWAYS);
        let mut client = server.client();
        let found = (client.text("GET before"), client.text("GET after"));
        assert_eq!(found, ("1".into(), "2".into()), "{switches:?} {end}");
    }
}

#[test]
fn a_server_whose_log_is_not_in_force_stays_if_it_can_not_take_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start_in(dir.path(), &[("log-segment-bytes", "1mb")]);
    let mut client = server.client();
    std::fs::create_dir(dir.path().join("dump.quire")).unwrap();
    client.send([request("CONFIG SET appendonly yes"), request("SET a 1"), request("SHUTDOWN NOSAVE")].concat());
    assert_eq!((client.reply().text(), client.reply().text()), ("OK".into(), "OK".into()));
    assert_eq!(client.reply().text(), "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(client.text("GET a"), "1");
    client.send(request("SHUTDOWN NOSAVE FORCE"));
    assert!(server.ended());
}

#[test]
fn switching_logging_on_waits_for_no_device() {
    let (server, gate, dir) = gated(&[("appendfsync", "everysec"), ("log-segment-bytes", "1mb")]);
    let mut client = server.client();
    gate.close();
    assert_eq!(client.text("CONFIG SET appendonly yes"), "OK");
    assert_eq!((client.text("SET during 1"), client.text("GET during")), ("OK".into(), "1".into()));
    assert_eq!(client.info("aof_enabled"), "1");
    gate.await_waiting();
    gate.open();
    eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
    assert_eq!(client.text("SET later 2"), "OK");
    eventually("all is durable", || client.info("aof_pending_bio_fsync") == "0");
    assert_eq!(client.info("log_segments"), "1");
    drop((client, server, gate, dir));
}

#[test]
fn a_log_that_can_not_be_begun_is_switched_off_again() {
    let dir = tempfile::tempdir().unwrap();
    let full = vec![(FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC))];
    let directory: Arc<dyn Directory> = Arc::new(FaultInjector::new(Arc::new(MemoryDirectory::new()), full));
    let server = start_logging(dir.path(), &[("log-segment-bytes", "1mb")], Arc::clone(&directory));
    let mut client = server.client();
    client.text("CONFIG SET appendonly yes");
    eventually("it is off again", || client.info("aof_enabled") == "0");
    assert!(client.info("log_last_error").contains("error 28"), "{}", client.info("log_last_error"));
    assert_eq!(client.call("CONFIG GET appendonly").items()[1].text(), "no");
    assert_eq!((client.text("SET a 1"), directory.list().unwrap()), ("OK".into(), vec![]));
}

#[test]
fn an_image_makes_the_log_before_it_unnecessary() {
    let server = start(ALWAYS);
    let mut client = server.client();
    let value = "x".repeat(10_000);
    for number in 0..500 {
        client.text(&format!("SET k{number} {value}"));
    }
    let bytes = |client: &mut Client| client.info("log_file_bytes").parse::<u64>().unwrap();
    assert!(bytes(&mut client) > 4 << 20);
    assert_eq!(client.text("BGREWRITEAOF"), "Background append only file rewriting started");
    eventually("the log is short", || client.info("log_file_bytes") == (1 << 20).to_string());
    assert_eq!((client.info("aof_rewrites"), client.info("aof_last_bgrewrite_status")), ("1".into(), "ok".into()));
    eventually("files are kept to be used again", || client.info("log_spare_bytes") == (2 << 20).to_string());
    let digest = client.text("DEBUG DIGEST");
    let dir = server.dir.clone();
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    drop(server);
    let server = start_in(copy.path(), ALWAYS);
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn a_long_log_brings_an_image_and_then_refuses_writes() {
    let mut settings = ALWAYS.to_vec();
    settings.push(("log-max-bytes", "8mb"));
    let server = start(&settings);
    let mut client = server.client();
    let value = "x".repeat(50_000);
    for number in 0..200 {
        let line = format!("SET k{} {value}", number % 10);
        // A slow disk may take longer for the image than the client for the rest of the log.
        eventually("it is written", || client.text(&line) == "OK");
    }
    eventually("images were taken", || client.info("aof_rewrites") != "0");
    // Without a place for the image the log grows to its limit and no further.
    std::fs::create_dir(server.dir.join("dump.quire.aside")).unwrap();
    std::fs::remove_file(server.dir.join("dump.quire")).unwrap();
    std::fs::rename(server.dir.join("dump.quire.aside"), server.dir.join("dump.quire")).unwrap();
    let mut refused = String::new();
    for number in 0..1000 {
        let reply = client.text(&format!("SET k{} {value}", number % 10));
        if reply != "OK" {
            refused = reply;
            break;
        }
    }
    assert!(refused.starts_with("MISCONF The log has reached log-max-bytes"), "{refused}");
    assert!(client.info("log_file_bytes").parse::<u64>().unwrap() <= 10 << 20);
    assert_eq!(client.text("GET k1"), value);
    std::fs::remove_dir(server.dir.join("dump.quire")).unwrap();
    client.text("BGSAVE");
    eventually("writes are taken again", || client.text("SET k1 again") == "OK");
}

#[test]
fn a_log_without_its_image_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), ALWAYS);
    server.client().text("SET a 1");
    drop(server);
    std::fs::rename(dir.path().join("dump.quire"), dir.path().join("aside")).unwrap();
    let config = common::config_in(dir.path(), ALWAYS);
    let refused = common::refused(config);
    assert!(refused.contains("there is no image") && refused.contains("quire-log-00000001"), "{refused}");
    std::fs::rename(dir.path().join("aside"), dir.path().join("dump.quire")).unwrap();
    assert_eq!(start_in(dir.path(), ALWAYS).client().text("GET a"), "1");
}

#[test]
fn a_directory_holds_the_log_of_one_server_whatever_the_images_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let other = |more: &[(&'static str, &'static str)]| {
        config_in(dir.path(), &[&[("dbfilename", "other.quire")], more].concat())
    };
    let bystander = start_with(other(&[]));
    let server = start_in(dir.path(), ALWAYS);
    assert_eq!(server.client().text("SET a 1"), "OK");
    // What is there must not be taken for one's own log, and another one must not be begun beside it.
    for config in [other(&[]), other(ALWAYS)] {
        let reason = refused(config);
        assert!(reason.contains("another server has its log of writes in"), "{reason}");
    }
    let reason = bystander.client().text("CONFIG SET appendonly yes");
    assert!(reason.contains("another server has its log of writes in"), "{reason}");
    assert_eq!(bystander.client().text("SET b 1"), "OK");
    drop(server);
    let server = start_in(dir.path(), ALWAYS);
    assert_eq!(server.client().text("GET a"), "1");
}

//! Incremental saves, as clients see them.

use crate::common::{Client, Running, eventually, request, start_in};

const INCREMENTAL: (&str, &str) = ("checkpoint-incremental", "yes");

fn deltas(client: &mut Client) -> String {
    client.info("checkpoint_chain_deltas")
}

fn bgsave(client: &mut Client) {
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
}

#[test]
fn saves_of_every_kind_are_deltas_and_a_restart_has_them_all() {
    for mode in ["map", "load"] {
        let dir = tempfile::tempdir().unwrap();
        let settings = [INCREMENTAL, ("checkpoint-max-deltas", "3"), ("restore-mode", mode)];
        let mut server = start_in(dir.path(), &settings);
        let mut client = server.client();
        client.text("DEBUG POPULATE 20000 k 200");
        assert_eq!(client.info("checkpoint_changed_bytes"), "-1");
        assert_eq!(client.text("SAVE"), "OK");
        assert_eq!((deltas(&mut client).as_str(), client.info("checkpoint_changed_bytes").as_str()), ("0", "0"));
        let image_bytes: u64 = client.info("last_image_bytes").parse().unwrap();
        client.text("SET k:7 changed");
        bgsave(&mut client);
        assert_eq!(deltas(&mut client), "1");
        let delta_bytes: u64 = client.info("checkpoint_last_delta_bytes").parse().unwrap();
        assert!(delta_bytes > 0 && delta_bytes * 10 < image_bytes, "{delta_bytes} of {image_bytes}");
        assert_eq!(client.info("checkpoint_chain_delta_bytes"), delta_bytes.to_string());
        client.text("SET k:8 changed");
        client.text("DEL k:9");
        let digest = client.text("DEBUG DIGEST");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        assert_eq!((client.text("DEBUG DIGEST"), deltas(&mut client)), (digest, "2".into()));
        client.text("SET k:10 changed");
        let digest = client.text("DEBUG DIGEST");
        client.send(request("SHUTDOWN SAVE"));
        assert_eq!(client.try_reply(), None);
        assert!(server.ended());
        let server = start_in(dir.path(), &settings);
        let mut client = server.client();
        assert_eq!((client.text("DEBUG DIGEST"), deltas(&mut client)), (digest, "3".into()));
        client.text("SET k:11 changed");
        assert_eq!(client.text("SAVE"), "OK");
        assert_eq!(deltas(&mut client), "0", "the chain is as long as it may be");
        client.text("SET k:12 changed");
        client.text("CONFIG SET checkpoint-incremental no");
        assert_eq!(client.text("SAVE"), "OK");
        assert_eq!((deltas(&mut client).as_str(), client.info("checkpoint_changed_bytes").as_str()), ("0", "-1"));
    }
}

#[test]
fn the_log_goes_on_where_the_last_delta_ends() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [INCREMENTAL, ("appendonly", "yes"), ("appendfsync", "always"), ("save", "")];
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    client.text("DEBUG POPULATE 5000 k 200");
    assert_eq!(client.text("SAVE"), "OK");
    for number in 0..50 {
        client.text(&format!("SET k:{number} changed"));
    }
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(deltas(&mut client), "1");
    for number in 0..7 {
        client.text(&format!("INCR counter:{number}"));
    }
    let digest = client.text("DEBUG DIGEST");
    client.send(request("SHUTDOWN NOSAVE FORCE"));
    assert_eq!(client.try_reply(), None);
    drop(server);
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    assert_eq!((client.info("log_replayed_commands").as_str(), deltas(&mut client).as_str()), ("7", "1"));
    // What was replayed is a change since the delta.
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(deltas(&mut client), "2");
}

/// A server whose image has one delta over it, and whose image then was moved away, as for a backup.
fn without_its_image(settings: &[(&str, &str)]) -> (tempfile::TempDir, Running, Client) {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[&[INCREMENTAL], settings].concat());
    let mut client = server.client();
    client.text("DEBUG POPULATE 20000 k 200");
    assert_eq!(client.text("SAVE"), "OK");
    client.text("SET k:1 changed");
    assert_eq!((client.text("SAVE").as_str(), deltas(&mut client).as_str()), ("OK", "1"));
    std::fs::rename(dir.path().join("dump.quire"), dir.path().join("backup.quire")).unwrap();
    // The next save is to be a delta until that is found out.
    client.text("SET k:2 changed");
    (dir, server, client)
}

#[test]
fn a_background_save_whose_image_was_moved_away_becomes_a_full_image_and_writes_go_on() {
    for command in ["BGSAVE", "BGREWRITEAOF", "CONFIG SET save", "CONFIG SET log-max-bytes 8mb"] {
        // Of these four what asks for the save: a client twice, then a rule, and a log that has become long.
        let logs = if command.contains("log") { "yes" } else { "no" };
        let settings = [("appendonly", logs), ("log-segment-bytes", "1048576"), ("save", "3600 1000000")];
        let (dir, server, mut client) = without_its_image(&settings);
        match command {
            "CONFIG SET save" => {
                let rule = client.words(&[b"CONFIG", b"SET", b"save", b"1 1"]);
                assert_eq!(rule.text(), "OK");
            }
            _ => {
                let reply = client.text(command);
                assert!(reply == "OK" || reply.ends_with("started"), "{reply}");
            }
        }
        if logs == "yes" {
            // A long log of few changes, so that the save is a delta.
            let value = vec![b'v'; 500_000];
            for _ in 0..10 {
                assert_eq!(client.words(&[b"SET", b"k:4", &value]).text(), "OK");
            }
        }
        eventually("there is an image again", || {
            assert_eq!(client.text("SET k:3 changed"), "OK", "{command}");
            assert_eq!(client.info("rdb_last_bgsave_status"), "ok", "{command}");
            assert_eq!(client.info("aof_last_bgrewrite_status"), "ok", "{command}");
            dir.path().join("dump.quire").exists() && client.info("rdb_bgsave_in_progress") == "0"
        });
        let digest = client.text("DEBUG DIGEST");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        assert_eq!(client.text("DEBUG DIGEST"), digest, "{command}");
        drop(server);
    }
}

#[test]
fn a_save_that_a_client_has_cancelled_does_not_become_a_full_image() {
    let (dir, server, mut client) = without_its_image(&[]);
    // In one turn of the server, so that it can't learn in between how the save has ended.
    client.send([request("BGSAVE"), request("BGSAVE CANCEL")].concat());
    assert_eq!(client.reply().text(), "Background saving started");
    assert_eq!(client.reply().text(), "Background saving cancelled");
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
    assert!(!dir.path().join("dump.quire").exists());
    let reply = client.text("BGSAVE CANCEL");
    assert!(reply.contains("not in progress or scheduled"), "{reply}");
    drop(server);
}

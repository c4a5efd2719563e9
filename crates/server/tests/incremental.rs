//! Incremental saves, as clients see them.

mod common;

use common::{Client, eventually, request, start_in};

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

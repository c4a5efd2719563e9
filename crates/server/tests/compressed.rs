//! Compressed saves, as clients see them.

use crate::common::{Client, eventually, request, start_clone, start_in};

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().unwrap()
}

fn bgsave(client: &mut Client) {
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
}

#[test]
fn what_is_saved_compressed_is_there_after_a_restart_in_both_modes() {
    for codec in ["lz4", "zstd"] {
        let dir = tempfile::tempdir().unwrap();
        let settings = |mode| [("checkpoint-compression", codec), ("restore-mode", mode), ("save", "")];
        let mut server = start_in(dir.path(), &settings("map"));
        let mut client = server.client();
        assert_eq!(client.call("CONFIG GET checkpoint-compression").items()[1].text(), codec);
        assert_eq!(client.info("checkpoint_compression"), codec);
        assert_eq!(number(&mut client, "checkpoint_last_compression_savings_bytes"), 0);
        client.text("DEBUG POPULATE 30000 k 300");
        let digest = client.text("DEBUG DIGEST");
        client.send(request("SHUTDOWN SAVE"));
        assert_eq!(client.try_reply(), None);
        assert!(server.ended());
        for mode in ["map", "load"] {
            let server = start_in(dir.path(), &settings(mode));
            let mut client = server.client();
            assert_eq!((client.text("DEBUG DIGEST"), client.info("restore_mode")), (digest.clone(), mode.into()));
            eventually("all is restored", || client.info("restore_in_progress") == "0");
            if mode == "map" {
                assert!(number(&mut client, "restore_regions_loaded_first") > 0);
            }
            bgsave(&mut client);
            let (written, saved) = (
                number(&mut client, "last_image_bytes"),
                number(&mut client, "checkpoint_last_compression_savings_bytes"),
            );
            assert!(saved > written, "{written} bytes written, {saved} saved");
        }
    }
}

#[test]
fn compression_is_switched_between_saves_and_chains_of_all_kinds_are_restored_and_cloned() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("checkpoint-incremental", "yes"), ("save", "")];
    let mut server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert!(client.text("CONFIG SET checkpoint-compression gzip").contains("no, lz4, zstd"));
    client.text("DEBUG POPULATE 30000 k 300");
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(number(&mut client, "checkpoint_last_compression_savings_bytes"), 0);
    for (save, codec) in ["lz4", "zstd", "no"].into_iter().enumerate() {
        assert_eq!(client.text(&format!("CONFIG SET checkpoint-compression {codec}")), "OK");
        for key in 0..2000 {
            client.text(&format!("SET k:{key} {codec}"));
        }
        assert_eq!(client.text("SAVE"), "OK");
        assert_eq!(number(&mut client, "checkpoint_chain_deltas"), save as u64 + 1);
        assert_eq!(number(&mut client, "checkpoint_last_compression_savings_bytes") > 0, codec != "no", "{codec}");
    }
    let digest = client.text("DEBUG DIGEST");
    let clone = start_clone(&dir.path().join("dump.quire"), &[]).unwrap();
    assert_eq!(clone.client().text("DEBUG DIGEST"), digest);
    eventually("the clone is verified", || clone.client().info("clone_verified") == "1");
    client.send(request("SHUTDOWN NOSAVE"));
    assert_eq!(client.try_reply(), None);
    assert!(server.ended());
    for mode in ["map", "load"] {
        let server = start_in(dir.path(), &[&settings[..], &[("restore-mode", mode)]].concat());
        let mut client = server.client();
        assert_eq!((client.text("DEBUG DIGEST"), number(&mut client, "checkpoint_chain_deltas")), (digest.clone(), 3));
        eventually("all is restored", || client.info("restore_in_progress") == "0");
    }
}

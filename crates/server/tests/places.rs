//! CONFIG SET dir and dbfilename while the server runs: which places it keeps other servers from, and what it removes where.

use std::fs;
use std::path::{Path, PathBuf};

use quire_server::lock_file;
use tempfile::{TempDir, tempdir};

use crate::common::{Client, Value, config_in, eventually, request, start_in};

const LOCAL_CONFIGS: (&str, &str) = ("enable-protected-configs", "local");
const SMALL_SEGMENTS: (&str, &str) = ("log-segment-bytes", "1mb");
const LOGGING: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always"), SMALL_SEGMENTS, LOCAL_CONFIGS];

/// Sets what follows CONFIG SET.
fn set(client: &mut Client, words: &str) {
    assert_eq!(client.text(&format!("CONFIG SET {words}")), "OK", "{words}");
}

fn dir(place: &TempDir) -> String {
    format!("dir {}", place.path().display())
}

/// Whether the server keeps others from the image `name` in `place`.
fn keeps_image(place: &TempDir, name: &str) -> bool {
    lock_file::of_image(&config_in(place.path(), &[("dbfilename", name)])).is_err()
}

fn keeps_log(place: &TempDir) -> bool {
    lock_file::of_log(&config_in(place.path(), &[])).is_err()
}

/// Names of the log's files in `place`.
fn segments(place: &TempDir) -> Vec<String> {
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<_> = names.filter(|name| name.starts_with("quire-log-")).collect();
    found.sort();
    found
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Begins a save that does not end before [`let_it_end`].
fn begin_slow_save(client: &mut Client) {
    set(client, "checkpoint-max-bytes-per-second 1");
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    eventually("the first pages are written", || client.info("current_save_pages_done") != "0");
}

fn let_it_end(client: &mut Client) {
    assert_eq!(client.info("rdb_bgsave_in_progress"), "1");
    set(client, "checkpoint-max-bytes-per-second 0");
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
}

#[test]
fn a_save_keeps_other_servers_from_its_image_until_it_has_ended() {
    let (start, first, second) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let server = start_in(start.path(), &[LOCAL_CONFIGS]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 40000 k 200");
    set(&mut client, &dir(&first));
    let kept = || (keeps_image(&first, "dump.quire"), keeps_image(&second, "dump.quire"));
    assert_eq!(kept(), (true, false));
    begin_slow_save(&mut client);
    set(&mut client, &dir(&second));
    assert_eq!(kept(), (true, true));
    // It may come back to the place that it keeps itself.
    set(&mut client, &dir(&first));
    assert_eq!(kept(), (true, false));
    set(&mut client, &dir(&second));
    let_it_end(&mut client);
    assert_eq!(kept(), (false, true));
    assert!(first.path().join("dump.quire").is_file() && !second.path().join("dump.quire").exists());
    // The same with another name, and a save that another one follows before it was looked at.
    begin_slow_save(&mut client);
    set(&mut client, "dbfilename other.quire");
    assert!(keeps_image(&second, "dump.quire") && keeps_image(&second, "other.quire"));
    assert_eq!(client.text("DEBUG RELOAD"), "OK");
    assert!(!keeps_image(&second, "dump.quire") && keeps_image(&second, "other.quire"));
}

/// A link to a directory.
struct Link {
    home: TempDir,
}

impl Link {
    fn to(place: &TempDir) -> Self {
        let link = Self { home: tempdir().unwrap() };
        link.lead_to(place);
        link
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn lead_to(&self, place: &TempDir) {
        let _ = fs::remove_file(self.path());
        std::os::unix::fs::symlink(place.path(), self.path()).unwrap();
    }
}

#[test]
fn a_save_goes_where_the_link_led_when_the_directory_was_set() {
    let (first, second, start) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let link = Link::to(&first);
    let server = start_in(start.path(), &[LOCAL_CONFIGS]);
    let mut client = server.client();
    set(&mut client, &format!("dir {}", link.path().display()));
    let real = first.path().canonicalize().unwrap();
    assert_eq!(
        client.call("CONFIG GET dir"),
        Value::Array(["dir", real.to_str().unwrap()].map(|text| Value::Bulk(text.into())).into())
    );
    link.lead_to(&second);
    for (save, image) in [("SAVE", "a.quire"), ("BGSAVE", "b.quire")] {
        set(&mut client, &format!("dbfilename {image}"));
        client.text(save);
        eventually("the image is there", || first.path().join(image).is_file());
        eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
        assert_eq!((keeps_image(&first, image), keeps_image(&second, image)), (true, false), "{save}");
    }
    let found: Vec<_> = fs::read_dir(second.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(found.iter().all(|name| name.to_str().unwrap().ends_with(".lock")), "{found:?}");
}

#[test]
fn a_log_and_its_images_stay_together_when_a_link_to_their_directory_is_changed() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let link = Link::to(&first);
    let mut server = start_in(&link.path(), LOGGING);
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    link.lead_to(&second);
    assert_eq!((client.text("SAVE"), client.text("SET acknowledged 1")), ("OK".into(), "OK".into()));
    let value = "x".repeat(100_000);
    for _ in 0..30 {
        assert_eq!(client.text(&format!("SET long {value}")), "OK");
    }
    assert_eq!(client.text("SET last 1"), "OK");
    client.send(request("SHUTDOWN NOSAVE FORCE"));
    assert!(server.ended());
    assert_eq!(fs::read_dir(second.path()).unwrap().count(), 0);
    let again = start_in(first.path(), LOGGING);
    let mut client = again.client();
    assert_eq!(["GET a", "GET acknowledged", "GET last"].map(|words| client.text(words)), ["1", "1", "1"]);
}

#[test]
fn no_image_goes_where_its_log_is_not() {
    let home = tempdir().unwrap();
    let (data, moved) = (home.path().join("data"), home.path().join("moved"));
    fs::create_dir(&data).unwrap();
    let server = start_in(&data, LOGGING);
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    fs::rename(&data, &moved).unwrap();
    fs::create_dir(&data).unwrap();
    for save in ["SAVE", "BGSAVE", "BGREWRITEAOF"] {
        let refused = client.text(save);
        assert!(refused.contains("is not the directory any more in which writes are logged"), "{save}: {refused}");
    }
    assert!(!data.join("dump.quire").exists());
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&moved, &data).unwrap();
    assert_eq!(client.text("SAVE"), "OK");
}

#[test]
fn a_save_publishes_nothing_where_its_directory_is_not_any_more() {
    for logging in [LOGGING, &[LOCAL_CONFIGS]] {
        let home = tempdir().unwrap();
        let (data, moved) = (home.path().join("data"), home.path().join("moved"));
        fs::create_dir(&data).unwrap();
        let server = start_in(&data, logging);
        let mut client = server.client();
        assert_eq!(
            (client.text("SET a 1"), client.text("SAVE"), client.text("SET a 2")),
            ("OK".into(), "OK".into(), "OK".into())
        );
        let before = fs::read(data.join("dump.quire")).unwrap();
        begin_slow_save(&mut client);
        fs::rename(&data, &moved).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(data.join("dump.quire"), "of another server").unwrap();
        set(&mut client, "checkpoint-max-bytes-per-second 0");
        eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
        assert_eq!(client.info("rdb_last_bgsave_status"), "err");
        assert_eq!(fs::read(data.join("dump.quire")).unwrap(), b"of another server");
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing is left where the save never was");
        assert!(fs::read(moved.join("dump.quire")).unwrap() == before);
        let temporary = fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!temporary.into_iter().any(|name| name.contains("tmp") || name.contains("temp")));
        fs::remove_dir_all(&data).unwrap();
        fs::rename(&moved, &data).unwrap();
        assert_eq!((client.text("SAVE"), client.text("GET a")), ("OK".into(), "2".into()));
    }
}

#[test]
fn a_lock_whose_file_was_removed_is_taken_again_and_keeps_other_servers_away() {
    let place = tempdir().unwrap();
    let server = start_in(place.path(), LOGGING);
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    fs::remove_file(place.path().join(".quire-log.lock")).unwrap();
    assert_eq!((client.text("SAVE"), client.text("SET a 2")), ("OK".into(), "OK".into()));
    assert!(lock_file::of_log(&config_in(place.path(), LOGGING)).is_err(), "another server could have the log, too");
}

#[test]
fn no_file_of_a_log_is_made_where_the_log_is_not() {
    let home = tempdir().unwrap();
    let (data, moved) = (home.path().join("data"), home.path().join("moved"));
    fs::create_dir(&data).unwrap();
    let mut server = start_in(&data, LOGGING);
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    fs::rename(&data, &moved).unwrap();
    fs::create_dir(&data).unwrap();
    let value = "x".repeat(100_000);
    let mut acknowledged = 0;
    while client.try_call(&format!("SET {acknowledged} {value}")).is_some_and(|reply| reply.text() == "OK") {
        acknowledged += 1;
        assert!(acknowledged < 1000, "writes are acknowledged whose files lie elsewhere");
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    server.client().send(request("SHUTDOWN NOSAVE FORCE"));
    assert!(server.ended());
    fs::remove_dir(&data).unwrap();
    fs::rename(&moved, &data).unwrap();
    let again = start_in(&data, LOGGING);
    let mut client = again.client();
    for key in 0..acknowledged {
        assert_eq!(client.text(&format!("STRLEN {key}")), value.len().to_string(), "{key} of {acknowledged}");
    }
}

#[test]
fn a_server_that_could_not_lock_its_place_before_does_so_before_a_save() {
    let place = tempdir().unwrap();
    // As after a start at which no file could be made there.
    let server = start_in(place.path(), &[]);
    let mut client = server.client();
    let other = lock_file::of_image(&config_in(place.path(), &[])).unwrap();
    for save in ["SAVE", "BGSAVE"] {
        let refused = client.text(save);
        assert!(refused.contains("another server uses the image"), "{save}: {refused}");
    }
    assert!(other.is_some() && !place.path().join("dump.quire").exists());
    drop(other);
    assert_eq!(client.text("SAVE"), "OK");
    assert!(keeps_image(&place, "dump.quire"));
}

#[test]
fn a_save_goes_to_no_place_of_another_server_that_has_come_to_lie_at_its_path() {
    let (home, second) = (tempdir().unwrap(), tempdir().unwrap());
    let first = home.path().join("data");
    fs::create_dir(&first).unwrap();
    // The program takes the locks at a start; these two servers get theirs by CONFIG SET.
    let start = tempdir().unwrap();
    let (server, other) = (start_in(start.path(), &[LOCAL_CONFIGS]), start_in(start.path(), &[LOCAL_CONFIGS]));
    let (mut client, mut others) = (server.client(), other.client());
    set(&mut client, &format!("dir {}", first.display()));
    set(&mut others, &dir(&second));
    assert_eq!((others.text("SET whose other"), others.text("SAVE")), ("OK".into(), "OK".into()));
    let image = fs::read(second.path().join("dump.quire")).unwrap();
    // Both servers go by paths, of which one leads to the other's directory now.
    fs::rename(&first, home.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(second.path(), &first).unwrap();
    for save in ["SAVE", "BGSAVE"] {
        let refused = client.text(save);
        assert!(refused.contains("another server uses the image"), "{save}: {refused}");
    }
    assert!(fs::read(second.path().join("dump.quire")).unwrap() == image);
    // Where it leads to no other server's place, the server makes it its own.
    let third = tempdir().unwrap();
    fs::remove_file(&first).unwrap();
    std::os::unix::fs::symlink(third.path(), &first).unwrap();
    assert_eq!(client.text("SAVE"), "OK");
    assert!(keeps_image(&third, "dump.quire"));
}

#[test]
fn a_log_that_is_begun_in_another_directory_is_kept_from_others_there_or_nothing_changes() {
    let (first, second, others) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    assert_eq!(start_in(others.path(), LOGGING).client().text("SET a 1"), "OK");
    let server = start_in(first.path(), LOGGING);
    let mut client = server.client();
    set(&mut client, "appendonly no");
    let kept = || (keeps_log(&first), keeps_log(&second), keeps_log(&others));
    assert_eq!(kept(), (true, false, false), "what the log has left is the server's own");
    let settings = client.call("CONFIG GET *");
    let move_to_others = format!("CONFIG SET timeout 7 {} dbfilename other.quire appendonly yes", dir(&others));
    // What lies there is no log of this server, and a moment later another server has it.
    for reason in ["quire-log-00000001", "another server has its log of writes in"] {
        let running =
            (!reason.starts_with("quire")).then(|| lock_file::of_log(&config_in(others.path(), &[])).unwrap());
        let refused = client.text(&move_to_others);
        assert!(refused.contains("argument 'appendonly'") && refused.contains(reason), "{refused}");
        drop(running);
        assert_eq!(kept(), (true, false, false), "{reason}");
        assert!(!keeps_image(&others, "other.quire"));
        assert_eq!(client.call("CONFIG GET *"), settings);
    }
    set(&mut client, &format!("{} appendonly yes", dir(&second)));
    assert_eq!(kept(), (false, true, false));
    // No save is running any more that would remove segments when it ends.
    eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
    set(&mut client, &format!("appendonly no {}", dir(&first)));
    assert_eq!(kept(), (false, false, false));
    set(&mut client, "appendonly yes");
    assert_eq!(kept(), (true, false, false));
}

#[test]
fn a_log_that_ends_as_the_directory_changes_has_left_its_segments_where_it_was() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let server = start_in(first.path(), LOGGING);
    let mut client = server.client();
    assert_eq!(client.text("SET a 1"), "OK");
    copy_files(first.path(), second.path());
    let left = segments(&first);
    assert!(!left.is_empty());
    set(&mut client, &format!("{} appendonly no", dir(&second)));
    assert_eq!(client.text("SAVE"), "OK");
    // Another server has begun to use the copy. The command waits for whatever is being removed before it is refused.
    let running = lock_file::of_log(&config_in(second.path(), &[])).unwrap();
    let refused = client.text("CONFIG SET appendonly yes");
    assert!(refused.contains("another server has its log of writes in"), "{refused}");
    drop(running);
    assert_eq!((segments(&first), segments(&second)), (left.clone(), left));
    set(&mut client, &dir(&first));
    assert_eq!(client.text("SAVE"), "OK");
    eventually("the image beside them covers them", || segments(&first).is_empty());
}

#[test]
fn segments_are_not_removed_where_another_server_has_its_log_by_now() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let server = start_in(first.path(), LOGGING);
    let mut client = server.client();
    set(&mut client, "appendonly no");
    set(&mut client, &dir(&second));
    let running = lock_file::of_log(&config_in(first.path(), &[])).unwrap();
    let left = segments(&first);
    set(&mut client, &dir(&first));
    assert_eq!(client.text("SAVE"), "OK");
    let refused = client.text("CONFIG SET appendonly yes");
    assert!(refused.contains("another server has its log of writes in"), "{refused}");
    assert_eq!(segments(&first), left);
    drop(running);
}

#[test]
fn an_image_that_was_saved_elsewhere_does_not_stand_for_segments() {
    let elsewhere = tempdir().unwrap();
    for by_name in [false, true] {
        let first = tempdir().unwrap();
        let (away, back) = match by_name {
            false => (dir(&elsewhere), dir(&first)),
            true => ("dbfilename other.quire".to_owned(), "dbfilename dump.quire".to_owned()),
        };
        let mut server = start_in(first.path(), &[SMALL_SEGMENTS, LOCAL_CONFIGS]);
        let mut client = server.client();
        client.text("DEBUG POPULATE 40000 k 200");
        set(&mut client, "appendfsync always appendonly yes");
        eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
        assert_eq!(client.text("SET acknowledged 1"), "OK");
        set(&mut client, "appendonly no");
        set(&mut client, &away);
        begin_slow_save(&mut client);
        set(&mut client, &back);
        let_it_end(&mut client);
        // Waits for what is being removed; the image that it asks for does not come.
        set(&mut client, "checkpoint-max-bytes-per-second 1");
        set(&mut client, "appendonly yes");
        client.send(request("SHUTDOWN NOSAVE FORCE"));
        assert!(server.ended());
        let again = start_in(first.path(), LOGGING);
        assert_eq!(again.client().text("GET acknowledged"), "1", "by name: {by_name}");
    }
}

#[test]
fn a_save_removes_the_segments_beside_its_image_when_the_server_has_moved_on() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let server = start_in(first.path(), &[SMALL_SEGMENTS, LOCAL_CONFIGS]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 40000 k 200");
    set(&mut client, "appendonly yes");
    eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
    set(&mut client, "appendonly no");
    assert!(!segments(&first).is_empty());
    begin_slow_save(&mut client);
    set(&mut client, &dir(&second));
    let_it_end(&mut client);
    eventually("they are removed", || segments(&first).is_empty());
    eventually("nothing is kept from others", || !keeps_log(&first) && !keeps_log(&second));
}

#[test]
fn of_logs_in_several_directories_each_is_removed_by_the_save_to_its_image() {
    let places = [tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap()];
    let server = start_in(places[0].path(), LOGGING);
    let mut client = server.client();
    set(&mut client, "appendonly no");
    for place in &places {
        set(&mut client, &format!("{} appendonly yes", dir(place)));
        eventually("the log is in force", || client.info("aof_pending_rewrite") == "0");
        assert_eq!(client.text(&format!("SET {} 1", place.path().display())), "OK");
        set(&mut client, "appendonly no");
    }
    for at in [1, 0, 2] {
        set(&mut client, &dir(&places[at]));
        // While another server has the place nothing is removed there, and nothing forgotten.
        let running = lock_file::of_log(&config_in(places[at].path(), &[])).unwrap();
        assert_eq!(client.text("SAVE"), "OK");
        assert!(!segments(&places[at]).is_empty());
        drop(running);
        assert_eq!(client.text("SAVE"), "OK");
        eventually("the image beside them covers them", || segments(&places[at]).is_empty());
    }
}

#[test]
fn a_save_that_could_not_be_a_delta_is_not_done_again_where_no_client_has_asked_for_one() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let server = start_in(first.path(), &[("checkpoint-incremental", "yes"), LOCAL_CONFIGS]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 20000 k 200");
    assert_eq!(client.text("SAVE"), "OK");
    fs::rename(first.path().join("dump.quire"), first.path().join("backup.quire")).unwrap();
    client.text("SET k:1 changed");
    // In one turn of the server, so that it can't learn in between how the save has ended.
    client.send([request("BGSAVE"), request(&format!("CONFIG SET {}", dir(&second)))].concat());
    assert_eq!((client.reply().text().as_str(), client.reply().text().as_str()), ("Background saving started", "OK"));
    eventually("the save fails", || client.info("rdb_last_bgsave_status") == "err");
    assert_eq!(
        (client.info("rdb_bgsave_in_progress").as_str(), client.info("rdb_bgsave_scheduled").as_str()),
        ("0", "0")
    );
    assert!(!second.path().join("dump.quire").exists());
    assert_eq!(client.text("SET k:2 changed"), "OK");
}

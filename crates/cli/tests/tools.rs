//! `quire image`, `doctor`, `docs`, help: what they print and how they exit.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, complaint, quire, run, serve};

fn printed(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", complaint(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn image(dir: &Path) -> PathBuf {
    let mut server = serve(dir, &["--save", "", "--enable-debug-command", "local"]);
    assert_eq!(server.call("DEBUG POPULATE 30000 k 500\r\nSAVE"), "+OK\r\n+OK\r\n");
    server.signal("TERM");
    server.ended();
    dir.join("dump.quire")
}

#[test]
fn a_good_image_is_described_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let file = image.to_str().unwrap();
    let info = printed(&["image", "info", file]);
    assert!(info.contains("format_version") && info.contains("written_by       quire"), "{info}");
    let json: serde_json::Value = serde_json::from_str(&printed(&["image", "info", "--json", file])).unwrap();
    assert!(json["present_bytes"].as_u64().unwrap() > 15_000_000, "{json}");
    assert!(printed(&["image", "verify", file]).starts_with("ok: "));
}

#[test]
fn what_compression_has_made_of_an_image_and_its_deltas_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--save", "", "--enable-debug-command", "local", "--checkpoint-incremental", "yes"];
    let mut server = serve(dir.path(), &[&more[..], &["--checkpoint-compression", "zstd"]].concat());
    let changes: String = (0..50).map(|key| format!("SET k:{key} changed\r\n")).collect();
    let commands =
        format!("DEBUG POPULATE 30000 k 500\r\nSAVE\r\n{changes}CONFIG SET checkpoint-compression lz4\r\nSAVE");
    assert_eq!(server.call(&commands), "+OK\r\n".repeat(54));
    server.signal("TERM");
    server.ended();
    let image = dir.path().join("dump.quire");
    let file = image.to_str().unwrap();
    let json: serde_json::Value = serde_json::from_str(&printed(&["image", "info", "--json", file])).unwrap();
    assert_eq!((&json["format_version"], &json["compression"]), (&3.into(), &"zstd".into()));
    assert!(
        json["compression_ratio"].as_f64().unwrap() > 2.0 && json["compressed_regions"].as_u64().unwrap() > 5,
        "{json}"
    );
    let stored = json["stored_bytes"].as_u64().unwrap();
    assert!(stored * 2 < json["present_bytes"].as_u64().unwrap(), "{json}");
    assert_eq!(json["deltas"][0]["compression"], "lz4");
    assert!(json["deltas"][0]["compression_ratio"].as_f64().unwrap() > 1.2, "{json}");
    let info = printed(&["image", "info", file]);
    assert!(info.contains("compression      zstd") && info.contains(" stored, lz4)"), "{info}");
    assert!(printed(&["image", "verify", file]).contains(" regions, a delta, "));
}

#[test]
fn deltas_are_described_and_verified_with_their_image() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--save", "", "--enable-debug-command", "local", "--checkpoint-incremental", "yes"];
    let mut server = serve(dir.path(), &more);
    let commands = "DEBUG POPULATE 30000 k 500\r\nSAVE\r\nSET k:1 changed\r\nSAVE";
    assert_eq!(server.call(commands), "+OK\r\n".repeat(4));
    server.signal("TERM");
    server.ended();
    let (image, delta) = (dir.path().join("dump.quire"), dir.path().join("dump.quire.delta-1"));
    let file = image.to_str().unwrap();
    let info = printed(&["image", "info", file]);
    assert!(info.contains(&format!("delta            {}: ", delta.display())), "{info}");
    let json: serde_json::Value = serde_json::from_str(&printed(&["image", "info", "--json", file])).unwrap();
    assert_eq!(
        (&json["format_version"], &json["epoch"], &json["deltas"][0]["epoch"]),
        (&2.into(), &2.into(), &2.into())
    );
    assert!(printed(&["image", "verify", file]).contains(" regions, a delta, "));
    assert!(info.contains(&time_of(&json)), "{info}");
    the_start_tells_the_age_of_the_data(dir.path(), "an image and 1 delta over it", &time_of(&json), 1);
    // What a backup of the image alone brings back is older.
    let backup = tempfile::tempdir().unwrap();
    std::fs::copy(&image, backup.path().join("dump.quire")).unwrap();
    let copy = backup.path().join("dump.quire");
    let json = serde_json::from_str(&printed(&["image", "info", "--json", copy.to_str().unwrap()])).unwrap();
    the_start_tells_the_age_of_the_data(backup.path(), "an image without deltas", &time_of(&json), 0);
    let text = complaint(&run(&["image", "info", delta.to_str().unwrap()]));
    assert!(text.contains("but a delta; name the image that it belongs to"), "{text}");
    let handle = std::fs::File::options().write(true).open(&delta).unwrap();
    handle.write_all_at(b"damage", 4096 + 100).unwrap();
    let text = complaint(&run(&["image", "verify", file]));
    assert!(
        text.contains("is damaged in its pages, at byte 4096") && text.contains("damaged: 1 regions and pages"),
        "{text}"
    );
    std::fs::remove_file(&image).unwrap();
    let text = complaint(&run(&["serve", "--port", "0", "--dir", dir.path().to_str().unwrap()]));
    assert!(text.contains("dump.quire.delta-1") && text.contains("there is no such file"), "{text}");
}

/// When the data was saved.
fn time_of(info: &serde_json::Value) -> String {
    quire_units::UtcTime(info["created_unix_ms"].as_u64().unwrap()).to_string()
}

fn the_start_tells_the_age_of_the_data(dir: &Path, links: &str, time: &str, deltas: usize) {
    let logfile = dir.join("server.log");
    let mut server = serve(dir, &["--save", "", "--logfile", logfile.to_str().unwrap()]);
    assert!(server.banner.contains(&format!("as of      {time}: {links}\n")), "{}", server.banner);
    server.signal("TERM");
    server.ended();
    let log = std::fs::read_to_string(logfile).unwrap();
    let line = log.lines().find(|line| line.contains("the image is in use")).unwrap();
    assert!(line.contains(&format!("saved_at={time} ")) && line.contains(&format!("deltas={deltas} ")), "{line}");
}

#[test]
fn damage_is_named_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let file = image.to_str().unwrap();
    let place = 9_000_000;
    let handle = std::fs::File::options().write(true).read(true).open(&image).unwrap();
    let mut byte = [0];
    handle.read_exact_at(&mut byte, place).unwrap();
    handle.write_all_at(&[byte[0] ^ 1], place).unwrap();
    let output = run(&["image", "verify", file]);
    assert_eq!(output.status.code(), Some(1));
    let text = complaint(&output);
    // The region of that byte, and where it begins: data begins at 2 MiB.
    assert!(text.contains("region 3, at byte 8388608"), "{text}");
    assert!(text.contains("damaged: 1 of "), "{text}");
    let serve = |more: &[&str]| {
        let mut words = vec!["serve", "--port", "0", "--restore-mode", "load", "--dir", dir.path().to_str().unwrap()];
        words.extend(more);
        run(&words)
    };
    let output = serve(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("region 3, at byte 8388608"), "{}", complaint(&output));
    assert!(complaint(&output).contains("--accept-damaged-image yes"));
    let words = ["--save", "", "--accept-damaged-image", "yes", "--restore-mode", "load"];
    let server = common::serve(dir.path(), &words);
    assert!(server.banner.contains("restored   30000 keys"), "{}", server.banner);
}

#[test]
fn what_is_no_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let whole = std::fs::read(&image).unwrap();
    let other = dir.path().join("other");
    let file = other.to_str().unwrap();
    for (bytes, expected) in [
        (&b"hello"[..], "is not a Quire image"),
        (&whole[..whole.len() / 2], "bytes instead of"),
        (&b"REDIS0011\xfa\x09redis-ver"[..], "is not a Quire image, but a Redis RDB file (REDIS0011)"),
        (&[][..], "the file ends here"),
    ] {
        std::fs::write(&other, bytes).unwrap();
        for what in ["info", "verify"] {
            let output = run(&["image", what, file]);
            assert_eq!(output.status.code(), Some(1));
            assert!(complaint(&output).contains(expected), "{}", complaint(&output));
        }
    }
    assert!(complaint(&run(&["image", "info", "/no/such/file"])).contains("/no/such/file"));
    let directory = dir.path().to_str().unwrap();
    assert!(complaint(&run(&["image", "verify", directory])).contains("is a directory; name the image in it"));
}

#[test]
fn the_doctor_names_features_and_states() {
    let text = printed(&["doctor"]);
    assert!(text.contains("io_uring") && text.contains("userfaultfd"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&printed(&["doctor", "--json"])).unwrap();
    for feature in json.as_array().unwrap() {
        assert!(["works", "limited", "missing"].contains(&feature["state"].as_str().unwrap()), "{feature}");
        assert!(feature["name"].is_string() && feature["detail"].is_string() && feature["advice"].is_string());
    }
}

#[test]
fn help_teaches_and_docs_are_printed() {
    let help = printed(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("quire doctor"), "{help}");
    let help = printed(&["serve", "--help"]);
    assert!(help.contains("--checkpoint-max-extra-memory") && help.contains("QUIRE_PORT"), "{help}");
    assert!(printed(&["docs", "compat"]).starts_with("# Compatibility\n"));
    assert!(printed(&["docs", "info"]).starts_with("# Fields of INFO\n"));
    assert_eq!(printed(&["--version"]), format!("quire {}\n", env!("CARGO_PKG_VERSION")));
    let output = run(&["serv"]);
    assert!(complaint(&output).contains("serve"), "{}", complaint(&output));
}

#[test]
fn manual_pages_and_completions_have_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    for name in ["man", "completions"] {
        assert!(complaint(&run(&["docs", name])).contains("--out"), "{name}");
        assert_eq!(printed(&["docs", name, "--out", out]), "");
    }
    let text =
        |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(text("quire.1").contains("quire\\-serve(1)") && text("quire-image-verify.1").contains(".SH SYNOPSIS"));
    assert!(text("quire-serve.1").contains("checkpoint\\-max\\-extra\\-memory"));
    for shell in ["quire.bash", "_quire", "quire.fish"] {
        assert!(text(shell).contains("unmount") && text(shell).contains("checkpoint-compression"), "{shell}");
    }
}

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");

/// Commands that print on standard output and end by themselves; those of mounts are in `mount.rs`. They look at a server, at its image
/// and log in `dir`, and write into `out`.
fn printing(dir: &Path, server: &common::Served, out: &Path) -> Vec<Vec<String>> {
    let [dir, out, named] =
        [dir.display().to_string(), out.display().to_string(), format!("127.0.0.1:{}", server.port)];
    let (image, run_of_ccow) = (format!("{dir}/dump.quire"), format!("{RESULTS}/ccow.json"));
    let commands: &[&[&str]] = &[
        &["doctor"],
        &["doctor", "--json"],
        &["doctor", "--file", &run_of_ccow],
        &["docs", "compat"],
        &["docs", "info"],
        &["bench", "list"],
        &["bench", "tables", "--from", &run_of_ccow],
        &["report", "--from", RESULTS, "--out", &out],
        &["measure", "-m", "memcpy", "-s", "1", "--repeat", "1"],
        &["measure", "-m", "memcpy", "-s", "1", "-t"],
        &["image", "info", &image],
        &["image", "verify", &image],
        &["image", "watch", &named],
        &["log", "info", &dir],
        &["log", "verify", &dir],
        &["log", "dump", &dir],
        &["top", &named, "--once", "--interval", "100"],
        &["--help"],
        &["serve", "--help"],
        &["--version"],
    ];
    commands.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect()
}

/// A server with an image and a log of some commands after it.
fn with_image_and_log(dir: &Path) -> common::Served {
    let words = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "local"];
    let server = serve(dir, &words);
    assert_eq!(server.call("DEBUG POPULATE 300 k 500\r\nSAVE\r\nSET a 1"), "+OK\r\n".repeat(3));
    server
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = with_image_and_log(dir.path());
    for words in printing(dir.path(), &server, out.path()) {
        common::ends_quietly_on_a_closed_pipe(&words);
    }
}

#[test]
fn a_full_device_is_reported() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = with_image_and_log(dir.path());
    for words in printing(dir.path(), &server, out.path()) {
        common::reports_a_full_device(&words);
    }
    // Without a place for messages the status still tells.
    let output = quire(&["image", "info", "/no/such/image"]).stderr(common::full_device()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn measure_without_memory_names_the_limits_of_the_system() {
    // The program fits into the limit of addresses, the range does not.
    let script = "ulimit -v 600000 && exec \"$0\" measure -m memcpy -s 1024";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_quire")]).output().unwrap();
    let text = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("mmap of ") && text.contains("raise ") && text.contains("the memory limit"), "{text}");
    assert!(!text.contains("maxmemory") && text.lines().count() == 1, "{text}");
}

#[test]
fn the_doctor_tells_what_the_page_cache_holds_of_a_file() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![3; 1 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let file = path.to_str().unwrap();
    let json: serde_json::Value = serde_json::from_str(&printed(&["doctor", "--file", file, "--json"])).unwrap();
    assert_eq!((&json["bytes"], &json["held_twice_bytes"]), (&(1 << 20).into(), &serde_json::Value::Null));
    assert_eq!(json["cached_share_of_parts"].as_array().unwrap().len(), 64);
    let cached = json["cached_bytes"].as_u64().unwrap();
    assert!(cached > 0 && cached <= 1 << 20, "{json}");
    let told = printed(&["doctor", "--file", file]);
    assert!(told.contains("in the page cache") && told.contains("PRAGMA quire_held_twice_bytes"), "{told}");
    assert!(told.contains("PRAGMA quire_stats (pool_hit_ratio, tier_hit_ratio)"), "{told}");
    let refused = run(&["doctor", "--file", dir.path().to_str().unwrap()]);
    assert!(!refused.status.success() && complaint(&refused).contains(dir.path().to_str().unwrap()));
}

#[test]
fn a_page_of_the_results_is_written_and_a_folder_without_any_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("page");
    let told = printed(&["report", "--from", RESULTS, "--out", out.to_str().unwrap()]);
    assert!(told.contains("index.html: ") && told.contains(" runs, ") && !told.contains("left out"), "{told}");
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    let empty = dir.path().to_str().unwrap();
    let refused = run(&["report", "--from", empty, "--out", empty]);
    assert!(!refused.status.success() && complaint(&refused).contains("holds no run"), "{}", complaint(&refused));
}

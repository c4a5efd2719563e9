//! `quire serve` as a process: banner, settings from every side, signals, and clear words when it cannot start.

use std::io::{Read as _, Write as _};

use crate::common::{self, complaint, quire, run, serve, serve_to};

#[test]
fn the_banner_says_how_to_connect_and_what_was_restored() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("made/for it");
    let mut server = serve(&data, &["--save", "900 1", "--save", "60 10000", "--enable-debug-command", "local"]);
    for part in [
        format!("redis-cli -p {}", server.port),
        data.join("dump.quire").display().to_string(),
        "nothing: there is no image yet".to_owned(),
        "after 900 s and 1 changes, or 60 s and 10000 changes".to_owned(),
        format!("Quire {} (pid ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(server.banner.contains(&part), "{part} in {}", server.banner);
    }
    assert_eq!(server.call("DEBUG POPULATE 1234"), "+OK\r\n");
    server.signal("TERM");
    assert!(server.ended().success());
    let mut server = serve(&data, &["--save", ""]);
    assert!(
        server.banner.contains("restored   1234 keys, ") && server.banner.contains(" KiB, in "),
        "{}",
        server.banner
    );
    assert_eq!(server.call("DBSIZE"), ":1234\r\n");
    server.signal("INT");
    assert!(server.ended().success());
    assert_eq!(server.rest(), "\n", "logs go to standard error");
}

#[test]
fn sigterm_saves_only_if_there_are_rules() {
    for (rules, saved) in [("", false), ("3600 1000000", true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = serve(dir.path(), &["--save", rules]);
        server.call("SET a 1");
        server.signal("TERM");
        assert!(server.ended().success());
        assert_eq!(dir.path().join("dump.quire").exists(), saved, "rules {rules:?}");
    }
}

#[test]
fn the_server_outlives_its_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &["--save", ""]);
    server.signal("HUP");
    assert_eq!(server.call("SET a 1"), "+OK\r\n");
}

#[test]
fn a_logfile_that_was_moved_away_is_opened_anew_at_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let (log, moved) = (dir.path().join("log"), dir.path().join("log.1"));
    let mut server = serve(dir.path(), &["--save", "", "--logfile", log.to_str().unwrap()]);
    std::fs::rename(&log, &moved).unwrap();
    assert_eq!(server.call("SAVE"), "+OK\r\n");
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    assert!(!log.exists() && read(&moved).contains("ready to accept"), "lines go to the file that is open");
    server.signal("HUP");
    common::eventually("the file is opened anew", || read(&log).contains("opened anew"));
    server.signal("TERM");
    assert!(server.ended().success());
    assert!(read(&log).contains("goodbye") && !read(&moved).contains("goodbye"));
}

/// A file in the shape of those that distributions install.
fn redis_conf(dir: &std::path::Path) -> String {
    let dir = dir.display();
    format!(
        "# comment\nbind 127.0.0.1 -::1\nprotected-mode yes\nport 0\ntcp-backlog 511\ndaemonize yes\n\
         pidfile {dir}/redis.pid\nlogfile {dir}/log\ndatabases 16\nalways-show-logo no\nset-proc-title yes\n\
         proc-title-template \"{{title}} {{listen-addr}} {{server-mode}}\"\nrdbcompression yes\nrdbchecksum yes\ndbfilename dump.rdb\n\
         rdb-del-sync-files no\ndir {dir}\nreplica-serve-stale-data yes\nrepl-diskless-sync-delay 5\nreplica-lazy-flush no\n\
         lazyfree-lazy-user-flush no\noom-score-adj-values 0 200 800\nappendonly no\nappendfilename \"appendonly.aof\"\n\
         auto-aof-rewrite-min-size 64mb\nnotify-keyspace-events \"\"\nhash-max-listpack-entries 512\nlist-max-listpack-size -2\n\
         client-output-buffer-limit normal 0 0 0\nclient-output-buffer-limit replica 256mb 64mb 60\nactiverehashing yes\n\
         client-output-buffer-limit pubsub 32mb 8mb 60\njemalloc-bg-thread yes\n"
    )
}

#[test]
fn the_configuration_of_a_distributions_redis_starts_the_server_and_a_line_names_what_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    std::fs::write(&file, redis_conf(dir.path())).unwrap();
    let mut server = serve_to(&["--", file.to_str().unwrap()], std::process::Stdio::null());
    assert_eq!(
        server.call("CONFIG GET hash-max-listpack-entries"),
        "*2\r\n$25\r\nhash-max-listpack-entries\r\n$3\r\n512\r\n"
    );
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("change nothing here")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for name in ["daemonize", "jemalloc-bg-thread", "proc-title-template", "rdbcompression", "repl-diskless-sync-delay"]
    {
        assert!(lines[0].contains(name), "{name}: {}", lines[0]);
    }
    assert!(!lines[0].contains("tcp-backlog"), "{}", lines[0]);
    server.signal("TERM");
    assert!(server.ended().success());
    let asks = redis_conf(dir.path()) + "cluster-enabled yes\nreplicaof 127.0.0.1 6379\n";
    let at = asks.lines().count();
    std::fs::write(&file, asks).unwrap();
    let refused = run(&["serve", file.to_str().unwrap()]);
    let told = complaint(&refused);
    for part in [format!("line {}: cluster-enabled", at - 1), format!("line {at}: replicaof")] {
        assert!(!refused.status.success() && told.contains(&part), "{part}: {told}");
    }
}

#[test]
fn the_configuration_that_debian_installs_starts_the_server_by_the_flags_of_its_unit() {
    let Ok(text) = std::fs::read("/etc/redis/redis.conf") else {
        // The package makes it readable for its own user only.
        return quire_sys::testing::skipped_even_in_ci("/etc/redis/redis.conf is not there, or not for this user");
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("redis.conf");
    std::fs::write(&file, text).unwrap();
    let (path, log) = (dir.path().to_str().unwrap(), dir.path().join("log"));
    let places = ["--dir", path, "--pidfile", "", "--logfile", log.to_str().unwrap()];
    let of_unit = ["--supervised", "systemd", "--daemonize", "no", "--Always-Show-Logo", "no"];
    let words = [&places[..], &of_unit, &["--", file.to_str().unwrap()]].concat();
    let mut server = serve_to(&words, std::process::Stdio::null());
    assert_eq!(server.call("CONFIG GET hash-max-listpack-entries").lines().last(), Some("512"));
    let log = std::fs::read_to_string(log).unwrap();
    let told = log.lines().find(|line| line.contains("change nothing here")).unwrap();
    for name in ["supervised", "always-show-logo", "rdbchecksum"] {
        assert!(told.contains(name), "{name}: {told}");
    }
    server.signal("TERM");
    assert!(server.ended().success());
    let refused =
        run(&["serve", "--dir", path, "--port", "0", "--replicaof", "127.0.0.1", "6379", "--import-mode", "yes"]);
    let told = complaint(&refused);
    assert!(
        !refused.status.success() && told.contains("--replicaof (there is no replication); --import-mode ("),
        "{told}"
    );
}

#[test]
fn while_the_data_is_loaded_clients_are_told_so_and_the_server_can_be_ended() {
    for how in ["TERM", "SHUTDOWN NOSAVE", "SHUTDOWN"] {
        let dir = tempfile::tempdir().unwrap();
        let (file, socket) = (dir.path().join("dump.rdb"), dir.path().join("sock"));
        // As long as no other program writes into it, opening it does not come to an end.
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let mut command = quire(&["serve", "--port", "0", "--dir", dir.path().to_str().unwrap(), "--unixsocket"]);
        let mut child = command.arg(&socket).stdout(std::process::Stdio::null()).spawn().unwrap();
        common::eventually("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(b"GET a\r\nPING\r\nECHO here\r\n").unwrap();
        let told = "-LOADING Redis is loading the dataset in memory\r\n".repeat(2) + "$4\r\nhere\r\n";
        let mut answer = vec![0; told.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), told);
        if how == "TERM" {
            let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
            assert!(sent.success());
        } else {
            stream.write_all(format!("{how}\r\n").as_bytes()).unwrap();
        }
        assert!(child.wait().unwrap().success(), "{how}");
        assert!(!dir.path().join("dump.quire").exists() && !socket.exists(), "{how}");
    }
}

#[test]
fn a_second_sigint_leaves_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = serve(dir.path(), &["--save", "3600 1", "--enable-debug-command", "local"]);
    server.call("SET a 1");
    let (mut sleeper, mut other) = (server.connect(), server.connect());
    sleeper.write_all(b"DEBUG SLEEP 3600\r\n").unwrap();
    // The loop sleeps, so it answers no client and cannot hear the first signal. A loop that is only slow would hear it, and save.
    other.set_read_timeout(Some(std::time::Duration::from_secs(4))).unwrap();
    let mut answer = [0; 64];
    while other.write_all(b"PING\r\n").and_then(|()| other.read(&mut answer)).is_ok() {}
    // A signal that comes before the one ahead of it was taken is one with it, so two may be too few.
    assert_eq!(server.ended_by("INT").code(), Some(1));
    assert!(!dir.path().join("dump.quire").exists());
}

#[test]
fn settings_come_from_file_then_environment_then_flags() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quire.conf");
    std::fs::write(&file, "# a file\ntimeout 1\nmaxclients 100\nhz 20\nsave \"\"\n").unwrap();
    let mut command = quire(&["serve", file.to_str().unwrap(), "--port", "0", "--hz", "40", "--dir"]);
    command.arg(dir.path()).env("QUIRE_MAXCLIENTS", "200").env("QUIRE_HZ", "30");
    let pidfile = dir.path().join("pid");
    command.arg("--pidfile").arg(&pidfile).arg("--logfile").arg(dir.path().join("log"));
    command.args(["--loglevel", "debug", "--bind", "127.0.0.1", "--unixsocket"]).arg(dir.path().join("sock"));
    let child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let ready = || std::fs::read_to_string(dir.path().join("log")).unwrap_or_default().contains("ready to accept");
    let end = std::time::Instant::now() + common::PATIENCE;
    while !ready() {
        assert!(std::time::Instant::now() < end, "it does not start");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap().trim(), child.id().to_string());
    let mut stream = std::os::unix::net::UnixStream::connect(dir.path().join("sock")).unwrap();
    stream.write_all(b"CONFIG GET timeout\r\nCONFIG GET maxclients\r\nCONFIG GET hz\r\nSHUTDOWN NOSAVE\r\n").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    let values: Vec<&str> = text.split("\r\n").filter(|line| line.parse::<u32>().is_ok()).collect();
    assert_eq!(values, ["1", "200", "40"], "{text}");
    let mut child = child;
    assert!(child.wait().unwrap().success());
    assert!(!pidfile.exists());
}

/// What is said of more memory than an arena can have.
const MUCH_MEMORY: &str =
    "directive 'maxmemory' with value '100000gb': argument must be at most 1024gb, where an arena ends";

#[test]
fn what_cannot_work_is_said_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("bad.conf"), "port 0\nmaxclient 4\n").unwrap();
    std::fs::write(path("much.conf"), "port 0\nmaxmemory 100000gb\n").unwrap();
    std::fs::write(path("file"), "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = path("data");
    let cases: &[(&[&str], &str)] = &[
        (&["serve", &path("bad.conf")], "bad.conf, line 2: unknown directive 'maxclient'; did you mean 'maxclients'?"),
        (&[&path("none.conf")], "cannot read the configuration file"),
        (&["--port", "70000"], "directive 'port' with value '70000': argument must be between 0 and 65535 inclusive"),
        (&["--save", "900"], "directive 'save' with value '900': Invalid save parameters"),
        (&["serve", &path("much.conf")], MUCH_MEMORY),
        (&["--maxmemory", "100000gb"], MUCH_MEMORY),
        (&["--appendfsync", "sometimes"], "must be one of the following: always, everysec, no"),
        (
            &["--port", &port, "--bind", "127.0.0.1", "--dir", &data],
            "another program listens there; choose another with --port",
        ),
        (
            &["--bind", "not.an.address.invalid", "--dir", &data],
            "is neither an IP address nor a name that can be found",
        ),
        (&["--dir", &path("file")], "choose another with --dir"),
        (&["--logfile", &path("none/log")], "cannot open the logfile"),
    ];
    for (words, expected) in cases {
        let output = run(words);
        let text = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("quire: ") && last.contains(expected), "{words:?}: {text}");
    }
    let mut command = quire(&["serve"]);
    let output = command.env("QUIRE_HZ", "x").output().unwrap();
    assert!(complaint(&output).contains("in the environment: directive 'hz' with value 'x'"), "{}", complaint(&output));
}

#[test]
fn two_servers_do_not_share_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let first = serve(dir.path(), &["--save", ""]);
    let output = run(&["serve", "--port", "0", "--dir", dir.path().to_str().unwrap()]);
    assert!(complaint(&output).contains("another server uses the image"), "{}", complaint(&output));
    let other = serve(dir.path(), &["--save", "", "--dbfilename", "other.quire"]);
    assert_eq!(other.call("DBSIZE"), ":0\r\n");
    drop(first);
    serve(dir.path(), &["--save", ""]);
}

#[test]
fn the_log_level_can_be_changed_while_running() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut server = serve(dir.path(), &["--save", "", "--log-format", "json", "--logfile", log.to_str().unwrap()]);
    server.call("CONFIG SET loglevel warning\r\nBGSAVE");
    server.call("CONFIG SET loglevel verbose");
    server.connect();
    server.signal("TERM");
    assert!(server.ended().success());
    let text = std::fs::read_to_string(log).unwrap();
    assert!(text.lines().all(|line| line.starts_with('{')), "{text}");
    assert!(!text.contains("background save started") && text.contains("client left"), "{text}");
}

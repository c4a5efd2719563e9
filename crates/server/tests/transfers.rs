//! SYNC: clients are sent the data as an RDB file, as it was when they asked, whatever else goes on; replicas are refused.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;

use crate::common::{
    Client, PATIENCE, Running, eventually, framed, request, start, start_clone, start_in, start_restoring, start_within,
};
use quire_device::{
    DeviceOperation, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno,
};
use quire_rng::SplitMix64;

const NO_REPLICAS: &str = "ERR Quire has no replicas yet: nothing would follow the data. For a copy of it use redis-cli --rdb, which says \
    REPLCONF rdb-only 1 before SYNC, or quire image export --rdb";
const OPTIONS: &str = "REPLCONF capa eof rdb-only 1";
const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function(keys) return 'of a library' end)";

/// A socket whose bytes no test helper takes for replies.
fn raw(server: &Running) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends requests, and reads a line for each but the last.
fn ask(socket: &mut TcpStream, lines: &[&str]) {
    for line in lines {
        socket.write_all(&request(line)).unwrap();
    }
    for _ in 1..lines.len() {
        assert_eq!(line(socket), "+OK");
    }
}

/// The next line that is not empty; signs that the server is there are empty lines.
fn line(socket: &mut TcpStream) -> String {
    let (mut found, mut byte) = (Vec::new(), [0]);
    loop {
        socket.read_exact(&mut byte).unwrap();
        match byte[0] {
            b'\n' if found.is_empty() => {}
            b'\n' => return String::from_utf8(found).unwrap().trim_end().to_owned(),
            other => found.push(other),
        }
    }
}

/// All that comes until the server closes the connection.
fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A server that is ended while bytes for it wait may reset the connection.
    let _ = socket.read_to_end(&mut bytes);
    bytes
}

/// The file that follows, in either form; the connection ends with it.
fn file(socket: &mut TcpStream) -> Vec<u8> {
    let begin = line(socket);
    let mut bytes = rest(socket);
    let Some(mark) = begin.strip_prefix("$EOF:") else {
        let len: usize = begin.strip_prefix('$').and_then(|len| len.parse().ok()).unwrap_or_else(|| panic!("{begin}"));
        assert_eq!(bytes.len(), len);
        return bytes;
    };
    assert_eq!(mark.len(), 40);
    assert!(bytes.ends_with(mark.as_bytes()), "it has no end");
    bytes.truncate(bytes.len() - 40);
    bytes
}

/// The file that a client is sent which asks so.
fn sent(server: &Running, lines: &[&str]) -> Vec<u8> {
    let mut socket = raw(server);
    ask(&mut socket, lines);
    file(&mut socket)
}

/// The digest of the data in a file, as a server finds it that starts from it.
fn digest_of(file: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dump.rdb"), file).unwrap();
    start_in(dir.path(), &[]).client().text("DEBUG DIGEST")
}

/// Some of each type.
fn fill(client: &mut Client) {
    for number in 0..300 {
        client.call(&format!("HSET hash f{number} {number}"));
        client.call(&format!("ZADD zset {number}.5 m{number}"));
        client.call(&format!("XADD stream {number}-1 f v"));
        client.call(&format!("RPUSH list e{number} {number}"));
    }
    client.call("SADD set a b 3");
    client.call("SET mortal 1 EX 10000");
    client.call("SELECT 3");
    client.call("DEBUG POPULATE 5000 key 100");
    client.call("SELECT 0");
    client.words(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
}

/// Values that do not compress: some MiB in a file.
fn fill_large(client: &mut Client) {
    let mut random = SplitMix64::new(7);
    for number in 0..256 {
        let value: Vec<u8> = (0..8192).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        client.words(&[b"SET", format!("large:{number}").as_bytes(), &value]);
    }
}

/// Files without a name in `dir` that this process has open or mapped.
fn unnamed_files(dir: &Path) -> usize {
    let of = |text: String| text.contains(dir.to_str().unwrap()) && text.contains("(deleted)");
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let open = open.filter(|path| of(path.display().to_string())).count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    open + maps.lines().filter(|line| of((*line).to_owned())).count()
}

fn names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".dump.quire.lock").collect()
}

/// A client that is sent a file and does not read it: what is made for it has filled all that may wait.
fn deaf(server: &Running, admin: &mut Client) -> TcpStream {
    let before = waiting_bytes(admin).len();
    let mut socket = raw(server);
    ask(&mut socket, &[OPTIONS, "SYNC"]);
    eventually("its output is full", || {
        let waiting = waiting_bytes(admin);
        waiting.len() > before && waiting.iter().all(|bytes| *bytes > 900_000)
    });
    socket
}

/// What waits in the outputs of the clients that are sent files.
fn waiting_bytes(admin: &mut Client) -> Vec<usize> {
    let listed = admin.text("CLIENT LIST TYPE replica");
    listed.split(' ').filter_map(|field| field.strip_prefix("omem=")).map(|bytes| bytes.parse().unwrap()).collect()
}

/// Bounds the rate at which images are written; 1 stops them after their first 2 MiB, and 0 lets them go on.
fn set_rate(client: &mut Client, bytes_per_second: u64) {
    assert_eq!(client.text(&format!("CONFIG SET checkpoint-max-bytes-per-second {bytes_per_second}")), "OK");
}

/// Waits until so many requests for files have been run: the data is cut then, if nothing else has to come first.
fn await_asked(client: &mut Client, count: usize) {
    eventually("it has asked", || client.info("cmdstat_sync").starts_with(&format!("calls={count},")));
}

#[test]
fn a_client_is_sent_the_data_as_it_was_when_it_asked_and_nothing_is_left() {
    let server = start(&[("checkpoint-compression", "lz4")]);
    let mut client = server.client();
    fill(&mut client);
    let digest = client.text("DEBUG DIGEST");
    for (number, lines) in [&[OPTIONS, "SYNC"][..], &["REPLCONF rdb-only 1", "SYNC"]].into_iter().enumerate() {
        let mut socket = raw(&server);
        ask(&mut socket, lines);
        await_asked(&mut client, number + 1);
        client.call("SET later 1");
        client.call("DEL hash");
        let file = file(&mut socket);
        assert!(file.starts_with(b"REDIS0010"));
        assert_eq!(digest_of(&file), digest, "{lines:?}");
        client.call("FLUSHALL");
        client.call("FUNCTION FLUSH");
        fill(&mut client);
        assert_eq!(client.text("DEBUG DIGEST"), digest, "the test's data is what it was");
    }
    eventually("all is given back", || unnamed_files(&server.dir) == 0);
    assert!(names(&server.dir).is_empty(), "it is no save");
    assert_eq!((client.info("rdb_saves"), client.info("connected_slaves")), ("0".into(), "0".into()));
    assert_eq!(client.info("rdb_transfers_in_progress"), "0");
}

#[test]
fn libraries_of_functions_are_sent_with_the_data_and_alone() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SET key value");
    client.words(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    let functions = [OPTIONS, "REPLCONF rdb-filter-only functions", "SYNC"];
    for (lines, keys, reply) in [(&[OPTIONS, "SYNC"][..], "1", "of a library"), (&functions, "0", "of a library")] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dump.rdb"), sent(&server, lines)).unwrap();
        let loaded = start_in(dir.path(), &[]);
        let mut reader = loaded.client();
        assert_eq!((reader.text("DBSIZE"), reader.text("FCALL f 0")), (keys.into(), reply.into()), "{lines:?}");
    }
    // Nothing is asked for: neither keys nor libraries.
    let mut socket = raw(&server);
    ask(&mut socket, &[OPTIONS]);
    assert_eq!(line(&mut socket), "+OK");
    socket.write_all(&framed(&[b"REPLCONF", b"rdb-filter-only", b""])).unwrap();
    assert_eq!(line(&mut socket), "+OK");
    ask(&mut socket, &["SYNC"]);
    let empty = file(&mut socket);
    assert!(empty.len() < 100 && !empty.windows(4).any(|bytes| bytes == b"lib\n"), "{}", empty.escape_ascii());
    assert_eq!(client.text("REPLCONF rdb-only 1 rdb-filter-only functions"), "OK");
    assert_eq!(client.text("SYNC"), "ERR Filtered replica requires EOF capability");
}

#[test]
fn replicas_are_refused_and_options_are_answered_as_by_redis() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["SYNC", "PSYNC ? -1", "REPLCONF rdb-only 1 rdb-only 0"] {
        let reply = if line.starts_with("REPLCONF") { "OK" } else { NO_REPLICAS };
        assert_eq!(client.text(line), reply, "{line}");
    }
    for (line, reply) in [
        ("REPLCONF", "OK"),
        ("REPLCONF capa", "ERR syntax error"),
        ("REPLCONF listening-port 6380 ip-address 10.0.0.1 capa eof capa psync2", "OK"),
        ("REPLCONF listening-port x", "ERR value is not an integer or out of range"),
        ("REPLCONF rdb-only 2", "ERR value is out of range, value must between 0 and 1"),
        ("REPLCONF rdb-only x", "ERR value is not an integer or out of range"),
        ("REPLCONF rdb-filter-only keys", "ERR Unsupported rdb-filter-only option: keys"),
        ("REPLCONF rdb-filter-only 'functions", "ERR Missing rdb-filter-only values"),
        ("REPLCONF nosuch 1", "ERR Unrecognized REPLCONF option: nosuch"),
        ("PSYNC ? x", "ERR value is not an integer or out of range"),
        ("PSYNC ?", "ERR wrong number of arguments for 'psync' command"),
        ("SYNC 1", "ERR wrong number of arguments for 'sync' command"),
        ("EVAL return(redis.call('sync')) 0", "ERR This Redis command is not allowed from script"),
    ] {
        let text = client.text(line);
        assert!(text.starts_with(reply), "{line}: {text}");
    }
    let long = "1".repeat(256);
    let told = client.text(&format!("REPLCONF ip-address {long}"));
    assert_eq!(told, "ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes");
    client.send([request("REPLCONF ACK 1"), request("REPLCONF GETACK *"), request("PING")].concat());
    assert_eq!(client.reply().text(), "PONG", "there is no reply to the first two");
    client.call("MULTI");
    assert_eq!(client.text("SYNC"), "ERR Command not allowed inside a transaction");
    client.call("DISCARD");
    client.call("MONITOR");
    client.send([request("REPLCONF rdb-only 1"), request("SYNC"), request("ECHO on")].concat());
    let replies: Vec<String> = (0..3).map(|_| client.reply().text()).filter(|text| !text.contains("\"")).collect();
    assert_eq!(replies, ["OK", "on"], "a client that monitors gets no file");
}

#[test]
fn who_asks_by_psync_is_told_that_all_of_it_comes() {
    let server = start(&[]);
    server.client().call("SET key value");
    let mut socket = raw(&server);
    ask(&mut socket, &[OPTIONS, "PSYNC ? -1"]);
    let id = server.client().info("master_replid");
    assert_eq!(line(&mut socket), format!("+FULLRESYNC {id} 0"));
    assert_eq!(digest_of(&file(&mut socket)), server.client().text("DEBUG DIGEST"));
}

#[test]
fn a_client_that_does_not_read_costs_little_memory_keeps_none_waiting_and_can_be_killed() {
    let server = start(&[]);
    let mut client = server.client();
    fill_large(&mut client);
    let digest = client.text("DEBUG DIGEST");
    let (mut reader, _other) = (deaf(&server, &mut client), deaf(&server, &mut client));
    assert!(client.text("CLIENT LIST TYPE replica").contains(" flags=S "));
    for number in 0..1000 {
        assert_eq!(client.text(&format!("SET large:{number} x")), "OK");
    }
    assert!(waiting_bytes(&mut client).iter().all(|bytes| *bytes <= 1 << 20));
    // A save does not wait for them: all that they are sent is in their image.
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(digest_of(&file(&mut reader)), digest);
    eventually("the first one has all", || client.info("rdb_transfers_in_progress") == "1");
    assert_eq!(client.text("CLIENT KILL TYPE replica"), "1");
    eventually("all is given back", || unnamed_files(&server.dir) == 0);
    assert_eq!(client.info("rdb_transfers_in_progress"), "0");
}

#[test]
fn a_client_that_goes_amid_its_file_leaves_nothing() {
    let server = start(&[]);
    let mut client = server.client();
    fill_large(&mut client);
    for how in ["close", "half"] {
        let socket = deaf(&server, &mut client);
        assert!(unnamed_files(&server.dir) > 0);
        if how == "close" {
            drop(socket);
        } else {
            socket.shutdown(Shutdown::Write).unwrap();
            std::mem::forget(socket);
        }
        eventually("it is gone", || client.info("rdb_transfers_in_progress") == "0");
        eventually("all is given back", || unnamed_files(&server.dir) == 0);
    }
    // While its image is written, too.
    set_rate(&mut client, 1);
    let mut socket = raw(&server);
    ask(&mut socket, &[OPTIONS, "SYNC"]);
    eventually("its image is written", || names(&server.dir).len() == 1);
    drop(socket);
    eventually("its image is gone", || names(&server.dir).is_empty());
    set_rate(&mut client, 0);
    assert_eq!(digest_of(&sent(&server, &[OPTIONS, "SYNC"])), client.text("DEBUG DIGEST"));
}

#[test]
fn files_and_saves_wait_for_one_another() {
    let server = start(&[("checkpoint-max-bytes-per-second", "1")]);
    let mut client = server.client();
    fill_large(&mut client);
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    let mut socket = raw(&server);
    ask(&mut socket, &[OPTIONS, "SYNC"]);
    let mut sign = [0];
    socket.read_exact(&mut sign).unwrap();
    assert_eq!(&sign, b"\n", "it is told that the server is there");
    client.call("SET later 1");
    let digest = client.text("DEBUG DIGEST");
    assert_eq!(client.text("BGSAVE CANCEL"), "Background saving cancelled");
    eventually("its image is written", || names(&server.dir).iter().any(|name| name.ends_with("999")));
    client.call("SET later 2");
    // One that is asked for now comes next, and one that blocks takes its place.
    assert_eq!(client.text("BGSAVE"), "Background saving scheduled");
    assert_eq!((client.text("SAVE"), client.info("rdb_saves")), ("OK".into(), "1".into()));
    set_rate(&mut client, 0);
    let later = client.text("DEBUG DIGEST");
    assert!(later != digest);
    assert_eq!(digest_of(&file(&mut socket)), later, "its image was given up and made anew");
    eventually("the other save has come", || client.info("rdb_saves") == "2");
}

#[test]
fn several_clients_are_sent_one_image_and_no_more_than_four_at_a_time() {
    let server = start(&[]);
    let mut client = server.client();
    fill_large(&mut client);
    set_rate(&mut client, 1);
    let mut sockets: Vec<TcpStream> = (0..4).map(|_| raw(&server)).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        ask(socket, &[OPTIONS, "SYNC"]);
        await_asked(&mut client, number + 1);
    }
    assert_eq!(client.text("REPLCONF rdb-only 1"), "OK");
    assert_eq!(client.text("SYNC"), "ERR 4 clients are sent the data already, try again later");
    let digest = client.text("DEBUG DIGEST");
    set_rate(&mut client, 0);
    let files: Vec<Vec<u8>> = sockets.iter_mut().map(file).collect();
    assert_eq!(digest_of(&files[0]), digest);
    assert!(
        files[2..].iter().all(|file| *file == files[1]),
        "those that came while the first image was written share one"
    );
    assert_eq!(digest_of(&files[1]), digest);
}

#[test]
fn a_full_disk_and_a_place_that_can_not_be_mapped_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let rules = vec![(FaultTrigger::From(DeviceOperation::Write, 0), InjectedFault::Error(errno::ENOSPC))];
    let full = Arc::new(FaultInjector::new(Arc::new(DiskDirectory::new(dir.path())), rules));
    let servers = [start_restoring(dir.path(), &[], full), start_within(&MemoryDirectory::new(), &[]).unwrap()];
    for (server, reason) in servers.iter().zip(["No space left on device", "isn't a file"]) {
        let mut client = server.client();
        client.call("SET key value");
        let mut socket = raw(server);
        ask(&mut socket, &[OPTIONS, "SYNC"]);
        let told = line(&mut socket);
        assert!(told.starts_with("-ERR the data can't be sent: ") && told.contains(reason), "{told}");
        assert_eq!(rest(&mut socket), b"", "the connection ends");
        assert_eq!((client.text("GET key"), client.text("SET key 2")), ("value".into(), "OK".into()));
        assert_eq!(client.info("rdb_last_bgsave_status"), "ok", "it was no save");
    }
}

#[test]
fn a_clone_sends_its_data_if_it_has_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let original = start_in(dir.path(), &[]);
    fill(&mut original.client());
    assert_eq!(original.client().text("SAVE"), "OK");
    let (image, own) = (dir.path().join("dump.quire"), tempfile::tempdir().unwrap());
    let without = start_clone(&image, &[]).unwrap();
    let mut client = without.client();
    client.call("REPLCONF rdb-only 1");
    assert!(client.text("SYNC").starts_with("ERR this server is a clone and has no directory to save to"));
    let clone = start_clone(&image, &[("dir", own.path().to_str().unwrap())]).unwrap();
    let mut client = clone.client();
    client.call("SET of-the-clone 1");
    let digest = client.text("DEBUG DIGEST");
    assert_eq!(digest_of(&sent(&clone, &[OPTIONS, "SYNC"])), digest);
}

#[test]
fn the_end_of_the_server_breaks_a_file_off() {
    for line in ["SHUTDOWN NOSAVE", "SHUTDOWN SAVE"] {
        let mut server = start(&[]);
        let mut client = server.client();
        fill_large(&mut client);
        let mut reader = deaf(&server, &mut client);
        client.send(request(line));
        assert!(server.ended());
        let begin = self::line(&mut reader);
        let bytes = rest(&mut reader);
        assert!(!bytes.ends_with(begin.strip_prefix("$EOF:").unwrap().as_bytes()), "{line}");
        eventually("all is given back", || unnamed_files(&server.dir) == 0);
    }
    // And one that is not cut yet.
    let server = start(&[("checkpoint-max-bytes-per-second", "1")]);
    fill_large(&mut server.client());
    let mut socket = raw(&server);
    ask(&mut socket, &[OPTIONS, "SYNC"]);
    await_asked(&mut server.client(), 1);
    drop(server);
    assert!(rest(&mut socket).iter().all(|byte| *byte == b'\n'), "signs at most");
}

#[test]
fn messages_do_not_get_into_a_file() {
    let server = start(&[]);
    let mut client = server.client();
    fill_large(&mut client);
    let digest = client.text("DEBUG DIGEST");
    let mut socket = raw(&server);
    for line in ["HELLO 3", "CLIENT TRACKING ON BCAST", "SUBSCRIBE news", OPTIONS, "SYNC"] {
        socket.write_all(&request(line)).unwrap();
    }
    await_asked(&mut client, 1);
    for _ in 0..50 {
        assert_eq!(client.text("PUBLISH news a-message"), "1");
        client.call("SET large:1 x");
    }
    let mut found = String::new();
    while !found.starts_with("$EOF:") {
        found = line(&mut socket);
    }
    let mut bytes = rest(&mut socket);
    assert!(bytes.ends_with(&found.as_bytes()[5..]));
    bytes.truncate(bytes.len() - 40);
    assert_eq!(digest_of(&bytes), digest);
}

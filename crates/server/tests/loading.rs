//! While the data is loaded: what clients may do, what they are told, and that nothing is saved before the data is there.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use quire_server::load_progress::LoadProgress;
use quire_server::net::{LoadingServer, ServerError};
use quire_server::saving;
use quire_server::state::ServerHooks;

use crate::common::{self, Client, Value, config_in, eventually, start_in};

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// A server whose data is not loaded before the test says so.
struct Loading {
    port: u16,
    goes_on: Sender<()>,
    left: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), ServerError>>,
}

impl Loading {
    fn start(dir: &Path, settings: &[(&str, &str)]) -> Self {
        Self::start_told(dir, settings, |_| {})
    }

    /// The same; `tell` says how far the data is.
    fn start_told(dir: &Path, settings: &[(&str, &str)], tell: fn(&LoadProgress)) -> Self {
        let (config, left) = (config_in(dir, settings), Arc::new(AtomicBool::new(false)));
        let (goes_on, waits) = channel();
        let (started, port) = channel();
        let leaves = Arc::clone(&left);
        let thread = std::thread::spawn(move || {
            let leave_loading: Box<dyn Fn() + Send> = Box::new(move || leaves.store(true, Ordering::Relaxed));
            let hooks = ServerHooks { leave_loading: Some(leave_loading), ..ServerHooks::default() };
            let loading = LoadingServer::open(config, hooks)?;
            started.send(loading.port()).unwrap();
            let loaded = loading.load(move |config, progress| {
                tell(progress);
                waits.recv().map_err(|_| "the test gave up".to_owned())?;
                saving::open_telling(config, progress)
            });
            loaded?.run()
        });
        Self { port: port.recv().unwrap(), goes_on, left, thread }
    }

    fn client(&self) -> Client {
        Client::over(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Lets the data be loaded, and waits until it is.
    fn finish(&self) {
        self.goes_on.send(()).unwrap();
        let mut client = self.client();
        eventually("the data is loaded", || client.info("loading") == "0");
    }

    /// How it has ended.
    fn ended(self) -> Result<(), ServerError> {
        self.thread.join().unwrap()
    }
}

/// Leaves an image and a log in `dir`.
fn leave_data(dir: &Path) {
    let server = start_in(dir, &[("appendonly", "yes")]);
    let mut client = server.client();
    client.call("SET a 1");
    assert_eq!(client.text("SAVE"), "OK");
    client.call("SET b 2");
}

#[test]
fn connections_that_come_while_the_data_is_loaded_go_on_when_it_is() {
    let dir = tempfile::tempdir().unwrap();
    leave_data(dir.path());
    let server = Loading::start(dir.path(), &[]);
    let (mut first, mut listener, mut watcher) = (server.client(), server.client(), server.client());
    for line in ["GET a", "PING", "SAVE", "BGSAVE", "SET a 9", "DBSIZE", "FLUSHALL", "BGREWRITEAOF", "SYNC"] {
        assert_eq!(first.text(line), LOADING, "{line}");
    }
    assert_eq!(first.text("GET"), "ERR wrong number of arguments for 'get' command");
    for (line, reply) in [("SELECT 3", "OK"), ("SELECT 0", "OK"), ("ECHO hi", "hi"), ("CLIENT SETNAME me", "OK")] {
        assert_eq!(first.text(line), reply, "{line}");
    }
    assert_eq!(first.text("REPLCONF rdb-only 1"), "OK");
    first.call("HELLO 3");
    assert_eq!(first.text("CLIENT TRACKING ON"), "OK");
    listener.call("SUBSCRIBE news");
    assert_eq!((watcher.text("WATCH a"), watcher.text("MULTI")), ("OK".into(), "OK".into()));
    assert_eq!(watcher.text("GET a"), LOADING);
    assert_eq!(watcher.text("EXEC"), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(watcher.text("WATCH a"), "OK");
    for name in ["dir /tmp", "dbfilename x", "appendonly yes"] {
        assert!(first.text(&format!("CONFIG SET {name}")).starts_with("ERR CONFIG SET failed"), "{name}");
    }
    assert_eq!(first.text("CONFIG SET maxclients 77"), "OK");
    server.finish();
    assert_eq!((first.text("GET a"), first.text("GET b")), ("1".into(), "2".into()));
    assert_eq!(first.text("CLIENT GETNAME"), "me");
    assert_eq!(
        first.call("CONFIG GET maxclients"),
        Value::Map(vec![(Value::Bulk("maxclients".into()), Value::Bulk("77".into()))])
    );
    watcher.call("MULTI");
    watcher.call("GET a");
    assert_eq!(watcher.call("EXEC"), Value::Null, "what was watched was not there");
    watcher.call("SET a 5");
    let told = Value::Array(vec![Value::Bulk("invalidate".into()), Value::Array(vec![Value::Bulk("a".into())])]);
    assert_eq!(first.reply(), told);
    assert_eq!(watcher.text("PUBLISH news x"), "1");
    assert_eq!(listener.reply().items()[2], Value::Bulk("x".into()));
    watcher.send(common::request("SHUTDOWN NOSAVE"));
    assert!(server.ended().is_ok());
}

#[test]
fn nothing_is_told_of_data_that_is_not_loaded_and_nothing_is_put_where_it_will_come() {
    let dir = tempfile::tempdir().unwrap();
    leave_data(dir.path());
    let server = Loading::start(dir.path(), &[("enable-debug-command", "yes")]);
    let mut client = server.client();
    for line in ["POPULATE 3", "RELOAD", "DIGEST", "digest-value a", "OBJECT a"] {
        assert_eq!(client.text(&format!("DEBUG {line}")), LOADING, "{line}");
    }
    assert_eq!(client.text("DEBUG SLEEP 0"), "OK");
    server.finish();
    assert_eq!(client.text("DEBUG POPULATE 3"), "OK");
    assert_eq!(client.call("DBSIZE"), Value::Int(5));
    client.send(common::request("SHUTDOWN NOSAVE"));
    assert!(server.ended().is_ok());
}

#[test]
fn info_tells_how_far_the_data_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Loading::start_told(dir.path(), &[], |progress| progress.tell(250, 1000));
    let mut client = server.client();
    let fields = |client: &mut Client, names: &[&str]| names.iter().map(|name| client.info(name)).collect::<Vec<_>>();
    let names = ["loading", "loading_total_bytes", "loading_loaded_bytes", "loading_loaded_perc"];
    eventually("it is loaded a quarter", || fields(&mut client, &names) == ["1", "1000", "250", "25.00"]);
    assert!(client.info("loading_start_time").parse::<u64>().unwrap() > 1_600_000_000);
    client.info("loading_eta_seconds").parse::<u64>().unwrap();
    server.finish();
    assert_eq!(fields(&mut client, &names), ["0", "", "", ""]);
    client.send(common::request("SHUTDOWN NOSAVE"));
    assert!(server.ended().is_ok());
}

#[test]
fn a_server_that_is_ended_while_it_loads_saves_nothing() {
    for line in ["SHUTDOWN NOSAVE", "SHUTDOWN", "SHUTDOWN SAVE"] {
        let dir = tempfile::tempdir().unwrap();
        leave_data(dir.path());
        let image = std::fs::read(dir.path().join("dump.quire")).unwrap();
        let server = Loading::start(dir.path(), &[("save", "1 1")]);
        let mut client = server.client();
        client.send(common::request(line));
        client.closed();
        eventually("the program is told to leave", || server.left.load(Ordering::Relaxed));
        let Loading { goes_on, thread, .. } = server;
        drop(goes_on);
        assert!(matches!(thread.join().unwrap(), Err(ServerError::Left)), "{line}");
        assert!(std::fs::read(dir.path().join("dump.quire")).unwrap() == image, "{line}");
        let again = start_in(dir.path(), &[]);
        assert_eq!(again.client().text("GET b"), "2", "{line}");
    }
}

#[test]
fn a_client_must_give_the_password_while_the_data_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Loading::start(dir.path(), &[("requirepass", "secret")]);
    let mut client = server.client();
    assert_eq!(client.text("INFO"), "NOAUTH Authentication required.");
    assert_eq!((client.text("AUTH secret"), client.text("GET a")), ("OK".into(), LOADING.into()));
    let Loading { goes_on, thread, .. } = server;
    drop(goes_on);
    // Data that can't be loaded ends the server, with its clients.
    client.closed();
    assert_eq!(thread.join().unwrap().unwrap_err().to_string(), "the test gave up");
}

//! What the integration tests share: a real server on a free port in a thread, and clients that speak to it over sockets.
//!
//! Relies on nothing but the server's own crate and on `/tmp` for its data.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quire_device::{Directory, MemoryDirectory};
use quire_server::clone_origin::CloneOrigin;
use quire_server::cloning;
use quire_server::config::Config;
use quire_server::net::{Server, ServerError, ServerHandle};
use quire_server::save_state::RestoreSummary;
use quire_server::saving;
use quire_server::state::ServerHooks;
use quire_store::{ImageLocation, RestoreMode, Store, StoreConfig};
use tempfile::TempDir;

/// How long anything may take before its test fails. A flush waits for what others write to the same disk, builds say, and that may
/// take more than half a minute.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running server; ended when dropped.
pub struct Running {
    handle: ServerHandle,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
    pub port: u16,
    pub dir: PathBuf,
    own_dir: Option<TempDir>,
}

/// Names that say which ports this process has been given.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port on which no program listens, below those that the system gives to connections. Until this process ends no other test that
/// asks so is given it: a server that has not begun to listen yet would be taken for another one.
pub fn free_port() -> u16 {
    for port in 21_001..32_000u16 {
        let name = SocketAddr::from_abstract_name(format!("quire-test-port-{port}")).unwrap();
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CLAIMS.lock().unwrap().push(claim);
            return port;
        }
    }
    panic!("no port is free");
}

/// Starts a server with these settings, its data in a directory of its own.
pub fn start(settings: &[(&str, &str)]) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let mut running = start_in(&path, settings);
    running.own_dir = Some(dir);
    running
}

/// Starts a server whose data lies in `dir`.
pub fn start_in(dir: &Path, settings: &[(&str, &str)]) -> Running {
    start_with(config_in(dir, settings))
}

/// The configuration of [`start_in`].
pub fn config_in(dir: &Path, settings: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    let usual = [("bind", "127.0.0.1"), ("port", "0"), ("save", ""), ("enable-debug-command", "local")];
    for (name, value) in usual.iter().chain(settings) {
        config.set(name, value).unwrap();
    }
    config.set("dir", dir.to_str().unwrap()).unwrap();
    config
}

/// Starts a server with this configuration.
pub fn start_with(config: Config) -> Running {
    start_hooked(config, ServerHooks::default())
}

/// A server whose data lies in `dir`, and its log in another directory.
pub fn start_logging(dir: &Path, settings: &[(&str, &str)], log_directory: Arc<dyn Directory>) -> Running {
    let hooks = ServerHooks { log_directory: Some(log_directory), ..ServerHooks::default() };
    start_hooked(config_in(dir, settings), hooks)
}

/// A server whose image and log lie in `memory`, so that the power can be cut.
///
/// # Errors
/// Its disk fails before it serves.
pub fn start_within(memory: &MemoryDirectory, settings: &[(&str, &str)]) -> Result<Running, String> {
    start_small(memory, settings, StoreConfig::default().max_memory_bytes)
}

/// The same with an arena of at most so many bytes.
pub fn start_small(
    memory: &MemoryDirectory,
    settings: &[(&str, &str)],
    max_memory_bytes: u64,
) -> Result<Running, String> {
    let own_dir = tempfile::tempdir().unwrap();
    let config = config_in(own_dir.path(), settings);
    let directory: Arc<dyn Directory> = Arc::new(memory.clone());
    let open = move |config: &Config| {
        let place = ImageLocation::within(Arc::clone(&directory), &config.dbfilename);
        let store_config = StoreConfig { max_memory_bytes, ..StoreConfig::default() };
        let opened = Store::open(store_config, &place, RestoreMode::Load, false);
        let (store, _) = opened.map_err(|error| error.to_string())?;
        let (log_directory, image_directory) = (Some(Arc::clone(&directory)), Some(Arc::clone(&directory)));
        let hooks = ServerHooks { log_directory, image_directory, ..ServerHooks::default() };
        Ok((store, RestoreSummary::default(), hooks))
    };
    let mut running = launch(config, open)?;
    running.own_dir = Some(own_dir);
    Ok(running)
}

/// A server that maps the image in `images` and verifies it while it serves.
pub fn start_restoring(dir: &Path, settings: &[(&str, &str)], images: Arc<dyn Directory>) -> Running {
    let open = move |config: &Config| {
        let place = ImageLocation::within(Arc::clone(&images), &config.dbfilename);
        let opened = Store::open(StoreConfig::default(), &place, RestoreMode::Map, false);
        let (store, _) = opened.map_err(|error| error.to_string())?;
        let hooks = ServerHooks { image_directory: Some(images), ..ServerHooks::default() };
        Ok((store, RestoreSummary::default(), hooks))
    };
    launch(config_in(dir, settings), open).expect("the server starts")
}

/// The configuration of a clone without a directory of its own.
pub fn config_of_clone(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::of_clone();
    let usual = [("bind", "127.0.0.1"), ("port", "0"), ("enable-debug-command", "local")];
    for (name, value) in usual.iter().chain(settings) {
        config.set(name, value).unwrap();
    }
    config
}

/// A clone on the image at `path`.
///
/// # Errors
/// Why it does not start.
pub fn start_clone(path: &Path, settings: &[(&str, &str)]) -> Result<Running, String> {
    let path = path.to_owned();
    let open = move |config: &Config| {
        let origin = CloneOrigin::at(&path, &path.display().to_string())?;
        cloning::check_place(config, &origin)?;
        let (store, restored) = cloning::open(config, origin)?;
        Ok((store, restored, ServerHooks::default()))
    };
    launch(config_of_clone(settings), open)
}

/// Why a server does not start.
pub fn refused(config: Config) -> String {
    let (store, restored) = saving::open(&config).expect("the data can be opened");
    match Server::start(config, store, restored, ServerHooks::default()) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

fn start_hooked(config: Config, hooks: ServerHooks) -> Running {
    let open = |config: &Config| saving::open(config).map(|(store, restored)| (store, restored, hooks));
    launch(config, open).expect("the server starts")
}

/// What a server begins with.
type Opened = Result<(Store, RestoreSummary, ServerHooks), String>;

fn launch(config: Config, open: impl FnOnce(&Config) -> Opened + Send + 'static) -> Result<Running, String> {
    let dir = config.dir.clone();
    let (started, result) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let begun = open(&config).and_then(|(store, restored, hooks)| {
            Server::start(config, store, restored, hooks).map_err(|error| error.to_string())
        });
        match begun {
            Ok(server) => {
                started.send(Ok((server.port(), server.handle()))).unwrap();
                server.run()
            }
            Err(reason) => {
                started.send(Err(reason)).unwrap();
                Ok(())
            }
        }
    });
    let (port, handle) = result.recv().expect("the server does not panic")?;
    Ok(Running { handle, thread: Some(thread), port, dir, own_dir: None })
}

impl Running {
    /// A new connection.
    pub fn client(&self) -> Client {
        Client::over(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Waits until the server has ended by itself.
    pub fn ended(&mut self) -> bool {
        let thread = self.thread.take().unwrap();
        eventually("the server ends", || thread.is_finished());
        thread.join().unwrap().is_ok()
    }
}

impl Running {
    /// Waits until the server has ended, and tells why it had to.
    pub fn failure(&mut self) -> String {
        let thread = self.thread.take().unwrap();
        eventually("the server ends", || thread.is_finished());
        thread.join().unwrap().expect_err("it ends for a reason").to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.stop();
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the server does not panic").expect("the server ends well");
            }
        }
    }
}

/// Waits until something holds; fails when it does not come true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Has another client ask for a copy, and waits until it waits: the copy is under way, and gets no further until [`go_on`].
pub fn ask_for_copy(server: &Running, client: &mut Client, line: &str) -> Client {
    client.call("DEBUG PAUSE-CRON 1");
    let mut copier = server.client();
    copier.send(request(line));
    eventually("the copy begins", || client.text("CLIENT LIST").contains("cmd=copy"));
    copier
}

/// Lets the copy that is under way go on.
pub fn go_on(client: &mut Client) {
    client.call("DEBUG PAUSE-CRON 0");
}

/// A reply.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Double(String),
    Bool(bool),
    Verbatim(String),
}

impl Value {
    /// The text of anything that has one.
    pub fn text(&self) -> String {
        match self {
            Value::Simple(text) | Value::Error(text) | Value::Double(text) | Value::Verbatim(text) => text.clone(),
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Int(number) => number.to_string(),
            Value::Null => "(nil)".to_owned(),
            other => panic!("{other:?} has no text"),
        }
    }

    /// The elements of an array or a set.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Set(items) => items,
            other => panic!("{other:?} has no elements"),
        }
    }

    /// The number.
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(number) => *number,
            other => panic!("{other:?} is no integer"),
        }
    }
}

/// Any kind of stream.
pub trait Stream: Read + Write + Send {
    /// Says that nothing more will be sent.
    fn end(&self);
    /// Sets how long a read may take.
    fn patience(&self, limit: Duration);
}

impl Stream for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
    fn patience(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

impl Stream for std::os::unix::net::UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
    fn patience(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

/// A connection to the server.
pub struct Client {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
}

/// A request in the framed form.
pub fn framed(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// The framed form of a request whose words have no spaces.
pub fn request(line: &str) -> Vec<u8> {
    framed(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

impl Client {
    /// Speaks over this stream.
    pub fn over(stream: impl Stream + 'static) -> Self {
        stream.patience(PATIENCE);
        Self { stream: Box::new(stream), input: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes; false when the server does not take them any more.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self) {
        self.stream.end();
    }

    /// As [`Client::call`]; `None` when the server has closed the connection.
    pub fn try_call(&mut self, line: &str) -> Option<Value> {
        if self.try_send(request(line)) { self.try_reply() } else { None }
    }

    /// One command, its words separated by spaces, and its reply.
    pub fn call(&mut self, line: &str) -> Value {
        self.send(request(line));
        self.reply()
    }

    /// One command and its reply; the words may hold anything.
    pub fn words(&mut self, words: &[&[u8]]) -> Value {
        self.send(framed(words));
        self.reply()
    }

    /// The text of the reply to a command.
    pub fn text(&mut self, line: &str) -> String {
        self.call(line).text()
    }

    /// A field of INFO; empty when there is none.
    pub fn info(&mut self, field: &str) -> String {
        let text = self.text("INFO everything");
        let prefix = format!("{field}:");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().to_owned()
    }

    /// The next reply.
    pub fn reply(&mut self) -> Value {
        self.try_reply().expect("a reply")
    }

    /// The next reply, or `None` when the server has closed the connection.
    pub fn try_reply(&mut self) -> Option<Value> {
        let line = self.line()?;
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_else(|_| panic!("{line:?}"));
        Some(match kind {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()),
            "$" | "*" if rest == "-1" => Value::Null,
            "_" => Value::Null,
            "$" => Value::Bulk(self.bytes(number() as usize)?),
            "=" => Value::Verbatim(String::from_utf8(self.bytes(number() as usize)?.split_off(4)).unwrap()),
            "," => Value::Double(rest.to_owned()),
            "#" => Value::Bool(rest == "t"),
            "*" | ">" => Value::Array(self.several(number())?),
            "~" => Value::Set(self.several(number())?),
            "%" => {
                let mut items = self.several(2 * number())?.into_iter();
                let mut pairs = Vec::new();
                while let (Some(name), Some(value)) = (items.next(), items.next()) {
                    pairs.push((name, value));
                }
                Value::Map(pairs)
            }
            _ => panic!("not a reply: {line:?}"),
        })
    }

    fn several(&mut self, count: i64) -> Option<Vec<Value>> {
        (0..count).map(|_| self.try_reply()).collect()
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.input.drain(..end + 2).take(end).collect();
                return Some(String::from_utf8(line).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.input.len() < count + 2 {
            if !self.fill() {
                return None;
            }
        }
        let rest = self.input.split_off(count + 2);
        let mut bytes = std::mem::replace(&mut self.input, rest);
        assert!(bytes.ends_with(b"\r\n"));
        bytes.truncate(count);
        Some(bytes)
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 65_536];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.input.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Reads a piece of what has come, without waiting for whole replies; 0 at the end.
    pub fn read_raw(&mut self, to: &mut [u8]) -> usize {
        self.stream.read(to).unwrap_or(0)
    }

    /// Waits for the server to close the connection; whatever comes before is dropped.
    pub fn closed(&mut self) {
        self.input.clear();
        while self.fill() {
            self.input.clear();
        }
    }

    /// True when nothing comes for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.patience(Duration::from_millis(60));
        let mut piece = [0; 1];
        let silent = match self.stream.read(&mut piece) {
            Ok(0) => panic!("closed"),
            Ok(_) => {
                self.input.push(piece[0]);
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        self.stream.patience(PATIENCE);
        silent && self.input.is_empty()
    }
}

/// Sends a request that waits for keys, and waits until it does.
pub fn wait(admin: &mut Client, client: &mut Client, line: &str) {
    let before = blocked(admin);
    client.send(request(line));
    eventually("it waits", || blocked(admin) == before + 1);
}

/// Clients that wait.
pub fn blocked(admin: &mut Client) -> u64 {
    admin.info("blocked_clients").parse().unwrap()
}

/// Keys on which clients wait.
pub fn awaited(admin: &mut Client) -> String {
    admin.info("total_blocking_keys")
}

//! A file server that sends leased pages: `GET /NAME` over HTTP/1.0 answers with a file of one directory.
//!
//! The bytes of a file go from the pool to the socket: no `read`, no buffer of the server's own, one copy, which is the kernel's. A file larger
//! than the pool is sent as well, piece by piece. Leases pin a bounded part of the pool: where many slow clients hold it all, the
//! next piece waits.
//!
//! ```sh
//! cargo run --release -p quire-pool --example file_server -- DIRECTORY 127.0.0.1:8080
//! curl http://127.0.0.1:8080/NAME
//! ```
//! It expects its files not to change while it runs.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quire_device::{Directory, DiskDirectory};
use quire_pool::{AccessAdvice, Map, MapOptions, Pool, PoolConfig, PoolError};

/// Bytes leased and sent at a time: enough to be sent at once, few enough that many clients can have as many.
const PIECE_BYTES: usize = 256 << 10;
/// Longest request line and headers.
const MOST_REQUEST_BYTES: u64 = 8 << 10;
/// Clients at a time, each with a thread.
const MOST_CLIENTS: usize = 256;
/// Files kept open.
const MOST_FILES: usize = 1024;
/// A client that neither sends nor takes anything for so long is gone; its lease is needed elsewhere.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long no connection is taken when the system has no descriptor or no memory for one.
const PAUSE: Duration = Duration::from_millis(20);
/// What `accept` and `open` say then: `ENOMEM`, `ENFILE`, `EMFILE`, `ENOBUFS`.
const SHORTAGES: [i32; 4] = [12, 23, 24, 105];

/// Files of one directory, in a pool.
pub struct FileServer {
    pool: Arc<Pool>,
    directory: DiskDirectory,
    files: Mutex<HashMap<String, Map>>,
    clients: AtomicUsize,
    /// How often no connection could be taken for want of descriptors or memory.
    pub shortages: AtomicUsize,
}

/// Why there is no answer with a file in it.
enum Refusal {
    BadRequest,
    NotFound,
    Busy,
}

impl FileServer {
    /// A server of the files in `directory` with `budget_bytes` of memory for them.
    ///
    /// # Errors
    /// The pool can't be made.
    pub fn new(directory: &Path, budget_bytes: usize) -> Result<Arc<Self>, PoolError> {
        let config = PoolConfig { budget_bytes, page_bytes: 16 << 10, lease_percent: 50, ..PoolConfig::default() };
        Ok(Arc::new(Self {
            pool: Pool::new(config)?,
            directory: DiskDirectory::new(directory),
            files: Mutex::default(),
            clients: AtomicUsize::new(0),
            shortages: AtomicUsize::new(0),
        }))
    }

    /// Serves what connects to `listener`, until that fails.
    ///
    /// # Errors
    /// No more connections can be taken.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        loop {
            let (client, _) = match listener.accept() {
                // One that went before its turn.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // It waits in the queue until another has gone. The pause is for the processor, which would do nothing else.
                Err(error) if is_shortage(&error) => {
                    self.shortages.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                    continue;
                }
                accepted => accepted?,
            };
            if self.clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                self.clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let own = Arc::clone(&self);
            let spawned = std::thread::Builder::new().spawn(move || {
                // A client that goes in the midst of it is no matter.
                let _ = own.answer(&client);
                own.clients.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                self.clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn answer(&self, client: &TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        let (mut from, mut to) = (BufReader::new(client.take(MOST_REQUEST_BYTES)), client);
        match request(&mut from).and_then(|name| self.file(&name)) {
            Ok(map) => send(&map, &mut to),
            Err(Refusal::BadRequest) => to.write_all(b"HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
            Err(Refusal::NotFound) => to.write_all(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            Err(Refusal::Busy) => to.write_all(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"),
        }
    }

    /// The file called `name`, opened once and kept.
    fn file(&self, name: &str) -> Result<Map, Refusal> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = files.get(name) {
            return Ok(map.clone());
        }
        if files.len() >= MOST_FILES {
            return Err(Refusal::Busy);
        }
        let device = self.directory.open(name).map_err(|error| match error.errno {
            Some(number) if SHORTAGES.contains(&number) => Refusal::Busy,
            _ => Refusal::NotFound,
        })?;
        let options = MapOptions { advice: AccessAdvice::Sequential, ..MapOptions::default() };
        let map = self.pool.map(device, options).map_err(|_| Refusal::Busy)?;
        Ok(files.entry(name.to_owned()).or_insert(map).clone())
    }
}

/// Whether an error goes when others have given something back.
fn is_shortage(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| SHORTAGES.contains(&number))
}

/// The name that a request asks for. Its headers are read and not looked at.
fn request(from: &mut impl BufRead) -> Result<String, Refusal> {
    let mut line = String::new();
    from.read_line(&mut line).map_err(|_| Refusal::BadRequest)?;
    let mut words = line.split_ascii_whitespace();
    let (Some("GET"), Some(path)) = (words.next(), words.next()) else { return Err(Refusal::BadRequest) };
    let name = path.strip_prefix('/').ok_or(Refusal::BadRequest)?;
    // Names of this directory only.
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Refusal::NotFound);
    }
    loop {
        let mut header = String::new();
        match from.read_line(&mut header) {
            Ok(1..) if header.trim_end().is_empty() => return Ok(name.to_owned()),
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(Refusal::BadRequest),
        }
    }
}

/// Sends all of a file, by leases.
fn send(map: &Map, to: &mut impl Write) -> io::Result<()> {
    let len = map.len();
    write!(to, "HTTP/1.0 200 OK\r\nContent-Length: {len}\r\n\r\n")?;
    let mut at = 0;
    while at < len {
        // Failing here ends the connection early, which the client sees by the length.
        let piece = map.lease(at, PIECE_BYTES).map_err(io::Error::other)?;
        to.write_all(&piece)?;
        at += piece.len() as u64;
    }
    to.flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(directory), Some(address)) = (args.next(), args.next()) else {
        return Err("usage: file_server DIRECTORY ADDRESS:PORT".into());
    };
    let listener = TcpListener::bind(&address)?;
    println!("serving {directory} at {}", listener.local_addr()?);
    FileServer::new(Path::new(&directory), 256 << 20)?.serve(&listener)?;
    Ok(())
}

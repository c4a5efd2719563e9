//! Keys on their way to another server (MIGRATE): a thread for each client that has asked for it talks to the target, while the client
//! waits and all others are served.
//!
//! Relies on the handler to make the requests, within the memory that it may take, and to take keys away that the target has
//! acknowledged. Neither a reply nor a part of what is sent takes longer than the client has said, so that a thread ends.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use mio::Waker;

use crate::args::Args;

/// Written to the socket at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Jobs that run at a time. Each is a thread, and holds what it sends, until its target has answered or the time is over.
const MOST_JOBS: u64 = 64;
/// Longest line that the target may reply with.
const LONGEST_LINE: usize = 1024;
const CONNECTING: &str = "IOERR error or timeout connecting to the client";
const WRITING: &str = "IOERR error or timeout writing to target instance";
const READING: &str = "IOERR error or timeout reading to target instance";
/// Replacing a key by itself and then taking it away would lose it, and in a transaction no other client is served.
const ITSELF: &str = "ERR the target is this server: it would lose the keys, or wait for itself";

/// What the target is to be sent.
#[derive(Debug, Default)]
pub struct MigrationJob {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How long each operation on the socket may take.
    pub timeout: Duration,
    /// Where this server itself listens, if it can't be its own target.
    pub own_addresses: Vec<SocketAddr>,
    /// Requests that come first: the password, and the database.
    pub opening: Vec<u8>,
    /// How many these are.
    pub opening_replies: usize,
    /// A RESTORE for each key.
    pub restores: Vec<u8>,
}

impl MigrationJob {
    /// Memory that its requests take.
    fn memory_bytes(&self) -> usize {
        self.opening.capacity() + self.restores.capacity()
    }

    /// Whether this is this server's own address, as a connection to it has it.
    fn is_itself(&self, socket: &TcpStream) -> io::Result<bool> {
        let (target, from) = (socket.peer_addr()?, socket.local_addr()?);
        // A server that listens everywhere listens at the address from which it has reached its own machine.
        let is_at = |own: &SocketAddr| *own == target || own.ip().is_unspecified() && target.ip() == from.ip();
        Ok(self.own_addresses.iter().any(|own| own.port() == target.port() && is_at(own)))
    }
}

/// A key as it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentKey {
    /// The key.
    pub key: Vec<u8>,
    /// Length and fingerprint of its payload.
    pub payload: (usize, u64),
    /// When it expires.
    pub expire_ms: Option<i64>,
}

/// What became of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigrationReport {
    /// Whether the target has taken each key.
    pub taken: Vec<bool>,
    /// The error line, if not all went well.
    pub error: Option<String>,
}

/// A job that a thread does, or has done.
#[derive(Debug)]
struct Migration {
    /// The request, with the database that it was sent for.
    request: (u8, Vec<Vec<u8>>),
    keys: Vec<SentKey>,
    report: Receiver<MigrationReport>,
}

/// What the threads tell the loop.
#[derive(Debug, Default)]
struct JobCounts {
    /// How many jobs have ended.
    ended: AtomicU64,
    /// Memory of those that have not.
    bytes: AtomicU64,
}

/// A job that has begun. However it ends, it is counted as ended, and the loop is woken.
struct BegunJob {
    counts: Arc<JobCounts>,
    bytes: u64,
    waker: Arc<Waker>,
}

impl Drop for BegunJob {
    fn drop(&mut self) {
        self.counts.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // The loop loads it when it was woken; the channel has the report by then.
        self.counts.ended.fetch_add(1, Ordering::Release);
        // If the loop is gone there is none to wake.
        let _ = self.waker.wake();
    }
}

/// What is known of a client's job.
#[derive(Debug)]
pub enum MigrationState {
    /// There is none.
    None,
    /// The thread is at it.
    Running,
    /// It has ended.
    Ended(Vec<SentKey>, MigrationReport),
}

/// The jobs of all clients.
#[derive(Debug, Default)]
pub struct Migrations {
    by_client: HashMap<u64, Migration>,
    /// How many were begun.
    begun: u64,
    counts: Arc<JobCounts>,
    /// How many of those that have ended the loop has seen.
    seen: u64,
    /// The key of fingerprints, which no client knows: the checksum that a payload ends in is easily made that of another one.
    fingerprints: RandomState,
}

fn words_of(args: Args<'_>) -> Vec<Vec<u8>> {
    args.iter().map(<[u8]>::to_vec).collect()
}

impl Migrations {
    /// Has a thread do a job for a client. The loop is woken when it is done.
    ///
    /// # Errors
    /// The system has no thread, or as many jobs as may run are running, those of clients that have left among them.
    pub fn begin(
        &mut self,
        (client, db, args): (u64, u8, Args<'_>),
        keys: Vec<SentKey>,
        job: MigrationJob,
        waker: Arc<Waker>,
    ) -> io::Result<()> {
        if self.begun.saturating_sub(self.counts.ended.load(Ordering::Acquire)) >= MOST_JOBS {
            return Err(io::Error::other(format!(
                "keys of {MOST_JOBS} clients are being moved already, try again later"
            )));
        }
        let (sender, report) = mpsc::channel();
        let (count, bytes) = (keys.len(), job.memory_bytes() as u64);
        self.begun += 1;
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        let begun = BegunJob { counts: Arc::clone(&self.counts), bytes, waker };
        std::thread::Builder::new().name("migrate".to_owned()).spawn(move || {
            let report = perform(&job, count);
            drop(job);
            // A client that is gone waits for no report.
            let _ = sender.send(report);
            drop(begun);
        })?;
        self.by_client.insert(client, Migration { request: (db, words_of(args)), keys, report });
        Ok(())
    }

    /// How far a client's job is that this very request has begun; one that has ended, or was begun by another request, is forgotten.
    pub fn state(&mut self, (client, db, args): (u64, u8, Args<'_>)) -> MigrationState {
        let Some(migration) = self.by_client.get(&client) else { return MigrationState::None };
        let (begun_db, words) = &migration.request;
        let is_same = *begun_db == db && words.len() == args.len() && args.iter().eq(words.iter().map(Vec::as_slice));
        let report = match migration.report.try_recv() {
            Err(TryRecvError::Empty) if is_same => return MigrationState::Running,
            Ok(report) => report,
            Err(_) => MigrationReport { taken: Vec::new(), error: Some(READING.to_owned()) },
        };
        match self.by_client.remove(&client) {
            Some(migration) if is_same => MigrationState::Ended(migration.keys, report),
            _ => MigrationState::None,
        }
    }

    /// Forgets the job of a client: what asks for it was refused meanwhile, so that what has become of it is not used any more.
    pub fn forget(&mut self, client: u64) {
        self.by_client.remove(&client);
    }

    /// What tells a payload from any other of its length.
    pub fn fingerprint(&self, payload: &[u8]) -> u64 {
        self.fingerprints.hash_one(payload)
    }

    /// Memory of what is on its way.
    #[inline]
    pub fn memory_bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Forgets the jobs of clients that are gone.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        self.by_client.retain(|client, _| is_there(*client));
    }

    /// Whether more have ended since this was asked last.
    pub fn have_ended(&mut self) -> bool {
        let ended = self.counts.ended.load(Ordering::Acquire);
        std::mem::replace(&mut self.seen, ended) != ended
    }
}

/// Writes a request of these words.
pub fn write_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Sends the target what it is to be sent, and reads its replies; the keys are so many.
pub fn perform(job: &MigrationJob, keys: usize) -> MigrationReport {
    let mut report = MigrationReport { taken: vec![false; keys], error: None };
    let mut socket = match connect(job) {
        Ok(socket) => socket,
        Err(error) => {
            // Redis does not wait until it is connected, so that it meets a refusal when it writes.
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            report.error = Some(if refused { WRITING } else { CONNECTING }.to_owned());
            return report;
        }
    };
    if job.is_itself(&socket).unwrap_or(false) {
        report.error = Some(ITSELF.to_owned());
        return report;
    }
    let sent = [&job.opening, &job.restores].into_iter().try_for_each(|bytes| send(&mut socket, bytes, job.timeout));
    if sent.is_err() {
        report.error = Some(WRITING.to_owned());
        return report;
    }
    let mut replies = Replies { socket, buffer: Vec::new(), timeout: job.timeout };
    let mut opening_error = None;
    for _ in 0..job.opening_replies {
        match replies.next_line() {
            Ok(line) => opening_error = opening_error.or(refusal(&line)),
            Err(_) => {
                report.error = Some(READING.to_owned());
                return report;
            }
        }
    }
    for taken in &mut report.taken {
        let Ok(line) = replies.next_line() else {
            report.error.get_or_insert_with(|| READING.to_owned());
            break;
        };
        match opening_error.clone().or(refusal(&line)) {
            Some(error) => {
                report.error.get_or_insert(error);
            }
            None => *taken = true,
        }
    }
    report
}

/// Why a request was not done, as the target's reply says it. What is no reply to it may come from any program: nothing is taken away
/// because of that.
fn refusal(line: &[u8]) -> Option<String> {
    match line {
        b"+OK" => None,
        [b'-', text @ ..] => Some(format!("ERR Target instance replied with error: {}", String::from_utf8_lossy(text))),
        other => Some(format!("ERR Target instance replied with what is no answer: {}", other.escape_ascii())),
    }
}

fn connect(job: &MigrationJob) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in (job.host.as_str(), job.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, job.timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Sends bytes; each part of them takes no longer than `timeout`.
fn send(socket: &mut TcpStream, bytes: &[u8], timeout: Duration) -> io::Result<()> {
    for mut chunk in bytes.chunks(CHUNK_BYTES) {
        let began = Instant::now();
        while !chunk.is_empty() {
            socket.set_write_timeout(Some(left(began, timeout)?))?;
            match socket.write(chunk) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => chunk = &chunk[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What is left of a time.
fn left(began: Instant, timeout: Duration) -> io::Result<Duration> {
    let left = timeout.saturating_sub(began.elapsed());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The lines that the target replies with.
struct Replies {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// How long each of them may take.
    timeout: Duration,
}

impl Replies {
    /// The next line, without its end.
    fn next_line(&mut self) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(end);
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(ErrorKind::InvalidData.into());
            }
            self.socket.set_read_timeout(Some(left(began, self.timeout)?))?;
            let mut some = [0; LONGEST_LINE];
            match self.socket.read(&mut some) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.buffer.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What comes of a job for two keys if the target replies with this, and ends.
    fn report_of(reply: &'static [u8], opening_replies: usize) -> MigrationReport {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut sent = [0; 6];
            socket.read_exact(&mut sent).unwrap();
            socket.write_all(reply).unwrap();
            sent
        });
        let (host, timeout) = ("127.0.0.1".to_owned(), Duration::from_secs(30));
        let (opening, restores) = (b"ab".to_vec(), b"cdef".to_vec());
        let job = MigrationJob { host, port, timeout, opening, opening_replies, restores, ..MigrationJob::default() };
        let report = perform(&job, 2);
        assert_eq!(&target.join().unwrap(), b"abcdef");
        report
    }

    #[test]
    fn keys_are_taken_that_the_target_acknowledges() {
        for (reply, opening, taken, error) in [
            (&b"+OK\r\n+OK\r\n+OK\r\n"[..], 1, [true, true], None),
            (
                b"+OK\r\n-BUSYKEY no\r\n+OK\r\n",
                1,
                [false, true],
                Some("ERR Target instance replied with error: BUSYKEY no"),
            ),
            (b"-ERR a\r\n-ERR b\r\n", 0, [false, false], Some("ERR Target instance replied with error: ERR a")),
            (
                b"-WRONGPASS x\r\n+OK\r\n+OK\r\n+OK\r\n",
                2,
                [false, false],
                Some("ERR Target instance replied with error: WRONGPASS x"),
            ),
            (b"+OK\r\n", 0, [true, false], Some(READING)),
            (b"-ERR a\r\n", 0, [false, false], Some("ERR Target instance replied with error: ERR a")),
            (b"+O", 0, [false, false], Some(READING)),
            (b"", 1, [false, false], Some(READING)),
            (&[b'x'; 5000], 0, [false, false], Some(READING)),
            (
                b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n",
                1,
                [false, false],
                Some("ERR Target instance replied with what is no answer: HTTP/1.1 400 Bad Request"),
            ),
            (
                b"+OK\r\n+QUEUED\r\n+OK\r\n",
                1,
                [false, true],
                Some("ERR Target instance replied with what is no answer: +QUEUED"),
            ),
            (b"\n\n", 0, [false, false], Some("ERR Target instance replied with what is no answer: ")),
        ] {
            let report = report_of(reply, opening);
            assert_eq!(
                (report.taken.as_slice(), report.error.as_deref()),
                (&taken[..], error),
                "{}",
                reply.escape_ascii()
            );
        }
    }

    #[test]
    fn a_job_beyond_those_that_may_run_is_refused_until_one_has_ended() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let mut migrations = Migrations::default();
        let begin = |migrations: &mut Migrations, client| {
            // The target never answers.
            let job = MigrationJob {
                host: "127.0.0.1".to_owned(),
                port,
                timeout: Duration::from_secs(3),
                opening: b"x".to_vec(),
                opening_replies: 1,
                ..MigrationJob::default()
            };
            migrations.begin((client, 0, Args::new(b"", &[])), Vec::new(), job, Arc::clone(&waker))
        };
        (0..MOST_JOBS).for_each(|client| begin(&mut migrations, client).unwrap());
        migrations.keep(|_| false);
        assert!(begin(&mut migrations, MOST_JOBS).unwrap_err().to_string().contains("try again later"));
        assert!(migrations.memory_bytes() >= MOST_JOBS, "what is on its way counts");
        while migrations.counts.ended.load(Ordering::Acquire) < MOST_JOBS {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(migrations.memory_bytes(), 0);
        begin(&mut migrations, MOST_JOBS).unwrap();
    }

    #[test]
    fn a_target_that_is_not_there_or_does_not_answer_ends_the_job_in_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let job = |port| MigrationJob {
            host: "127.0.0.1".to_owned(),
            port,
            timeout: Duration::from_millis(20),
            restores: b"x".to_vec(),
            ..MigrationJob::default()
        };
        assert_eq!(perform(&job(port), 1).error.as_deref(), Some(READING));
        drop(listener);
        assert_eq!(perform(&job(port), 1).error.as_deref(), Some(WRITING));
    }
    #[test]
    fn a_target_that_gives_its_reply_bit_by_bit_ends_the_job_in_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            // Each bit comes long before the time of a read would be over; all of them take longer than a line may.
            let mut bits = 0;
            while socket.write_all(b"x").is_ok() && bits < 600 {
                std::thread::sleep(Duration::from_millis(50));
                bits += 1;
            }
            bits
        });
        let (host, timeout) = ("127.0.0.1".to_owned(), Duration::from_secs(1));
        let job = MigrationJob { host, port, timeout, restores: b"x".to_vec(), ..MigrationJob::default() };
        assert_eq!(perform(&job, 1).error.as_deref(), Some(READING));
        assert!(target.join().unwrap() < 600, "the target has more to give");
    }

    #[test]
    fn a_server_sends_itself_nothing_that_would_only_take_its_own_place() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        for (own, is_itself) in
            [("127.0.0.1", true), ("0.0.0.0", true), ("127.0.0.2", false), ("::1", false)].map(|(ip, is_itself)| {
                (
                    vec![SocketAddr::new("10.0.0.1".parse().unwrap(), 1), SocketAddr::new(ip.parse().unwrap(), port)],
                    is_itself,
                )
            })
        {
            let job = MigrationJob {
                host: "127.0.0.1".to_owned(),
                port,
                timeout: Duration::from_millis(20),
                own_addresses: own,
                restores: b"x".to_vec(),
                ..MigrationJob::default()
            };
            assert_eq!(perform(&job, 1).error.as_deref(), Some(if is_itself { ITSELF } else { READING }));
        }
    }
}

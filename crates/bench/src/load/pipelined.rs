//! A closed loop of pipelined commands on one thread that costs as little for a request as it can: a batch is encoded once, replies are
//! only counted, and a batch takes one read and one write.
//!
//! Relies on the server to set the pace; every server gets the same numbers in the same order.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use quire_rng::SplitMix64;
use quire_sys::thread;

use super::request_batch::RequestBatch;
use crate::reply_skimmer::ReplySkimmer;

const SEED: u64 = 16;
const INPUT_BYTES: usize = 64 << 10;
/// A server that answers nothing for so long will not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Debug, Clone, Copy)]
pub struct PipelinedLoad<'a> {
    /// The server's port.
    pub port: u16,
    /// A command. A random number of twelve digits replaces each [`RANDOM`](crate::redis_benchmark::RANDOM) in it.
    pub words: &'a [&'a str],
    /// Requests in a batch.
    pub pipeline: usize,
    /// Requests in all, which whole batches make a few more.
    pub requests: u64,
    /// Random numbers are below this.
    pub keys: u64,
    /// Connections.
    pub connections: usize,
}

/// What a load did.
#[derive(Debug, Clone, Copy)]
pub struct PipelinedStats {
    /// Requests that were answered.
    pub requests: u64,
    /// From the first that was sent to the last reply.
    pub took: Duration,
    /// Processor time of the client meanwhile.
    pub client_cpu: Duration,
}

impl PipelinedStats {
    /// Requests a second.
    pub fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }

    /// The part of the time that the client had something to do. Near 1 it was the client that set the remaining.
    pub fn client_busy(&self) -> f64 {
        self.client_cpu.as_secs_f64() / self.took.as_secs_f64()
    }
}

/// Sends all requests of the load and waits for their replies.
///
/// # Errors
/// When a connection fails or is closed, a reply is an error or none, or the server stands still.
pub fn run(load: PipelinedLoad<'_>) -> anyhow::Result<PipelinedStats> {
    ensure!(load.pipeline > 0 && load.connections > 0, "a load needs a connection and a request");
    let mut poll = Poll::new()?;
    let batch = RequestBatch::new(load.words, load.pipeline);
    let mut connections = Vec::new();
    for index in 0..load.connections {
        let mut connection = PipelinedConnection::open(load.port, &batch).context("connecting to the server")?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut connection.stream, Token(index), interest)?;
        connections.push(connection);
    }
    let (started, cpu_before_ns) = (Instant::now(), thread::cpu_time_ns());
    let mut remaining = RemainingLoad {
        rng: SplitMix64::new(SEED),
        keys: load.keys,
        pipeline: load.pipeline,
        batches_left: load.requests.div_ceil(load.pipeline as u64),
    };
    let requests = remaining.batches_left * load.pipeline as u64;
    exchange(&mut poll, &mut connections, &mut remaining, requests)?;
    let client_cpu = Duration::from_nanos(thread::cpu_time_ns() - cpu_before_ns);
    Ok(PipelinedStats { requests, took: started.elapsed(), client_cpu })
}

/// Sends and receives until all requests are answered.
///
/// The thread sleeps while there is nothing to read. Asking the system again and again instead would save the server the wake-ups, but it
/// takes a processor from the server's other threads and from all else on the machine: where other programs kept both processors busy, a
/// server that does nothing got 0.4 to 0.7 of the rate. And the client's CPU time would no longer tell whether the client was the limit.
fn exchange(
    poll: &mut Poll,
    connections: &mut [PipelinedConnection],
    remaining: &mut RemainingLoad,
    requests: u64,
) -> anyhow::Result<()> {
    let (mut events, mut input) = (Events::with_capacity(connections.len()), vec![0; INPUT_BYTES]);
    for connection in &mut *connections {
        connection.send_batch(remaining)?;
    }
    let mut answered = 0;
    while answered < requests {
        match poll.poll(&mut events, Some(PATIENCE)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled.context("waiting for replies")?,
        }
        ensure!(!events.is_empty(), "the server has not answered for {} s", PATIENCE.as_secs());
        for event in &events {
            answered += connections[event.token().0].receive(event, &mut input)?;
        }
        // After all reads, so that the server is woken once and finds many requests.
        for event in &events {
            connections[event.token().0].send(remaining)?;
        }
    }
    connections.iter_mut().try_for_each(|connection| connection.expect_nothing(&mut input))
}

/// What the connections share of the load: the numbers to come, and how many batches there are to send.
#[derive(Debug)]
struct RemainingLoad {
    rng: SplitMix64,
    keys: u64,
    pipeline: usize,
    batches_left: u64,
}

#[derive(Debug)]
struct PipelinedConnection {
    stream: TcpStream,
    batch: RequestBatch,
    /// Bytes of the batch that the system has taken.
    sent: usize,
    /// Replies that have not come.
    awaited: usize,
    skimmer: ReplySkimmer,
    /// The server will send no more than has come.
    is_ending: bool,
}

impl PipelinedConnection {
    fn open(port: u16, batch: &RequestBatch) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (stream, batch) = (TcpStream::from_std(stream), batch.clone());
        let sent = batch.bytes().len();
        Ok(Self { stream, batch, sent, awaited: 0, skimmer: ReplySkimmer::default(), is_ending: false })
    }

    /// Takes what has come; returns how many replies ended.
    fn receive(&mut self, event: &Event, input: &mut [u8]) -> anyhow::Result<u64> {
        self.is_ending |= event.is_read_closed() || event.is_error();
        let before = self.awaited;
        while self.awaited > 0 {
            match self.stream.read(input) {
                Ok(0) => bail!("the server closed a connection with {} requests unanswered", self.awaited),
                Ok(len) => {
                    let found = self.skimmer.skim(&input[..len], self.awaited)?;
                    if let Some(error) = self.skimmer.first_error() {
                        bail!("the server answered with an error: {error}");
                    }
                    ensure!(found.bytes == len, "the server sent more replies than it got requests");
                    self.awaited -= found.replies;
                    // What comes after a read that did not fill the input is told by another event, but an end is told once.
                    if len < input.len() && !self.is_ending {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading replies"),
            }
        }
        Ok((before - self.awaited) as u64)
    }

    /// After the last reply nothing more comes.
    fn expect_nothing(&mut self, input: &mut [u8]) -> anyhow::Result<()> {
        match self.stream.read(input) {
            Ok(1..) => bail!("the server sent more replies than it got requests"),
            _ => Ok(()),
        }
    }

    /// Sends what is left of the batch, or the next one if this one is answered.
    fn send(&mut self, remaining: &mut RemainingLoad) -> anyhow::Result<()> {
        if self.awaited == 0 { self.send_batch(remaining) } else { self.flush() }
    }

    fn send_batch(&mut self, remaining: &mut RemainingLoad) -> anyhow::Result<()> {
        if remaining.batches_left == 0 {
            return Ok(());
        }
        ensure!(!self.is_ending, "the server closed a connection");
        remaining.batches_left -= 1;
        self.batch.draw(&mut remaining.rng, remaining.keys);
        (self.sent, self.awaited) = (0, remaining.pipeline);
        self.flush()
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        while let Some(rest) = self.batch.bytes().get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(len) => self.sent += len,
                // An event tells when there is room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending requests"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null_server::NullServer;

    use std::net::TcpListener;

    fn load<'a>(port: u16, words: &'a [&'a str]) -> PipelinedLoad<'a> {
        PipelinedLoad { port, words, pipeline: 16, requests: 1000, keys: 500, connections: 7 }
    }

    /// A server of one connection, and what its thread returns of that.
    fn served<T: Send + 'static>(
        serve: impl FnOnce(std::net::TcpStream) -> T + Send + 'static,
    ) -> (u16, std::thread::JoinHandle<T>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        (port, std::thread::spawn(move || serve(listener.accept().unwrap().0)))
    }

    #[test]
    fn all_requests_are_answered_whatever_the_replies() {
        for reply in [&b":7\r\n"[..], b"$-1\r\n", b"*-1\r\n", b"*2\r\n$3\r\n\r\n\r\r\n*1\r\n+x\r\n"] {
            let server = NullServer::start(reply).unwrap();
            let stats = run(load(server.port(), &["LPUSH", "list", "element"])).unwrap();
            assert_eq!(stats.requests, 1008, "1000 in batches of 16");
            assert!(stats.requests_per_s() > 0.0 && stats.client_cpu > Duration::ZERO);
        }
    }

    #[test]
    fn replies_and_requests_that_need_many_reads_and_writes_come_to_their_ends() {
        let reply = format!("${}\r\n{}\r\n", 300_000, "x".repeat(300_000));
        let server = NullServer::start(reply.as_bytes()).unwrap();
        let word = "y".repeat(700_000);
        let words = ["ECHO", &word];
        let load = PipelinedLoad { pipeline: 8, requests: 24, connections: 2, ..load(server.port(), &words) };
        assert_eq!(run(load).unwrap().requests, 24);
    }

    #[test]
    fn the_server_gets_the_same_numbers_each_time_and_all_below_the_keys() {
        let requests_of_a_run = || {
            let (port, server) = served(|mut stream| {
                let (mut input, mut all) = ([0; 4096], Vec::new());
                while let Ok(len @ 1..) = stream.read(&mut input) {
                    all.extend_from_slice(&input[..len]);
                    let count = input[..len].iter().filter(|&&byte| byte == b'*').count();
                    stream.write_all(&b"+OK\r\n".repeat(count)).unwrap();
                }
                all
            });
            run(PipelinedLoad { connections: 1, ..load(port, &["GET", "k:__rand_int__"]) }).unwrap();
            server.join().unwrap()
        };
        let sent = String::from_utf8(requests_of_a_run()).unwrap();
        let numbers: Vec<u64> = sent.split("k:").skip(1).map(|rest| rest[..12].parse().unwrap()).collect();
        assert_eq!(numbers.len(), 1008);
        assert!(numbers.iter().all(|&number| number < 500));
        assert!(numbers.iter().collect::<std::collections::BTreeSet<_>>().len() > 300);
        assert_eq!(sent.as_bytes(), requests_of_a_run());
    }

    #[test]
    fn an_error_reply_ends_the_load_with_its_text() {
        let server = NullServer::start(b"-WRONGTYPE no list\r\n").unwrap();
        let error = run(load(server.port(), &["LPUSH", "list", "element"])).unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE no list"), "{error}");
    }

    #[test]
    fn a_server_that_closes_midway_or_answers_with_what_is_no_reply_or_with_too_many_is_an_error() {
        let replies = |count| b"+OK\r\n".repeat(count);
        // The first batch has 16 requests. A system tells of a connection that is closed under the second as it likes.
        let closed = ["closed a connection", "reset", "Broken pipe"];
        let cases = [
            (Vec::new(), &closed[..]),
            ([replies(3), b"+O".to_vec()].concat(), &["with 13 requests unanswered"]),
            (replies(16), &closed),
            (b"%1\r\n".to_vec(), &["an unknown kind of reply"]),
            (replies(17), &["more replies than it got requests"]),
        ];
        for (answer, expected) in cases {
            let (port, server) = served(move |mut stream| {
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(&answer).unwrap();
            });
            let error = run(PipelinedLoad { connections: 1, ..load(port, &["PING"]) }).unwrap_err();
            server.join().unwrap();
            let text = format!("{error:#}");
            assert!(expected.iter().any(|expected| text.contains(expected)), "{text}");
        }
        assert!(run(load(0, &["PING"])).is_err(), "no server has port 0");
    }
}

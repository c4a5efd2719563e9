//! A server that does nothing: it counts the requests that come and sends the same reply to each. What the client, the kernel's
//! sockets and one thread reach by themselves bounds every server's requests a second. As redis-server, it reads from all clients
//! that are ready before it replies to any: so its first reply wakes the client's process, and the others find it awake.
//!
//! Relies on requests in RESP that hold the same number of asterisks: one that begins the request, and those in its words.

use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::thread::JoinHandle;

use anyhow::Context;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

const LISTENER: Token = Token(usize::MAX);
const STOP: Token = Token(usize::MAX - 1);
const INPUT_BYTES: usize = 64 << 10;

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub struct NullServer {
    port: u16,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts a server that answers with `reply`.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn start(reply: &[u8]) -> anyhow::Result<Self> {
        Self::answering(&[], reply)
    }

    /// Starts a server that answers each request of these words with `reply`.
    ///
    /// # Errors
    /// When there is no port or no thread.
    pub fn answering(words: &[&str], reply: &[u8]) -> anyhow::Result<Self> {
        let asterisks = 1 + words.iter().map(|word| word.matches('*').count()).sum::<usize>();
        let answer = Answer { asterisks, reply: reply.to_owned() };
        let listening = "listening, to see what a server that does nothing reaches";
        let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).context(listening)?;
        let port = listener.local_addr().context(listening)?.port();
        let poll = Poll::new().context(listening)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).context(listening)?;
        let waker = Waker::new(poll.registry(), STOP).context(listening)?;
        let thread = std::thread::Builder::new().name("null-server".into());
        let thread = thread.spawn(move || serve(poll, &listener, &answer)).context(listening)?;
        Ok(Self { port, waker, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        // A thread that can't be woken is left alone: to wait for it would be for ever.
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// What a request gets.
#[derive(Debug)]
struct Answer {
    /// In each request.
    asterisks: usize,
    reply: Vec<u8>,
}

/// Serves until it is told to stop, or the system can't tell of events any more.
fn serve(mut poll: Poll, listener: &TcpListener, answer: &Answer) {
    let (mut events, mut input) = (Events::with_capacity(128), vec![0; INPUT_BYTES]);
    let mut connections: Vec<Option<NullConnection>> = Vec::new();
    let mut ready = Vec::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
            _ => {}
        }
        for event in &events {
            match event.token() {
                STOP => return,
                LISTENER => accept(&poll, listener, &mut connections),
                Token(index) => ready.push(index),
            }
        }
        while !ready.is_empty() {
            ready.retain(|&index| {
                with(&mut connections, index, |connection| connection.read(&mut input, answer)) == Some(true)
            });
            ready.retain(|&index| with(&mut connections, index, NullConnection::flush) == Some(true));
        }
    }
}

/// Does something with a connection. One whose client has gone, or can't be answered, is closed.
fn with<T>(
    connections: &mut [Option<NullConnection>],
    index: usize,
    work: impl FnOnce(&mut NullConnection) -> io::Result<T>,
) -> Option<T> {
    let slot = connections.get_mut(index)?;
    let result = work(slot.as_mut()?);
    if result.is_err() {
        *slot = None;
    }
    result.ok()
}

fn accept(poll: &Poll, listener: &TcpListener, connections: &mut Vec<Option<NullConnection>>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let index = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        let _ = stream.set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let is_registered = poll.registry().register(&mut stream, Token(index), interest).is_ok();
        let connection = is_registered.then(|| NullConnection { stream, output: Vec::new(), asterisks: 0 });
        match connections.get_mut(index) {
            Some(free) => *free = connection,
            None => connections.push(connection),
        }
    }
}

#[derive(Debug)]
struct NullConnection {
    stream: TcpStream,
    /// What the client has not taken yet.
    output: Vec<u8>,
    /// Of a request that has not come to its end.
    asterisks: usize,
}

impl NullConnection {
    /// Takes what has come; `false` if there was nothing. No more is read than the client takes replies for.
    fn read(&mut self, input: &mut [u8], answer: &Answer) -> io::Result<bool> {
        if !self.flush()? {
            return Ok(false);
        }
        loop {
            match self.stream.read(input) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.asterisks += input[..len].iter().filter(|&&byte| byte == b'*').count();
                    let requests = self.asterisks / answer.asterisks;
                    self.asterisks %= answer.asterisks;
                    (0..requests).for_each(|_| self.output.extend_from_slice(&answer.reply));
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether all has been sent.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{self, Values};
    use crate::resp::{Connection, Value};
    use quire_rng::SplitMix64;

    #[test]
    fn every_request_has_the_reply_however_many_come_at_once_and_on_how_many_connections() {
        let server = NullServer::start(b"$3\r\nabc\r\n").unwrap();
        let mut clients: Vec<Connection> = (0..3).map(|_| Connection::open(server.port()).unwrap()).collect();
        let (values, mut rng) = (Values::new(1000, 1), SplitMix64::new(1));
        for count in [1, 16, 300] {
            let mut batch = Vec::new();
            (0..count).for_each(|key| requests::push_set(&mut batch, key, values.pick(&mut rng)));
            clients.iter_mut().for_each(|client| client.send(&batch).unwrap());
            for client in &mut clients {
                assert_eq!(client.skip(count as usize).unwrap(), 0);
            }
        }
        drop(clients.pop());
        assert_eq!(clients[0].line("GET key").unwrap(), Value::Bulk(Some(b"abc".to_vec())));
    }

    #[test]
    fn a_word_with_an_asterisk_begins_no_request() {
        let words = ["XADD", "stream", "MAXLEN", "~", "100000", "*", "field", "value"];
        let server = NullServer::answering(&words, b":7\r\n").unwrap();
        let mut client = Connection::open(server.port()).unwrap();
        for _ in 0..3 {
            assert_eq!(client.line(&words.join(" ")).unwrap(), Value::Int(7));
        }
        client.send(b"*2\r\n$4\r\nPING\r\n$1\r\n").unwrap();
        client.send(b"*\r\n").unwrap();
        assert_eq!(client.reply().unwrap(), Value::Int(7));
    }

    #[test]
    fn it_ends_while_clients_are_connected() {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        let port = server.port();
        let mut client = Connection::open(port).unwrap();
        assert_eq!(client.line("SET key value").unwrap(), Value::Simple("OK".into()));
        drop(server);
        assert!(client.line("SET key value").is_err() && Connection::open(port).is_err());
    }
}

//! A small blocking RESP2 client: one connection, requests as byte strings, replies parsed or just counted.
//!
//! Relies on the server's replies being well formed; anything else ends the connection with an error.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::reply_skimmer::{ReplySkimmer, malformed};
use crate::requests;

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A status such as `OK`.
    Simple(String),
    /// An error with its code.
    Error(String),
    /// A whole number.
    Int(i64),
    /// A byte string, or nothing.
    Bulk(Option<Vec<u8>>),
    /// A list of replies.
    Array(Vec<Value>),
}

impl Value {
    /// The bytes of the reply, as a server sends them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Simple(text) => format!("+{text}\r\n").into_bytes(),
            Self::Error(text) => format!("-{text}\r\n").into_bytes(),
            Self::Int(number) => format!(":{number}\r\n").into_bytes(),
            Self::Bulk(None) => b"$-1\r\n".to_vec(),
            Self::Bulk(Some(bytes)) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
            Self::Array(parts) => {
                let head = format!("*{}\r\n", parts.len()).into_bytes();
                parts.iter().fold(head, |bytes, part| [bytes, part.to_bytes()].concat())
            }
        }
    }
}

/// One connection to a server on this machine.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
}

const INPUT_BYTES: usize = 256 * 1024;

impl Connection {
    /// Connects to `port` on loopback.
    ///
    /// # Errors
    /// When no server listens there.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { stream, input: vec![0; INPUT_BYTES], start: 0, end: 0 })
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// When the connection fails; an error reply is a [`Value::Error`].
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Value> {
        let mut request = Vec::new();
        requests::push_command(&mut request, words);
        self.send(&request)?;
        self.reply()
    }

    /// Sends a command written as words between blanks.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn line(&mut self, command: &str) -> io::Result<Value> {
        let words: Vec<&[u8]> = command.split_ascii_whitespace().map(str::as_bytes).collect();
        self.call(&words)
    }

    /// Sends requests that are already encoded.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Reads and drops `count` replies; returns how many errors were among them, those in arrays too.
    ///
    /// # Errors
    /// When the connection fails or a reply is malformed.
    pub fn skip(&mut self, count: usize) -> io::Result<usize> {
        let (mut skimmer, mut replies, mut errors) = (ReplySkimmer::default(), 0, 0);
        while replies < count {
            if self.start == self.end {
                self.fill()?;
            }
            let found = skimmer.skim(&self.input[self.start..self.end], count - replies)?;
            self.start += found.bytes;
            replies += found.replies;
            errors += found.errors;
        }
        Ok(errors)
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// When the connection fails or the reply is malformed.
    pub fn reply(&mut self) -> io::Result<Value> {
        let line = self.take_line()?;
        let text = String::from_utf8_lossy(&line[1..]).into_owned();
        Ok(match line[0] {
            b'+' => Value::Simple(text),
            b'-' => Value::Error(text),
            b':' => Value::Int(text.parse().map_err(|_| malformed("a number that is none"))?),
            b'$' => match text.parse::<i64>() {
                Ok(-1) => Value::Bulk(None),
                Ok(length) if length >= 0 => Value::Bulk(Some(self.take_bulk(length as usize)?)),
                _ => return Err(malformed("a length that is none")),
            },
            b'*' => {
                let count = text.parse::<i64>().map_err(|_| malformed("a count that is none"))?.max(0);
                Value::Array((0..count).map(|_| self.reply()).collect::<io::Result<_>>()?)
            }
            _ => return Err(malformed("an unknown kind of reply")),
        })
    }

    fn take_line(&mut self) -> io::Result<Vec<u8>> {
        let line_end = self.line_end()?;
        let line = self.input[self.start..line_end].to_vec();
        self.start = line_end + 2;
        if line.is_empty() { Err(malformed("an empty line")) } else { Ok(line) }
    }

    /// Where the line that begins at `start` ends (without CR LF), reading until it is there.
    fn line_end(&mut self) -> io::Result<usize> {
        let mut seen = 0;
        loop {
            let window = &self.input[self.start + seen..self.end];
            if let Some(at) = window.iter().position(|&byte| byte == b'\n') {
                let end = self.start + seen + at;
                if end == self.start || self.input[end - 1] != b'\r' {
                    return Err(malformed("a line without CR LF"));
                }
                return Ok(end - 1);
            }
            seen = self.end - self.start;
            self.fill()?;
        }
    }

    fn take_bulk(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        while bytes.len() < length {
            if self.start == self.end {
                self.fill()?;
            }
            let part = (self.end - self.start).min(length - bytes.len());
            bytes.extend_from_slice(&self.input[self.start..self.start + part]);
            self.start += part;
        }
        self.consume(2)?;
        Ok(bytes)
    }

    fn consume(&mut self, mut count: usize) -> io::Result<()> {
        loop {
            let part = count.min(self.end - self.start);
            self.start += part;
            count -= part;
            if count == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        match self.stream.read(&mut self.input[self.end..])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn served(reply: &'static [u8]) -> Connection {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for byte in reply {
                stream.write_all(std::slice::from_ref(byte)).unwrap();
            }
        });
        Connection::open(port).unwrap()
    }

    #[test]
    fn replies_that_arrive_byte_by_byte_are_parsed() {
        let sent = b"*3\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n-ERR no\r\n";
        let mut connection = served(sent);
        let expected = vec![Value::Int(-7), Value::Bulk(Some(b"a\r\n".to_vec())), Value::Bulk(None)];
        let array = connection.reply().unwrap();
        assert_eq!(array, Value::Array(expected));
        let error = connection.reply().unwrap();
        assert_eq!(error, Value::Error("ERR no".into()));
        assert_eq!([array.to_bytes(), error.to_bytes()].concat(), sent);
        assert_eq!(connection.reply().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn skipping_counts_errors_steps_over_bulks_and_leaves_what_follows() {
        let mut connection = served(b"+OK\r\n$5\r\n-x\r\ny\r\n-ERR\r\n$-1\r\n:1\r\n:2\r\n");
        assert_eq!(connection.skip(5).unwrap(), 1);
        assert_eq!(connection.reply().unwrap(), Value::Int(2));
    }
}

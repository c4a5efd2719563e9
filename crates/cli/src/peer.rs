//! A running server, asked a few commands over RESP: `quire serve --clone HOST:PORT` and `quire image watch` do.
//!
//! Trusts nothing that comes: lines, strings and lists have limits, every wait has an end, and what can't be a reply is an error.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long the server may take to answer, from the first byte of a command to the last one of the reply. It may be at a long command.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to take the connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const MOST_LINE_BYTES: u64 = 64 << 10;
const MOST_TEXT_BYTES: u64 = 1 << 20;
/// Parts of a reply, and how deep lists lie in lists.
const MOST_PARTS: usize = 100_000;
const MOST_DEPTH: usize = 8;

/// Environment variable of the password.
pub const PASSWORD_VARIABLE: &str = "QUIRE_CLONE_PASSWORD";

/// Who is asking.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The user; `None` is the default one.
    pub user: Option<String>,
    /// The password; `None` if there is none to give.
    pub password: Option<Vec<u8>>,
}

impl Credentials {
    /// The password from `file`, else from the environment. A line feed at the file's end is none of it.
    pub fn find(user: Option<&String>, file: Option<&Path>) -> anyhow::Result<Self> {
        let password = match file {
            Some(file) => {
                let mut bytes =
                    std::fs::read(file).with_context(|| format!("cannot read the password in {}", file.display()))?;
                while bytes.last().is_some_and(|last| b"\r\n".contains(last)) {
                    bytes.pop();
                }
                Some(bytes)
            }
            None => std::env::var_os(PASSWORD_VARIABLE).map(std::os::unix::ffi::OsStringExt::into_vec),
        };
        if user.is_some() && password.is_none() {
            bail!("a user needs a password: set {PASSWORD_VARIABLE} or name a file with --clone-password-file");
        }
        Ok(Self { user: user.cloned(), password })
    }
}

/// `HOST:PORT`, if `text` is that and no path.
pub fn address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty() && !host.contains('/')).then_some((host, port))
}

/// A reply: a line or a string, a list, or an error of the server.
enum Reply {
    Text(String),
    List(Vec<ReplyPart>),
    Error(String),
}

/// A part of a reply.
#[derive(Debug, PartialEq)]
pub enum ReplyPart {
    /// A line, a string, a number as text.
    Text(String),
    /// A list of further parts.
    List(Vec<ReplyPart>),
}

impl ReplyPart {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::List(_) => None,
        }
    }

    /// The parts of a list; none if it is none.
    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(parts) => parts,
            Self::Text(_) => &[],
        }
    }
}

/// A connection whose exchanges have an end, however slowly the other side goes on.
struct TimedStream {
    stream: TcpStream,
    end: Instant,
}

impl TimedStream {
    /// What is left of the time.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long to answer"));
        }
        Ok(Some(left))
    }
}

/// The system's word for a wait that has ended says nothing of time.
fn named_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it takes too long to answer"),
        _ => error,
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map_err(named_timeout)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(named_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection to a server.
pub struct Peer {
    named: String,
    stream: BufReader<TimedStream>,
    patience: Duration,
}

impl fmt::Debug for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Peer").field("named", &self.named).finish_non_exhaustive()
    }
}

impl Peer {
    /// Connects to `HOST:PORT`. It is told nothing yet, not who is asking either.
    pub fn connect(named: &str) -> anyhow::Result<Self> {
        Self::connect_with(named, PATIENCE)
    }

    /// As [`Peer::connect`], of a server that may take so long to answer.
    fn connect_with(named: &str, patience: Duration) -> anyhow::Result<Self> {
        let Some(address) = address(named) else { bail!("{named} is not HOST:PORT") };
        let failed = || format!("cannot connect to {named} (`quire serve` starts a server)");
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in address.to_socket_addrs().with_context(failed)? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    let stream = TimedStream { stream, end: Instant::now() };
                    return Ok(Self { named: named.to_owned(), stream: BufReader::new(stream), patience });
                }
                Err(error) => last = error,
            }
        }
        Err(last).with_context(failed)
    }

    /// What the user called it.
    pub fn named(&self) -> &str {
        &self.named
    }

    /// Whether the server runs on this machine, as far as addresses tell.
    pub fn is_local(&self) -> bool {
        let stream = &self.stream.get_ref().stream;
        match (stream.peer_addr(), stream.local_addr()) {
            (Ok(peer), Ok(local)) => peer.ip().is_loopback() || peer.ip() == local.ip(),
            _ => false,
        }
    }

    /// Says who is asking.
    pub fn authenticate(&mut self, credentials: &Credentials) -> anyhow::Result<()> {
        let Some(password) = &credentials.password else { return Ok(()) };
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        words.extend(credentials.user.as_ref().map(|user| user.as_bytes()));
        words.push(password);
        match self.ask(&words)? {
            Reply::Text(_) | Reply::List(_) => Ok(()),
            Reply::Error(error) => bail!("{} refuses the password: {error}", self.named),
        }
    }

    /// Has the server run a command whose reply is a line or a string.
    pub fn call(&mut self, words: &[&str]) -> anyhow::Result<Result<String, String>> {
        match self.call_for_parts(words)? {
            Ok(ReplyPart::Text(text)) => Ok(Ok(text)),
            Ok(ReplyPart::List(_)) => bail!("{} answers {} with a list", self.named, words.join(" ")),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Has the server run a command.
    pub fn call_for_parts(&mut self, words: &[&str]) -> anyhow::Result<Result<ReplyPart, String>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.ask(&words)? {
            Reply::Text(text) => Ok(Ok(ReplyPart::Text(text))),
            Reply::List(parts) => Ok(Ok(ReplyPart::List(parts))),
            Reply::Error(error) if error.starts_with("NOAUTH") => bail!(
                "{} asks for a password: set {PASSWORD_VARIABLE} or name a file with --clone-password-file (and a user with --clone-user)",
                self.named
            ),
            Reply::Error(error) => Ok(Err(error)),
        }
    }

    /// The server's INFO.
    pub fn info(&mut self) -> anyhow::Result<PeerInfo> {
        self.told(&["INFO"])
    }

    /// The same with the figures of every command.
    pub fn info_everything(&mut self) -> anyhow::Result<PeerInfo> {
        self.told(&["INFO", "everything"])
    }

    fn told(&mut self, words: &[&str]) -> anyhow::Result<PeerInfo> {
        match self.call(words)? {
            Ok(text) => Ok(PeerInfo::new(text)),
            Err(error) => bail!("{} does not tell INFO: {error}", self.named),
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().end = Instant::now() + self.patience;
        let failed = || format!("the connection to {} failed", self.named);
        self.stream.get_mut().write_all(&request).with_context(failed)?;
        read_reply(&mut self.stream).with_context(|| format!("the connection to {} failed", self.named))
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: no server of Redis' protocol answers there"))
}

/// The text with its control characters escaped but for those that end lines: it may be shown in a terminal, which obeys them.
fn printable(text: &str) -> String {
    let is_raw = |letter: char| !letter.is_control() || letter == '\r' || letter == '\n';
    text.chars().fold(String::with_capacity(text.len()), |mut shown, letter| {
        match is_raw(letter) {
            true => shown.push(letter),
            false => shown.extend(letter.escape_default()),
        }
        shown
    })
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut left = MOST_PARTS;
    read_part(stream, 0, &mut left)
}

/// The next reply, or part of one; `left` are the parts that the whole may still have.
fn read_part(stream: &mut impl BufRead, depth: usize, left: &mut usize) -> io::Result<Reply> {
    let mut line = Vec::new();
    stream.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed it"));
    }
    let Some(line) = line.strip_suffix(b"\r\n") else { return Err(malformed("a line without an end")) };
    let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes));
    match line.split_first() {
        Some((b'+' | b':', rest)) => Ok(Reply::Text(text(rest))),
        Some((b'-', rest)) => Ok(Reply::Error(text(rest))),
        Some((b'$', rest)) => {
            let len: u64 = text(rest).parse().map_err(|_| malformed("a length that is none"))?;
            if len > MOST_TEXT_BYTES {
                return Err(malformed("a string that is too long"));
            }
            let mut bytes = vec![0; len as usize + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(len as usize);
            Ok(Reply::Text(text(&bytes)))
        }
        Some((b'*', rest)) => {
            let len: usize = text(rest).parse().map_err(|_| malformed("a length that is none"))?;
            if len > *left || depth >= MOST_DEPTH {
                return Err(malformed("a list that is too long or too deep"));
            }
            *left -= len;
            let mut parts = Vec::new();
            for _ in 0..len {
                parts.push(match read_part(stream, depth + 1, left)? {
                    Reply::Text(text) => ReplyPart::Text(text),
                    Reply::List(parts) => ReplyPart::List(parts),
                    Reply::Error(_) => return Err(malformed("an error in a list")),
                });
            }
            Ok(Reply::List(parts))
        }
        _ => Err(malformed("a reply of another kind")),
    }
}

/// What a server tells in INFO.
#[derive(Clone)]
pub struct PeerInfo(String);

impl PeerInfo {
    /// What `text` tells.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// All lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }

    /// A field; empty if the server has none of that name.
    pub fn field(&self, name: &str) -> &str {
        let found = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_default()
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name).parse().ok()
    }

    /// Whether a save is running or about to.
    pub fn is_saving(&self) -> bool {
        ["rdb_bgsave_in_progress", "rdb_bgsave_scheduled", "aof_rewrite_scheduled"]
            .iter()
            .any(|name| self.field(name) == "1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        match read_reply(&mut io::BufReader::new(bytes)) {
            Ok(Reply::Text(text)) => Ok(text),
            Ok(Reply::List(parts)) => Ok(format!("{parts:?}")),
            Ok(Reply::Error(text)) => Ok(format!("error {text}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn replies_are_read_and_what_is_none_is_refused() {
        assert_eq!(read(b"+OK\r\n").unwrap(), "OK");
        assert_eq!(read(b"-ERR no\r\n").unwrap(), "error ERR no");
        assert_eq!(read(b"$3\r\na\nb\r\n").unwrap(), "a\nb");
        assert_eq!(read(b"-ERR \x1b[2Jno\r\n").unwrap(), "error ERR \\u{1b}[2Jno", "a terminal would obey it");
        assert_eq!(read("$6\r\n\u{9b}\r\nx\x07\r\n".as_bytes()).unwrap(), "\\u{9b}\r\nx\\u{7}");
        for bytes in [
            &b""[..],
            b"+OK",
            b"$-1\r\n",
            b"$99999999999\r\n",
            b"$5\r\nab",
            b"*2\r\n+x\r\n",
            b"*-1\r\n",
            b"*1\r\n-ERR\r\n",
            b"HTTP/1.1 400\r\n",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&vec![b'+'; 1 << 20]).is_err());
        assert_eq!(read(b"*2\r\n:7\r\n*1\r\n$1\r\na\r\n").unwrap(), r#"[Text("7"), List([Text("a")])]"#);
        for hostile in [b"*1\r\n".repeat(100_000), b"*99999999\r\n".to_vec(), b"*90000\r\n".repeat(2)] {
            assert!(read(&hostile).is_err());
        }
    }

    #[test]
    fn a_server_that_answers_byte_by_byte_for_ever_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let named = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Not for ever: who has no patience to lose is told of the end, after twenty times the patience.
            for _ in 0..400 {
                if stream.write_all(b"+").is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut peer = Peer::connect_with(&named, Duration::from_millis(100)).unwrap();
        let error = format!("{:#}", peer.info().err().unwrap());
        assert!(error.contains("takes too long"), "{error}");
    }

    #[test]
    fn an_address_is_no_path() {
        assert_eq!(address("localhost:6379"), Some(("localhost", 6379)));
        assert_eq!(address("[::1]:7"), Some(("::1", 7)));
        for text in ["dump.quire", "./a:1", "a/b:1", ":1", "a:0", "a:b", "a:70000"] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn fields_of_info_are_found_by_their_whole_name() {
        let info = PeerInfo::new("# Persistence\r\nrdb_saves:7\r\nrdb_bgsave_scheduled:1\r\n".into());
        assert_eq!((info.number("rdb_saves"), info.field("rdb"), info.is_saving()), (Some(7), "", true));
    }
}

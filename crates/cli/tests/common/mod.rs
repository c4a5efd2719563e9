//! What the tests of the binary share: starting it, reading its banner, speaking to it, sending it signals.

use std::fmt::Debug;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before its test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The binary with these words, in an environment that says nothing.
pub fn quire(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quire"));
    command.args(words).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if name.starts_with("QUIRE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it to its end.
pub fn run(words: &[&str]) -> Output {
    quire(words).output().unwrap()
}

/// What it wrote to standard error.
pub fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A command that finds that no program reads what it prints ends as other tools do, by SIGPIPE, and says nothing.
pub fn ends_quietly_on_a_closed_pipe(words: &[impl AsRef<str> + Debug]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = quire(&as_strs(words)).stdout(writer).output().unwrap();
    assert_eq!(complaint(&output), "", "{words:?}");
    assert_eq!(output.status.signal(), Some(13), "{words:?}");
}

/// A command whose standard output is full says so and fails.
pub fn reports_a_full_device(words: &[impl AsRef<str> + Debug]) {
    let output = quire(&as_strs(words)).stdout(full_device()).output().unwrap();
    let text = complaint(&output);
    let expected = "quire: cannot write to standard output: No space left on device (os error 28)\n";
    assert_eq!((text.as_str(), output.status.code()), (expected, Some(1)), "{words:?}");
}

pub fn full_device() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn as_strs(words: &[impl AsRef<str>]) -> Vec<&str> {
    words.iter().map(AsRef::as_ref).collect()
}

/// A running `quire serve`; killed when dropped.
pub struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub banner: String,
    /// 0 if it has only a socket of the file system.
    pub port: u16,
}

/// Starts a server on a free port and waits for its banner.
pub fn serve(dir: &Path, words: &[&str]) -> Served {
    let all = [&["--dir", dir.to_str().unwrap()], words].concat();
    serve_to(&all, Stdio::null())
}

/// Starts a server, on a free port, whose standard error goes to `stderr`, and waits for its banner.
pub fn serve_to(words: &[&str], stderr: impl Into<Stdio>) -> Served {
    let all = [&["serve", "--port", "0", "--bind", "127.0.0.1"], words].concat();
    let mut child = quire(&all).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut banner = String::new();
    while !banner.contains("  stop ") {
        let read = stdout.read_line(&mut banner).unwrap();
        assert!(read > 0, "the server ended: {:?}\n{banner}", child.wait());
    }
    let listens = banner.lines().find(|line| line.contains("listens")).unwrap();
    let ports = listens.split(", ").filter_map(|address| address.trim().rsplit(':').next()?.parse().ok());
    let port = ports.last().unwrap_or(0);
    Served { child, stdout, banner, port }
}

/// Waits until something holds; fails when it does not come true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Served {
    /// A connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends inline commands and reads until the server has answered a PING behind them.
    pub fn call(&self, lines: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(format!("{lines}\r\nPING\r\n").as_bytes()).unwrap();
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        while !text.ends_with(b"+PONG\r\n") {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..count]);
        }
        text.truncate(text.len() - 7);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        self.await_end(|_| ())
    }

    /// Sends a signal again and again until it ends.
    pub fn ended_by(&mut self, name: &str) -> ExitStatus {
        self.await_end(|server| server.signal(name))
    }

    fn await_end(&mut self, meanwhile: impl Fn(&Self)) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            meanwhile(self);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it wrote to standard output after the banner; it must have ended.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

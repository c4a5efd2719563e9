//! The HTTP endpoint: one thread that answers one request after the other, each within a limit of time.
//!
//! A scraper asks every few seconds, so one at a time is enough, and what a caller may take of memory and time is bounded.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::exposition::{CONTENT_TYPE, encode};
use crate::metric::Metric;
use crate::request::{MOST_HEAD_BYTES, Request, asked};

/// A caller that takes longer to ask, or to read the answer, is left.
const LONGEST_CALL: Duration = Duration::from_secs(5);
/// Waited after an error of the listening socket.
const PAUSE: Duration = Duration::from_millis(100);

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics on {address}: {source}")]
pub struct EndpointError {
    /// Where it was to be.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

/// A thread that serves metrics, until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Serves what `gather` gathers for each request; an error of it is what the caller is told instead.
    ///
    /// # Errors
    /// The system refuses the port or the thread.
    pub fn serve<G>(ip: IpAddr, port: u16, gather: G) -> Result<Self, EndpointError>
    where
        G: FnMut() -> Result<Vec<Metric>, String> + Send + 'static,
    {
        let wanted = SocketAddr::new(ip, port);
        let failed = |source| EndpointError { address: wanted, source };
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn({
                let stop = Arc::clone(&stop);
                move || serve_all(&listener, &stop, gather)
            })
            .map_err(failed)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread waits for a connection; this one wakes it. A thread that cannot be woken ends with the process.
        let woken = TcpStream::connect_timeout(&self.address, LONGEST_CALL).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            // If it panicked there is nothing left to end.
            let _ = thread.join();
        }
    }
}

fn serve_all(listener: &TcpListener, stop: &AtomicBool, mut gather: impl FnMut() -> Result<Vec<Metric>, String>) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((socket, caller)) => {
                if let Err(error) = answer(socket, &mut gather) {
                    tracing::debug!(%caller, %error, "a caller of the metrics was not answered");
                }
            }
            // Out of files, most likely: trying again at once would only burn time.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// A connection that must be done with by a moment, however slowly its caller reads or writes.
struct TimedSocket {
    socket: TcpStream,
    end: Instant,
}

impl TimedSocket {
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(to)
    }

    fn write_all(&mut self, mut from: &[u8]) -> io::Result<()> {
        while !from.is_empty() {
            self.socket.set_write_timeout(Some(self.left()?))?;
            let count = self.socket.write(from)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            from = &from[count..];
        }
        Ok(())
    }
}

fn answer(socket: TcpStream, gather: &mut impl FnMut() -> Result<Vec<Metric>, String>) -> io::Result<()> {
    let mut socket = TimedSocket { socket, end: Instant::now() + LONGEST_CALL };
    let (mut head, mut filled) = ([0; MOST_HEAD_BYTES], 0);
    let asked = loop {
        let count = socket.read(&mut head[filled..])?;
        if count == 0 {
            return Ok(());
        }
        filled += count;
        if let Some(asked) = asked(&head[..filled]) {
            break asked;
        }
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    let (status, kind, text) = match asked {
        Request::Metrics { .. } => match gather() {
            Ok(metrics) => ("200 OK", CONTENT_TYPE, encode(metrics)),
            Err(reason) => ("503 Service Unavailable", PLAIN, format!("{reason}\n")),
        },
        Request::Index => ("200 OK", PLAIN, "The metrics are at /metrics.\n".to_owned()),
        Request::NotFound => {
            ("404 Not Found", PLAIN, "There is nothing here; the metrics are at /metrics.\n".to_owned())
        }
        Request::NotAllowed => ("405 Method Not Allowed", PLAIN, "Only GET and HEAD are answered.\n".to_owned()),
        Request::Malformed => ("400 Bad Request", PLAIN, "This is no HTTP request.\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    socket.write_all(head.as_bytes())?;
    if asked != (Request::Metrics { body: false }) {
        socket.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::MetricKind;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        socket.read_to_string(&mut reply).unwrap();
        reply
    }

    fn serve(gather: impl FnMut() -> Result<Vec<Metric>, String> + Send + 'static) -> Endpoint {
        Endpoint::serve("127.0.0.1".parse().unwrap(), 0, gather).unwrap()
    }

    #[test]
    fn each_request_is_answered_with_what_is_gathered_then() {
        let mut scrapes = 0.0;
        let endpoint = serve(move || {
            scrapes += 1.0;
            Ok(vec![Metric::number("scrapes", MetricKind::Gauge, "So many.", scrapes)])
        });
        for expected in ["scrapes 1.0\n", "scrapes 2.0\n"] {
            let reply = ask(endpoint.address(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains(expected), "{reply}");
        }
        let head = ask(endpoint.address(), "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: ") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "200"),
            ("GET /x HTTP/1.1\r\n\r\n", "404"),
            ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            let reply = ask(endpoint.address(), request);
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {reply}");
        }
    }

    #[test]
    fn a_caller_is_told_why_there_are_no_metrics() {
        let endpoint = serve(|| Err("the server is busy".to_owned()));
        let reply = ask(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.ends_with("the server is busy\n"), "{reply}");
    }

    #[test]
    fn a_caller_that_leaves_does_not_keep_others_from_being_answered() {
        let endpoint = serve(|| Ok(Vec::new()));
        for half in ["", "GET /met"] {
            let mut socket = TcpStream::connect(endpoint.address()).unwrap();
            socket.write_all(half.as_bytes()).unwrap();
        }
        assert!(ask(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("# EOF\n"));
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let endpoint = serve(|| Ok(Vec::new()));
        let error = Endpoint::serve("127.0.0.1".parse().unwrap(), endpoint.address().port(), || Ok(Vec::new()));
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&endpoint.address().to_string()), "{text}");
    }
}

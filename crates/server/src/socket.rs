//! A client's socket, whatever its kind: TCP, TCP under TLS, or a Unix socket. Relies on mio, and on `tls` for what is encrypted.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::tls::TlsStream;

/// A socket.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

impl Socket {
    /// Reads what has come; fewer bytes than there is room for mean that there are no more for now.
    #[inline]
    pub fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(to),
            Socket::Tls(socket) => socket.read(to),
            Socket::Unix(socket) => socket.read(to),
        }
    }

    /// Writes what fits. Of what TLS has taken a part may still wait to be sent ([`Socket::has_unsent`]).
    #[inline]
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(from),
            Socket::Tls(socket) => socket.write(from),
            Socket::Unix(socket) => socket.write(from),
        }
    }

    /// Sends what TLS holds, as far as the socket takes it.
    #[inline]
    pub fn send_pending(&mut self) -> io::Result<()> {
        match self {
            Socket::Tls(socket) => socket.send_pending(),
            Socket::Tcp(_) | Socket::Unix(_) => Ok(()),
        }
    }

    /// Whether TLS holds bytes that the socket did not take yet.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        matches!(self, Socket::Tls(socket) if socket.has_unsent())
    }

    /// Whether the end of what the client sends is known, though the kernel will not tell of it again.
    #[inline]
    pub fn is_ended(&self) -> bool {
        matches!(self, Socket::Tls(socket) if socket.is_ended())
    }

    /// Memory that it takes besides the kernel's.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Socket::Tls(socket) => socket.memory_bytes(),
            Socket::Tcp(_) | Socket::Unix(_) => 0,
        }
    }

    /// The socket's number.
    pub fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Tls(socket) => socket.socket().as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Tls(socket) => socket.socket_mut(),
            Socket::Unix(socket) => socket,
        }
    }

    /// Asks for the events that matter for the first time.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE)
    }

    /// Changes whether the loop is told when more can be written.
    pub fn watch_writing(&mut self, registry: &Registry, token: Token, writing: bool) -> io::Result<()> {
        let interest = if writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.source(), token, interest)
    }

    /// Says goodbye and forgets the socket.
    pub fn deregister(&mut self, registry: &Registry) {
        if let Socket::Tls(socket) = self {
            socket.close();
        }
        // A socket that cannot be deregistered is closed right after, which does the same.
        let _ = registry.deregister(self.source());
    }
}

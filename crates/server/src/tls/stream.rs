//! A TCP socket under TLS, for a loop that is told once of what has come: a read goes on until its room is full or the kernel has
//! no more, a write takes plain bytes only while little is left unsent. Relies on rustls and mio.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use rustls::ServerConnection;

/// Encrypted bytes that may wait for the socket; a write takes no more until they have gone.
const MOST_UNSENT_BYTES: usize = 64 * 1024;
/// What rustls keeps for a connection that does nothing, about: its keys, and a record each way.
const IDLE_BYTES: usize = 40 * 1024;

/// A connection under TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    connection: ServerConnection,
    /// The client has said that it sends no more, or the socket has ended.
    ended: bool,
    /// What ended it after bytes that were handed out first.
    failure: Option<io::Error>,
}

impl TlsStream {
    /// A stream over a socket; the handshake is done while it is read.
    pub fn new(socket: TcpStream, mut connection: ServerConnection) -> Self {
        connection.set_buffer_limit(Some(MOST_UNSENT_BYTES));
        Self { socket, connection, ended: false, failure: None }
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket below, to be registered.
    pub fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Whether encrypted bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the client sends no more: the next read tells how it has ended.
    pub fn is_ended(&self) -> bool {
        self.ended || self.failure.is_some()
    }

    /// Memory that the connection takes, about.
    pub fn memory_bytes(&self) -> usize {
        IDLE_BYTES + if self.has_unsent() { MOST_UNSENT_BYTES } else { 0 }
    }

    /// Fills `to` with plain bytes; fewer mean that the kernel has no more for now, or that the client has ended.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing; the socket's errors; what the client sends is not TLS, or not what the settings allow.
    pub fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut filled = 0;
        while filled < to.len() {
            match self.connection.reader().read(&mut to[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(filled);
                }
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The socket has ended without the words that TLS has for it: it has ended all the same.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.ended = true;
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
            match self.receive() {
                Ok(()) => {}
                Err(error) if filled > 0 => {
                    // What came before is read first.
                    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                        self.failure = Some(error);
                    }
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Takes encrypted bytes from the socket, and answers what the protocol asks.
    fn receive(&mut self) -> io::Result<()> {
        self.connection.read_tls(&mut self.socket)?;
        let processed = self.connection.process_new_packets();
        // A handshake goes on, or the client is told why it is refused.
        let sent = self.send_pending();
        if let Err(error) = processed {
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        sent
    }

    /// Takes plain bytes to be sent; how many.
    ///
    /// # Errors
    /// `WouldBlock` when what was taken before waits for the socket; the socket's errors.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.send_pending()?;
        let taken = self.connection.writer().write(from)?;
        self.send_pending()?;
        if taken == 0 && !from.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    /// Sends encrypted bytes, as far as the socket takes them.
    ///
    /// # Errors
    /// The socket's, but not that it takes no more.
    pub fn send_pending(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the client that nothing follows, if the socket takes it at once.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
        // The socket is closed right after, whatever it takes.
        let _ = self.send_pending();
    }
}

//! Listening sockets: by address, by port, by path; in the clear or for TLS.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use mio::net::{TcpListener, TcpStream, UnixListener};
use mio::{Interest, Registry, Token};

use crate::config::Config;
use crate::socket::Socket;
use crate::tls::{TlsAcceptor, TlsError};

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The name is not known to the system.
    #[error("bind address '{0}' is neither an IP address nor a name that can be found")]
    BadAddress(String),
    /// The system refused.
    #[error("cannot listen on {address}: {}", told(.source))]
    Refused {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// TLS can't be served.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
    /// There is no port and no path.
    #[error("nothing to listen on: port and tls-port are 0 and there is no unixsocket")]
    Nothing,
}

/// Why, and what to do.
fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there; choose another with --port".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; see --bind".to_owned(),
        io::ErrorKind::PermissionDenied => format!("{error}; ports below 1024 need privileges"),
        _ => error.to_string(),
    }
}

/// Either kind of listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener),
    Unix(UnixListener, String),
}

/// A connection that was accepted.
pub(super) struct AcceptedSocket<S = Socket> {
    pub socket: S,
    pub address: String,
    pub local_address: String,
    pub is_local: bool,
}

impl<S> AcceptedSocket<S> {
    fn map<T>(self, wrap: impl FnOnce(S) -> T) -> AcceptedSocket<T> {
        let Self { socket, address, local_address, is_local } = self;
        AcceptedSocket { socket: wrap(socket), address, local_address, is_local }
    }
}

impl Listener {
    /// The next connection; its protocol options are set. `tls` is what those of TLS are accepted with.
    pub fn accept(&self, keepalive_s: u32, tls: Option<&TlsAcceptor>) -> io::Result<AcceptedSocket> {
        match self {
            Listener::Tcp(listener) => Ok(accept_tcp(listener, keepalive_s)?.map(Socket::Tcp)),
            Listener::Tls(listener) => {
                let accepted = accept_tcp(listener, keepalive_s)?;
                let tls = tls.ok_or_else(|| io::Error::other("TLS has no settings"))?;
                let AcceptedSocket { socket, address, local_address, is_local } = accepted;
                let stream = tls.accept(socket).map_err(io::Error::other)?;
                Ok(AcceptedSocket { socket: Socket::Tls(Box::new(stream)), address, local_address, is_local })
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let address = format!("{path}:0");
                Ok(AcceptedSocket {
                    socket: Socket::Unix(stream),
                    address: address.clone(),
                    local_address: address,
                    is_local: true,
                })
            }
        }
    }

    /// Has the loop told of new connections.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// Where it listens, and the TCP port.
    pub fn address(&self) -> (String, Option<u16>) {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => match listener.local_addr() {
                Ok(address) => (address.to_string(), Some(address.port())),
                Err(_) => ("?".to_owned(), None),
            },
            Listener::Unix(_, path) => (path.clone(), None),
        }
    }
}

fn accept_tcp(listener: &TcpListener, keepalive_s: u32) -> io::Result<AcceptedSocket<TcpStream>> {
    let (socket, peer) = listener.accept()?;
    // Both only make a connection better; one that refuses is still served.
    let _ = socket.set_nodelay(true);
    if keepalive_s > 0 {
        let _ = quire_sys::net::set_keepalive(socket.as_fd(), keepalive_s);
    }
    let local_address = socket.local_addr().map(|address| address.to_string()).unwrap_or_default();
    Ok(AcceptedSocket { socket, address: peer.to_string(), local_address, is_local: is_loopback(peer.ip()) })
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|mapped| mapped.is_loopback())
        }
    }
}

/// Opens all sockets that the configuration names.
pub(super) fn open(config: &Config) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    if config.port != 0 || config.unixsocket.is_empty() && config.tls.port == 0 {
        open_tcp(config, config.port, Listener::Tcp, &mut listeners)?;
    }
    if config.tls.port != 0 {
        open_tcp(config, config.tls.port, Listener::Tls, &mut listeners)?;
    }
    if !config.unixsocket.is_empty() {
        listeners.push(open_unix(&config.unixsocket, config.unixsocketperm)?);
    }
    if listeners.is_empty() { Err(ListenError::Nothing) } else { Ok(listeners) }
}

fn open_tcp(
    config: &Config,
    mut port: u16,
    kind: fn(TcpListener) -> Listener,
    listeners: &mut Vec<Listener>,
) -> Result<(), ListenError> {
    let several = config.bind.len() > 1;
    for text in &config.bind {
        let (text, optional) = match text.strip_prefix('-') {
            Some(text) => (text, true),
            None => (text.as_str(), several && text == "::1"),
        };
        let ip: IpAddr = match text {
            "*" => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
            text => address_of(text).ok_or_else(|| ListenError::BadAddress(text.to_owned()))?,
        };
        // With port 0 the first address gets a free port, and the others the same.
        let address = SocketAddr::new(ip, port);
        match quire_sys::net::listen_tcp(address, config.tcp_backlog) {
            Ok(listener) => {
                port = listener.local_addr().map_or(port, |address| address.port());
                listeners.push(kind(TcpListener::from_std(listener)));
            }
            Err(error) if optional && is_absent(&error) => {}
            Err(source) => return Err(ListenError::Refused { address: address.to_string(), source }),
        }
    }
    Ok(())
}

fn address_of(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| Some((text, 0).to_socket_addrs().ok()?.next()?.ip()))
}

/// The machine lacks the address or the whole protocol.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        || error.to_string().contains("Address family not supported")
}

fn open_unix(path: &str, permissions: u32) -> Result<Listener, ListenError> {
    let refused = |source| ListenError::Refused { address: path.to_owned(), source };
    // A socket that a server left behind when it was killed is in the way; any other kind of file is not ours.
    if std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err()
    {
        std::fs::remove_file(path).map_err(refused)?;
    }
    let listener = UnixListener::bind(Path::new(path)).map_err(refused)?;
    if permissions != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions)).map_err(refused)?;
    }
    Ok(Listener::Unix(listener, path.to_owned()))
}

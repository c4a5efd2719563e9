//! Listening sockets: by address, by port, by path.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};

use crate::clients::Socket;
use crate::config::Config;

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
    /// There is no port and no path.
    #[error("nothing to listen on: port is 0 and there is no unixsocket")]
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
    Unix(UnixListener, String),
}

/// A connection that was accepted.
pub(super) struct AcceptedSocket {
    pub socket: Socket,
    pub address: String,
    pub local_address: String,
    pub is_local: bool,
}

impl Listener {
    /// The next connection; its protocol options are set.
    pub fn accept(&self, keepalive_s: u32) -> io::Result<AcceptedSocket> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                // Both only make a connection better; one that refuses is still served.
                let _ = stream.set_nodelay(true);
                if keepalive_s > 0 {
                    let _ = quire_sys::net::set_keepalive(std::os::fd::AsFd::as_fd(&stream), keepalive_s);
                }
                let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
                Ok(AcceptedSocket {
                    socket: Socket::Tcp(stream),
                    address: peer.to_string(),
                    local_address: local,
                    is_local: is_loopback(peer.ip()),
                })
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
            Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// Where it listens, and the TCP port.
    pub fn address(&self) -> (String, Option<u16>) {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => (address.to_string(), Some(address.port())),
                Err(_) => ("?".to_owned(), None),
            },
            Listener::Unix(_, path) => (path.clone(), None),
        }
    }
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
    if config.port != 0 || config.unixsocket.is_empty() {
        open_tcp(config, &mut listeners)?;
    }
    if !config.unixsocket.is_empty() {
        listeners.push(open_unix(&config.unixsocket, config.unixsocketperm)?);
    }
    if listeners.is_empty() { Err(ListenError::Nothing) } else { Ok(listeners) }
}

fn open_tcp(config: &Config, listeners: &mut Vec<Listener>) -> Result<(), ListenError> {
    let several = config.bind.len() > 1;
    // With port 0 the first address gets a free port, and the others the same.
    let mut port = config.port;
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
        let address = SocketAddr::new(ip, port);
        match quire_sys::net::listen_tcp(address, config.tcp_backlog) {
            Ok(listener) => {
                port = listener.local_addr().map_or(port, |address| address.port());
                listeners.push(Listener::Tcp(TcpListener::from_std(listener)));
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

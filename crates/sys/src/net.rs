//! Listening sockets with the options that the standard library does not offer, and TCP keepalive.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};

/// Listens on `address`: the address can be reused at once after a restart, an IPv6 socket takes IPv6 only, and at
/// most `backlog` connections wait to be accepted. The socket does not block.
pub fn listen_tcp(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(TcpListener::from(socket))
}

/// Has the kernel probe a TCP connection that was silent for `idle_s` seconds, three times at a third of that time.
pub fn set_keepalive(socket: BorrowedFd<'_>, idle_s: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    let idle_s = u64::from(idle_s.clamp(1, 32_767));
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle_s))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs((idle_s / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_accepts_and_keepalive_can_be_set() {
        let listener = listen_tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_keepalive(client.as_fd(), 300).unwrap();
        assert!(sockopt::socket_keepalive(&client).unwrap());
    }
}

//! Tells the service manager that a service is up (`NOTIFY_SOCKET`, as systemd's `Type=notify` has it).
//!
//! Relies on nothing but a datagram socket. Without a service manager that wants to know, nothing is done.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that the service is up, if a service manager waits for that.
pub fn tell_ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), b"READY=1") {
        tracing::warn!(%error, "cannot tell the service manager that the mount is there; it will take the start for failed");
    }
}

fn send(name: &[u8], message: &[u8]) -> io::Result<()> {
    let address = match name.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_hears_it_by_either_kind_of_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let abstract_name = format!("quire-notify-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        for (socket, name) in [(by_path, path.to_str().unwrap().to_owned()), (by_name, format!("@{abstract_name}"))] {
            send(name.as_bytes(), b"READY=1").unwrap();
            let mut bytes = [0; 16];
            let len = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"READY=1");
        }
        assert!(send(dir.path().join("none").to_str().unwrap().as_bytes(), b"READY=1").is_err());
    }
}

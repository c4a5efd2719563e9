//! TLS: clients with and without certificates, versions, renewed certificates, long requests and replies, what is not TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::common::{self, PATIENCE, Running, Value, free_port, start, start_in};

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// An authority, and certificates that it has signed, as files.
struct Certificates {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        Self { dir, authority }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes `name`.pem and `name`.key.
    fn sign(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("tls-cert-file", self.path("server.pem")),
            ("tls-key-file", self.path("server.key")),
            ("tls-ca-cert-file", self.path("ca.pem")),
        ]
    }

    fn client_config(&self, shown: Option<&str>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let Some(name) = shown else { return builder.with_no_client_auth() };
        let certificate = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap();
        let key = PrivateKeyDer::from_pem_file(PathBuf::from(self.path(&format!("{name}.key")))).unwrap();
        builder.with_client_auth_cert(vec![certificate], key).unwrap()
    }
}

/// A server with TLS on a port of its own.
fn serve(certificates: &Certificates, more: &[(&str, &str)]) -> (Running, u16) {
    let port = free_port();
    let text = port.to_string();
    let settings = certificates.settings();
    let mut all: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.push(("tls-port", &text));
    // The clients of the other tests speak in the clear, on a port of their own.
    let plain = free_port().to_string();
    all.push(("port", &plain));
    all.extend_from_slice(more);
    (start(&all), port)
}

fn connect(config: ClientConfig, port: u16) -> TlsClient {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

fn ask(client: &mut TlsClient, request: &[u8], reply_bytes: usize) -> std::io::Result<Vec<u8>> {
    client.write_all(request)?;
    client.flush()?;
    let mut reply = vec![0; reply_bytes];
    client.read_exact(&mut reply)?;
    Ok(reply)
}

fn assert_served(client: &mut TlsClient) {
    assert_eq!(ask(client, b"PING\r\n", 7).unwrap(), b"+PONG\r\n");
}

fn assert_refused(client: &mut TlsClient) {
    assert!(ask(client, b"PING\r\n", 7).is_err(), "the client was served");
}

#[test]
fn clients_must_show_a_certificate_of_the_authority_unless_the_settings_say_otherwise() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    ours.sign("server");
    ours.sign("client");
    others.sign("client");
    // A stranger's certificate, shown by a client that trusts our server.
    std::fs::copy(others.path("client.pem"), ours.path("stranger.pem")).unwrap();
    std::fs::copy(others.path("client.key"), ours.path("stranger.key")).unwrap();
    for (setting, without, stranger) in [("yes", false, false), ("optional", true, false), ("no", true, true)] {
        let (_server, port) = serve(&ours, &[("tls-auth-clients", setting)]);
        assert_served(&mut connect(ours.client_config(Some("client")), port));
        for (shown, served) in [(None, without), (Some("stranger"), stranger)] {
            let mut client = connect(ours.client_config(shown), port);
            if served {
                assert_served(&mut client);
            } else {
                assert_refused(&mut client);
            }
        }
    }
}

#[test]
fn long_requests_and_replies_pass_whole_and_in_order() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let (_server, port) = serve(&certificates, &[("tls-auth-clients", "no")]);
    let mut client = connect(certificates.client_config(None), port);
    let value: Vec<u8> = (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    assert_eq!(ask(&mut client, &request, 5).unwrap(), b"+OK\r\n");
    // Ten replies of 3 MB are asked for before the first is read.
    client.write_all(&b"GET k\r\n".repeat(10)).unwrap();
    client.flush().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let head = format!("${}\r\n", value.len());
    for _ in 0..10 {
        let mut reply = vec![0; head.len() + value.len() + 2];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[..head.len()], head.as_bytes());
        assert!(reply[head.len()..].starts_with(&value), "other bytes came back");
    }
    // Many short requests in one record.
    let pipelined = b"INCR n\r\n".repeat(2000);
    let expected: String = (1..=2000).map(|n| format!(":{n}\r\n")).collect();
    assert_eq!(ask(&mut client, &pipelined, expected.len()).unwrap(), expected.as_bytes());
}

#[test]
fn a_file_that_a_client_is_sent_passes_whole_and_the_connection_ends_with_it() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let (server, port) = serve(&certificates, &[("tls-auth-clients", "no")]);
    let mut plain = server.client();
    for key in 0..5u8 {
        // Bytes that do not compress.
        let value: Vec<u8> = (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 ^ key).collect();
        plain.words(&[b"SET", &[key], &value]);
    }
    let mut client = connect(certificates.client_config(None), port);
    client.write_all(b"REPLCONF capa eof rdb-only 1\r\nSYNC\r\n").unwrap();
    client.flush().unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    let text = all.strip_prefix(b"+OK\r\n").unwrap();
    let text = &text[text.iter().position(|byte| *byte == b'$').unwrap()..];
    let (mark, file) = (&text[b"$EOF:".len()..][..40], &text[b"$EOF:\r\n".len() + 40..]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dump.rdb"), file.strip_suffix(mark).unwrap()).unwrap();
    let loaded = start_in(dir.path(), &[]);
    assert_eq!(loaded.client().text("DEBUG DIGEST"), plain.text("DEBUG DIGEST"));
}

#[test]
fn requests_before_the_end_are_answered_before_the_connection_is_closed() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let (_server, port) = serve(&certificates, &[("tls-auth-clients", "no")]);
    let mut client = connect(certificates.client_config(None), port);
    client.write_all(&b"PING\r\n".repeat(1000)).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"+PONG\r\n".repeat(1000));
}

#[test]
fn what_is_not_tls_is_turned_away_and_others_are_served() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let (server, port) = serve(&certificates, &[("tls-auth-clients", "no")]);
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(b"SET k v\r\nPING\r\n").unwrap();
    let mut reply = Vec::new();
    // An alert may come before the end; no reply does.
    let _ = stranger.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"+"), "{reply:?}");
    // A client that never says a word costs the others nothing.
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_served(&mut connect(certificates.client_config(None), port));
    let mut plain = server.client();
    assert_eq!(plain.call("GET k"), Value::Null);
}

#[test]
fn a_renewed_certificate_needs_no_restart_and_a_bad_one_changes_nothing() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let (server, port) = serve(&certificates, &[("tls-auth-clients", "no")]);
    let shown = |port| {
        let mut client = connect(certificates.client_config(None), port);
        assert_served(&mut client);
        client.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let (before, mut plain) = (shown(port), server.client());
    certificates.sign("renewed");
    let set = format!(
        "CONFIG SET tls-cert-file {} tls-key-file {}",
        certificates.path("renewed.pem"),
        certificates.path("renewed.key")
    );
    assert_eq!(plain.call(&set), Value::Simple("OK".to_owned()));
    let renewed = shown(port);
    assert_ne!(renewed, before);
    for (name, value) in [
        ("tls-cert-file", certificates.path("none.pem")),
        ("tls-cert-file", certificates.path("renewed.key")),
        ("tls-key-file", certificates.path("server.key")),
        ("tls-key-file", certificates.path("ca.pem")),
        ("tls-protocols", "SSLv3".to_owned()),
    ] {
        let reply = plain.call(&format!("CONFIG SET {name} {value}")).text();
        assert!(
            reply.starts_with(&format!("ERR CONFIG SET failed (possibly related to argument '{name}')")),
            "{reply}"
        );
    }
    assert_eq!(shown(port), renewed);
}

#[test]
fn a_server_that_cannot_serve_tls_does_not_start_and_says_why() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let dir = tempfile::tempdir().unwrap();
    let reason = |settings: &[(&str, &str)]| start_failure(dir.path(), settings);
    let (certificate, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let none = reason(&[("tls-port", "1")]);
    assert!(none.contains("tls-cert-file is not set"), "{none}");
    let no_authority = reason(&[("tls-port", "1"), ("tls-cert-file", &certificate), ("tls-key-file", &key)]);
    assert!(no_authority.contains("tls-ca-cert-file is not set"), "{no_authority}");
    let swapped = reason(&[("tls-port", "1"), ("tls-cert-file", &key), ("tls-key-file", &certificate)]);
    assert!(swapped.contains("holds no certificate"), "{swapped}");
}

fn start_failure(dir: &Path, settings: &[(&str, &str)]) -> String {
    common::refused(common::config_in(dir, settings))
}

#[test]
fn with_port_0_only_tls_is_served() {
    let certificates = Certificates::new();
    certificates.sign("server");
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let text = port.to_string();
    let settings = certificates.settings();
    let mut all: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend_from_slice(&[("tls-port", text.as_str()), ("tls-auth-clients", "no"), ("port", "0")]);
    let server = start_in(dir.path(), &all);
    assert_eq!(server.port, port);
    assert_served(&mut connect(certificates.client_config(None), port));
}

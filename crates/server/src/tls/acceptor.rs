//! What TLS connections are accepted with: certificate, key, whom the server trusts, which versions. Made from the settings at the
//! start and whenever one of them changes, so that a renewed certificate needs no restart. Relies on rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::TlsStream;
use crate::config::{TlsClients, TlsSettings};

/// Files of a directory of trusted certificates that are read at most.
const MOST_CA_FILES: usize = 4096;

/// Why TLS can't be served as the settings say.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A setting is missing.
    #[error("{directive} is not set; TLS needs {what}")]
    Missing {
        /// The directive.
        directive: &'static str,
        /// What it would name.
        what: &'static str,
    },
    /// A file cannot be used.
    #[error("{directive} names {path}: {reason}")]
    File {
        /// The directive.
        directive: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate, key and the rest do not fit together.
    #[error("tls-cert-file and tls-key-file cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

/// Accepts TLS connections.
#[derive(Clone, Debug)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
}

impl TlsAcceptor {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// A setting is missing, or a file is not what it must be.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let certificates = certificates("tls-cert-file", &settings.cert_file, "the server's certificate")?;
        let key = private_key(&settings.key_file)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(settings))
            .map_err(TlsError::Refused)?;
        let builder = match verifier(settings, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(certificates, key)?;
        config.ignore_client_order = settings.prefer_server_ciphers;
        Ok(Self { config: Arc::new(config) })
    }

    /// A stream over a socket on which a client is to begin the handshake.
    ///
    /// # Errors
    /// rustls refuses its own settings.
    pub fn accept(&self, socket: TcpStream) -> Result<TlsStream, TlsError> {
        let connection = ServerConnection::new(Arc::clone(&self.config))?;
        Ok(TlsStream::new(socket, connection))
    }
}

fn versions(settings: &TlsSettings) -> &'static [&'static SupportedProtocolVersion] {
    const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
    const OLD: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    const NEW: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match (settings.tls12, settings.tls13) {
        (true, false) => OLD,
        (false, true) => NEW,
        _ => BOTH,
    }
}

fn file_error(directive: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File { directive, path: path.display().to_string(), reason: reason.to_string() }
}

fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it holds nothing of that kind in PEM form".to_owned(),
        error => error.to_string(),
    }
}

fn certificates(
    directive: &'static str,
    path: &str,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    if path.is_empty() {
        return Err(TlsError::Missing { directive, what });
    }
    let path = Path::new(path);
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| file_error(directive, path, pem_reason(&error)))?;
    if all.is_empty() {
        return Err(file_error(directive, path, "it holds no certificate in PEM form"));
    }
    Ok(all)
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    if path.is_empty() {
        return Err(TlsError::Missing { directive: "tls-key-file", what: "the private key of its certificate" });
    }
    let path = Path::new(path);
    PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let reason = match &error {
            pem::Error::NoItemsFound => {
                "it holds no private key in PEM form that can be read (a key under a password is not supported: \
                 `openssl pkey -in KEY -out PLAIN` makes one without)"
                    .to_owned()
            }
            error => pem_reason(error),
        };
        file_error("tls-key-file", path, reason)
    })
}

/// Who checks the certificates of clients, if the settings ask for any.
fn verifier(
    settings: &TlsSettings,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    if settings.auth_clients == TlsClients::Unasked {
        return Ok(None);
    }
    let roots = trusted(settings)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match settings.auth_clients {
        TlsClients::Optional => builder.allow_unauthenticated(),
        TlsClients::Required | TlsClients::Unasked => builder,
    };
    let refused = |error: rustls::server::VerifierBuilderError| rustls::Error::General(error.to_string());
    Ok(Some(builder.build().map_err(refused)?))
}

/// The certificates by which clients' ones must be signed.
fn trusted(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if !settings.ca_cert_file.is_empty() {
        add_trusted(&mut roots, "tls-ca-cert-file", Path::new(&settings.ca_cert_file))?;
    }
    if !settings.ca_cert_dir.is_empty() {
        let path = Path::new(&settings.ca_cert_dir);
        let entries = std::fs::read_dir(path).map_err(|error| file_error("tls-ca-cert-dir", path, error))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).take(MOST_CA_FILES).collect();
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            // A directory of certificates may hold other files, too.
            let _ = add_trusted(&mut roots, "tls-ca-cert-dir", file);
        }
        if roots.is_empty() {
            return Err(file_error("tls-ca-cert-dir", path, "no file in it holds a certificate in PEM form"));
        }
    }
    if roots.is_empty() {
        return Err(TlsError::Missing {
            directive: "tls-ca-cert-file",
            what: "the certificates by which it knows its clients, or tls-auth-clients no",
        });
    }
    Ok(roots)
}

fn add_trusted(roots: &mut RootCertStore, directive: &'static str, file: &Path) -> Result<(), TlsError> {
    let path = file.to_str().ok_or_else(|| file_error(directive, file, "its path is not UTF-8"))?;
    for certificate in certificates(directive, path, "")? {
        roots.add(certificate).map_err(|error| file_error(directive, file, error))?;
    }
    Ok(())
}

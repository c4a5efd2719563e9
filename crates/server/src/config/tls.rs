//! The settings of TLS and their directives, named and worded as in Redis. Relies on `directive` and `value`.

use std::borrow::Cow;

use super::Config;
use super::directive::{Directive, Setting, directive};
use super::value::{self, RejectReason};

const FIXED: bool = false;
const MUTABLE: bool = true;

/// Whether clients must show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TlsClients {
    /// They must.
    #[default]
    Required,
    /// They may; one that is shown must be good.
    Optional,
    /// They are not asked for one.
    Unasked,
}

/// How TLS is served.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsSettings {
    /// Where it is served; 0 is nowhere.
    pub port: u16,
    /// The server's certificates, in PEM form.
    pub cert_file: String,
    /// Their private key.
    pub key_file: String,
    /// Certificates by which those of clients must be signed.
    pub ca_cert_file: String,
    /// A directory of such certificates.
    pub ca_cert_dir: String,
    /// Whether clients must show one.
    pub auth_clients: TlsClients,
    /// TLS 1.2 is spoken.
    pub tls12: bool,
    /// TLS 1.3 is spoken.
    pub tls13: bool,
    /// The server chooses the cipher suite.
    pub prefer_server_ciphers: bool,
}

const CLIENTS: &[(&str, TlsClients)] =
    &[("yes", TlsClients::Required), ("optional", TlsClients::Optional), ("no", TlsClients::Unasked)];

macro_rules! path {
    ($name:literal, $doc:literal, $field:ident) => {
        directive!($name, "", MUTABLE, $doc, |c| c.tls.$field.clone(), |c, v| {
            c.tls.$field = v.to_owned();
            Ok(())
        })
    };
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    directive!(
        "tls-port",
        "0",
        FIXED,
        "TCP port to serve TLS on; 0 means none. With port 0 only TLS is served.",
        |c| c.tls.port.to_string(),
        |c, v| {
            c.tls.port = value::integer(v, 0, 65535)? as u16;
            Ok(())
        }
    ),
    path!("tls-cert-file", "The server's certificate and those above it, in PEM form.", cert_file),
    path!("tls-key-file", "The private key of the certificate, in PEM form and without a password.", key_file),
    path!("tls-ca-cert-file", "Certificates, in PEM form, by which those of clients must be signed.", ca_cert_file),
    path!("tls-ca-cert-dir", "A directory of files with such certificates.", ca_cert_dir),
    directive!(
        "tls-auth-clients",
        "yes",
        MUTABLE,
        "Whether clients must show a certificate: yes, optional, or no.",
        |c| value::choice_name(&c.tls.auth_clients, CLIENTS),
        |c, v| {
            c.tls.auth_clients = value::choice(v, CLIENTS)?;
            Ok(())
        }
    ),
    directive!(
        "tls-protocols",
        "",
        MUTABLE,
        "Versions that are spoken: TLSv1.2, TLSv1.3 or both; empty means both.",
        |c| {
            let names = [(c.tls.tls12, "TLSv1.2"), (c.tls.tls13, "TLSv1.3")];
            let spoken: Vec<&str> = names.iter().filter(|(is_spoken, _)| *is_spoken).map(|(_, name)| *name).collect();
            spoken.join(" ")
        },
        |c, v| {
            let (mut tls12, mut tls13) = (false, false);
            for name in v.split_ascii_whitespace() {
                match name.to_ascii_lowercase().as_str() {
                    "tlsv1.2" => tls12 = true,
                    "tlsv1.3" => tls13 = true,
                    _ => return Err("only TLSv1.2 and TLSv1.3 are supported".into()),
                }
            }
            (c.tls.tls12, c.tls.tls13) = (tls12, tls13);
            Ok(())
        }
    ),
    directive!(
        "tls-prefer-server-ciphers",
        "no",
        MUTABLE,
        "The server, not the client, chooses the cipher suite.",
        |c| value::yes_no(c.tls.prefer_server_ciphers),
        |c, v| {
            c.tls.prefer_server_ciphers = value::boolean(v)?;
            Ok(())
        }
    ),
];

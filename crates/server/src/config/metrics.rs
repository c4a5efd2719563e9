//! The settings of the metrics' endpoint and their directives. Relies on `directive` and `value`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use super::Config;
use super::directive::{Directive, Setting, directive};
use super::value::{self, RejectReason};

const FIXED: bool = false;

/// Where metrics are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetricsSettings {
    /// The address.
    pub bind: IpAddr,
    /// The port; 0 is nowhere.
    pub port: u16,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { bind: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0 }
    }
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    directive!(
        "metrics-port",
        "0",
        FIXED,
        "TCP port for Prometheus, which asks for /metrics there; 0 means none.",
        |c| c.metrics.port.to_string(),
        |c, v| {
            c.metrics.port = value::integer(v, 0, 65535)? as u16;
            Ok(())
        }
    ),
    directive!(
        "metrics-bind",
        "127.0.0.1",
        FIXED,
        "The address that metrics are served on; they are open to all that reach it.",
        |c| c.metrics.bind.to_string(),
        |c, v| {
            c.metrics.bind = v.parse().map_err(|_| "argument must be an IP address")?;
            Ok(())
        }
    ),
];

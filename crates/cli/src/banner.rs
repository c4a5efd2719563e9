//! What the server says when it starts: how to connect, where the data lies, what was restored and how fast.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use quire_server::config::Config;
use quire_server::save_state::RestoreSummary;
use quire_units::{Bytes, format_duration};

/// The lines about the data: what the image gave, and how many keys there are after so many commands of the log.
pub fn text(config: &Config, restored: &RestoreSummary, (keys, replayed): (u64, u64)) -> String {
    let mut text = String::new();
    if let Some(origin) = &restored.clone_of {
        let _ = writeln!(text, "  clone of   {}", origin.path().display());
    }
    if config.has_dir() {
        let path = config.image_path();
        let path = std::path::absolute(&path).unwrap_or(path);
        let _ = writeln!(text, "  data       {}", path.display());
    }
    let took = format_duration(Duration::from_micros(restored.first_read_us));
    let size = Bytes(restored.image_bytes);
    let _ = match restored.mode {
        "map" => writeln!(
            text,
            "  restored   {keys} keys, {size}, in {took}; reading and verifying goes on in the background"
        ),
        "clone" => {
            writeln!(text, "  mapped     {keys} keys, {size}, in {took}; verifying goes on in the background")
        }
        "load" => {
            writeln!(text, "  restored   {keys} keys, {size}, read and verified in {took}")
        }
        "rdb" => writeln!(text, "  imported   {keys} keys of Redis, {size}; the next save makes an image of them"),
        _ => writeln!(text, "  restored   nothing: there is no image yet, the server starts empty"),
    };
    if !["none", "rdb"].contains(&restored.mode) {
        // A backup without its deltas shows here.
        let links = match restored.deltas {
            0 => "an image without deltas".to_owned(),
            1 => "an image and 1 delta over it".to_owned(),
            deltas => format!("an image and {deltas} deltas over it"),
        };
        text.push_str(&loaded_first(restored.regions_loaded));
        let age = match &restored.clone_of {
            Some(_) => format!(" ({} ago)", format_duration(restored.age())),
            None => String::new(),
        };
        let _ = writeln!(text, "  as of      {}{age}: {links}", restored.saved_at());
    }
    if replayed > 0 {
        let _ =
            writeln!(text, "  replayed   {replayed} commands of the log on top of the image's {} keys", restored.keys);
    }
    let _ = match config.save.as_slice() {
        [] if !config.has_dir() => {
            writeln!(text, "  saves      never: a clone saves to a directory of its own (--dir), not to the original's")
        }
        [] => writeln!(text, "  saves      when told to: BGSAVE, SAVE, SHUTDOWN SAVE"),
        rules => {
            let rules: Vec<String> =
                rules.iter().map(|rule| format!("{} s and {} changes", rule.seconds, rule.changes)).collect();
            writeln!(text, "  saves      after {}", rules.join(", or "))
        }
    };
    text.push_str(&metrics(config));
    text
}

/// Where Prometheus finds the metrics, if anywhere.
fn metrics(config: &Config) -> String {
    match config.metrics.port {
        0 => String::new(),
        port => format!("  metrics    http://{}/metrics\n", SocketAddr::new(config.metrics.bind, port)),
    }
}

/// What of a mapped image was read before the first command.
fn loaded_first(regions: u32) -> String {
    match regions {
        0 => String::new(),
        regions => format!(
            "             {} were read and verified first: the deltas' pages are too scattered there to be mapped\n",
            Bytes(u64::from(regions) << 21)
        ),
    }
}

/// Who is let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAccess {
    /// Every client that can reach the server.
    Nothing,
    /// Clients that know the password.
    Password,
    /// Clients of this machine (protected mode).
    ThisMachineOnly,
}

impl ClientAccess {
    /// By whether clients have to give a password, and by the protected mode.
    pub const fn of(asks_for_password: bool, protected_mode: bool) -> Self {
        match (asks_for_password, protected_mode) {
            (true, _) => Self::Password,
            (false, true) => Self::ThisMachineOnly,
            (false, false) => Self::Nothing,
        }
    }
}

/// True for what only this machine can reach.
fn is_local(address: &str) -> bool {
    address.parse::<SocketAddr>().map_or(true, |address| address.ip().is_loopback())
}

/// Writes the banner to standard output.
pub fn print(data: &str, addresses: &[String], guard: ClientAccess, tls_port: u16) {
    let mut text = format!("\nQuire {} (pid {})\n\n", env!("CARGO_PKG_VERSION"), std::process::id());
    let _ = writeln!(text, "  listens    {}", addresses.join(", "));
    if let Some(how) = addresses.iter().find_map(|address| connect(address, tls_port)) {
        let password = if guard == ClientAccess::Password { " --askpass" } else { "" };
        let _ = writeln!(text, "  connect    {how}{password}");
    }
    if guard == ClientAccess::ThisMachineOnly && addresses.iter().any(|address| !is_local(address)) {
        let _ = writeln!(text, "  refuses    clients of other machines, until a password is set (--requirepass)");
    }
    text.push_str(data);
    let _ = writeln!(text, "  stop       Ctrl-C, or SHUTDOWN\n");
    // The reader of standard output may be gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The command line that connects to an address. What speaks TLS may ask for a certificate besides, of which the server does not know where it is.
fn connect(address: &str, tls_port: u16) -> Option<String> {
    if address.starts_with('/') || address.starts_with("unix:") {
        return Some(format!("redis-cli -s {}", address.trim_start_matches("unix:")));
    }
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let tls = if tls_port != 0 && port == tls_port.to_string() { " --tls" } else { "" };
    Some(match host {
        "127.0.0.1" | "0.0.0.0" => format!("redis-cli -p {port}{tls}"),
        _ => format!("redis-cli -h {host} -p {port}{tls}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_command_lines() {
        assert_eq!(connect("127.0.0.1:6379", 0).unwrap(), "redis-cli -p 6379");
        assert_eq!(connect("127.0.0.1:6380", 6380).unwrap(), "redis-cli -p 6380 --tls");
        assert_eq!(connect("[::1]:7000", 6380).unwrap(), "redis-cli -h ::1 -p 7000");
        assert!(
            is_local("127.0.0.1:1") && is_local("[::1]:1") && is_local("/run/quire.sock") && !is_local("0.0.0.0:1")
        );
        assert_eq!(connect("/run/quire.sock", 0).unwrap(), "redis-cli -s /run/quire.sock");
    }
}

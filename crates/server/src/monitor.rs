//! MONITOR: each command that is run, as a line for the clients that have asked to see all of them.
//!
//! Commands of operators are not shown, and secrets in the others are not either. Relies on `slowlog` for what is a secret, and on the
//! clients' outputs, which are bounded.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ctx::{Args, Ctx};
use crate::pubsub::PushMessage;
use crate::registry::Command;
use crate::slowlog::is_secret;

/// Of all words so many bytes are shown: a byte takes up to four in a line, which each monitor gets.
const SHOWN_BYTES: usize = 1 << 20;

/// Shows a command that was run to all that monitor.
#[cold]
pub fn show(command: &Command, ctx: &mut Ctx<'_>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let peer = &ctx.client.peer;
    let address = if ctx.server.scripts.is_running() {
        "lua".to_owned()
    } else if peer.is_unix {
        format!("unix:{}", peer.address)
    } else {
        peer.address.clone()
    };
    let mut line = format!("+{}.{:06} [{} {address}]", since.as_secs(), since.subsec_micros(), ctx.client.db.0);
    write_words(&mut line, command.name, ctx.args);
    line.push_str("\r\n");
    let message = PushMessage::line(line);
    let ids = ctx.server.clients.monitors.clone();
    ctx.server.send(&ids, &message);
}

fn write_words(line: &mut String, command: &str, args: Args<'_>) {
    let mut left_bytes = SHOWN_BYTES;
    for (index, word) in args.iter().enumerate() {
        if left_bytes == 0 {
            // Writing to a string can't fail.
            let _ = write!(line, " ... ({} more arguments)", args.len() - index);
            return;
        }
        if is_secret(command, args, index) {
            line.push_str(" \"(redacted)\"");
        } else {
            line.push_str(" \"");
            let shown = &word[..word.len().min(left_bytes)];
            left_bytes -= shown.len();
            shown.iter().for_each(|byte| write_byte(line, *byte));
            line.push('"');
            if shown.len() < word.len() {
                // Writing to a string can't fail.
                let _ = write!(line, "... ({} more bytes)", word.len() - shown.len());
            }
        }
    }
}

fn write_byte(line: &mut String, byte: u8) {
    match byte {
        b'\\' | b'"' => line.extend(['\\', char::from(byte)]),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(char::from(byte)),
        _ => {
            // Writing to a string can't fail.
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    #[test]
    fn words_are_quoted_and_secrets_hidden() {
        let shown = |command: &str, words: &[&[u8]]| {
            let (mut buffer, mut ranges) = (Vec::new(), Vec::new());
            for word in words {
                ranges.push(ArgRange { start: buffer.len() as u32, len: word.len() as u32 });
                buffer.extend_from_slice(word);
            }
            let mut line = String::new();
            write_words(&mut line, command, Args::new(&buffer, &ranges));
            line
        };
        assert_eq!(
            shown("set", &[b"SET", b"a b", b"\"\\\r\n\t\x07\x08\x00\xff"]),
            r#" "SET" "a b" "\"\\\r\n\t\a\b\x00\xff""#
        );
        let word = vec![0; 1 << 20];
        let line = shown("del", &vec![word.as_slice(); 100]);
        assert!(line.len() < 5 << 20 && line.ends_with(" ... (99 more arguments)"), "{}", line.len());
        assert_eq!(shown("auth", &[b"AUTH", b"u", b"p"]), r#" "AUTH" "(redacted)" "(redacted)""#);
    }
}

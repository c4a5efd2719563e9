//! The log of slow commands: the last ones, their words shortened. Relies on nothing but the words.

use std::collections::VecDeque;

use crate::args::Args;

const MAX_WORDS: usize = 32;
const MAX_WORD_BYTES: usize = 128;

/// Directives whose values are passwords, or go with one; CONFIG SET takes them also where they change nothing.
const SECRET_DIRECTIVES: &[&str] = &[
    "requirepass",
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

/// A slow command.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// Counted from 0.
    pub id: u64,
    /// When it ran, Unix seconds.
    pub unix_s: i64,
    /// How long.
    pub duration_us: u64,
    /// Its words, shortened.
    pub words: Vec<Vec<u8>>,
    /// The client that sent it.
    pub address: String,
    /// The sender's name.
    pub client_name: String,
}

/// When a slow command ran, how long, and which client sent it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // as in SlowEntry
pub struct SlowCommand<'a> {
    pub unix_s: i64,
    pub duration_us: u64,
    pub address: &'a str,
    pub client_name: &'a str,
}

/// The log.
#[derive(Default, Debug)]
pub struct SlowLog {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl SlowLog {
    /// Adds a command, whose full name is `command`; at most `max` entries are kept.
    pub fn push(&mut self, max: usize, command: &str, args: Args<'_>, when: SlowCommand<'_>) {
        let SlowCommand { unix_s, duration_us, address, client_name } = when;
        let client_name = client_name.chars().take(MAX_WORD_BYTES).collect();
        let (id, words, address) = (self.next_id, shortened(command, args), address.to_owned());
        self.entries.push_front(SlowEntry { id, unix_s, duration_us, words, address, client_name });
        self.next_id += 1;
        self.entries.truncate(max);
    }

    /// The entries, the newest first.
    pub fn entries(&self) -> &VecDeque<SlowEntry> {
        &self.entries
    }

    /// Forgets all entries.
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    /// Keeps at most `max` entries.
    pub fn shorten(&mut self, max: usize) {
        self.entries.truncate(max);
    }
}

/// Whether a word is a password, which no client may read, from the log or by MONITOR.
pub fn is_secret(command: &str, args: Args<'_>, index: usize) -> bool {
    match command {
        "auth" => index > 0,
        // The name of a user, too, as in Redis.
        "acl|setuser" | "acl|deluser" | "acl|getuser" => index > 1,
        "hello" => (1..=2).any(|back| index > back && args.is(index - back, "AUTH")),
        // Where a value is missing the places of names are not known.
        "config|set" => index > 2 && (index % 2 == 1 || args.len() % 2 == 1) && is_secret_directive(args, index - 1),
        "migrate" => is_login_of_target(args, index),
        _ => false,
    }
}

fn is_secret_directive(args: Args<'_>, index: usize) -> bool {
    SECRET_DIRECTIVES.iter().any(|name| args.is(index, name))
}

/// Whether a word of MIGRATE is a user or a password for the target.
fn is_login_of_target(args: Args<'_>, index: usize) -> bool {
    let mut at = 6;
    while at < index && !args.is(at, "KEYS") {
        let words = if args.is(at, "AUTH2") { 2 } else { usize::from(args.is(at, "AUTH")) };
        if (at + 1..=at + words).contains(&index) {
            return true;
        }
        at += 1 + words;
    }
    false
}

fn shortened(command: &str, args: Args<'_>) -> Vec<Vec<u8>> {
    let kept = if args.len() > MAX_WORDS { MAX_WORDS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = args
        .iter()
        .take(kept)
        .enumerate()
        .map(|(index, word)| match word.get(..MAX_WORD_BYTES) {
            _ if is_secret(command, args, index) => b"(redacted)".to_vec(),
            Some(start) if word.len() > MAX_WORD_BYTES => {
                let mut text = start.to_vec();
                text.extend(format!("... ({} more bytes)", word.len() - MAX_WORD_BYTES).bytes());
                text
            }
            _ => word.to_vec(),
        })
        .collect();
    if kept < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    #[test]
    fn long_commands_are_shortened_and_old_ones_leave() {
        let word = [b'x'; 200];
        let ranges = vec![ArgRange { start: 0, len: 200 }; 40];
        let mut log = SlowLog::default();
        for _ in 0..3 {
            let when = SlowCommand { unix_s: 5, duration_us: 9, address: "a", client_name: "" };
            log.push(2, "get", Args::new(&word, &ranges), when);
        }
        assert_eq!(log.entries().len(), 2);
        let newest = &log.entries()[0];
        assert_eq!((newest.id, newest.words.len()), (2, 32));
        assert!(newest.words[0].ends_with(b"... (72 more bytes)"));
        assert_eq!(newest.words[31], b"... (9 more arguments)");
        log.reset();
        assert!(log.entries().is_empty());
    }

    #[test]
    fn passwords_are_not_logged() {
        let logged = |command: &str, line: &str| {
            let mut ranges = Vec::new();
            for word in line.split(' ') {
                let start = word.as_ptr() as usize - line.as_ptr() as usize;
                ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
            }
            let words = shortened(command, Args::new(line.as_bytes(), &ranges));
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(logged("auth", "AUTH secret"), "AUTH (redacted)");
        assert_eq!(
            logged("migrate", "MIGRATE h 1  0 1 auth secret AUTH2 u p KEYS AUTH key"),
            "MIGRATE h 1  0 1 auth (redacted) AUTH2 (redacted) (redacted) KEYS AUTH key"
        );
        assert_eq!(logged("hello", "HELLO 3 auth u secret SETNAME n"), "HELLO 3 auth (redacted) (redacted) SETNAME n");
        let set = "CONFIG SET port 1 RequirePass secret timeout 2";
        assert_eq!(logged("config|set", set), "CONFIG SET port 1 RequirePass (redacted) timeout 2");
        for name in SECRET_DIRECTIVES {
            let set = format!("CONFIG SET maxmemory 1 {} secret", name.to_uppercase());
            assert_eq!(logged("config|set", &set), set.replace("secret", "(redacted)"));
        }
        // A value that is the name of such a directive makes no secret of the name behind it.
        let set = "CONFIG SET timeout requirepass secret";
        assert_eq!(logged("config|set", set), "CONFIG SET timeout requirepass (redacted)");
        let set = "CONFIG SET logfile masterauth port 1";
        assert_eq!(logged("config|set", set), set);
        let set = "ACL SETUSER a >secret";
        assert_eq!(logged("acl|setuser", set), "ACL SETUSER (redacted) (redacted)");
        let migrate = "MIGRATE host 1 auth 0 5 AUTH2 user secret KEYS auth2";
        assert_eq!(logged("migrate", migrate), "MIGRATE host 1 auth 0 5 AUTH2 (redacted) (redacted) KEYS auth2");
    }
}

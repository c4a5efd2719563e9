//! Flags of `quire serve` that are no settings of the server's table: redis-server takes each line that its file may have as a flag, too,
//! as Debian's unit gives it `--supervised systemd`. Relies on the server's rules for such lines.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use quire_server::config::file;

use crate::args;

/// A line of a configuration file that was given as a flag: its first word and the others.
pub type ForeignFlag = (String, Vec<Vec<u8>>);

/// Directives with more than one value. All others take one, so that a file that is named behind one is not taken for a value.
const SEVERAL_VALUES: &[&str] = &[
    "latency-tracking-info-percentiles",
    "loadmodule",
    "oom-score-adj-values",
    "rename-command",
    "replicaof",
    "slaveof",
    "user",
];

/// Those whose values are numbers.
const SEVERAL_NUMBERS: &[&str] = &["latency-tracking-info-percentiles", "oom-score-adj-values"];

/// Takes such flags out of the words of a command that serves.
pub fn take(words: Vec<OsString>) -> (Vec<OsString>, Vec<ForeignFlag>) {
    let mut foreign = Vec::new();
    if words.get(1).is_none_or(|word| word != "serve") {
        return (words, foreign);
    }
    let mut kept: Vec<OsString> = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word);
            kept.extend(words);
            break;
        }
        let Some((name, value)) = parts(&word) else {
            kept.push(word);
            continue;
        };
        let next = value.as_deref().or_else(|| words.peek().map(|word| word.as_bytes()));
        if is_foreign(&name, next.unwrap_or_default()) {
            let is_whole = value.is_some();
            let mut values = Vec::from_iter(value);
            let most = if SEVERAL_VALUES.contains(&&*name) { usize::MAX } else { 1 };
            while !is_whole && values.len() < most && words.peek().is_some_and(|word| may_be_value(&name, word)) {
                values.extend(words.next().map(OsString::into_vec));
            }
            foreign.push((name, values));
        } else {
            let takes_next = value.is_none() && args::takes_any_word(&name);
            kept.push(word);
            // A password may look like a flag.
            kept.extend(words.next_if(|_| takes_next));
        }
    }
    (kept, foreign)
}

/// The name of a flag, and its value if that is in the same word; `None` for other words.
fn parts(word: &OsStr) -> Option<(String, Option<Vec<u8>>)> {
    let text = word.as_bytes().strip_prefix(b"--").filter(|text| !text.is_empty())?;
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (&text[..at], Some(text[at + 1..].to_vec())),
        None => (text, None),
    };
    Some((String::from_utf8_lossy(name).to_ascii_lowercase(), value))
}

/// Whether a word may be a value of a flag. What is rather the configuration file's name is none: the server would start without its lines.
fn may_be_value(name: &str, word: &OsStr) -> bool {
    let is_number = || word.to_str().is_some_and(|word| word.parse::<f64>().is_ok());
    let is_file = || name != "include" && word.as_bytes().ends_with(b".conf");
    parts(word).is_none() && !is_file() && (!SEVERAL_NUMBERS.contains(&name) || is_number())
}

fn is_foreign(name: &str, value: &[u8]) -> bool {
    matches!(name, "include" | "user") || file::foreign_line(name, &String::from_utf8_lossy(value)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected_kept: &str, expected_taken: &[&str]) {
        let (kept, taken) = take(line.split(' ').map(OsString::from).collect());
        let taken: Vec<String> = taken
            .into_iter()
            .map(|(name, values)| format!("{name} {}", String::from_utf8_lossy(&values.join(&b' '))))
            .collect();
        assert_eq!((kept.join(OsStr::new(" ")), taken.join("; ")), (expected_kept.into(), expected_taken.join("; ")));
    }

    #[test]
    fn what_a_file_may_have_beside_the_table_is_a_flag() {
        check(
            "quire serve x.conf --supervised systemd --daemonize no",
            "quire serve x.conf --daemonize no",
            &["supervised systemd"],
        );
        check("quire serve --daemonize yes --Io-Threads 4", "quire serve", &["daemonize yes", "io-threads 4"]);
        check("quire serve --rdbcompression=yes x.conf", "quire serve x.conf", &["rdbcompression yes"]);
        check("quire serve --rdbcompression yes x.conf", "quire serve x.conf", &["rdbcompression yes"]);
        check("quire serve --replicaof host 1 --port 7", "quire serve --port 7", &["replicaof host 1"]);
        check(
            "quire serve --user a on --include x --activerehashing",
            "quire serve",
            &["user a on", "include x", "activerehashing "],
        );
    }

    #[test]
    fn the_configuration_file_is_no_value_of_the_flag_before_it() {
        for (flag, taken) in [
            ("--oom-score-adj-values 0 200 800", "oom-score-adj-values 0 200 800"),
            ("--activerehashing", "activerehashing "),
            ("--rdbcompression no", "rdbcompression no"),
        ] {
            check(&format!("quire serve {flag} x.conf"), "quire serve x.conf", &[taken]);
        }
        check(
            "quire serve --oom-score-adj-values 0 200 800 /etc/quire",
            "quire serve /etc/quire",
            &["oom-score-adj-values 0 200 800"],
        );
        check("quire serve --include x.conf", "quire serve", &["include x.conf"]);
    }

    #[test]
    fn other_words_stay() {
        for line in [
            "quire serve --requirepass --supervised --port 7",
            "quire serve --save 900 1 --prot 7",
            "quire serve -- --supervised",
            "quire serve --accept-damaged-image --port 7",
            "quire top --supervised systemd",
        ] {
            check(line, line, &[]);
        }
    }
}

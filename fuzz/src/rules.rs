//! Target `mount_rules`: any text as a file of rules for a mount is taken or refused with its line, and rules that were taken are
//! applied to any path in bounded time.
//!
//! Relies on the rules of `quire-fuse`. The first line of the input is the path.

use quire_fuse::CriticalityRules;

/// The promise: a refusal names a line of the text; whether a file is a log is answered the same twice.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, text) = text.split_once('\n').unwrap_or(("", &text));
    match CriticalityRules::parse(text) {
        Ok(rules) => {
            assert_eq!(rules.is_log(path), rules.clone().is_log(path));
            assert!(rules.names_logs() || !rules.is_log(path), "no rule says so");
        }
        Err(refusal) => {
            assert!((1..=text.lines().count()).contains(&refusal.line), "line {} of {text:?}", refusal.line);
        }
    }
}

/// The rules that come with Quire, and rules of every form.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        format!("base/pg_wal/0001\n{}", quire_fuse::DEFAULT_RULES),
        "a b/pg_wal/1\n# a comment\nwal path~\"pg_wal/\" path=\"a b\"\nnormal main uid=0\n".to_owned(),
        "x\ncritical comm=postgres title~\"^postgres: .*(idle|SELECT)\" child\ninherits thread=\"a\\\"b\" exe~/usr\n"
            .to_owned(),
        "xxxxxxxxxxxxxxxxxxxxxxxxxxx\nwal path~(x+x+)+y path~\"(a{2,9}){3}\"\nlog title~[[:alpha:]]\n".to_owned(),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}

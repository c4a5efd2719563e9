//! Target `config_file`: any text as a configuration file is taken or refused, and what was taken is written so that it is taken
//! again.
//!
//! Relies on `include` being refused before any file is read: the inputs name no files of this machine.

use quire_server::config::Config;

/// The promise: a refusal says why; a rewritten file says the same as the settings, and stays as it is when it is rewritten again.
pub fn run(data: &[u8]) {
    let mut config = Config::default();
    if data.to_ascii_lowercase().windows(7).any(|word| word == b"include") {
        return;
    }
    if let Err(error) = config.apply_text(data, "fuzzed") {
        assert!(!error.to_string().is_empty());
        return;
    }
    let rewritten = config.rewritten(data);
    let mut again = Config::default();
    if let Err(error) = again.apply_text(&rewritten, "rewritten") {
        panic!("what was rewritten is refused: {error}: {:?}", rewritten.escape_ascii().to_string());
    }
    assert_eq!(config.rewritten(b""), again.rewritten(b""), "the settings have changed");
    assert_eq!(again.rewritten(&rewritten), rewritten, "it changes each time that it is rewritten");
}

/// Files with directives of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "# a comment\n\nport 7000\nrequirepass \"a b\\\"c\\n\"\nsave 60 1\nsave 10 5\n  timeout 3\n",
        "save \"\"\nappendonly yes\nappendfsync always\nmaxmemory 100mb\ndir './some place'\ndbfilename dump.quire\n",
        "client-output-buffer-limit normal 0 0 0\nclient-output-buffer-limit pubsub 32mb 8mb 60\nbind 127.0.0.1 ::1\n",
        "maxclients 100\nloglevel notice\nlogfile \"\"\nprotected-mode no\nhz 20\ntcp-keepalive 300\nslowlog-max-len 128\n",
        "requirepass \"\\x00\\xff\\t\"\nhash-max-listpack-entries 128\nhash-max-listpack-value 64\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

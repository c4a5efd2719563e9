//! The first line of a script, `#!lua flags=…`, which says what it may do.

/// What a script's first line says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptFlags {
    /// It has such a line: without one it runs as scripts did before there was one.
    pub declared: bool,
    /// It doesn't write.
    pub no_writes: bool,
    /// It may run while `maxmemory` is reached.
    pub allow_oom: bool,
    /// It may run on a replica whose data is old. There are none.
    pub allow_stale: bool,
    /// It doesn't run in a cluster. There is none.
    pub no_cluster: bool,
    /// It may use keys of several slots of a cluster.
    pub allow_cross_slot_keys: bool,
}

impl ScriptFlags {
    /// Sets the flag of this name; false if there is none.
    pub fn set(&mut self, name: &str) -> bool {
        match name {
            "no-writes" => self.no_writes = true,
            "allow-oom" => self.allow_oom = true,
            "allow-stale" => self.allow_stale = true,
            "no-cluster" => self.no_cluster = true,
            "allow-cross-slot-keys" => self.allow_cross_slot_keys = true,
            _ => return false,
        }
        true
    }

    /// The names of those that are set.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            ("no-writes", self.no_writes),
            ("allow-oom", self.allow_oom),
            ("allow-stale", self.allow_stale),
            ("no-cluster", self.no_cluster),
            ("allow-cross-slot-keys", self.allow_cross_slot_keys),
        ];
        all.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }
}

/// Reads a script's first line; returns what it says, and where the rest of the script begins.
///
/// # Errors
/// The text says what is wrong with it.
pub fn parse(text: &[u8]) -> Result<(ScriptFlags, usize), String> {
    let mut flags = ScriptFlags::default();
    if !text.starts_with(b"#!") {
        return Ok((flags, 0));
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or("Invalid script shebang")?;
    flags.declared = true;
    let line = String::from_utf8_lossy(&text[..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("Unexpected engine in script shebang: {engine}"));
    }
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        if !names.is_empty() {
            for name in names.split(',') {
                if !flags.set(name) {
                    return Err(format!("Unexpected flag in script shebang: {name}"));
                }
            }
        }
    }
    Ok((flags, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_a_script_may_do() {
        assert_eq!(parse(b"return 1"), Ok((ScriptFlags::default(), 0)));
        let flags = ScriptFlags { declared: true, no_writes: true, allow_stale: true, ..ScriptFlags::default() };
        assert_eq!(flags.names(), ["no-writes", "allow-stale"]);
        assert_eq!(parse(b"#!lua flags=no-writes,allow-stale\nreturn 1"), Ok((flags, 33)));
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused("#!lua"), "Invalid script shebang");
        assert_eq!(refused("#!perl\n"), "Unexpected engine in script shebang: #!perl");
        assert_eq!(refused("#!lua flags=a\n"), "Unexpected flag in script shebang: a");
        assert_eq!(refused("#!lua name=a\n"), "Unknown lua shebang option: name=a");
    }
}

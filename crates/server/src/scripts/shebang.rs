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
            names.split(',').try_for_each(|name| set(&mut flags, name))?;
        }
    }
    Ok((flags, end))
}

fn set(flags: &mut ScriptFlags, name: &str) -> Result<(), String> {
    match name {
        "no-writes" => flags.no_writes = true,
        "allow-oom" => flags.allow_oom = true,
        // Without replicas and without a cluster these allow nothing that isn't allowed.
        "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
        other => return Err(format!("Unexpected flag in script shebang: {other}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_a_script_may_do() {
        assert_eq!(parse(b"return 1"), Ok((ScriptFlags::default(), 0)));
        let flags = ScriptFlags { declared: true, no_writes: true, allow_oom: false };
        assert_eq!(parse(b"#!lua flags=no-writes,allow-stale\nreturn 1"), Ok((flags, 33)));
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused("#!lua"), "Invalid script shebang");
        assert_eq!(refused("#!perl\n"), "Unexpected engine in script shebang: #!perl");
        assert_eq!(refused("#!lua flags=a\n"), "Unexpected flag in script shebang: a");
        assert_eq!(refused("#!lua name=a\n"), "Unknown lua shebang option: name=a");
    }
}

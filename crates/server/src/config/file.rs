//! Configuration files in Redis' syntax: a directive and its values a line, quotes as in inline commands, `#` begins
//! a comment, `include` reads another file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::foreign::{self, ForeignDirective};
use super::{Config, ConfigError, acl, table};
use crate::file_replacement;
use crate::resp::inline;

/// Files that may include each other in a chain.
const MAX_DEPTH: usize = 8;
/// Files that one may include, with all that these include.
const MAX_FILES: usize = 1000;

/// What a file and those that it includes have said besides settings.
#[derive(Default)]
struct Reading {
    /// How many files were read.
    files: usize,
    /// It has had a `save` line.
    has_save: bool,
    /// Directives that change nothing here.
    without_effect: BTreeSet<String>,
    /// Lines that would promise what is not kept, each with its place and the reason.
    refused: Vec<String>,
}

impl Config {
    /// Takes the settings of a file.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let mut reading = Reading::default();
        read(self, path, 0, &mut reading)?;
        self.end_reading(reading)?;
        self.file.path = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(())
    }

    /// Takes the settings of a file's text; `name` is for messages.
    pub fn apply_text(&mut self, text: &[u8], name: &str) -> Result<(), ConfigError> {
        let mut reading = Reading::default();
        apply(self, text, Path::new(name), MAX_DEPTH, &mut reading)?;
        self.end_reading(reading)
    }

    /// Takes lines that were given with the command that starts the server, each by its first word and the others; what a file has said
    /// before stays.
    pub fn apply_flags(&mut self, flags: &[(String, Vec<Vec<u8>>)]) -> Result<(), ConfigError> {
        let mut reading = Reading::default();
        for (name, values) in flags {
            apply_words(self, name, values, &Place { file: Path::new("--"), line: None, depth: 0 }, &mut reading)?;
        }
        reading.without_effect.extend(self.file.without_effect.drain(..));
        self.end_reading(reading)
    }

    /// All lines that are refused are told together.
    fn end_reading(&mut self, reading: Reading) -> Result<(), ConfigError> {
        self.file.without_effect = reading.without_effect.into_iter().collect();
        if reading.refused.is_empty() { Ok(()) } else { Err(ConfigError::Refused { lines: reading.refused }) }
    }

    /// Writes the current settings into a file, as [`Config::rewritten`] has it. The file is durable when this returns.
    pub fn rewrite(&self, path: &Path) -> io::Result<()> {
        self.rewrite_by(path, file_replacement::sync_directory)
    }

    /// The same; `sync_directory` makes the names in a directory durable.
    fn rewrite_by(&self, path: &Path, sync_directory: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let text = std::fs::read(path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(error),
        })?;
        file_replacement::replace(path, &self.rewritten(&text), sync_directory)
    }

    /// `text` with the current settings put in: lines of known directives are replaced in place, settings that
    /// differ from their default are added behind, comments stay.
    pub fn rewritten(&self, text: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut written = BTreeSet::new();
        let mut users = Some(self.acl.users.iter().map(|user| user_line(user)));
        for line in lines_of(text) {
            if is_user(line) {
                // All stand where the first one stood.
                lines.extend(users.take().into_iter().flatten());
                continue;
            }
            match directive_of(line) {
                Some(directive) => {
                    if written.insert(directive.name) {
                        lines.push(directive_line(self, directive));
                    }
                }
                None => lines.push(line.to_vec()),
            }
        }
        let defaults = Config::default();
        for directive in table::directives() {
            if directive.get(self) != directive.get(&defaults) && !written.contains(directive.name) {
                lines.push(directive_line(self, directive));
            }
        }
        lines.extend(users.into_iter().flatten());
        lines.push(Vec::new());
        lines.join(&b'\n')
    }
}

fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"#")
}

/// Whether a line declares a user.
fn is_user(line: &[u8]) -> bool {
    let first = |words: Vec<Vec<u8>>| words.first().is_some_and(|word| word.eq_ignore_ascii_case(acl::USER.as_bytes()));
    !is_comment(line) && inline::words(line).is_ok_and(first)
}

/// The line that declares a user by its name and rules.
fn user_line(words: &[Vec<u8>]) -> Vec<u8> {
    let mut line = acl::USER.as_bytes().to_vec();
    for word in words {
        line.push(b' ');
        if !word.is_empty() && word.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'')) {
            line.extend_from_slice(word);
        } else {
            inline::quote(word, &mut line);
        }
    }
    line
}

/// The directive that a line sets.
fn directive_of(line: &[u8]) -> Option<&'static table::Directive> {
    if is_comment(line) {
        return None;
    }
    table::find(std::str::from_utf8(inline::words(line).ok()?.first()?).ok()?)
}

fn directive_line(config: &Config, directive: &table::Directive) -> Vec<u8> {
    let value = directive.get(config);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./: ".contains(byte);
    let mut line = [directive.name.as_bytes(), b" "].concat();
    if !value.is_empty() && value.iter().all(plain) && (directive.is_list() || !value.contains(&b' ')) {
        line.extend_from_slice(&value);
    } else {
        inline::quote(&value, &mut line);
    }
    line
}

/// The files that a file includes by a name, or those that match a pattern, which may be none, by their names' order.
fn included_files(path: &Path, name: &[u8]) -> Result<Vec<PathBuf>, String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if !name.iter().any(|byte| b"*?[".contains(byte)) {
        return Ok(vec![folder.join(OsStr::from_bytes(name))]);
    }
    let unreadable = || "a pattern of files must be UTF-8".to_owned();
    let mut name = std::str::from_utf8(name).map_err(|_| unreadable())?.to_owned();
    while name.contains("**") {
        // As the C library's `glob`, where two stars are one. This crate's would go through folders below.
        name = name.replace("**", "*");
    }
    let pattern = Path::new(&name);
    let folder = glob::Pattern::escape(folder.to_str().ok_or_else(unreadable)?);
    let pattern = Path::new(&folder).join(pattern);
    // As there, a star neither crosses folders nor finds hidden files.
    let options =
        glob::MatchOptions { require_literal_separator: true, require_literal_leading_dot: true, ..Default::default() };
    let found =
        glob::glob_with(pattern.to_str().ok_or_else(unreadable)?, options).map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    for file in found {
        let file = file.map_err(|error| error.to_string())?;
        if !file.is_dir() {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(too_many_files());
        }
    }
    files.sort();
    Ok(files)
}

fn too_many_files() -> String {
    format!("more than {MAX_FILES} files are included")
}

fn read(config: &mut Config, path: &Path, depth: usize, reading: &mut Reading) -> Result<(), ConfigError> {
    let failed = |reason| ConfigError::File { file: path.display().to_string(), reason };
    reading.files += 1;
    if reading.files > MAX_FILES {
        return Err(failed(too_many_files()));
    }
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    apply(config, &text, path, depth, reading)
}

/// Where the words of a setting stand.
struct Place<'a> {
    file: &'a Path,
    /// Counted from 1; none for a flag.
    line: Option<usize>,
    /// Files that include this one.
    depth: usize,
}

impl Place<'_> {
    fn failed(&self, name: &str, reason: String) -> ConfigError {
        match self.line {
            Some(line) => ConfigError::Line { file: self.file.display().to_string(), line, reason },
            None => ConfigError::Flag { name: name.to_owned(), reason },
        }
    }
}

fn apply(
    config: &mut Config,
    text: &[u8],
    path: &Path,
    depth: usize,
    reading: &mut Reading,
) -> Result<(), ConfigError> {
    for (index, line) in lines_of(text).enumerate() {
        let place = Place { file: path, line: Some(index + 1), depth };
        if is_comment(line) {
            continue;
        }
        if line.contains(&0) {
            // The rest of the line would be lost.
            return Err(place.failed("", "a NUL byte; inside quotes it is written \\x00".to_owned()));
        }
        let words = inline::words(line).map_err(|_| place.failed("", "unbalanced quotes".to_owned()))?;
        let Some((name, values)) = words.split_first() else { continue };
        apply_words(config, &String::from_utf8_lossy(name), values, &place, reading)?;
    }
    Ok(())
}

/// Takes the words of one line.
fn apply_words(
    config: &mut Config,
    name: &str,
    values: &[Vec<u8>],
    place: &Place<'_>,
    reading: &mut Reading,
) -> Result<(), ConfigError> {
    let failed = |reason: String| place.failed(name, reason);
    if values.is_empty() {
        return Err(failed(format!("directive '{name}' has no value")));
    }
    if name.eq_ignore_ascii_case("include") {
        if place.depth >= MAX_DEPTH {
            return Err(failed("too many files include each other".to_owned()));
        }
        for included in included_files(place.file, &values[0]).map_err(failed)? {
            read(config, &included, place.depth + 1, reading)?;
        }
        return Ok(());
    }
    if name.eq_ignore_ascii_case(acl::USER) {
        return config.acl.declare(values).map_err(failed);
    }
    let mut value = values.join(&b' ');
    // Several save lines add up, the first one replaces the default.
    if name.eq_ignore_ascii_case("save") && !value.is_empty() && std::mem::replace(&mut reading.has_save, true) {
        value = [super::value::save_rules_text(&config.save).as_bytes(), b" ", &value].concat();
    }
    match foreign_line(&name.to_ascii_lowercase(), &String::from_utf8_lossy(&value)) {
        Some(ForeignDirective::NoEffect) => {
            reading.without_effect.insert(name.to_ascii_lowercase());
            return Ok(());
        }
        Some(ForeignDirective::Refused(reason)) => {
            let at = place.line.map_or("--".to_owned(), |line| format!("{}, line {line}: ", place.file.display()));
            // The rest of the line may hold a password.
            reading.refused.push(format!("{at}{} ({reason})", name.to_ascii_lowercase()));
            return Ok(());
        }
        None => {}
    }
    config.set_bytes(name, &value).map_err(|error| failed(error.to_string()))
}

/// What is done with a line that the table of directives does not decide.
pub fn foreign_line(name: &str, value: &str) -> Option<ForeignDirective> {
    match table::find(name) {
        None => foreign::find(name, value),
        Some(directive) => foreign::is_taken_as_default(directive.name, value).then_some(ForeignDirective::NoEffect),
    }
}

#[cfg(test)]
mod tests {
    use quire_store::hash;

    use super::*;

    #[test]
    fn a_file_sets_directives() {
        let mut config = Config::default();
        let text = "# comment\n\nport 7000\nrequirepass \"a b\\\"c\"\nsave 60 1\nsave 10 5\n  timeout 3\nhash-max-ziplist-entries 7\n";
        config.apply_text(text.as_bytes(), "x.conf").unwrap();
        assert_eq!((config.port, config.requirepass.as_slice(), config.timeout_s), (7000, &b"a b\"c"[..], 3));
        assert_eq!(
            (config.save.len(), config.save[0].seconds, config.limits.get(&hash::MAX_PACKED_FIELDS)),
            (2, 60, 7)
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = Config::default().apply_text(b"port 1\nprot 2\n", "x.conf").unwrap_err();
        assert_eq!(error.to_string(), "x.conf, line 2: unknown directive 'prot'; did you mean 'port'?");
        assert!(Config::default().apply_text(b"port\n", "x.conf").unwrap_err().to_string().contains("no value"));
        assert!(Config::default().apply_text(b"port \"1\n", "x.conf").unwrap_err().to_string().contains("quotes"));
    }

    #[test]
    fn directives_that_change_nothing_here_are_taken_and_named() {
        let mut config = Config::default();
        let text = "daemonize yes\nsupervised systemd\nport 7000\nRepl-Diskless-Sync yes\nrdbchecksum yes\nrdbchecksum no\n\
                    cluster-enabled no\nio-threads 4\n# loadmodule x.so\n";
        config.apply_text(text.as_bytes(), "redis.conf").unwrap();
        assert_eq!((config.port, config.io_threads), (7000, 1));
        let named = ["cluster-enabled", "daemonize", "io-threads", "rdbchecksum", "repl-diskless-sync", "supervised"];
        assert_eq!(config.file.without_effect, named);
        // CONFIG REWRITE keeps the lines that it does not know.
        let again = String::from_utf8(config.rewritten(text.as_bytes())).unwrap();
        assert!(again.contains("rdbchecksum no\n") && again.contains("Repl-Diskless-Sync yes\n"), "{again}");
        config.apply_text(b"port 7001\n", "quire.conf").unwrap();
        assert!(config.file.without_effect.is_empty());
    }

    #[test]
    fn lines_that_promise_what_is_not_kept_are_refused_together() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.conf"), dir.path().join("b.conf"));
        std::fs::write(&a, "port 7000\ncluster-enabled yes\ninclude b.conf\nrename-command CONFIG secret\n").unwrap();
        std::fs::write(&b, "\nloadmodule /x.so word\nreplicaof 10.0.0.1 6379\n").unwrap();
        let error = Config::default().apply_file(&a).unwrap_err().to_string();
        let (a, b) = (a.display(), b.display());
        let expected = [
            format!("{a}, line 2: cluster-enabled (there is no cluster)"),
            format!("{b}, line 2: loadmodule (there are no modules)"),
            format!("{b}, line 3: replicaof (there is no replication)"),
            format!("{a}, line 4: rename-command (commands keep their names)"),
        ];
        assert_eq!(
            error,
            format!(
                "these lines ask for what this server does not do; remove them to start without it: {}",
                expected.join("; ")
            )
        );
        // A line that can't be read is told first.
        assert!(Config::default().apply_text(b"loadmodule x\nprot 1\n", "x").unwrap_err().to_string().contains("prot"));
    }

    #[test]
    fn rewriting_keeps_comments_and_reads_back() {
        let mut config = Config::default();
        config.set("save", "").unwrap();
        config.set("requirepass", "p\"w d").unwrap();
        config.set("port", "7001").unwrap();
        let text = config.rewritten(b"# mine: \xe9\nport 1\nport 2\n");
        assert!(text.starts_with(b"# mine: \xe9\nport 7001\n"), "{text:?}");
        let mut again = Config::default();
        again.apply_text(&text, "x.conf").unwrap();
        assert_eq!((again.save.len(), again.requirepass.as_slice(), again.port), (0, &b"p\"w d"[..], 7001));
    }

    #[test]
    fn values_of_any_bytes_survive_a_rewritten_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.conf");
        let all: Vec<u8> = (0..=255).collect();
        let passwords =
            [&b"\0"[..], b"a\nport 1\n", b"\"", b"'", b"\\", b"#", b" ", b"\xff\xfe", b"\\x00", b"\r", &all];
        for password in passwords {
            for before in [&b"# mine\n"[..], b"requirepass old", b"port 5\nrequirepass \"o l d\"\n# end"] {
                std::fs::write(&file, before).unwrap();
                let mut config = Config::default();
                config.set_bytes("requirepass", password).unwrap();
                config.set("dir", "/tmp/a \"b\" \u{e9}\n").unwrap();
                config.set("save", "").unwrap();
                config.rewrite(&file).unwrap();
                let mut again = Config::default();
                again.apply_file(&file).unwrap();
                for directive in table::directives().filter(|directive| directive.name != "port") {
                    assert_eq!(directive.get(&again), directive.get(&config), "{} {password:?}", directive.name);
                }
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing lies beside it");
            }
        }
    }

    #[test]
    fn a_rewritten_file_is_there_before_its_directory_is_synced_and_a_failure_of_that_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().canonicalize().unwrap().join("a.conf");
        std::fs::write(&file, "port 1\n").unwrap();
        let mut config = Config::default();
        config.set("port", "7006").unwrap();
        let mut synced = None;
        let failed = config.rewrite_by(&file, |directory| {
            synced = Some((directory.to_owned(), std::fs::read_to_string(&file)?));
            Err(io::Error::other("no power"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no power");
        assert_eq!(synced, Some((file.parent().unwrap().to_owned(), "port 7006\n".to_owned())));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing lies beside it");
        // What syncs directories elsewhere fails where there is none.
        file_replacement::sync_directory(dir.path()).unwrap();
        assert_eq!(
            file_replacement::sync_directory(&file.join("none")).unwrap_err().kind(),
            io::ErrorKind::NotADirectory
        );
    }

    #[test]
    fn a_bare_nul_in_a_file_is_refused() {
        let error = Config::default().apply_text(b"requirepass a\0b\n", "x.conf").unwrap_err();
        assert_eq!(error.to_string(), "x.conf, line 1: a NUL byte; inside quotes it is written \\x00");
    }

    #[test]
    fn rewriting_keeps_permissions_and_links() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.conf"), dir.path().join("link.conf"));
        std::fs::write(&file, "# mine\nport 1\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut config = Config::default();
        config.set("port", "7005").unwrap();
        config.rewrite(&link).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# mine\nport 7005\n");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn files_include_files_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.conf"), dir.path().join("b.conf"));
        std::fs::write(&a, "include b.conf\nport 7002\n").unwrap();
        std::fs::write(&b, "timeout 9\n").unwrap();
        let mut config = Config::default();
        config.apply_file(&a).unwrap();
        assert_eq!((config.port, config.timeout_s), (7002, 9));
        std::fs::write(&b, "include a.conf\n").unwrap();
        assert!(config.apply_file(&a).unwrap_err().to_string().contains("include"));
    }

    #[test]
    fn a_pattern_includes_files_in_the_order_of_their_names_and_may_find_none() {
        let dir = tempfile::tempdir().unwrap();
        // What the pattern's own folder is called is no pattern.
        let folder = dir.path().join("conf[1].d");
        std::fs::create_dir_all(folder.join("c.conf")).unwrap();
        std::fs::write(folder.join("b.conf"), "port 7002\ntimeout 9\n").unwrap();
        std::fs::write(folder.join("a.conf"), "port 7001\n").unwrap();
        std::fs::write(folder.join(".z.conf"), "port 7003\n").unwrap();
        let main = folder.join("main");
        std::fs::write(&main, "include *.conf\ninclude none/*.conf\ninclude ?.none\n").unwrap();
        let mut config = Config::default();
        config.apply_file(&main).unwrap();
        assert_eq!((config.port, config.timeout_s), (7002, 9));
        std::fs::write(&main, "include none.conf\n").unwrap();
        assert!(config.apply_file(&main).unwrap_err().to_string().contains("none.conf"));
        std::fs::write(folder.join("c.conf/deep.conf"), "port 7004\n").unwrap();
        for pattern in ["**.conf", "***/*.conf"] {
            std::fs::write(&main, format!("include {pattern}\n")).unwrap();
            config.apply_file(&main).unwrap();
        }
        assert_eq!((config.port, config.timeout_s), (7004, 9), "one folder below, by the second one");
        std::fs::write(&main, "include [\n").unwrap();
        assert!(config.apply_file(&main).unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn files_that_include_each_other_by_patterns_come_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.conf"), "include *.conf\n").unwrap();
        let read = || Config::default().apply_file(&dir.path().join("a.conf")).unwrap_err().to_string();
        assert!(read().contains("too many files include each other"));
        // No chain is long, but there are many.
        std::fs::write(dir.path().join("a.conf"), "include b*\n").unwrap();
        for number in 0..40 {
            std::fs::write(dir.path().join(format!("b{number}")), "include c*\n").unwrap();
            std::fs::write(dir.path().join(format!("c{number}")), "include d\n").unwrap();
        }
        std::fs::write(dir.path().join("d"), "port 7001\n").unwrap();
        assert!(read().contains("more than 1000 files"));
    }
}

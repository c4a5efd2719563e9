//! Configuration files in Redis' syntax: a directive and its values a line, quotes as in inline commands, `#` begins
//! a comment, `include` reads another file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{Config, ConfigError, table};
use crate::resp::inline;

/// Files that may include each other in a chain.
const MAX_DEPTH: usize = 8;

impl Config {
    /// Takes the settings of a file.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        read(self, path, 0, &mut BTreeSet::new())?;
        self.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(())
    }

    /// Takes the settings of a file's text; `name` is for messages.
    pub fn apply_text(&mut self, text: &str, name: &str) -> Result<(), ConfigError> {
        apply(self, text, Path::new(name), MAX_DEPTH, &mut BTreeSet::new())
    }

    /// Writes the current settings into a file, as [`Config::rewritten`] has it.
    pub fn rewrite(&self, path: &Path) -> io::Result<()> {
        // What a link names is rewritten, the link stays.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let text = std::fs::read_to_string(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        // Beside the file and then over it, so that a crash leaves one of the two. It may hold a password, so nobody else
        // may read it before it has the permissions of the one that it replaces.
        let mut beside = path.clone().into_os_string();
        beside.push(format!(".tmp-{}", std::process::id()));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        let written = file.write_all(self.rewritten(&text).as_bytes()).and_then(|()| {
            if let Ok(meta) = std::fs::metadata(&path) {
                file.set_permissions(meta.permissions())?;
            }
            file.sync_all()?;
            std::fs::rename(&beside, &path)
        });
        if written.is_err() {
            // What is left of it is of no use to anybody.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }

    /// `text` with the current settings put in: lines of known directives are replaced in place, settings that
    /// differ from their default are added behind, comments stay.
    pub fn rewritten(&self, text: &str) -> String {
        let mut lines = Vec::new();
        let mut written = BTreeSet::new();
        for line in text.lines() {
            let name = inline::words(line).ok().and_then(|words| words.first().cloned()).unwrap_or_default();
            match table::find(&name) {
                Some(directive) if !line.trim_start().starts_with('#') => {
                    if written.insert(directive.name) {
                        lines.push(directive_line(self, directive));
                    }
                }
                _ => lines.push(line.to_owned()),
            }
        }
        let defaults = Config::default();
        for directive in table::DIRECTIVES {
            if (directive.get)(self) != (directive.get)(&defaults) && !written.contains(directive.name) {
                lines.push(directive_line(self, directive));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

fn directive_line(config: &Config, directive: &table::Directive) -> String {
    let text = (directive.get)(config);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./: ".contains(c);
    let spaced_list = matches!(directive.name, "save" | "bind" | "client-output-buffer-limit");
    if !text.is_empty() && text.chars().all(plain) && (spaced_list || !text.contains(' ')) {
        return format!("{} {text}", directive.name);
    }
    format!("{} \"{}\"", directive.name, text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn read(config: &mut Config, path: &Path, depth: usize, seen: &mut BTreeSet<&'static str>) -> Result<(), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::File { file: path.display().to_string(), reason: error.to_string() })?;
    apply(config, &text, path, depth, seen)
}

fn apply(
    config: &mut Config,
    text: &str,
    path: &Path,
    depth: usize,
    seen: &mut BTreeSet<&'static str>,
) -> Result<(), ConfigError> {
    for (index, line) in text.lines().enumerate() {
        let failed = |reason: String| ConfigError::Line { file: path.display().to_string(), line: index + 1, reason };
        if line.trim_start().starts_with('#') {
            continue;
        }
        let words = inline::words(line).map_err(|_| failed("unbalanced quotes".to_owned()))?;
        let Some((name, values)) = words.split_first() else { continue };
        if values.is_empty() {
            return Err(failed(format!("directive '{name}' has no value")));
        }
        if name.eq_ignore_ascii_case("include") {
            if depth >= MAX_DEPTH {
                return Err(failed("too many files include each other".to_owned()));
            }
            read(config, &path.parent().unwrap_or(Path::new(".")).join(&values[0]), depth + 1, seen)?;
            continue;
        }
        let mut value = values.join(" ");
        // Several save lines add up, the first one replaces the default.
        if name.eq_ignore_ascii_case("save") && !value.is_empty() && !seen.insert("save") {
            value = format!("{} {value}", super::value::save_rules_text(&config.save));
        }
        config.set(name, &value).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_sets_directives() {
        let mut config = Config::default();
        let text = "# comment\n\nport 7000\nrequirepass \"a b\\\"c\"\nsave 60 1\nsave 10 5\n  timeout 3\nhash-max-ziplist-entries 7\n";
        config.apply_text(text, "x.conf").unwrap();
        assert_eq!((config.port, config.requirepass.as_str(), config.timeout_s), (7000, "a b\"c", 3));
        assert_eq!((config.save.len(), config.save[0].seconds, config.hash_max_packed_entries), (2, 60, 7));
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = Config::default().apply_text("port 1\nprot 2\n", "x.conf").unwrap_err();
        assert_eq!(error.to_string(), "x.conf, line 2: unknown directive 'prot'; did you mean 'port'?");
        assert!(Config::default().apply_text("port\n", "x.conf").unwrap_err().to_string().contains("no value"));
        assert!(Config::default().apply_text("port \"1\n", "x.conf").unwrap_err().to_string().contains("quotes"));
    }

    #[test]
    fn rewriting_keeps_comments_and_reads_back() {
        let mut config = Config::default();
        config.set("save", "").unwrap();
        config.set("requirepass", "p\"w d").unwrap();
        config.set("port", "7001").unwrap();
        let text = config.rewritten("# mine\nport 1\nport 2\n");
        assert!(text.starts_with("# mine\nport 7001\n"), "{text}");
        let mut again = Config::default();
        again.apply_text(&text, "x.conf").unwrap();
        assert_eq!((again.save.len(), again.requirepass.as_str(), again.port), (0, "p\"w d", 7001));
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
}

//! Which files make up the data: those that the manifest in Redis's `appendonlydir` names, or the one that the user does.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::resp::inline;

/// How the name of a manifest ends.
const SUFFIX: &str = ".manifest";
/// Largest manifest that is read.
const MOST_BYTES: u64 = 16 << 20;

/// A file that a manifest names.
#[derive(Clone, PartialEq, Eq, Debug)]
struct NamedFile {
    name: String,
    sequence: u64,
    kind: u8,
}

/// The files behind a path, in the order in which they are to be read: a directory with a manifest, the manifest, or a single file.
///
/// # Errors
/// In words for people: there is none, several, or one that is malformed.
pub fn files_at(path: &Path) -> Result<Vec<PathBuf>, String> {
    let manifest = if path.is_dir() {
        manifest_in(path)?
    } else if path.to_string_lossy().ends_with(SUFFIX) {
        path.to_owned()
    } else {
        return Ok(vec![path.to_owned()]);
    };
    let shown = manifest.display();
    let cannot = |error| format!("{shown}: {error}");
    let mut text = Vec::new();
    fs::File::open(&manifest).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut text)).map_err(cannot)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("{shown} is no manifest: it is too long"));
    }
    let names = parse(&text).map_err(|error| format!("{shown}, {error}"))?;
    let dir = manifest.parent().unwrap_or(Path::new(""));
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn manifest_in(dir: &Path) -> Result<PathBuf, String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.to_string_lossy().ends_with(SUFFIX) {
            found.push(path);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(format!(
            "{0} has no manifest (such as {0}/appendonly.aof.manifest): name the directory of Redis's append-only files (appenddirname), or \
             a single file of them",
            dir.display()
        )),
        _ => Err(format!("{} has several manifests: name the one that counts", dir.display())),
    }
}

/// The files that a manifest names, the base first.
fn parse(text: &[u8]) -> Result<Vec<String>, String> {
    let (mut base, mut increments) = (None, Vec::new());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let file = parse_line(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        match file.kind {
            b'b' if base.is_none() => base = Some(file),
            b'b' => return Err(format!("line {}: a second base", number + 1)),
            b'i' => increments.push(file),
            // What is history is in the base.
            _ => {}
        }
    }
    if !increments.is_sorted_by(|one, next| one.sequence < next.sequence) {
        return Err("the incremental files are not in order".to_owned());
    }
    let names: Vec<String> = base.into_iter().chain(increments).map(|file| file.name).collect();
    if names.is_empty() { Err("no file is named".to_owned()) } else { Ok(names) }
}

fn parse_line(line: &[u8]) -> Result<NamedFile, String> {
    let words = inline::words(line).map_err(|_| "unbalanced quotes")?;
    let (mut name, mut sequence, mut kind) = (None, None, None);
    for pair in words.chunks(2) {
        let [key, value] = pair else { return Err("a word without a value".to_owned()) };
        let value = std::str::from_utf8(value).map_err(|_| "a name that is no text")?;
        match key.to_ascii_lowercase().as_slice() {
            b"file" => name = Some(value),
            b"seq" => sequence = value.parse().ok(),
            b"type" => kind = value.bytes().next().filter(|kind| value.len() == 1 && b"bih".contains(kind)),
            // What later versions may add.
            _ => {}
        }
    }
    let name = name.filter(|name| !name.is_empty() && *name != ".." && !name.contains('/'));
    match (name, sequence, kind) {
        (Some(name), Some(sequence), Some(kind)) => Ok(NamedFile { name: name.to_owned(), sequence, kind }),
        _ => Err("it names no file of the same directory with a number and a type".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_comes_first_and_history_not_at_all() {
        let text = b"# a comment\nfile a.aof.1.incr.aof seq 1 type h\nfile a.aof.2.incr.aof seq 2 type i\n\
            file \"a b.base.rdb\" seq 2 type b\nfile a.aof.3.incr.aof seq 3 type i startoffset 7\n";
        assert_eq!(parse(text).unwrap(), ["a b.base.rdb", "a.aof.2.incr.aof", "a.aof.3.incr.aof"]);
    }

    #[test]
    fn manifests_that_name_no_files_or_others_are_refused() {
        for (text, error) in [
            (&b""[..], "no file is named"),
            (b"file ../x seq 1 type b\n", "line 1: it names no file of the same directory with a number and a type"),
            (b"file x seq a type b\n", "line 1: it names no file of the same directory with a number and a type"),
            (b"file x seq 1 type bi\n", "line 1: it names no file of the same directory with a number and a type"),
            (b"file x seq 1 type b\nfile y seq 1 type b\n", "line 2: a second base"),
            (b"file x seq 2 type i\nfile y seq 1 type i\n", "the incremental files are not in order"),
            (b"file 'x seq 1 type b\n", "line 1: unbalanced quotes"),
            (b"file x seq\n", "line 1: a word without a value"),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_directory_has_one_manifest_and_a_file_is_itself() {
        let dir = tempfile::tempdir().unwrap();
        assert!(files_at(dir.path()).unwrap_err().contains("has no manifest"));
        let manifest = dir.path().join("appendonly.aof.manifest");
        fs::write(&manifest, "file x seq 1 type b\n").unwrap();
        let file = dir.path().join("x");
        for path in [dir.path(), &manifest, &file] {
            assert_eq!(files_at(path).unwrap(), std::slice::from_ref(&file));
        }
        fs::write(dir.path().join("other.manifest"), "").unwrap();
        assert!(files_at(dir.path()).unwrap_err().contains("several"));
        fs::File::create(&manifest).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(files_at(&manifest).unwrap_err().contains("too long"));
    }
}

//! The sources of the workspace and the documents; the text of Rust sources without comments and strings.
//!
//! Relies on Rust sources lying under `crates`, `fuzz` and `xtask`; build outputs and hidden folders are left out.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold sources.
pub const FOLDERS: &[&str] = &["crates", "fuzz", "xtask"];

/// Every `.rs` file, sorted.
pub fn rust_files() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        if Path::new(folder).is_dir() {
            collect(Path::new(folder), ".rs", &mut files)?;
        }
    }
    files.sort();
    Ok(files)
}

/// Every `.py`, `.c` and `.h` file, sorted: those of the tests and examples, and those beside the Rust sources.
pub fn other_files() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in FOLDERS.iter().chain(&["tests", "examples"]).filter(|folder| Path::new(folder).is_dir()) {
        for ending in [".py", ".c", ".h"] {
            collect(Path::new(folder), ending, &mut files)?;
        }
    }
    files.sort();
    Ok(files)
}

/// Every document, sorted: those at the top, under `docs` and beside the sources.
pub fn documents() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(".").context("listing the top folder")? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|extension| extension == "md") {
            files.push(name);
        }
    }
    for folder in FOLDERS.iter().chain(&["docs"]) {
        if Path::new(folder).is_dir() {
            collect(Path::new(folder), ".md", &mut files)?;
        }
    }
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, ending: &str, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !matches!(name, "target" | "corpus" | "artifacts" | "proptest-regressions") {
                collect(&path, ending, files)?;
            }
        } else if name.ends_with(ending) {
            files.push(path);
        }
    }
    Ok(())
}

/// The text with comments, strings and character literals blanked, line for line and byte for byte as long as before.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skipped_until(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).unwrap_or_default()
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn skipped_until(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest[0] == b'r' && (!in_word || bytes[at - 1] == b'b') {
        let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            return raw_string_end(bytes, at + 2 + hashes, hashes);
        }
    }
    match rest[0] {
        b'"' => quoted_end(bytes, at, b'"'),
        b'\'' if is_char_literal(rest) => quoted_end(bytes, at, b'\''),
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        if bytes[end..].starts_with(b"/*") {
            (depth, end) = (depth + 1, end + 2);
        } else if bytes[end..].starts_with(b"*/") {
            (depth, end) = (depth - 1, end + 2);
            if depth == 0 {
                break;
            }
        } else {
            end += 1;
        }
    }
    end.min(bytes.len())
}

fn raw_string_end(bytes: &[u8], from: usize, hashes: usize) -> usize {
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let found = bytes[from..].windows(close.len()).position(|window| window == close);
    found.map_or(bytes.len(), |position| from + position + close.len())
}

fn quoted_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Tells `'x'` from the lifetime `'x`.
fn is_char_literal(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(first) => {
            let width = if *first < 0x80 { 1 } else { first.leading_ones() as usize };
            rest.get(1 + width) == Some(&b'\'')
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_kept() {
        let text = "let a = \"unsafe // x\"; // unsafe\nlet b: &'a u8 = b'\\''; /* unsafe /* n */ */ c(r#\"q\"u\"#)";
        let code = code_only(text);
        assert!(!code.contains("unsafe") && code.len() == text.len());
        assert!(code.contains("let a =") && code.contains("&'a u8") && code.contains("c("), "{code}");
        assert!(!code.contains('q'));
    }
}

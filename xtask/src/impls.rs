//! Where a type's `impl` blocks are, and whether a `match` names every type and encoding of values.
//!
//! Relies on text from [`crate::sources::code_only`], in which comments and strings are blanks.

use std::collections::{BTreeMap, BTreeSet};

/// Most files with an `impl` of one type. A type with more is several things.
const MOST_FILES: usize = 5;
/// Folders in which a `match` over types or encodings of values has no arm for "all others": a new one must be thought of
/// wherever it matters.
const EXHAUSTIVE: &[&str] = &["crates/store/src/", "crates/server/src/"];

/// The files that have an `impl` of each type of each crate.
#[derive(Default)]
pub struct Impls(BTreeMap<(String, String), BTreeSet<String>>);

impl Impls {
    /// Notes a file's.
    pub fn add(&mut self, name: &str, code: &str) {
        let Some((folder, _)) = name.split_once("/src/") else { return };
        for header in code.split('\n').filter(|line| line.starts_with("impl")) {
            if let Some(item) = type_of(header) {
                self.0.entry((format!("{folder}/"), item.to_owned())).or_default().insert(name.to_owned());
            }
        }
    }

    /// Types that are spread over too many files.
    pub fn faults(&self) -> Vec<String> {
        let spread = self.0.iter().filter(|(_, files)| files.len() > MOST_FILES);
        spread
            .map(|((folder, item), files)| {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                format!(
                    "{folder}: {item} has impl blocks in {} files; cut it at a noun: {}",
                    files.len(),
                    files.join(", ")
                )
            })
            .collect()
    }
}

/// The type that a line which begins with `impl` is about.
fn type_of(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut nested = 0_i32;
        let end = rest.char_indices().find(|&(at, letter)| {
            // The arrow of a function's type closes nothing.
            let arrow = letter == '>' && rest[..at].ends_with('-');
            nested += i32::from(letter == '<') - i32::from(letter == '>' && !arrow);
            nested == 0
        });
        rest = &rest[end?.0 + 1..];
    }
    let item = rest.rsplit(" for ").next()?.trim_start();
    let end =
        item.find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':').unwrap_or(item.len());
    item[..end].rsplit("::").next().filter(|name| !name.is_empty())
}

/// Arms for "all others" in a `match` over types or encodings, and tests for one of them alone.
pub fn wildcards(name: &str, code: &str) -> Vec<String> {
    if !EXHAUSTIVE.iter().any(|folder| name.starts_with(folder)) {
        return Vec::new();
    }
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or(code);
    let mut faults = Vec::new();
    for (at, _) in code.match_indices("match ") {
        let apart = !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let Some(body) = apart.then(|| body(&code[at..])).flatten() else { continue };
        let patterns = patterns(body);
        let about = patterns.iter().any(|pattern| names_variant(pattern));
        if let Some(other) = patterns.iter().find(|pattern| about && takes_all(pattern)) {
            let line = code[..at].matches('\n').count() + 1;
            faults.push(format!("{name}:{line}: a match over types or encodings with an arm for all others: {other}"));
        }
    }
    for (index, line) in code.lines().enumerate() {
        // Whether a value is of one type has the same answer whatever types come; what is done with an encoding has not.
        let asks = line.contains("== ") || line.contains("!= ") || line.contains("matches!(");
        if asks && line.contains("Encoding::") && names_variant(line) {
            faults.push(format!("{name}:{}: asks for one encoding; a match has them all", index + 1));
        }
    }
    faults
}

/// Whether a pattern, or what is compared, begins with a variant of `Kind` or of an encoding.
fn names_variant(text: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != ':').any(|word| {
        let Some((path, variant)) = word.rsplit_once("::") else { return false };
        let item = path.rsplit("::").next().unwrap_or(path);
        (item == "Kind" || item.ends_with("Encoding")) && variant.starts_with(char::is_uppercase) && variant != "ALL"
    })
}

/// Whether a pattern takes whatever the others leave.
fn takes_all(pattern: &str) -> bool {
    let name = pattern.split(" if ").next().unwrap_or(pattern).trim();
    name.starts_with(|letter: char| letter == '_' || letter.is_lowercase())
        && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// What is between the braces of the `match` that the text begins with.
fn body(text: &str) -> Option<&str> {
    let mut nested = 0_i32;
    let mut open = None;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' if nested == 0 && open.is_none() => open = Some(at + 1),
            '(' | '[' | '{' => nested += 1,
            '}' if nested == 0 => return open.map(|open| &text[open..at]),
            ')' | ']' | '}' => nested -= 1,
            ';' if open.is_none() => return None,
            _ => {}
        }
    }
    None
}

/// The patterns of a `match`.
fn patterns(body: &str) -> Vec<&str> {
    let (mut patterns, mut nested, mut start, mut in_pattern) = (Vec::new(), 0_i32, 0, true);
    for (at, letter) in body.char_indices() {
        match letter {
            '(' | '[' | '{' => nested += 1,
            ')' | ']' | '}' => {
                nested -= 1;
                // An arm that is a block needs no comma.
                if letter == '}' && nested == 0 && !in_pattern && body[at + 1..].starts_with('\n') {
                    (start, in_pattern) = (at + 1, true);
                }
            }
            ',' if nested == 0 && !in_pattern => (start, in_pattern) = (at + 1, true),
            '=' if nested == 0 && in_pattern && body[at..].starts_with("=>") => {
                patterns.push(body[start..at].trim());
                in_pattern = false;
            }
            _ => {}
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_in_more_than_five_files_of_a_crate_is_a_fault() {
        let mut impls = Impls::default();
        let headers = [
            "impl Store {}",
            "impl<'a> Store<'a> {}",
            "impl<F: Fn() -> u8> Debug for Store<F> {}",
            "impl crate::Store {}",
            "unsafe impl Send for Store {}\nimpl Store {}",
        ];
        for (index, header) in headers.iter().enumerate() {
            impls.add(&format!("crates/store/src/{index}.rs"), header);
            impls.add(&format!("crates/store/src/{index}.rs"), "impl Other {}");
            impls.add(&format!("crates/arena/src/{index}.rs"), header);
        }
        assert!(impls.faults().is_empty());
        impls.add("crates/store/src/sixth.rs", "impl From<Store> for Other {}");
        assert_eq!(impls.faults().len(), 1, "Other is in six files, Store in five: {:?}", impls.faults());
        assert!(impls.faults()[0].starts_with("crates/store/: Other has impl blocks in 6 files"));
    }

    #[test]
    fn a_match_over_kinds_or_encodings_has_no_arm_for_all_others() {
        let faults = |code: &str| wildcards("crates/store/src/a.rs", code).join("\n");
        let bad = "fn f() {\n    match kind {\n        Kind::Hash => 1,\n        _ => 2,\n    }\n}\n";
        assert_eq!(
            faults(bad),
            "crates/store/src/a.rs:2: a match over types or encodings with an arm for all others: _"
        );
        let bound = "match value.encoding()? {\n    Some(SetEncoding::Table) => {\n        f()\n    }\n    other if g() => h(other),\n}\n";
        assert!(faults(bound).contains("all others: other"), "{}", faults(bound));
        assert!(faults("if encoding == Encoding::TableHash {}\n").contains("asks for one"));
        assert!(
            faults("matches!(of, SetEncoding::Ints)\n").contains("asks for one")
                && faults("kind == Kind::Set\n").is_empty()
        );
        let fine = "match kind {\n    Kind::Hash | Kind::Set => match number {\n        1 => 2,\n        _ => 3,\n    },\n    Kind::String => 4,\n}\n";
        assert_eq!(faults(fine), "");
        assert_eq!(faults("match error.kind() {\n    io::ErrorKind::NotFound => 1,\n    _ => 2,\n}\n"), "");
        assert_eq!(faults("match raw {\n    1 => Ok(Encoding::String),\n    newer => Err(newer),\n}\n"), "");
        assert_eq!(wildcards("crates/cli/src/a.rs", bad), Vec::<String>::new());
    }
}

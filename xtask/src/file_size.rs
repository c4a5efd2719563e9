//! The sizes of files: a long one holds several nouns, and a short one has to be a noun.
//!
//! Relies on text from [`crate::sources::code_only`]. A short file is a noun
//! - if it declares a type, a constant or a table that bears its name, as `poison.rs` has `Poison`, or, when it is not very short, a function;
//! - if it is one of a family: other files of its folder export the same name (`SPECS`, `run`), or another folder of the crate
//!   has such a file (`limits.rs`);
//! - if the code elsewhere says its name: `varint::read`. A very short one is no noun by that alone.
//!
//! Heads of folders and of crates, and files that only name others, are tables of contents and may be short.

use std::collections::{BTreeMap, BTreeSet};

/// Most lines of a file of a crate's code, its tests aside: 500 are fine, and a line or two more cut no noun.
const MOST_LINES: usize = 520;
/// Most lines of any file: what tests have in common is written down once in each file of them.
const MOST_LINES_WITH_TESTS: usize = 600;
/// A file with fewer lines has to be a noun.
const LEAST_LINES: usize = 100;
/// With fewer than these, a function is none.
const FEW_LINES: usize = 40;
/// So many files of one folder that export the same name make a family.
const FAMILY: usize = 3;
/// Files that are nouns though their names do not show it, and why.
const NOUNS: &[&str] = &[
    // A reader and a writer of bytes: the methods are called so.
    "crates/snapshot/src/stream/bytes.rs",
    // What C calls the heap's functions.
    "crates/capi/src/mdc_heap.rs",
    // What tests of all crates say.
    "crates/sys/src/testing.rs",
    // The walk that proves a table sound; the operations of every type of values use it.
    "crates/store/src/table/check.rs",
    // What sets are combined by.
    "crates/store/src/value/set/algebra.rs",
    // Two families of commands; what they share is another one.
    "crates/server/src/cmd/blocking_lists.rs",
    "crates/server/src/cmd/blocking_zsets.rs",
    // Where an image lies that the user names, for the command and for copies.
    "crates/cli/src/image_path.rs",
    // The macro of this name.
    "crates/peers/src/functions.rs",
    // How the arguments of several families of commands name a range.
    "crates/server/src/cmd/range.rs",
    // The first line of a script, as Redis calls it.
    "crates/server/src/scripts/shebang.rs",
    // How C prints a number, for all libraries of scripts.
    "crates/lua/src/number_text.rs",
    // Whether this process is one: what hooks of all kinds ask first.
    "crates/preload/src/zread/unseen_child.rs",
    // The file that all trials of one size of the data use.
    "crates/bench/src/dbio/store_file.rs",
];

/// What a file declares.
struct Declared {
    lines: usize,
    /// Those before the module of its tests.
    lines_before_tests: usize,
    /// Types of any visibility, and constants and tables that others see.
    nouns: BTreeSet<String>,
    /// Functions that others see.
    functions: BTreeSet<String>,
    /// It declares nothing and only names other files.
    is_contents: bool,
    code: String,
}

/// The files of the workspace.
#[derive(Default)]
pub struct FileSizes(BTreeMap<String, Declared>);

impl FileSizes {
    /// Notes a file.
    pub fn add(&mut self, name: &str, code: &str) {
        let (mut nouns, mut functions) = (BTreeSet::new(), BTreeSet::new());
        for (kind, item, is_public) in code.lines().filter_map(declared) {
            match kind {
                "fn" if is_public => drop(functions.insert(item.to_owned())),
                "const" | "static" if is_public => drop(nouns.insert(item.to_owned())),
                "struct" | "enum" | "trait" | "union" | "type" => drop(nouns.insert(item.to_owned())),
                _ => {}
            }
        }
        let is_contents = !code.lines().any(|line| declared(line).is_some());
        let lines = code.lines().count();
        let before_tests = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        let lines_before_tests = code[..before_tests].lines().count();
        self.0.insert(
            name.to_owned(),
            Declared { lines, lines_before_tests, nouns, functions, is_contents, code: code.to_owned() },
        );
    }

    /// Files that are too long, and short ones that are no nouns.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, file) in &self.0 {
            if name.contains("/src/") && file.lines_before_tests > MOST_LINES {
                faults.push(format!("{name}:{MOST_LINES}: {} lines; cut it at a noun", file.lines_before_tests));
            } else if file.lines > MOST_LINES_WITH_TESTS {
                faults.push(format!("{name}:{MOST_LINES_WITH_TESTS}: {} lines; cut it at a noun", file.lines));
            }
            if file.lines < LEAST_LINES && !NOUNS.contains(&name.as_str()) && !self.is_noun(name, file) {
                faults.push(format!("{name}: {} lines and no noun; join it with what it belongs to", file.lines));
            }
        }
        faults
    }

    fn is_noun(&self, name: &str, file: &Declared) -> bool {
        let Some((_, inside)) = name.split_once("/src/") else { return true };
        let (folder, stem) = name.strip_suffix(".rs").and_then(|path| path.rsplit_once('/')).unwrap_or((name, ""));
        if inside.starts_with("bin/") || matches!(stem, "lib" | "main" | "mod") || file.is_contents {
            return true;
        }
        let bears_name = |items: &BTreeSet<String>| items.iter().any(|item| names_same(stem, item));
        let is_long_enough = file.lines >= FEW_LINES;
        bears_name(&file.nouns)
            || self.is_of_family(folder, stem, file)
            || is_long_enough && (bears_name(&file.functions) || self.is_said_elsewhere(name, stem, file))
    }

    fn is_of_family(&self, folder: &str, stem: &str, file: &Declared) -> bool {
        let siblings: Vec<&Declared> =
            self.0.iter().filter(|(name, _)| folder_of(name) == folder).map(|(_, file)| file).collect();
        let has = |file: &&&Declared, item: &String| file.nouns.contains(item) || file.functions.contains(item);
        let mut items = file.nouns.iter().chain(&file.functions);
        let crate_folder = folder.split("/src").next().unwrap_or(folder);
        let namesakes = self
            .0
            .keys()
            .filter(|name| name.starts_with(&format!("{crate_folder}/src/")) && name.ends_with(&format!("/{stem}.rs")));
        items.any(|item| siblings.iter().filter(|file| has(file, item)).count() >= FAMILY) || namesakes.count() > 1
    }

    fn is_said_elsewhere(&self, name: &str, stem: &str, file: &Declared) -> bool {
        let said: Vec<String> = file.functions.iter().map(|function| format!("{stem}::{function}(")).collect();
        let others = self.0.iter().filter(|(other, _)| *other != name);
        others.into_iter().any(|(_, other)| said.iter().any(|said| other.code.contains(said)))
    }
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// What a line declares: the kind, the name, and whether others see it.
fn declared(line: &str) -> Option<(&str, &str, bool)> {
    let is_public = line.trim_start().starts_with("pub");
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || word.ends_with(')') || matches!(*word, "unsafe" | "async" | "extern")
    });
    let mut kind = words.next()?;
    let mut rest = words.next()?;
    if kind == "const" && matches!(rest, "fn" | "unsafe") {
        kind = "fn";
        rest = words.find(|word| !matches!(*word, "fn" | "extern"))?;
    }
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    let is_item = matches!(kind, "fn" | "const" | "static" | "struct" | "enum" | "trait" | "union" | "type");
    // A type within a function or a trait is no noun of the file.
    let is_outer = kind == "fn" || !line.starts_with(' ');
    (is_item && is_outer && end > 0).then_some((kind, &rest[..end], is_public))
}

/// Whether an item bears a file's name: all words of one are in the other.
fn names_same(stem: &str, item: &str) -> bool {
    let (stem_words, item_words) = (words_of(stem), words_of(item));
    let same = |a: &String, b: &String| {
        let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
        short == long || long.starts_with(short.as_str()) && (short.len() >= 3 || long[short.len()..] == *"s")
    };
    let within = |some: &[String], all: &[String]| some.iter().all(|word| all.iter().any(|other| same(word, other)));
    within(&stem_words, &item_words) || within(&item_words, &stem_words) || stem_words.concat() == item_words.concat()
}

/// The words of `snake_case`, `CamelCase` or `UPPER_CASE`, in small letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut was_small = false;
    for letter in name.chars() {
        if letter == '_' {
            was_small = false;
            words.push(String::new());
            continue;
        }
        if words.is_empty() || letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = !letter.is_uppercase();
        words.last_mut().expect("there is a word").extend(letter.to_lowercase());
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, String)]) -> String {
        let mut sizes = FileSizes::default();
        files.iter().for_each(|(name, code)| sizes.add(name, code));
        sizes.faults().join("\n")
    }

    fn short(code: &str, lines: usize) -> String {
        format!("{code}\n{}", "// .\n".repeat(lines - code.lines().count()))
    }

    #[test]
    fn a_long_file_is_a_fault_and_one_of_tests_may_be_longer() {
        let fault = faults(&[("crates/pool/src/page.rs", short("struct Page;", 521))]);
        assert_eq!(fault, "crates/pool/src/page.rs:520: 521 lines; cut it at a noun");
        let with_tests =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", short("struct Page;", 520), "// .\n".repeat(70));
        assert_eq!(faults(&[("crates/pool/src/page.rs", with_tests.clone())]), "");
        assert!(faults(&[("crates/pool/src/page.rs", with_tests + &"\n".repeat(20))]).contains("613 lines"));
        let files = [
            ("crates/pool/src/page.rs", short("struct Page;", 520)),
            ("crates/pool/tests/a.rs", short("fn a() {}", 600)),
        ];
        assert_eq!(faults(&files), "");
        assert!(faults(&[("crates/pool/tests/a.rs", short("fn a() {}", 601))]).contains("601 lines"));
    }

    #[test]
    fn a_short_file_is_a_noun_if_a_type_or_a_table_or_a_longer_one_s_function_bears_its_name() {
        let is_noun = |stem: &str, code: &str, lines| {
            faults(&[(&format!("crates/pool/src/{stem}.rs"), short(code, lines))]).is_empty()
        };
        for code in ["pub struct SegmentPool;", "pub(crate) enum Segment {}", "pub const SEGMENT_BYTES: usize = 1;"] {
            assert!(is_noun("segment", code, 20), "{code}");
        }
        for code in
            ["pub struct Pool;", "const SEGMENT: u8 = 1;", "pub fn segment() {}", "fn f() {\n    struct Segment;\n}"]
        {
            assert!(!is_noun("segment", code, 20), "{code}");
        }
        assert!(is_noun("segment", "impl A {\n    pub unsafe extern fn free_segments() {}\n}", 40));
        assert!(!is_noun("segment", "fn segment() {}", 99) && is_noun("segment", "fn segment() {}", 100));
        assert!(is_noun("client_filter", "struct Filter;", 20) && is_noun("s3fifo", "struct S3Fifo;", 20));
        assert!(is_noun("mod", "fn a() {}", 20) && is_noun("sync", "pub use std::a;", 20));
    }

    #[test]
    fn a_short_file_is_a_noun_as_one_of_a_family_or_if_the_code_says_its_name() {
        let file = |name: &'static str, code: &str| (name, short(code, 45));
        let family = ["xtask/src/a.rs", "xtask/src/b.rs", "xtask/src/c.rs"].map(|name| file(name, "pub fn run() {}"));
        assert_eq!(faults(&family), "");
        assert_eq!(faults(&family[..2]).lines().count(), 2);
        let namesakes = ["crates/s/src/a/limits.rs", "crates/s/src/b/limits.rs"];
        assert_eq!(faults(&namesakes.map(|name| file(name, "pub static ALL: u8 = 1;"))), "");
        let read = file("crates/s/src/varint.rs", "pub fn read() {}");
        let said = |code: &str| faults(&[read.clone(), ("crates/s/src/list.rs", short(code, 200))]);
        assert_eq!(said("fn f() { varint::read(); }"), "");
        assert!(said("use crate::varint::read;").contains("varint.rs: 45 lines and no noun"));
    }
}

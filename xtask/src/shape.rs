//! The shape of the code: how many fields a struct may have and how long a function may be, in whatever folder.
//!
//! Relies on text from [`crate::sources::code_only`], in which comments and strings are blanks: braces and colons are code.

/// Most fields of a struct. A struct with more holds more than one thing.
const MOST_FIELDS: usize = 15;
/// Most lines of a function: what fits a screen.
const MOST_FUNCTION_LINES: usize = 60;
/// Ends of the names of structs that may have any number of fields: settings and figures are lists.
const LISTS: &[&str] = &["Args", "Config", "Counters", "Figures", "Info", "Options", "Settings", "Stats"];

/// What is wrong with the shape of a file: its name, and its text without comments and strings.
pub fn faults(name: &str, code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(wide_structs(name, code));
    faults.extend(long_functions(name, code));
    faults
}

fn wide_structs(name: &str, code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, item) in items(code, "struct") {
        let Some((open, end)) = body(code, at) else { continue };
        let fields = fields(&code[open + 1..end]);
        if fields > MOST_FIELDS && !LISTS.iter().any(|list| item.ends_with(list)) {
            faults.push(format!("{name}:{}: struct {item} has {fields} fields; cut it at a noun", line_of(code, at)));
        }
    }
    faults
}

fn long_functions(name: &str, code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, item) in items(code, "fn") {
        let Some((_, end)) = body(code, at) else { continue };
        let lines = code[at..end].bytes().filter(|&byte| byte == b'\n').count() + 1;
        if lines > MOST_FUNCTION_LINES {
            faults.push(format!("{name}:{}: fn {item} has {lines} lines; it should fit a screen", line_of(code, at)));
        }
    }
    faults
}

/// Where each `keyword NAME` begins, and its name.
fn items<'a>(code: &'a str, keyword: &str) -> Vec<(usize, &'a str)> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices(keyword) {
        let rest = &code[at + keyword.len()..];
        let name = rest.trim_start();
        let name = &name[..name.find(|letter| !is_word(letter)).unwrap_or(name.len())];
        let is_apart = !code[..at].ends_with(is_word) && rest.starts_with([' ', '\n']);
        if is_apart && !name.is_empty() {
            found.push((at, name));
        }
    }
    found
}

/// The braces of the item that begins at `at`; `None` if it has none.
fn body(code: &str, at: usize) -> Option<(usize, usize)> {
    let mut nested = 0;
    let mut open = None;
    for (index, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' if open.is_none() => nested += 1,
            b')' | b']' if open.is_none() => nested -= 1,
            b';' if open.is_none() && nested == 0 => return None,
            b'{' if open.is_some() || nested == 0 => {
                open.get_or_insert(index);
                nested += 1;
            }
            b'}' if open.is_some() => {
                nested -= 1;
                if nested == 0 {
                    return open.map(|open| (open, index));
                }
            }
            _ => {}
        }
    }
    None
}

/// Fields of a struct's body: each has one colon of its own.
fn fields(body: &str) -> usize {
    let bytes = body.as_bytes();
    let mut nested = 0_i32;
    let mut count = 0;
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => nested += 1,
            b')' | b']' | b'}' => nested -= 1,
            b':' => {
                let is_path = index > 0 && bytes[index - 1] == b':' || bytes.get(index + 1) == Some(&b':');
                count += usize::from(nested == 0 && !is_path);
            }
            _ => {}
        }
    }
    count
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::code_only;

    fn faults_of(name: &str, text: &str) -> String {
        faults(name, &code_only(text)).join("\n")
    }

    fn structure(name: &str, fields: usize) -> String {
        let fields: String = (0..fields).map(|field| format!("    pub f{field}: Vec<std::io::Error>,\n")).collect();
        format!("/// A: b.\npub struct {name}<'a, T: Copy> {{\n{fields}}}\n")
    }

    fn function(lines: usize) -> String {
        format!("fn long(a: [u8; 3]) -> Option<()> {{\n{}}}\n", "    f(|| { 1; });\n".repeat(lines - 2))
    }

    #[test]
    fn a_struct_of_more_than_fifteen_fields_is_a_fault_unless_it_is_a_list() {
        assert_eq!(faults_of("xtask/src/a.rs", &structure("Cache", 15)), "");
        let fault = faults_of("xtask/src/a.rs", &structure("Cache", 16));
        assert_eq!(fault, "xtask/src/a.rs:2: struct Cache has 16 fields; cut it at a noun");
        assert_eq!(faults_of("xtask/src/a.rs", &structure("CacheStats", 40)), "");
        assert_eq!(faults_of("xtask/src/a.rs", "struct Id(u64);\nstruct None;\nfn f() { let a: u8 = b; }\n"), "");
    }

    #[test]
    fn a_function_of_more_than_sixty_lines_is_a_fault() {
        assert_eq!(faults_of("xtask/src/a.rs", &function(60)), "");
        let fault =
            faults_of("xtask/src/a.rs", &format!("trait T {{\n    fn a(&self) -> [u8; 2];\n}}\n{}", function(61)));
        assert_eq!(fault, "xtask/src/a.rs:4: fn long has 61 lines; it should fit a screen");
    }
}

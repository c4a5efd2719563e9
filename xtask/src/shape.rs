//! The shape of the code: how many fields a struct may have, how long a function may be, and which words a text may not use.
//!
//! Relies on text from [`crate::sources::code_only`], in which comments and strings are blanks: braces and colons are code.
//! No folder is exempt.

use anyhow::Context;

use crate::sources;

/// Most fields of a struct. A struct with more holds more than one thing.
const MOST_FIELDS: usize = 15;
/// Most lines of a function: what fits a screen.
const MOST_FUNCTION_LINES: usize = 60;
/// Ends of the names of structs that may have any number of fields: settings and figures are lists.
const LISTS: &[&str] = &["Args", "Config", "Counters", "Figures", "Info", "Options", "Settings", "Stats"];
/// Words that hide who acts. Name the actor: the writer, the dumper thread, a client.
const ACTORLESS: &[&str] = &["whoever", "nobody", "somebody", "anybody", "everybody", "someone", "anyone", "everyone"];
/// Names of former versions, by folder, for which the field has a word (`docs/glossary.md`).
const FORMER_NAMES: &[(&str, &[&str])] = &[
    (
        "crates/fuse/",
        &[
            "Crew",
            "Graves",
            "Grave",
            "Debt",
            "Owed",
            "Unsynced",
            "Bodies",
            "Body",
            "Home",
            "Judge",
            "Standings",
            "Raised",
            "Straight",
            "Janitor",
            "Remover",
            "Ending",
            "Maker",
            "Asker",
            "Wish",
            "Stamps",
            "Unruled",
            "Sight",
            "Departure",
            "Boost",
            "Creator",
            "Protocol",
            "Attachment",
            "Privileges",
            "Hints",
            "Engine",
            "Caller",
            "Node",
            "Verdict",
        ],
    ),
    ("crates/sys/", &["Carver", "Bell", "Denied", "Touch", "Watched"]),
    (
        "crates/device/",
        &[
            "Carver",
            "Caching",
            "Faulty",
            "Layered",
            "Throttled",
            "AtOnce",
            "Dice",
            "GatedFile",
            "Pace",
            "Trigger",
            "Action",
        ],
    ),
    (
        "crates/pool/",
        &[
            "Lane",
            "Streaks",
            "Tender",
            "Starving",
            "Claim",
            "Desk",
            "Word",
            "Seen",
            "Cause",
            "Gate",
            "LaneState",
            "Streak",
            "Wait",
            "Depth",
            "Place",
            "Parking",
            "Advice",
            "Keeper",
            "Hold",
        ],
    ),
    ("crates/wal/", &["Stock", "Supply", "Patience", "Survey", "Fresh", "Malformed"]),
    (
        "crates/writecache/",
        &[
            "Ledger",
            "Place",
            "Errand",
            "Standing",
            "Told",
            "Cut",
            "Cuts",
            "OpenCut",
            "CutJob",
            "CutDone",
            "Hold",
            "Scope",
            "Stamp",
            "Facts",
            "Reason",
            "Trace",
            "Headway",
            "Survey",
            "Draft",
            "Recovered",
            "Tally",
            "Cause",
            "Appended",
            "Dice",
            "Ended",
            "Span",
            "Waits",
            "Queued",
            "Flight",
            "FlightState",
            "Logging",
            "Acting",
            "Piece",
            "Pressure",
            "Progress",
            "Content",
            "Reader",
            "Record",
            "Shared",
            "Decision",
            "Ticket",
            "Way",
            "UntoldChanges",
            "Growth",
            "Policy",
            "Wake",
        ],
    ),
    (
        "crates/preload/",
        &[
            "Board", "Tools", "Account", "Draw", "Pace", "Presence", "Spare", "Ticket", "Kept", "Refusal", "Lately",
            "Written", "Desk", "Next", "Fork", "Failed", "Refaults", "Caller", "Region", "Sampler",
        ],
    ),
    (
        "crates/snapshot/",
        &[
            "Keeper",
            "Hindsight",
            "Chores",
            "Upkeep",
            "Claim",
            "Desk",
            "Ledger",
            "LiftLock",
            "Adoption",
            "Aside",
            "KeptView",
            "Lifting",
            "Placed",
            "Scooted",
            "Sheet",
            "Slotted",
            "Unheard",
            "Wants",
            "Witness",
            "Sink",
            "Disconnected",
            "Announcements",
            "Span",
            "Options",
            "Place",
            "Changes",
        ],
    ),
    ("crates/arena/", &["Located", "Warmer"]),
    ("crates/checkpoint/", &["Loaded", "Mapped", "Temporary", "Chain", "Pass"]),
    ("crates/sqlite/", &["Seen", "Witness"]),
    ("crates/capi/", &["Claim", "InUse", "Tie"]),
    ("crates/cli/", &["Guard", "Wanted"]),
    (
        "crates/server/",
        &[
            "Dice",
            "Ending",
            "Journal",
            "JournalState",
            "Lifetime",
            "Multi",
            "NameKey",
            "Occasion",
            "Player",
            "Unbalanced",
            "Owner",
            "Said",
            "Stored",
            "Blocked",
            "Unblock",
            "Closing",
            "Word",
            "Reason",
            "Group",
            "Keeper",
        ],
    ),
    (
        "crates/store/",
        &[
            "Collected",
            "Walked",
            "Body",
            "Chooser",
            "Remains",
            "Dumped",
            "Opened",
            "Plan",
            "Kind",
            "Limit",
            "Limits",
            "Member",
            "Combination",
            "Expiry",
            "Wanted",
            "Form",
        ],
    ),
    (
        "crates/bench/",
        &[
            "Dice",
            "Cage",
            "Shelf",
            "Tally",
            "Meter",
            "Found",
            "Touch",
            "Grip",
            "Guarded",
            "Aim",
            "Course",
            "Spec",
            "Stage",
            "Unwatched",
            "StageWatch",
            "Habit",
            "Promise",
            "Stores",
            "Commits",
            "Drive",
            "Hand",
            "Ending",
            "Does",
            "Side",
            "Kind",
            "Restored",
            "Saver",
            "Setting",
            "Pass",
            "Stalls",
            "Pace",
            "Which",
            "Until",
            "Filled",
            "Form",
            "Saves",
            "Restarts",
            "Tails",
            "Paced",
            "Updated",
            "Scatter",
            "Flavor",
            "Outcome",
            "Entry",
            "Scale",
            "Better",
        ],
    ),
    (
        "crates/mdc/",
        &[
            "Options",
            "Passing",
            "Summary",
            "Kept",
            "Pieces",
            "Reading",
            "Taken",
            "Holding",
            "Place",
            "Area",
            "Held",
            "HeldSlice",
        ],
    ),
];

/// Texts that have to say such a word.
const WORDS_ALLOWED: &[&str] = &[
    // It looks for the user of that name.
    "crates/bench/src/wcache/testbed/unprivileged_user.rs",
    // The figures name the task without a number so, and programs read that.
    "crates/fuse/src/report.rs",
    // It quotes what a former version said.
    "docs/results/snapshot.md",
];

/// What is wrong with the shape of a file: its name, its text, and the text without comments and strings.
pub fn faults(name: &str, text: &str, code: &str) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(wide_structs(name, code));
    faults.extend(long_functions(name, code));
    faults.extend(word_faults(name, text));
    faults
}

/// What is wrong with the words of the documents, and of the sources in Python and C.
pub fn document_faults() -> anyhow::Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in sources::documents()?.into_iter().chain(sources::other_files()?) {
        let name = file.to_string_lossy();
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {name}"))?;
        faults.extend(word_faults(&name, &text));
    }
    Ok(faults)
}

fn begins_with(name: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| name.starts_with(folder))
}

/// Words of a document or a source that hide who acts, and names of former versions.
fn word_faults(name: &str, text: &str) -> Vec<String> {
    // This file has to name them.
    if begins_with(name, WORDS_ALLOWED) || name.ends_with("xtask/src/shape.rs") {
        return Vec::new();
    }
    let former = FORMER_NAMES.iter().filter(|(folder, _)| name.starts_with(folder)).flat_map(|(_, names)| *names);
    let former: Vec<&str> = former.copied().collect();
    let mut faults = Vec::new();
    // A former name may be a word of English, with which a sentence of a comment begins.
    let opens_sentence = |line: &str, word: &str| {
        let before = &line[..word.as_ptr() as usize - line.as_ptr() as usize];
        let is_comment = before.contains("//") || name.ends_with(".md");
        is_comment && before.trim_end().ends_with(['/', '!', '.', ':', '?', '|', '-', '(']) && !before.ends_with("::")
            || name.ends_with(".md") && before.trim().is_empty()
    };
    for (index, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", index + 1);
        for word in line.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            if word.split('_').any(hides_actor) {
                faults.push(format!("{at}: {word:?} hides who acts; name the actor"));
            }
            if former.contains(&word) && !opens_sentence(line, word) {
                faults.push(format!("{at}: {word:?} is a former name; docs/glossary.md has the field's word"));
            }
        }
    }
    faults
}

/// Whether a word, or a part of a name, hides who acts; "nobodys" in a name is one of them.
fn hides_actor(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ACTORLESS.contains(&word.as_str()) || word.strip_suffix('s').is_some_and(|word| ACTORLESS.contains(&word))
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
        faults(name, text, &code_only(text)).join("\n")
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

    #[test]
    fn a_former_name_may_begin_a_sentence_and_be_no_name() {
        let text = "//! Queued versions wait. Flight by flight they go.\n/// Waits: none.\n";
        assert_eq!(faults_of("crates/writecache/src/a.rs", text), "");
        for text in ["struct Queued;\n", "/// See [`Queued`].\n", "/// Of a Flight.\n", "use a::Waits;\n"] {
            assert!(faults_of("crates/writecache/src/a.rs", text).contains("former name"), "{text}");
        }
    }

    #[test]
    fn words_that_hide_who_acts_and_former_names_are_faults() {
        let fault = faults_of("crates/pool/src/a.rs", "//! Woken by Whoever comes.\nstruct Tender;\n");
        assert!(
            fault.contains("a.rs:1: \"Whoever\" hides who acts") && fault.contains("a.rs:2: \"Tender\" is a former")
        );
        assert_eq!(
            faults_of("xtask/src/a.rs", "//! Tender.\nstruct Tender;\n"),
            "",
            "only its own folder has given it up"
        );
        assert_eq!(faults_of("xtask/src/a.rs", "//! The body.\n"), "");
        for text in [
            "fn a_call_that_nobody_makes() {}\n",
            "fn nobodys_child() {}\n",
            "# Somebody's key.\n",
            "fn f(someone: u8) {}\n",
        ] {
            assert!(word_faults("tests/a.py", text).join("").contains("hides who acts"), "{text}");
        }
    }
}

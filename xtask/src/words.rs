//! The words of texts: those that hide who acts, and names of former versions.
//!
//! Relies on `docs/glossary.md` for the field's words, which stand in their place.

use anyhow::Context;

use crate::sources;

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
            "Owner",
            "Said",
            "Stored",
            "Blocked",
            "Unblock",
            "Closing",
            "Word",
            "Reason",
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
pub fn word_faults(name: &str, text: &str) -> Vec<String> {
    // This file has to name them.
    if begins_with(name, WORDS_ALLOWED) || name.ends_with("xtask/src/words.rs") {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(name: &str, text: &str) -> String {
        word_faults(name, text).join("\n")
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

//! Rules that say who is critical and which files are logs.
//!
//! ```text
//! # a comment
//! critical comm=postgres title~"^postgres: .*(idle|SELECT|INSERT|COMMIT)"
//! inherits title~"replicator"          a critical task depends on it
//! log      title~"(checkpointer|walwriter)"   the same, but only while it works at a log
//! normal   title~"(archiver|logger)"
//! critical comm=redis-server main      not the children that it forks
//! wal      path~"pg_wal/"              these files are logs, whichever task writes them
//! ```
//! One rule a line: a verdict, and conditions that must all hold. Of rules about tasks the first that fits counts. `=` is
//! the whole text, `~` a regular expression found in it. Texts with spaces stand in double quotes; `\"` is a quote in them.
//!
//! | word | what it looks at |
//! |---|---|
//! | `comm` | short name of the process |
//! | `thread` | short name of the thread that asks |
//! | `title` | arguments of the process, or what it has written over them |
//! | `exe` | path of its program |
//! | `uid` | number of its user |
//! | `main`, `child` | its parent runs another program, or the same |
//! | `path` | for `wal` only: path of the file, from the mount's root |
//!
//! Relies on nothing but regular expressions; the caller gives the facts about a task.

use regex_lite::Regex;

/// Rules for PostgreSQL.
pub const POSTGRESQL_RULES: &str = include_str!("../../rules/postgresql.rules");
/// Rules for Redis and Valkey.
pub const REDIS_RULES: &str = include_str!("../../rules/redis.rules");
/// Rules for the shell of SQLite, and for the logs of every program that has SQLite inside.
pub const SQLITE_RULES: &str = include_str!("../../rules/sqlite.rules");
/// What counts if no rules are given: all of these.
pub const DEFAULT_RULES: &str = concat!(
    include_str!("../../rules/postgresql.rules"),
    "\n",
    include_str!("../../rules/redis.rules"),
    "\n",
    include_str!("../../rules/sqlite.rules")
);

/// What is said of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriticalityDecision {
    /// A request waits for it.
    Critical,
    /// A critical task depends on it in a way that can't be seen.
    Inherits,
    /// The same, but only while it works at a file that is a log.
    Log,
    /// No request waits for it.
    Normal,
}

/// A rule that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RuleError {
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskField {
    /// Short name of the process.
    Comm,
    /// Short name of the thread.
    Thread,
    /// Arguments.
    Title,
    /// Program.
    Exe,
    /// User.
    Uid,
}

#[derive(Clone, Debug)]
enum Matcher {
    Equals(String),
    Matches(Regex),
}

impl Matcher {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Equals(whole) => whole == text,
            Self::Matches(regex) => regex.is_match(text),
        }
    }
}

#[derive(Clone, Debug)]
enum Condition {
    TaskField(TaskField, Matcher),
    Main(bool),
}

/// A task, as far as rules look at it.
pub trait TaskAttributes {
    /// A text about it.
    fn text(&mut self, field: TaskField) -> &str;
    /// Whether its parent runs another program.
    fn is_main(&mut self) -> bool;
}

#[derive(Clone, Debug)]
struct Rule {
    verdict: CriticalityDecision,
    conditions: Vec<Condition>,
}

impl Rule {
    fn is_about(&self, task: &mut dyn TaskAttributes) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::TaskField(field, matcher) => matcher.matches(task.text(*field)),
            Condition::Main(main) => task.is_main() == *main,
        })
    }
}

/// All rules.
#[derive(Clone, Debug, Default)]
pub struct CriticalityRules {
    tasks: Vec<Rule>,
    logs: Vec<Matcher>,
}

impl CriticalityRules {
    /// Reads rules.
    ///
    /// # Errors
    /// One can't be understood.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut rules = Self::default();
        for (index, line) in text.lines().enumerate() {
            rules.add(line).map_err(|what| RuleError { line: index + 1, what })?;
        }
        Ok(rules)
    }

    /// [`DEFAULT_RULES`].
    ///
    /// # Panics
    /// Never: they are tested.
    pub fn built_in() -> Self {
        Self::parse(DEFAULT_RULES).unwrap_or_else(|error| panic!("built-in rules: {error}"))
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = words_of(line)?.into_iter();
        let Some(first) = words.next() else { return Ok(()) };
        let verdict = match first.as_str() {
            "critical" => CriticalityDecision::Critical,
            "inherits" => CriticalityDecision::Inherits,
            "log" => CriticalityDecision::Log,
            "normal" => CriticalityDecision::Normal,
            "wal" => return self.add_logs(words),
            other => return Err(format!("{other:?} is no verdict: begin with critical, inherits, log, normal or wal")),
        };
        let conditions: Vec<Condition> = words.map(|word| condition(&word)).collect::<Result<_, _>>()?;
        if conditions.is_empty() {
            return Err("a rule without conditions would fit every task: add one, such as comm=postgres".into());
        }
        self.tasks.push(Rule { verdict, conditions });
        Ok(())
    }

    fn add_logs(&mut self, words: impl Iterator<Item = String>) -> Result<(), String> {
        let before = self.logs.len();
        for word in words {
            match split(&word)? {
                ("path", matcher) => self.logs.push(matcher),
                (other, _) => return Err(format!("wal takes path= or path~ only, not {other:?}")),
            }
        }
        if self.logs.len() == before { Err("wal needs path= or path~".into()) } else { Ok(()) }
    }

    /// What the rules say of a task; `None` if none fits.
    pub fn verdict(&self, task: &mut dyn TaskAttributes) -> Option<CriticalityDecision> {
        self.tasks.iter().find(|rule| rule.is_about(task)).map(|rule| rule.verdict)
    }

    /// Whether there are rules about files.
    pub fn names_logs(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Whether the file at this path is a log.
    pub fn is_log(&self, path: &str) -> bool {
        self.logs.iter().any(|matcher| matcher.matches(path))
    }
}

fn condition(word: &str) -> Result<Condition, String> {
    match word {
        "main" => return Ok(Condition::Main(true)),
        "child" => return Ok(Condition::Main(false)),
        _ => {}
    }
    let (name, matcher) = split(word)?;
    let field = match name {
        "comm" => TaskField::Comm,
        "thread" => TaskField::Thread,
        "title" => TaskField::Title,
        "exe" => TaskField::Exe,
        "uid" => TaskField::Uid,
        "path" => return Err("path belongs to wal; tasks are told by comm, thread, title, exe or uid".into()),
        other => {
            return Err(format!("{other:?} is nothing to look at: take comm, thread, title, exe, uid, main or child"));
        }
    };
    Ok(Condition::TaskField(field, matcher))
}

fn split(word: &str) -> Result<(&str, Matcher), String> {
    let at = word.find(['=', '~']).ok_or_else(|| format!("{word:?} is no condition: write name=text or name~regex"))?;
    let (name, text) = (&word[..at], &word[at + 1..]);
    if word.as_bytes()[at] == b'=' {
        return Ok((name, Matcher::Equals(text.to_owned())));
    }
    Regex::new(text).map(|regex| (name, Matcher::Matches(regex))).map_err(|error| format!("{text:?}: {error}"))
}

/// The words of a line; quotes may begin within a word.
fn words_of(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => (quoted, begun) = (!quoted, true),
            '\\' if quoted && letters.peek() == Some(&'"') => word.extend(letters.next()),
            '#' if !quoted && !begun => break,
            letter if letter.is_whitespace() && !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            letter => {
                word.push(letter);
                begun = true;
            }
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

/// Whether `name` fits a pattern in which `*` stands for any letters and `?` for one.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name, mut star) = (0, 0, None);
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&letter) if letter == '?' || letter == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, in_name) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Task(&'static str, &'static str, bool);

    impl TaskAttributes for Task {
        fn text(&mut self, field: TaskField) -> &str {
            match field {
                TaskField::Comm | TaskField::Thread => self.0,
                TaskField::Title => self.1,
                TaskField::Exe => "/usr/bin/x",
                TaskField::Uid => "0",
            }
        }

        fn is_main(&mut self) -> bool {
            self.2
        }
    }

    fn built_in(name: &'static str, title: &'static str, main: bool) -> Option<CriticalityDecision> {
        CriticalityRules::built_in().verdict(&mut Task(name, title, main))
    }

    #[test]
    fn the_built_in_rules_know_postgres_redis_and_sqlite() {
        use CriticalityDecision::{Critical, Log, Normal};
        let backend = "postgres: 15/main: alice shop [local] COMMIT";
        assert_eq!(built_in("postgres", backend, false), Some(Critical));
        assert_eq!(built_in("postgres", "postgres: alice shop 10.0.0.1(5) idle", false), Some(Critical));
        for title in [
            "checkpointer ",
            "background writer ",
            "walwriter ",
            "autovacuum launcher ",
            "15/main: autovacuum worker shop",
            "logical replication launcher ",
            "15/main: logical replication worker for subscription 16394 ",
            "walsender replicator 10.0.0.2(40312) streaming 0/3000148",
        ] {
            assert_eq!(built_in("postgres", format!("postgres: {title}").leak(), false), Some(Log), "{title}");
        }
        for title in
            ["archiver last was 000000010000000000000001", "15/main: logger ", "walreceiver streaming 0/3000148"]
        {
            assert_eq!(built_in("postgres", format!("postgres: {title}").leak(), false), Some(Normal), "{title}");
        }
        let parallel = "postgres: parallel worker for PID 4711 ";
        assert_eq!(built_in("postgres", parallel, false), Some(Critical));
        assert_eq!(built_in("postgres", "/usr/lib/postgresql/15/bin/postgres -D data", true), Some(Normal));
        assert_eq!(built_in("redis-server", "redis-server *:6379", true), Some(Critical));
        assert_eq!(built_in("redis-server", "redis-rdb-bgsave *:6379", false), Some(Normal));
        assert_eq!(built_in("sqlite3", "sqlite3 /srv/app.db", true), Some(Critical));
        assert_eq!(built_in("vim", "vim x", true), None);
        let rules = CriticalityRules::built_in();
        assert!(rules.is_log("data/pg_wal/000000010000000000000001") && rules.is_log("pg_wal/0"));
        assert!(rules.is_log("app.db-wal") && rules.is_log("x/places.sqlite-journal") && !rules.is_log("app.db"));
        assert!(rules.is_log("appendonlydir/appendonly.aof.1.incr.aof") && !rules.is_log("base/1/1234"));
    }

    #[test]
    fn each_verdict_has_its_word() {
        let said =
            |word: &str| CriticalityRules::parse(&format!("{word} comm=x")).unwrap().verdict(&mut Task("x", "", true));
        let words = ["critical", "inherits", "log", "normal"].map(said);
        assert_eq!(
            words,
            [
                CriticalityDecision::Critical,
                CriticalityDecision::Inherits,
                CriticalityDecision::Log,
                CriticalityDecision::Normal
            ]
            .map(Some)
        );
    }

    #[test]
    fn a_bad_line_is_named_with_a_cure() {
        let bad = |text: &str| CriticalityRules::parse(text).unwrap_err();
        assert_eq!(bad("# ok\nmaybe comm=x").line, 2);
        assert!(bad("critical").what.contains("comm=postgres"));
        assert!(bad("critical name=x").what.contains("comm, thread"));
        assert!(bad("critical comm").what.contains("name=text"));
        assert!(bad("critical title~\"(\"").what.contains('('));
        assert!(bad("wal comm=x").what.contains("path"));
        assert!(bad("critical path=x").what.contains("wal"));
        assert!(bad("critical comm=\"x").what.contains("quote"));
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words_of(r#" a "b c"d=\e "f \" g" # h"#).unwrap(), ["a", "b cd=\\e", "f \" g"]);
    }

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("post*", "postgres", true),
            ("*gre?", "postgres", true),
            ("p*x", "postgres", false),
            ("*", "", true),
            ("a", "ab", false),
        ] {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}

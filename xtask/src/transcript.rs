//! What a failed step printed around its failures, for a reader who has only the end of the suite's output.
//!
//! Relies on the signs that test programs give: `---- NAME stdout ----` (cargo, before a failed test's output) and
//! `FAIL NAME` (the Python tests, after some of it). A step without a sign is told by its last lines.

use std::collections::VecDeque;

/// Lines before a sign that are kept, and the last lines of a step that gave no sign.
const BEFORE: usize = 30;
/// Lines from a sign on that are kept.
const AFTER: usize = 60;
/// Most lines that are kept of a step.
const MOST_LINES: usize = 500;

/// The lines of a step that tell of its failures, while it runs.
#[derive(Default)]
pub struct Transcript {
    recent: VecDeque<String>,
    kept: Vec<String>,
    /// So many of the next lines are kept.
    next: usize,
}

impl Transcript {
    /// Takes in a line.
    pub fn push(&mut self, line: &str) {
        if self.kept.len() >= MOST_LINES {
            return;
        }
        match Sign::of(line) {
            Some(Sign::Before) => self.next = AFTER,
            Some(Sign::Within) => {
                self.kept.extend(self.recent.drain(..));
                self.next = AFTER;
            }
            None => {}
        }
        if self.next > 0 {
            self.next -= 1;
            self.kept.push(line.to_owned());
            self.recent.clear();
            return;
        }
        if self.recent.len() == BEFORE {
            self.recent.pop_front();
        }
        self.recent.push_back(line.to_owned());
    }

    /// The lines that tell of the failures.
    pub fn into_lines(self) -> Vec<String> {
        if self.kept.is_empty() { self.recent.into() } else { self.kept }
    }
}

/// How a line stands to the output of a failed test.
enum Sign {
    /// The output follows.
    Before,
    /// The output is around it.
    Within,
}

impl Sign {
    fn of(line: &str) -> Option<Self> {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            Some(Self::Before)
        } else if line.trim_start().starts_with("FAIL ") || line.starts_with("the command ") {
            Some(Self::Within)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut transcript = Transcript::default();
        lines.into_iter().for_each(|line| transcript.push(&line));
        transcript.into_lines()
    }

    fn numbered(word: &str, count: usize) -> impl Iterator<Item = String> {
        (0..count).map(move |number| format!("{word} {number}"))
    }

    #[test]
    fn the_output_of_failed_tests_is_kept_and_that_of_others_is_not() {
        let text = numbered("early", 1000)
            .chain(["---- a::b stdout ----".into(), "assertion failed".into()])
            .chain(numbered("late", 1000))
            .chain(["FAIL the log is whole".into(), "Traceback".into()]);
        let kept = lines_of(text);
        assert_eq!(kept[..3], ["---- a::b stdout ----", "assertion failed", "late 0"]);
        assert_eq!(kept[kept.len() - 3..], ["late 999", "FAIL the log is whole", "Traceback"]);
        assert_eq!(kept.len(), AFTER + BEFORE + 2);
    }

    #[test]
    fn a_step_that_gives_no_sign_is_told_by_its_last_lines() {
        assert_eq!(lines_of(numbered("line", 1000)).last().unwrap(), "line 999");
        assert_eq!(lines_of(numbered("line", 1000)).len(), BEFORE);
    }

    #[test]
    fn a_step_that_fails_without_end_keeps_a_bounded_number_of_lines() {
        assert!(lines_of(std::iter::repeat_n("FAIL x".to_owned(), 10_000)).len() <= MOST_LINES + BEFORE);
    }
}

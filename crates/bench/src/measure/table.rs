//! The table of `quire measure -m all`.
//!
//! Relies on times in nanoseconds; each is written in the unit that suits it.

use std::fmt::Write as _;

use quire_units::format_ns;

use super::stall::StallSamples;
use crate::format::mib;
use crate::measure::args::StopPoint;
use crate::stats::Spread;

/// One line: a mechanism and what it took, or why it can't be had.
#[derive(Debug)]
pub struct TableRow {
    /// The mechanism's name.
    pub name: &'static str,
    /// What was measured, or the refusal.
    pub found: Result<StallSamples, String>,
}

/// The times that `until` asks for.
pub fn times(found: &StallSamples, until: StopPoint) -> &[f64] {
    match until {
        StopPoint::Db => &found.stall_ns,
        StopPoint::Snap => &found.ready_ns,
    }
}

/// All rows under a heading.
pub fn render(rows: &[TableRow], until: StopPoint) -> String {
    let mut text = String::new();
    let heads = ["mechanism", "median", "least", "longest", "release", "held", "grown"];
    write_cells(&mut text, heads.map(String::from));
    for row in rows {
        match &row.found {
            Err(reason) => {
                let _ = writeln!(text, "{:<10} {reason}", row.name);
            }
            Ok(found) => {
                let (Some(spread), Some(release)) = (Spread::of(times(found, until)), Spread::of(&found.release_ns))
                else {
                    continue;
                };
                write_cells(
                    &mut text,
                    [
                        row.name.to_owned(),
                        format_ns(spread.median),
                        format_ns(spread.least),
                        format_ns(spread.most),
                        format_ns(release.median),
                        mib(found.held_bytes),
                        mib(found.extra_bytes),
                    ],
                );
            }
        }
    }
    text
}

fn write_cells(text: &mut String, cells: [String; 7]) {
    let [name, rest @ ..] = cells;
    let _ = write!(text, "{name:<10}");
    for cell in rest {
        let _ = write!(text, " {cell:>11}");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mechanism_shows_its_reason() {
        let found = StallSamples { stall_ns: vec![5e6, 1e6, 3e6], release_ns: vec![2e3], ..StallSamples::default() };
        let rows = [
            TableRow { name: "fork", found: Ok(found) },
            TableRow { name: "uffd", found: Err("uffd does not work here: no".into()) },
        ];
        let table = render(&rows, StopPoint::Db);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("fork") && lines[1].contains("3.00 ms") && lines[1].contains("5.00 ms"),
            "{table}"
        );
        assert!(lines[2].contains("does not work here"), "{table}");
    }
}

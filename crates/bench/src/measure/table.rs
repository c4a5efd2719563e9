//! The table of `quire measure -m all`.
//!
//! Relies on times in nanoseconds; each is written in the unit that suits it.

use std::fmt::Write as _;

use super::stall::Stalls;
use crate::measure::args::Until;
use crate::stats::Spread;

/// One line: a mechanism and what it took, or why it can't be had.
#[derive(Debug)]
pub struct Row {
    /// The mechanism's name.
    pub name: &'static str,
    /// What was measured, or the refusal.
    pub found: Result<Stalls, String>,
}

/// A time in a suitable unit: three digits and no more.
pub fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        under if under < 1e3 => return format!("{under:.0} ns"),
        under if under < 1e6 => (under / 1e3, "µs"),
        under if under < 1e9 => (under / 1e6, "ms"),
        seconds => (seconds / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Bytes in MiB.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The times that `until` asks for.
pub fn times(found: &Stalls, until: Until) -> &[f64] {
    match until {
        Until::Db => &found.stall_ns,
        Until::Snap => &found.ready_ns,
    }
}

/// All rows under a heading.
pub fn render(rows: &[Row], until: Until) -> String {
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
                        time(spread.median),
                        time(spread.least),
                        time(spread.most),
                        time(release.median),
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
    fn times_have_three_digits_in_the_unit_that_suits_them() {
        let told: Vec<String> = [7.0, 1234.0, 45_678.0, 999_600.0, 27_000_000.0, 2.5e9].map(time).to_vec();
        assert_eq!(told, ["7 ns", "1.23 µs", "45.7 µs", "1000 µs", "27.0 ms", "2.50 s"]);
    }

    #[test]
    fn a_refused_mechanism_shows_its_reason() {
        let found = Stalls { stall_ns: vec![5e6, 1e6, 3e6], release_ns: vec![2e3], ..Stalls::default() };
        let rows = [
            Row { name: "fork", found: Ok(found) },
            Row { name: "uffd", found: Err("uffd does not work here: no".into()) },
        ];
        let table = render(&rows, Until::Db);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("fork") && lines[1].contains("3.00 ms") && lines[1].contains("5.00 ms"),
            "{table}"
        );
        assert!(lines[2].contains("does not work here"), "{table}");
    }
}

//! The spikes of an event as a graph of characters, for LATENCY GRAPH.
//!
//! Relies on the latency monitor's history alone.

use std::collections::VecDeque;

use crate::latency::{LatencyHistory, LatencySpike};

/// Spikes side by side; those that come after them have a graph of their own below.
const COLUMNS: usize = 80;
/// Lines that the highest column takes.
const ROWS: u64 = 4;
/// The top of a column, by how much of its line it fills.
const TOPS: [char; 3] = ['_', 'o', '#'];
const LEVELS_IN_ROW: u64 = TOPS.len() as u64;

/// A spike in the graph.
struct Column {
    /// How high it is, the lowest spike at 0.
    level: u64,
    /// How long ago it was.
    label: String,
}

/// Draws the spikes of an event as Redis does: the oldest first, each with its age below it.
pub fn latency_graph(event: &str, history: &LatencyHistory, now_unix_s: i64) -> String {
    let (low_ms, high_ms) = bounds(&history.spikes);
    let mut text = format!("{event} - high {high_ms} ms, low {low_ms} ms (all time high {} ms)\n", history.max_ms);
    text.extend(std::iter::repeat_n('-', COLUMNS).chain(['\n']));
    let columns: Vec<Column> = history
        .spikes
        .iter()
        .map(|spike| Column {
            level: level(spike.duration_ms - low_ms, high_ms - low_ms),
            label: age(now_unix_s.saturating_sub(spike.unix_s)),
        })
        .collect();
    for (index, part) in columns.chunks(COLUMNS).enumerate() {
        if index > 0 {
            text.push('\n');
        }
        draw(&mut text, part);
    }
    text
}

/// The shortest and the longest spike.
fn bounds(spikes: &VecDeque<LatencySpike>) -> (u64, u64) {
    let durations = || spikes.iter().map(|spike| spike.duration_ms);
    (durations().min().unwrap_or(0), durations().max().unwrap_or(0))
}

/// How high a spike is that is so much longer than the shortest one.
fn level(above_ms: u64, range_ms: u64) -> u64 {
    let levels = ROWS * LEVELS_IN_ROW;
    (above_ms.saturating_mul(levels) / range_ms.max(1)).min(levels - 1)
}

/// Seconds in the largest unit of which there is one at least.
fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn draw(text: &mut String, columns: &[Column]) {
    for row in (0..ROWS).rev() {
        let below = row * LEVELS_IN_ROW;
        text.extend(columns.iter().map(|column| match column.level.checked_sub(below) {
            None => ' ',
            Some(over) => TOPS.get(over as usize).copied().unwrap_or('|'),
        }));
        text.push('\n');
    }
    text.extend(std::iter::repeat_n(' ', columns.len()).chain(['\n']));
    // Labels are written downwards.
    let longest = columns.iter().map(|column| column.label.len()).max().unwrap_or(0);
    for line in 0..longest {
        text.extend(columns.iter().map(|column| column.label.as_bytes().get(line).map_or(' ', |&byte| byte.into())));
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(durations_ms: impl IntoIterator<Item = u64>) -> LatencyHistory {
        let spikes =
            durations_ms.into_iter().zip(0..).map(|(duration_ms, unix_s)| LatencySpike { unix_s, duration_ms });
        let spikes: VecDeque<LatencySpike> = spikes.collect();
        LatencyHistory { max_ms: 900, spikes }
    }

    #[test]
    fn columns_are_as_high_as_their_spikes_are_long_and_have_their_age_below() {
        let text = latency_graph("command", &history([300, 400, 500, 320]), 61);
        let line = "-".repeat(COLUMNS);
        let expected = format!(
            "command - high 500 ms, low 300 ms (all time high 900 ms)\n{line}\n  # \n _| \n || \n_||o\n    \n1155\nmm98\n  ss\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn spikes_of_one_length_are_flat_and_many_take_several_graphs() {
        let text = latency_graph("x", &history(std::iter::repeat_n(7, COLUMNS + 1)), 100);
        assert_eq!(text.lines().next(), Some("x - high 7 ms, low 7 ms (all time high 900 ms)"));
        let flat = "_".repeat(COLUMNS);
        assert_eq!(text.lines().filter(|line| **line == *flat).count(), 1);
        assert!(text.ends_with("\n\n \n \n \n_\n \n2\n0\ns\n"), "{text}");
    }

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400, 900_000].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "23h", "1d", "10d"]);
    }
}

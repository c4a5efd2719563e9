//! What the view knows: the last sample, the rates since the one before, what the user has chosen.
//!
//! Relies on nothing of a terminal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::sample::{CommandRow, Rates, Sample};

/// As many rates as the widest screen has columns.
const MOST_HISTORY: usize = 512;
/// Shortest and longest time between two questions.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// By what commands are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortColumn {
    /// Their name.
    Name,
    /// Runs a second.
    Rate,
    /// Time of a run.
    Latency,
    /// Share of the time.
    Share,
    /// Runs since the start.
    Calls,
}

impl SortColumn {
    /// All of them, from left to right.
    pub const ALL: [Self; 5] = [Self::Name, Self::Rate, Self::Latency, Self::Share, Self::Calls];

    /// The next one to the right, or to the left.
    pub fn neighbour(self, right: bool) -> Self {
        let place = Self::ALL.iter().position(|column| *column == self).unwrap_or(0);
        let step = if right { 1 } else { Self::ALL.len() - 1 };
        Self::ALL[(place + step) % Self::ALL.len()]
    }
}

/// All that a frame is drawn from.
pub struct TopState {
    /// What the user called the server.
    pub named: String,
    /// Between two questions.
    pub interval: Duration,
    /// The last sample.
    pub sample: Option<Sample>,
    /// What happened since the one before.
    pub rates: Rates,
    /// Commands a second, the newest last.
    pub history: VecDeque<u64>,
    /// When the server was heard last.
    pub heard: Instant,
    /// By what commands are sorted.
    pub sort: SortColumn,
    /// The other way round.
    pub is_inverted: bool,
    /// The line of the table that is chosen.
    pub selected: usize,
    /// New samples are not shown.
    pub is_paused: bool,
    /// The keys are shown.
    pub is_help_shown: bool,
}

impl TopState {
    /// A view of `named` before its first sample.
    pub fn new(named: &str, interval: Duration) -> Self {
        Self {
            named: named.to_owned(),
            interval: interval.clamp(INTERVALS.0, INTERVALS.1),
            sample: None,
            rates: Rates::default(),
            history: VecDeque::new(),
            heard: Instant::now(),
            sort: SortColumn::Rate,
            is_inverted: false,
            selected: 0,
            is_paused: false,
            is_help_shown: false,
        }
    }

    /// Takes in a sample.
    pub fn push(&mut self, sample: Sample) {
        self.heard = Instant::now();
        if self.is_paused {
            return;
        }
        if let Some(before) = &self.sample {
            self.rates = Rates::between(before, &sample);
            self.history.push_back(self.rates.commands_per_s as u64);
            if self.history.len() > MOST_HISTORY {
                self.history.pop_front();
            }
        }
        self.sample = Some(sample);
        self.selected = self.selected.min(self.rates.commands.len().saturating_sub(1));
    }

    /// Half, or twice, the time between two questions.
    pub fn change_interval(&mut self, faster: bool) {
        let changed = if faster { self.interval / 2 } else { self.interval * 2 };
        self.interval = changed.clamp(INTERVALS.0, INTERVALS.1);
    }

    /// Another line of the table.
    pub fn select(&mut self, step: isize) {
        let last = self.rates.commands.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(step).min(last);
    }

    /// The commands as they are sorted.
    pub fn sorted(&self) -> Vec<&CommandRow> {
        let mut rows: Vec<&CommandRow> = self.rates.commands.iter().collect();
        rows.sort_by(|one, other| {
            let order = match self.sort {
                SortColumn::Name => one.name.cmp(&other.name),
                SortColumn::Rate => other.calls_per_s.total_cmp(&one.calls_per_s),
                SortColumn::Latency => other.us_per_call.total_cmp(&one.us_per_call),
                SortColumn::Share => other.time_share.total_cmp(&one.time_share),
                SortColumn::Calls => other.calls.cmp(&one.calls),
            };
            let order = if self.is_inverted { order.reverse() } else { order };
            order.then_with(|| other.calls.cmp(&one.calls)).then_with(|| one.name.cmp(&other.name))
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::{SAVING, at, later};
    use super::*;

    fn state() -> TopState {
        let mut state = TopState::new("a:1", Duration::from_secs(1));
        state.push(at(0, SAVING));
        state.push(later());
        state
    }

    fn names(state: &TopState) -> Vec<&str> {
        state.sorted().iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn commands_are_sorted_by_the_column_and_the_other_way_round() {
        let mut state = state();
        assert_eq!(names(&state), ["get", "set", "config get"]);
        state.sort = SortColumn::Latency;
        assert_eq!(names(&state), ["config get", "set", "get"]);
        state.is_inverted = true;
        assert_eq!(names(&state), ["get", "set", "config get"]);
        assert_eq!(SortColumn::Calls.neighbour(true), SortColumn::Name);
        assert_eq!(SortColumn::Name.neighbour(false), SortColumn::Calls);
    }

    #[test]
    fn a_view_that_is_paused_stays_as_it_is_and_the_history_is_bounded() {
        let mut state = state();
        assert_eq!(state.history, [1000]);
        state.is_paused = true;
        state.push(at(4, SAVING));
        assert_eq!(state.rates.commands_per_s, 1000.0);
        state.is_paused = false;
        (0..2000).for_each(|second| state.push(at(second, SAVING)));
        assert_eq!(state.history.len(), MOST_HISTORY);
    }

    #[test]
    fn the_choice_stays_in_the_table_and_the_interval_in_its_bounds() {
        let mut state = state();
        state.select(99);
        assert_eq!(state.selected, 2);
        state.select(-99);
        assert_eq!(state.selected, 0);
        (0..20).for_each(|_| state.change_interval(false));
        assert_eq!(state.interval, INTERVALS.1);
        (0..20).for_each(|_| state.change_interval(true));
        assert_eq!(state.interval, INTERVALS.0);
    }
}

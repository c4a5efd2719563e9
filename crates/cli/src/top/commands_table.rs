//! The table of commands: a head that shows the order, and the rows that fit.
//!
//! Relies on [`TopState::sorted`] for the order.

use quire_units::format_ns;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::panels::thousands;
use super::sample::CommandRow;
use super::state::{SortColumn, TopState};
use super::theme::Theme;

/// The columns with their heads and widths.
const COLUMNS: [(SortColumn, &str, u16); 5] = [
    (SortColumn::Name, "command", 24),
    (SortColumn::Rate, "calls/s", 12),
    (SortColumn::Latency, "time of one", 12),
    (SortColumn::Share, "time %", 8),
    (SortColumn::Calls, "calls", 16),
];

/// Draws the table into `area`.
pub fn draw(frame: &mut Frame, area: Rect, state: &TopState, theme: Theme) {
    let heads = COLUMNS.map(|(column, name, width)| {
        let mark = match (column == state.sort, state.is_inverted) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let text = align(&format!("{name}{mark}"), column, width);
        let style = if column == state.sort { theme.chosen() } else { theme.head() };
        Cell::from(text).style(style)
    });
    let rows: Vec<Row> = state.sorted().into_iter().map(row).collect();
    let table = Table::new(rows, COLUMNS.map(|(.., width)| Constraint::Length(width)))
        .header(Row::new(heads).style(theme.head()))
        .row_highlight_style(theme.chosen());
    let mut chosen = TableState::default().with_selected(Some(state.selected));
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn row(command: &CommandRow) -> Row<'static> {
    Row::new(COLUMNS.map(|(column, _, width)| {
        let text = match column {
            SortColumn::Name => command.name.clone(),
            SortColumn::Rate => thousands(command.calls_per_s),
            SortColumn::Latency => format_ns(command.us_per_call * 1e3),
            SortColumn::Share => format!("{:.1}", command.time_share * 100.0),
            SortColumn::Calls => thousands(command.calls as f64),
        };
        Cell::from(align(&text, column, width))
    }))
}

/// Names begin at the left, numbers end at the right.
fn align(text: &str, column: SortColumn, width: u16) -> String {
    let width = usize::from(width);
    if column == SortColumn::Name { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_the_right_and_names_begin_at_the_left() {
        assert_eq!(
            (align("a", SortColumn::Name, 3).as_str(), align("1", SortColumn::Calls, 3).as_str()),
            ("a  ", "  1")
        );
    }
}

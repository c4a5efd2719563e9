//! The frame: a title, as many panels as there is room for, the table of commands, the line of keys.
//!
//! Relies on ratatui, which draws what has changed only, and takes the terminal's size anew for each frame.

use std::time::Duration;

use quire_units::format_duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use super::keys::HELP;
use super::panels::{self, Pen};
use super::state::TopState;
use super::theme::Theme;
use super::{commands_table, sample::Sample};

/// Lines of a row of panels, frames included.
const PANEL_LINES: u16 = 7;
/// Lines of the table that have to stay.
const LEAST_TABLE: u16 = 5;
/// From this width on two panels stand beside each other.
const TWO_COLUMNS: u16 = 84;
/// A server that says nothing for so long, beyond the interval, is said to be silent.
const SILENCE: Duration = Duration::from_secs(2);
const KEYS: &str = " q quit  ? keys  P rate  L time  T share  C calls  N name  I invert  space pause";

/// Draws a frame.
pub fn draw(frame: &mut Frame, state: &TopState, theme: Theme) {
    let area = frame.area();
    let Some(sample) = &state.sample else { return };
    let [title, panels, table, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(panel_lines(area)),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title_line(state, sample, theme)), title);
    draw_panels(frame, panels, state, sample, theme);
    commands_table::draw(frame, table, state, theme);
    frame.render_widget(Paragraph::new(KEYS).style(theme.head()), keys);
    if state.is_help_shown {
        draw_help(frame, area, theme);
    }
}

/// The lines that panels get: whole rows, and the table keeps its own.
fn panel_lines(area: Rect) -> u16 {
    let rows = if area.width >= TWO_COLUMNS { 2 } else { 4 };
    let free = area.height.saturating_sub(2 + LEAST_TABLE);
    (free / PANEL_LINES).min(rows) * PANEL_LINES
}

fn title_line(state: &TopState, sample: &Sample, theme: Theme) -> Line<'static> {
    let info = &sample.info;
    let version = match info.field("quire_version") {
        "" => format!("redis {}", info.field("redis_version")),
        version => format!("quire {version}"),
    };
    let up = format_uptime(info.number("uptime_in_seconds").unwrap_or(0));
    let mut spans = vec![
        Span::styled(state.named.clone(), theme.strong()),
        Span::raw(format!("  {version}  up {up}  every {}", format_duration(state.interval))),
    ];
    let silent = state.heard.elapsed();
    if state.is_paused {
        spans.push(Span::styled("  paused", theme.warning()));
    } else if silent > state.interval + SILENCE {
        spans.push(Span::styled(format!("  no answer for {} s", silent.as_secs()), theme.failure()));
    }
    Line::from(spans)
}

/// Days, hours and minutes.
fn format_uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    if days > 0 { format!("{days} d {hours} h") } else { format!("{hours}:{minutes:02}:{:02}", seconds % 60) }
}

/// The panels, the most telling ones first where there is not room for all.
fn draw_panels(frame: &mut Frame, area: Rect, state: &TopState, sample: &Sample, theme: Theme) {
    let columns = if area.width >= TWO_COLUMNS { 2 } else { 1 };
    let rows = area.height / PANEL_LINES;
    let lines = Layout::vertical(vec![Constraint::Length(PANEL_LINES); usize::from(rows)]).split(area);
    let places = lines.iter().flat_map(|line| {
        Layout::horizontal(vec![Constraint::Ratio(1, columns); columns as usize]).split(*line).to_vec()
    });
    // While a save runs it is what is looked at.
    let names = if sample.info.is_saving() {
        ["throughput", "save", "memory", "log"]
    } else {
        ["throughput", "memory", "save", "log"]
    };
    for (name, place) in names.into_iter().zip(places) {
        let block = Block::bordered().title(name).border_style(theme.quiet()).title_style(theme.label());
        let inside = block.inner(place);
        frame.render_widget(block, place);
        let pen = Pen { width: usize::from(inside.width), theme };
        let text = match name {
            "throughput" => panels::throughput(state, pen),
            "memory" => panels::memory(&sample.info, pen),
            "save" => panels::save(&sample.info, pen),
            _ => panels::log(state, &sample.info, pen),
        };
        let used = text.len() as u16;
        frame.render_widget(Paragraph::new(text), inside);
        if name == "throughput" && inside.height > used {
            let below = Rect { y: inside.y + used, height: inside.height - used, ..inside };
            draw_history(frame, below, state, theme);
        }
    }
}

/// Commands a second, the newest at the right.
fn draw_history(frame: &mut Frame, area: Rect, state: &TopState, theme: Theme) {
    let shown = state.history.len().min(usize::from(area.width));
    let points: Vec<u64> = state.history.iter().skip(state.history.len() - shown).copied().collect();
    let place = Rect { x: area.right() - shown as u16, width: shown as u16, ..area };
    frame.render_widget(Sparkline::default().data(&points).style(theme.filled()), place);
}

fn draw_help(frame: &mut Frame, area: Rect, theme: Theme) {
    let size = (area.width.min(64), area.height.min(HELP.len() as u16 + 2));
    let place = Rect { x: (area.width - size.0) / 2, y: (area.height - size.1) / 2, width: size.0, height: size.1 };
    let line = |(keys, what): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!(" {keys:<17}"), theme.strong()), Span::raw(*what)])
    };
    let lines: Vec<Line> = HELP.iter().map(line).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("keys")), place);
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::{SAVING, at, later};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    fn state() -> TopState {
        let mut state = TopState::new("127.0.0.1:6379", Duration::from_secs(1));
        state.push(at(0, SAVING));
        state.push(later());
        state
    }

    fn drawn(state: &TopState, columns: u16, lines: u16, theme: Theme) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, state, theme)).unwrap();
        terminal
    }

    fn text(terminal: &Terminal<TestBackend>) -> String {
        let buffer = terminal.backend().buffer();
        let area = *buffer.area();
        let row = |y: u16| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>() + "\n";
        (0..area.height).map(row).collect()
    }

    #[test]
    fn a_wide_screen_shows_every_panel_and_the_commands() {
        let shown = text(&drawn(&state(), 100, 30, Theme::Coloured));
        for part in [
            "127.0.0.1:6379",
            "quire 0.1.0",
            "up 2:01:00",
            "throughput",
            "memory",
            "save",
            "log",
            "calls/s▼",
            "get",
            "q quit",
            "█▒░",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        let rows: Vec<&str> = shown.lines().collect();
        let place = |name: &str| rows.iter().position(|row| row.starts_with(name)).unwrap();
        assert!(place("get") < place("set") && place("set") < place("config get"), "{shown}");
    }

    #[test]
    fn a_small_screen_shows_what_fits_and_none_is_too_small() {
        let shown = text(&drawn(&state(), 60, 20, Theme::Coloured));
        assert!(shown.contains("throughput") && shown.contains("calls/s") && !shown.contains("records"), "{shown}");
        for (columns, lines) in [(1, 1), (2, 2), (5, 3), (20, 7), (30, 60), (300, 10), (84, 9)] {
            drawn(&state(), columns, lines, Theme::Coloured);
            drawn(&TopState { is_help_shown: true, ..state() }, columns, lines, Theme::Plain);
        }
    }

    #[test]
    fn without_colours_none_is_used() {
        let plain = drawn(&state(), 100, 30, Theme::Plain);
        let has_colour = |terminal: &Terminal<TestBackend>| {
            let cells = &terminal.backend().buffer().content;
            cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(!has_colour(&plain) && has_colour(&drawn(&state(), 100, 30, Theme::Coloured)));
    }

    #[test]
    fn the_keys_are_shown_over_the_rest_and_a_pause_is_told() {
        let state = TopState { is_help_shown: true, is_paused: true, ..state() };
        let shown = text(&drawn(&state, 100, 30, Theme::Coloured));
        assert!(shown.contains("sort by share of the time") && shown.contains("paused"), "{shown}");
    }

    #[test]
    fn a_server_that_tells_little_is_shown_with_what_it_tells() {
        let mut state = TopState::new("a:1", Duration::from_secs(1));
        state.push(at(0, "redis_version:7.0.15\r\ncmdstat_get:calls=1,usec=1\r\n"));
        state.push(at(1, ""));
        let shown = text(&drawn(&state, 100, 30, Theme::Coloured));
        assert!(shown.contains("off: a crash") && shown.contains("no save"), "{shown}");
    }
}

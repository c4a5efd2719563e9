//! The keys of `quire top`, those that users of htop expect.
//!
//! Relies on crossterm for what a key is.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{SortColumn, TopState};

/// The keys for people, and what they do.
pub const HELP: &[(&str, &str)] = &[
    ("q F10 Ctrl-C", "quit"),
    ("h ? F1", "these keys; any key ends them"),
    ("P", "sort by runs a second"),
    ("L", "sort by time of a run"),
    ("T", "sort by share of the time"),
    ("C", "sort by runs since the start"),
    ("N", "sort by name"),
    ("< > F6", "sort by the next column"),
    ("I", "sort the other way round"),
    ("↑ ↓ PgUp PgDn", "go through the commands"),
    ("+ -", "ask the server less or more often"),
    ("space Z", "pause, go on"),
];

/// Lines of a page.
const PAGE: isize = 10;

/// What a key leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// The view goes on.
    Stay,
    /// The user has ended it.
    Quit,
}

/// Does what `key` asks for.
pub fn press(state: &mut TopState, key: KeyEvent) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::Stay;
    }
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if has_control => return Action::Quit,
        KeyCode::Char('q' | 'Q') | KeyCode::F(10) => return Action::Quit,
        _ if state.is_help_shown => state.is_help_shown = false,
        KeyCode::Char('h' | 'H' | '?') | KeyCode::F(1) => state.is_help_shown = true,
        KeyCode::Char('p' | 'P') => sort(state, SortColumn::Rate),
        KeyCode::Char('l' | 'L') => sort(state, SortColumn::Latency),
        KeyCode::Char('t' | 'T') => sort(state, SortColumn::Share),
        KeyCode::Char('c' | 'C') => sort(state, SortColumn::Calls),
        KeyCode::Char('n' | 'N') => sort(state, SortColumn::Name),
        KeyCode::Char('>' | '.') | KeyCode::F(6) | KeyCode::Right => {
            let right = state.sort.neighbour(true);
            sort(state, right);
        }
        KeyCode::Char('<' | ',') | KeyCode::Left => {
            let left = state.sort.neighbour(false);
            sort(state, left);
        }
        KeyCode::Char('i' | 'I') => state.is_inverted = !state.is_inverted,
        KeyCode::Up | KeyCode::Char('k') => state.select(-1),
        KeyCode::Down | KeyCode::Char('j') => state.select(1),
        KeyCode::PageUp => state.select(-PAGE),
        KeyCode::PageDown => state.select(PAGE),
        KeyCode::Home => state.select(isize::MIN),
        KeyCode::End => state.select(isize::MAX),
        KeyCode::Char('+') => state.change_interval(false),
        KeyCode::Char('-') => state.change_interval(true),
        KeyCode::Char(' ' | 'z' | 'Z') => state.is_paused = !state.is_paused,
        _ => {}
    }
    Action::Stay
}

fn sort(state: &mut TopState, column: SortColumn) {
    state.sort = column;
    state.selected = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pressed(state: &mut TopState, code: KeyCode) -> Action {
        press(state, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_quit_sort_pause_and_help() {
        let mut state = TopState::new("a:1", Duration::from_secs(1));
        for code in [KeyCode::Char('q'), KeyCode::F(10)] {
            assert_eq!(pressed(&mut state, code), Action::Quit);
        }
        assert_eq!(press(&mut state, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Quit);
        assert_eq!(pressed(&mut state, KeyCode::Char('c')), Action::Stay);
        assert_eq!(state.sort, SortColumn::Calls);
        pressed(&mut state, KeyCode::Char('>'));
        assert_eq!(state.sort, SortColumn::Name);
        pressed(&mut state, KeyCode::Char('I'));
        pressed(&mut state, KeyCode::Char(' '));
        assert!(state.is_inverted && state.is_paused);
        pressed(&mut state, KeyCode::Char('-'));
        assert_eq!(state.interval, Duration::from_millis(500));
    }

    #[test]
    fn help_is_ended_by_any_key_and_quit_ends_all() {
        let mut state = TopState::new("a:1", Duration::from_secs(1));
        pressed(&mut state, KeyCode::Char('?'));
        assert!(state.is_help_shown);
        pressed(&mut state, KeyCode::Char('P'));
        assert!(!state.is_help_shown);
        pressed(&mut state, KeyCode::F(1));
        assert_eq!(pressed(&mut state, KeyCode::Char('q')), Action::Quit);
    }
}

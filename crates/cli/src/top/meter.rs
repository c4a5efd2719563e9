//! Bars in a line of text, as htop has them, and a map of pages.
//!
//! Relies on a fixed width for each letter used.

use ratatui::text::{Line, Span};

use super::theme::Theme;

/// From this share on a bar warns.
const NEAR: f64 = 0.9;

/// `name [||||      words]`: a bar of `width` letters in all, filled up to `share`.
pub fn meter(name: &str, share: f64, words: &str, width: usize, theme: Theme) -> Line<'static> {
    let inside = width.saturating_sub(name.chars().count() + 3);
    let filled = (share.clamp(0.0, 1.0) * inside as f64).round() as usize;
    let words: String = words.chars().take(inside).collect();
    let begins = inside - words.chars().count();
    let mut bar: Vec<char> = (0..inside).map(|place| if place < filled { '|' } else { ' ' }).collect();
    drop(bar.splice(begins.., words.chars()));
    let split = filled.min(inside);
    let (full, empty): (String, String) = (bar[..split].iter().collect(), bar[split..].iter().collect());
    let style = if share >= NEAR { theme.warning() } else { theme.filled() };
    Line::from(vec![
        Span::styled(format!("{name} "), theme.label()),
        Span::styled("[", theme.strong()),
        Span::styled(full, style),
        Span::raw(empty),
        Span::styled("]", theme.strong()),
    ])
}

/// A bar for a save, which is nothing to be warned of when it is nearly done.
pub fn progress(name: &str, share: f64, words: &str, width: usize, theme: Theme) -> Line<'static> {
    let mut line = meter(name, share, words, width, theme);
    if let Some(full) = line.spans.get_mut(2) {
        full.style = theme.filled();
    }
    line
}

/// A map of all pages in address order, in so many letters: what is saved, where the save is, what waits.
pub fn page_map(done: u64, total: u64, width: usize, theme: Theme) -> Line<'static> {
    let cells = width as u64;
    let at = (u128::from(done.min(total)) * u128::from(cells) / u128::from(total.max(1))) as u64;
    let saved = "█".repeat(at as usize);
    let here = if at < cells && done < total { "▒" } else { "" };
    let waits = "░".repeat((cells - at) as usize - here.chars().count());
    Line::from(vec![
        Span::styled(saved, theme.filled()),
        Span::styled(here, theme.warning()),
        Span::styled(waits, theme.quiet()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line) -> String {
        line.spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn a_bar_is_as_wide_as_was_asked_and_has_its_words_at_the_end() {
        assert_eq!(text(&meter("mem", 0.5, "1/2", 18, Theme::Plain)), "mem [||||||   1/2]");
        assert_eq!(text(&meter("m", 1.0, "", 8, Theme::Plain)), "m [||||]");
        for (share, width) in [(f64::NAN, 10), (-1.0, 2), (7.0, 0), (0.3, 30)] {
            let shown = text(&meter("m", share, "many many words", width, Theme::Plain));
            assert!(shown.chars().count() <= width.max(4), "{shown:?}");
        }
    }

    #[test]
    fn the_map_shows_how_far_a_save_is() {
        let map = |done, total| text(&page_map(done, total, 10, Theme::Plain));
        assert_eq!((map(0, 100).as_str(), map(30, 100).as_str()), ("▒░░░░░░░░░", "███▒░░░░░░"));
        assert_eq!((map(100, 100).as_str(), map(0, 0).as_str()), ("██████████", "░░░░░░░░░░"));
        assert_eq!(map(u64::MAX - 1, u64::MAX).chars().count(), 10);
    }
}

//! The colours of `quire top`, and what stands in their place where colours are not wanted.
//!
//! Relies on the sixteen colours that every terminal has, so that the user's own choice of them holds. Nothing is told by colour alone.

use ratatui::style::{Color, Modifier, Style};

/// Which styles are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// Colours.
    Coloured,
    /// Bold and reversed letters only.
    Plain,
}

impl Theme {
    /// The theme that the environment asks for: `NO_COLOR` that is not empty means none.
    pub fn of_environment() -> Self {
        Self::of(std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()))
    }

    fn of(has_no_colour: bool) -> Self {
        if has_no_colour { Self::Plain } else { Self::Coloured }
    }

    fn style(self, colour: Color, modifier: Modifier) -> Style {
        match self {
            Self::Coloured => Style::new().fg(colour),
            Self::Plain => Style::new().add_modifier(modifier),
        }
    }

    /// What is named.
    pub fn label(self) -> Style {
        self.style(Color::Cyan, Modifier::empty())
    }

    /// Figures that matter most.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The part of a bar that is filled.
    pub fn filled(self) -> Style {
        self.style(Color::Green, Modifier::empty())
    }

    /// A bar or a figure near its limit.
    pub fn warning(self) -> Style {
        self.style(Color::Yellow, Modifier::BOLD)
    }

    /// What has failed.
    pub fn failure(self) -> Style {
        self.style(Color::Red, Modifier::BOLD)
    }

    /// Frames and what is less important.
    pub fn quiet(self) -> Style {
        self.style(Color::DarkGray, Modifier::empty())
    }

    /// The heads of tables and the line of keys.
    pub fn head(self) -> Style {
        match self {
            Self::Coloured => Style::new().fg(Color::Black).bg(Color::Green),
            Self::Plain => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The head of the column that is sorted by, and the line that is chosen.
    pub fn chosen(self) -> Style {
        match self {
            Self::Coloured => Style::new().fg(Color::Black).bg(Color::Cyan),
            Self::Plain => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_theme_has_no_colours() {
        let theme = Theme::of(true);
        let styles = [
            theme.label(),
            theme.filled(),
            theme.warning(),
            theme.failure(),
            theme.quiet(),
            theme.head(),
            theme.chosen(),
        ];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
        assert_eq!(Theme::of(false).failure().fg, Some(Color::Red));
    }
}

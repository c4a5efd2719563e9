//! A figure as a bar, its goal and its bound as lines across it. Names stand above and below the bar, so that they never cover it.
//!
//! Relies on the page's style for colours. Places are percentages: the bar is as wide as the screen lets it be.

use maud::{Markup, html};

use super::figure::FigureRecord;

/// The longest part reaches so far, so that its name has room.
const REACH_PERCENT: f64 = 88.0;
/// Names of lines beyond this place stand to their left.
const TURN_PERCENT: f64 = 55.0;

/// Where the parts of a bar lie, in percent of its width.
#[derive(Debug, PartialEq)]
struct Places {
    value: f64,
    goal: Option<f64>,
    bound: Option<f64>,
    spread: Option<[f64; 2]>,
}

impl Places {
    /// The places; nothing where there is no value or nothing to set it beside, or where numbers below zero would need another axis.
    fn of(figure: &FigureRecord) -> Option<Self> {
        let value = figure.value?;
        let bound = figure.bound.as_ref().map(|(_, bound)| *bound);
        if figure.goal.is_none() && bound.is_none() {
            return None;
        }
        let shown = [Some(value), figure.goal, bound, figure.spread.map(|[_, most]| most)];
        let most = shown.into_iter().flatten().fold(0.0, f64::max);
        let least = shown.into_iter().flatten().fold(0.0, f64::min);
        if least < 0.0 || most <= 0.0 || !most.is_finite() {
            return None;
        }
        let place = |value: f64| (value / most * REACH_PERCENT * 100.0).round() / 100.0;
        Some(Self {
            value: place(value),
            goal: figure.goal.map(place),
            bound: bound.map(place),
            spread: figure.spread.map(|ends| ends.map(place)),
        })
    }
}

/// The bar; nothing where there is nothing to set beside each other.
pub fn html(figure: &FigureRecord) -> Markup {
    let Some(places) = Places::of(figure) else { return html! {} };
    html! {
        div class="bar" aria-hidden="true" {
            @if let (Some(at), Some(goal)) = (places.goal, figure.goal_words()) {
                (line("goal", at, &format!("goal {}", short(&goal))))
            }
            div class="track" {
                div class="value" style={ "width:" (places.value) "%" } {}
                @if let Some([least, most]) = places.spread {
                    div class="spread" style={ "left:" (least) "%;width:" (width(least, most)) "%" } {}
                }
            }
            @if let (Some(at), Some((_, bound))) = (places.bound, &figure.bound) {
                (line("bound", at, &format!("bound {}", short(&figure.in_unit(*bound)))))
            }
        }
    }
}

/// A number without "of the data" behind it, which a phone has no room for; the figure's text has it.
fn short(words: &str) -> &str {
    words.split(" of ").next().unwrap_or(words)
}

fn width(least: f64, most: f64) -> f64 {
    ((most - least).max(0.0) * 100.0).round() / 100.0
}

/// A line across the bar with its name beside it.
fn line(class: &str, at: f64, name: &str) -> Markup {
    let side = if at > TURN_PERCENT { "turned" } else { "straight" };
    html! {
        div class={ "mark " (class) " " (side) } style={ "left:" (at) "%" } { span { (name) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, goal: Option<f64>, bound: Option<f64>) -> FigureRecord {
        FigureRecord {
            value: Some(value),
            goal,
            bound: bound.map(|bound| ("b".into(), bound)),
            ..FigureRecord::default()
        }
    }

    #[test]
    fn the_largest_of_value_goal_and_bound_takes_the_width() {
        let places = Places::of(&figure(2.0, Some(4.0), Some(1.0))).unwrap();
        assert_eq!(places, Places { value: 44.0, goal: Some(88.0), bound: Some(22.0), spread: None });
        let text = html(&figure(2.0, Some(4.0), Some(1.0))).into_string();
        assert!(text.contains("mark goal turned") && text.contains("mark bound straight"), "{text}");
    }

    #[test]
    fn a_name_at_a_line_is_a_number_and_its_unit() {
        let share = FigureRecord { unit: "of the data".into(), ..figure(0.2, Some(0.3), Some(0.1)) };
        let text = html(&share).into_string();
        assert!(text.contains(">goal ≤ 0.3<") && text.contains(">bound 0.1<"), "{text}");
        let times = FigureRecord { unit: "x".into(), ..figure(2.0, Some(4.0), None) };
        assert!(html(&times).into_string().contains(">goal ≤ 4 ×<"));
    }

    #[test]
    fn there_is_no_bar_of_one_number_or_below_zero() {
        for figure in [figure(1.0, None, None), figure(-0.03, Some(0.05), None), figure(0.0, Some(0.0), None)] {
            assert_eq!(html(&figure).into_string(), "");
        }
    }
}

//! The page itself: what it says first, a section for each experiment, and what was left out.
//!
//! Relies on maud, which escapes every text that it puts in.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::{FigureRecord, Verdict, peer_words};
use super::plot::Plot;
use super::results::{Results, Run};
use super::section::{Measured, Section, other_plots};
use super::{bar, claims};

const STYLE: &str = include_str!("style.css");
/// No script, nothing from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page of all results.
pub fn html(results: &Results) -> Markup {
    let sections = Section::all(results);
    let plots = other_plots(results, &sections);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { "Quire: what was measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head(&sections)) }
                main {
                    @for section in &sections { (experiment(section)) }
                    @if !plots.is_empty() {
                        section id="plots" { h2 { "Other plots" } @for plot in plots { (figure_of_plot(plot)) } }
                    }
                    @if !results.left_out.is_empty() { (left_out(&results.left_out)) }
                }
            }
        }
    }
}

/// What the page is, and how many goals are reached.
fn head(sections: &[Section]) -> Markup {
    let total = |verdict| sections.iter().map(|section| section.count(verdict)).sum::<usize>();
    let (reached, missed) = (total(Verdict::Reached), total(Verdict::Missed));
    html! {
        h1 { "Quire: what was measured" }
        p {
            "Each figure is set beside its goal, beside what the machine itself does of the same (the bound), beside its peers in the same run, "
            "and beside what the paper of the idea reports. Papers measured other machines. Of each figure the newest full run is shown."
        }
        p class="total" {
            span class="badge reached" { (reached) " goals reached" } " "
            span class="badge missed" { (missed) " goals missed" }
        }
        table class="contents" {
            thead { tr { th { "experiment" } th { "what" } th class="count" { "reached" } th class="count" { "missed" } } }
            tbody {
                @for section in sections {
                    tr {
                        td { a href={ "#" (id(section.name)) } { (section.name) } }
                        td { (section.about) }
                        td class="count" { (section.count(Verdict::Reached)) }
                        td class="count" { (section.count(Verdict::Missed)) }
                    }
                }
            }
        }
    }
}

/// A name as an address in the page.
fn id(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

fn experiment(section: &Section) -> Markup {
    let info: Vec<&Run> = section.runs.iter().copied().filter(|run| !run.info.is_empty()).collect();
    html! {
        section id=(id(section.name)) {
            h2 { (section.name) }
            @if !section.about.is_empty() { p { (section.about) "." } }
            @if let Some(paper) = claims::paper_of(section.name) { p class="paper" { "Paper: " cite { (paper.citation) } } }
            div class="figures" { @for measured in &section.figures { (card(section.name, measured)) } }
            @for plot in &section.plots { (figure_of_plot(plot)) }
            (runs(&section.runs))
            @if !section.others.is_empty() {
                details { summary { "Other runs of the same figures (" (section.others.len()) ")" } (others(&section.others)) }
            }
            @for run in info {
                details { summary { "For information, from " (run.file) " (" (run.info.len()) ")" } (information(&run.info)) }
            }
        }
    }
}

/// A figure with all that is set beside it.
fn card(experiment: &str, (run, figure): &Measured) -> Markup {
    let verdict = figure.verdict();
    html! {
        article class={ "figure " (verdict.class()) } {
            h3 { (figure.title()) " " code { (figure.name) } }
            p class="headline" {
                span class="number" { @if let Some(value) = figure.value { (figure.in_unit(value)) } @else { "–" } }
                " " span class={ "badge " (verdict.class()) } { (verdict.words()) }
            }
            (bar::html(figure))
            dl {
                @if let Some(goal) = figure.goal_words() { dt { "goal" } dd { (goal) } }
                @if let Some((name, bound)) = &figure.bound { dt { "bound" } dd { (figure.in_unit(*bound)) ", " (name) } }
                @if !figure.no_bound.is_empty() { dt { "no bound" } dd { (figure.no_bound) } }
                @if let Some(claim) = claims::claim_of(experiment, &figure.name) { dt { "paper" } dd { (claim) } }
                @if let Some([least, most]) = figure.spread { dt { "spread" } dd { (figure.in_unit(least)) " to " (figure.in_unit(most)) } }
                @if !figure.peers.is_empty() { dt { "behind it" } dd { (peers(figure)) } }
                @if !figure.note.is_empty() { dt { "how" } dd { (figure.note) } }
                dt { "run" } dd { (run.day()) ", " (run.file) }
            }
        }
    }
}

fn peers(figure: &FigureRecord) -> Markup {
    html! {
        ul class="peers" {
            @for (name, value) in figure.peers.iter().map(peer_words) { li { (name) " " b { (value) } } }
        }
    }
}

/// When, where, by what: a run a row.
fn runs(runs: &[&Run]) -> Markup {
    html! {
        details class="runs" {
            summary { "Where and by what it was measured (" (runs.len()) " runs)" }
            @for run in runs {
                dl {
                    dt { "file" } dd { (run.file) }
                    dt { "day" } dd { (run.day()) }
                    dt { "command" } dd { code { (run.called()) } }
                    dt { "machine" } dd { (run.place()) }
                    @if !run.scale.is_empty() { dt { "scale" } dd { (scale(run)) } }
                }
            }
        }
    }
}

fn scale(run: &Run) -> String {
    let words = run.scale.iter().filter(|(_, value)| !value.is_array() && !value.is_object());
    words.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect::<Vec<_>>().join(", ")
}

fn others(figures: &[Measured]) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { th { "figure" } th { "value" } th { "goal" } th { "" } th { "run" } } }
                tbody {
                    @for (run, figure) in figures {
                        tr {
                            td { code { (figure.name) } }
                            td class="count" { @if let Some(value) = figure.value { (figure.in_unit(value)) } @else { "–" } }
                            td class="count" { (figure.goal_words().unwrap_or_default()) }
                            td { span class={ "badge " (figure.verdict().class()) } { (figure.verdict().words()) } }
                            td { (run.day()) ", " (run.file) }
                        }
                    }
                }
            }
        }
    }
}

fn information(figures: &[FigureRecord]) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { th { "figure" } th { "value" } th { "behind it" } th { "how" } } }
                tbody {
                    @for figure in figures {
                        tr {
                            td { (figure.name) }
                            td class="count" { @if let Some(value) = figure.value { (figure.in_unit(value)) } @else { "–" } }
                            td { (peers(figure)) }
                            td { (figure.note) }
                        }
                    }
                }
            }
        }
    }
}

fn figure_of_plot(plot: &Plot) -> Markup {
    html! {
        figure class="plot" {
            div class="wide" tabindex="0" { (PreEscaped(&plot.svg)) }
            figcaption { (plot.name) ".svg" span class="hint" { ": scroll sideways for the names" } }
        }
    }
}

fn left_out(files: &[(String, String)]) -> Markup {
    html! {
        section id="left-out" {
            h2 { "Files that are not on this page" }
            ul { @for (file, why) in files { li { code { (file) } ": " (why) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Elements without an end.
    const VOID: &[&str] = &["meta"];

    /// Elements that are open where `page` ends, and ends that fit none.
    fn unbalanced(page: &str) -> Vec<String> {
        let (mut open, mut faults) = (Vec::new(), Vec::new());
        for part in page.split('<').skip(1) {
            let Some((tag, _)) = part.split_once('>') else {
                faults.push(format!("no end of a tag: {part:.40}"));
                continue;
            };
            let name = tag.split_ascii_whitespace().next().unwrap_or_default();
            match name.strip_prefix('/') {
                Some(name) if open.last() == Some(&name) => _ = open.pop(),
                Some(name) => faults.push(format!("/{name} in {open:?}")),
                None if name.starts_with('!') || VOID.contains(&name) => {}
                None => open.push(name),
            }
        }
        faults.extend(open.into_iter().map(str::to_owned));
        faults
    }

    fn page(runs: &[Value]) -> String {
        let dir = tempfile::tempdir().unwrap();
        for (index, run) in runs.iter().enumerate() {
            std::fs::write(dir.path().join(format!("{index}.json")), run.to_string()).unwrap();
        }
        html(&Results::read(dir.path()).unwrap()).into_string()
    }

    #[test]
    fn missed_goals_are_told_as_plainly_as_reached_ones() {
        let figure = |name: &str, value: f64| json!({"name": name, "value": value, "unit": "x", "goal": 2.0, "better": "higher"});
        let page =
            page(&[json!({"experiment": "ccow", "results": [figure("a", 3.0), figure("b", 1.0), figure("c", 1.5)]})]);
        assert!(page.contains("1 goals reached") && page.contains("2 goals missed"), "{page}");
        assert_eq!((page.matches("✓ goal reached").count(), page.matches("✗ goal missed").count()), (1, 2));
        assert!(page.contains("≥ 2 ×") && page.contains("Ha and Kim"));
        assert_eq!(unbalanced(&page), [""; 0]);
    }

    #[test]
    fn hostile_results_are_shown_and_not_obeyed() {
        let evil = "</style><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>";
        let figure = json!({
            "name": evil, "value": 1e308, "unit": evil, "goal": -1e308, "better": evil, "peer": {evil: evil, "n": 1},
            "bound": {"name": evil, "value": 5e-324}, "no_bound": evil, "spread": [1e308, -1e308], "note": evil
        });
        let run = json!({
            "experiment": evil, "machine": {"cores": evil, "unix_time_s": i64::MAX}, "scale": {evil: evil}, "command": evil,
            "results": [figure.clone(), figure.clone()], "info": [figure]
        });
        let page = page(&[run]);
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        assert_eq!(page.matches("</style>").count(), 1);
        assert_eq!(unbalanced(&page), [""; 0]);
    }

    #[test]
    fn the_page_of_what_is_kept_is_well_formed() {
        let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let results = Results::read(&kept).unwrap();
        assert_eq!(results.left_out, []);
        assert!(results.plots.len() >= 10);
        assert_eq!(unbalanced(&html(&results).into_string()), [""; 0]);
    }
}

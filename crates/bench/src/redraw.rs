//! `quire bench redraw`: the charts of earlier runs, drawn anew from the CSV files beside them, so that all have the style of today.
//!
//! Relies on what [`Chart::draw`] writes below the numbers: the title, both axes, how the series are drawn. A CSV file without these lines is of
//! another kind and is left alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::chart::{Axis, AxisScale, Chart, ChartKind, Mark, Series};

/// What the command does, in a line.
pub const ABOUT: &str = "The charts of earlier runs, drawn anew from their CSV files in the style of today";

/// Which charts.
#[derive(Debug, Clone, clap::Args)]
pub struct RedrawArgs {
    /// The folder with the CSV files
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Where the charts go; it may be the same folder
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Draws all charts of a folder.
///
/// # Errors
/// When a file can't be read or written, when one says what is no chart, or when none is one.
pub fn run(args: &RedrawArgs) -> anyhow::Result<()> {
    let drawn = redraw(&args.from, &args.out)?;
    Ok(quire_sys::out!("{} charts drawn in {}\n", drawn.len(), args.out.display())?)
}

/// Draws all charts of the folder `from` in the folder `out`; their names.
fn redraw(from: &Path, out: &Path) -> anyhow::Result<Vec<String>> {
    let mut drawn = Vec::new();
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry?.path();
        let (Some(name), Some("csv")) =
            (path.file_stem().and_then(|name| name.to_str()), path.extension().and_then(|ending| ending.to_str()))
        else {
            continue;
        };
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        if let Some(chart) = chart_of(name, &text).with_context(|| format!("in {}", path.display()))? {
            chart.draw(out)?;
            drawn.push(name.to_owned());
        }
    }
    if drawn.is_empty() {
        bail!(
            "{} has no CSV file with a line \"# title: …\"; `quire bench NAME --plot DIR` writes such",
            from.display()
        );
    }
    drawn.sort();
    Ok(drawn)
}

/// The chart that a CSV file is of; nothing if it does not say.
fn chart_of(file: &str, text: &str) -> anyhow::Result<Option<Chart>> {
    let said = |what: &str| text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
    let Some(title) = said("title: ") else { return Ok(None) };
    let kind = said("drawn as: ").context("no line says how it is drawn (\"# drawn as: …\")")?;
    let mut heads = text.lines().next().unwrap_or_default().rsplit(',');
    let (up, across) = (heads.next().unwrap_or_default(), heads.next().unwrap_or_default());
    let axis = |what: &str, column: &str| axis_of(said(what), column).with_context(|| format!("\"# {what}…\""));
    let (x, y) = (axis("across ", across)?, axis("up ", up)?);
    let is_columns = kind.ends_with("columns");
    let (series, names) = series_of(text, is_columns)?;
    let body = if is_columns {
        ChartKind::Columns { names, is_stacked: kind == "stacked columns" }
    } else {
        ChartKind::Lines { marks: kind == "lines with marks", shaded: shaded_of(text)? }
    };
    if body.name() != kind {
        bail!("{kind:?} is no way to draw");
    }
    Ok(Some(Chart { file: file.to_owned(), title: title.to_owned(), x, y, body, series }))
}

/// An axis from `(SCALE, unit N, reach N, level N NAME, mark X Y NAME): LABEL`, of which all but the scale may be missing.
fn axis_of(said: Option<&str>, column: &str) -> anyhow::Result<Axis> {
    let inner = said.context("the line is missing")?.strip_prefix('(').context("no parenthesis opens")?;
    let (how, label) = inner.split_once("):").context("no parenthesis closes")?;
    let mut parts = how.split(", ");
    let scale = parts.next().unwrap_or_default();
    let scale = AxisScale::named(scale).with_context(|| format!("{scale:?} is no scale"))?;
    let mut axis = Axis::new(label.trim_start(), column, scale);
    for part in parts {
        match part.split_once(' ') {
            Some(("unit", number)) => axis.unit = number.parse()?,
            Some(("reach", number)) => axis.reach = number.parse()?,
            Some(("level", rest)) => {
                let (number, name) = rest.split_once(' ').context("a level has no name")?;
                axis.levels.push((name.to_owned(), number.parse()?));
            }
            Some(("mark", rest)) => {
                let mut words = rest.splitn(3, ' ');
                let mut next = || words.next().context("a mark has a place, a value and a name");
                let (x, y, name) = (next()?.parse()?, next()?.parse()?, next()?.to_owned());
                axis.marks.push(Mark { name, x, y });
            }
            _ => bail!("{part:?} is unknown"),
        }
    }
    Ok(axis)
}

/// The series in their order, and the names of columns in theirs. Names of series may hold commas.
fn series_of(text: &str, is_columns: bool) -> anyhow::Result<(Vec<Series>, Vec<String>)> {
    let (mut series, mut names) = (Vec::<Series>::new(), Vec::<String>::new());
    for line in text.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut cells = line.rsplitn(3, ',');
        let (Some(y), Some(x), Some(name)) = (cells.next(), cells.next(), cells.next()) else {
            bail!("{line:?} has less than three cells");
        };
        let number = |cell: &str| cell.parse::<f64>().with_context(|| format!("{line:?}: {cell:?} is no number"));
        let x = if is_columns { place_of(&mut names, x) as f64 } else { number(x)? };
        let point = (x, number(y)?);
        match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push(point),
            None => series.push(Series { name: name.to_owned(), points: vec![point] }),
        }
    }
    Ok((series, names))
}

/// Where the column stands; a new one comes last.
fn place_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|own| own == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn shaded_of(text: &str) -> anyhow::Result<Vec<(f64, f64)>> {
    let spans = text.lines().filter_map(|line| line.strip_prefix("# shaded from "));
    let ends = |span: &str| {
        let (from, to) = span.split_once(" to ").with_context(|| format!("the span {span:?} has no end"))?;
        Ok((from.parse()?, to.parse()?))
    };
    spans.map(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{self, PictureArgs};

    fn chart(body: ChartKind, y: Axis) -> Chart {
        let series = |name: &str, up: f64| Series { name: name.into(), points: vec![(0.0, up), (1.0, 2.5 * up)] };
        Chart {
            file: "drawn".into(),
            title: "a title: with a colon".into(),
            x: Axis::new("", "place", AxisScale::Linear),
            y,
            body,
            series: vec![series("one, 0 %", 100.0), series("two", 2000.0)],
        }
    }

    #[test]
    fn a_chart_drawn_from_its_csv_is_the_same_chart() {
        let names = vec!["16k".to_owned(), "1m".to_owned()];
        let bodies = [
            ChartKind::Lines { marks: false, shaded: vec![(0.25, 0.5), (0.75, 1.0)] },
            ChartKind::Lines { marks: true, shaded: Vec::new() },
            ChartKind::Columns { names: names.clone(), is_stacked: true },
            ChartKind::Columns { names, is_stacked: false },
        ];
        let axes = [
            Axis::new("times", "gain", AxisScale::Linear),
            Axis { unit: 1024.0, ..Axis::new("GiB (all)", "mib", AxisScale::PowersOfTen) },
            Axis { unit: 0.01, reach: 3.5, ..Axis::new("percent", "share", AxisScale::PowersOfTwo) },
            Axis {
                levels: vec![("goal: 1.5 × two".into(), 600.0), ("bound".into(), 1e6)],
                marks: vec![Mark { name: "goal of one".into(), x: 1.0, y: 300.5 }],
                ..Axis::new("times", "gain", AxisScale::Linear)
            },
        ];
        for (body, y) in bodies.into_iter().flat_map(|body| axes.iter().map(move |y| (body.clone(), y.clone()))) {
            let (first, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            chart(body, y).draw(first.path()).unwrap();
            assert_eq!(redraw(first.path(), again.path()).unwrap(), ["drawn"]);
            for file in ["drawn.svg", "drawn.csv"] {
                let text = |dir: &tempfile::TempDir| std::fs::read_to_string(dir.path().join(file)).unwrap();
                assert_eq!(text(&first), text(&again));
            }
        }
    }

    #[test]
    fn what_is_no_chart_is_left_alone_and_what_is_half_of_one_is_named() {
        let read = |text: &str| chart_of("x", text);
        assert!(read("a,b\n1,2\n").unwrap().is_none());
        let whole = "s,x,y\none,1,2\n# title: t\n# drawn as: lines\n# across (linear): a\n# up (linear): b\n";
        assert_eq!(read(whole).unwrap().unwrap().series[0].points, [(1.0, 2.0)]);
        for (part, other, told) in [
            ("# drawn as: lines\n", "", "how it is drawn"),
            ("as: lines", "as: stars", "no way to draw"),
            ("across (linear)", "across (round)", "no scale"),
            ("# up (linear): b\n", "", "the line is missing"),
            ("up (linear)", "up (linear, unit x)", "invalid float"),
            ("up (linear)", "up (linear, tall)", "unknown"),
            ("up (linear)", "up (linear, mark 1 2)", "a mark has"),
            ("one,1,2", "one,x,2", "no number"),
            ("one,1,2", "1,2", "less than three cells"),
            ("# title", "# shaded from 1\n# title", "has no end"),
        ] {
            let error = format!("{:#}", read(&whole.replace(part, other)).unwrap_err());
            assert!(error.contains(told), "{told}: {error}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(redraw(dir.path(), dir.path()).unwrap_err().to_string().contains("has no CSV file"));
    }

    #[test]
    fn the_charts_that_are_kept_have_the_style_of_today() {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let dir = tempfile::tempdir().unwrap();
        let mut drawn = redraw(&kept, dir.path()).unwrap();
        assert!(drawn.len() > 20, "{drawn:?}");
        let args = PictureArgs { from: kept.clone(), out: dir.path().join("latency.svg") };
        picture::run(&args).unwrap();
        drawn.push("latency".into());
        for name in drawn {
            let svg = |folder: &Path| std::fs::read_to_string(folder.join(format!("{name}.svg"))).unwrap();
            assert!(
                svg(&kept) == svg(dir.path()),
                "docs/results/{name}.svg: quire bench redraw --from docs/results --out docs/results, and for latency.svg \
                 quire bench picture --from docs/results --out docs/results/latency.svg"
            );
        }
    }
}

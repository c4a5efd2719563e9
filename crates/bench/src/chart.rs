//! Charts: lines over an axis, or columns with names, one SVG each and the numbers beside it as CSV.
//!
//! Relies on plotters' SVG back end only, so no fonts or image libraries are needed. Axes other than linear ones are drawn
//! by placing logarithms, and labelled by what they stand for.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;

const COLOURS: [RGBColor; 8] = [
    RGBColor(200, 60, 40),
    RGBColor(230, 150, 40),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
    RGBColor(140, 180, 60),
    RGBColor(30, 80, 160),
    RGBColor(40, 140, 150),
    RGBColor(40, 140, 80),
];
const SIZE: (u32, u32) = (900, 420);
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisScale {
    /// In proportion, from zero.
    Linear,
    /// By powers of two, from the least value.
    PowersOfTwo,
    /// By powers of ten, from a hundredth.
    PowersOfTen,
}

impl AxisScale {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::PowersOfTwo => value.log2(),
            Self::PowersOfTen if value.is_nan() => value,
            Self::PowersOfTen => value.max(0.01).log10(),
        }
    }

    fn label(self, position: f64) -> String {
        match self {
            Self::Linear => format!("{}", (position * 1e6).round() / 1e6),
            Self::PowersOfTwo => format!("{:.0}", position.exp2()),
            Self::PowersOfTen => format!("{}", (10_f64.powf(position) * 100.0).round() / 100.0),
        }
    }

    /// Ends of an axis that shows all of `positions`.
    fn range(self, positions: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let finite = positions.filter(|position| position.is_finite());
        let (least, most) = (finite.clone().fold(f64::INFINITY, f64::min), finite.fold(f64::NEG_INFINITY, f64::max));
        match self {
            Self::Linear => (0.0, most.max(1e-9) * 1.05),
            Self::PowersOfTwo if least.is_finite() => (least, most.max(least + 1.0)),
            Self::PowersOfTwo => (0.0, 1.0),
            Self::PowersOfTen => (-2.0, most.max(0.0)),
        }
    }

    /// Labels that fit on an axis from `least` to `most`.
    fn labels(self, (least, most): (f64, f64)) -> usize {
        if self == Self::PowersOfTwo { (most - least) as usize + 1 } else { 10 }
    }
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What stands at it.
    pub label: String,
    /// The head of its column in the CSV.
    pub column: &'static str,
    /// How values lie on it.
    pub scale: AxisScale,
    /// Values are drawn divided by this; the CSV has them as they are.
    pub unit: f64,
    /// A value that the axis reaches in any case, so that several charts can be compared.
    pub reach: f64,
}

impl Axis {
    /// An axis of undivided values.
    pub fn new(label: impl Into<String>, column: &'static str, scale: AxisScale) -> Self {
        Self { label: label.into(), column, scale, unit: 1.0, reach: f64::NAN }
    }

    fn position(&self, value: f64) -> f64 {
        self.scale.position(value / self.unit)
    }
}

/// A name with its points, drawn in one colour. In columns `x` is the number of the column.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// How series are drawn.
#[derive(Debug, Clone)]
pub enum ChartKind {
    /// A line each, with spans of `x` shaded.
    Lines {
        /// Whether each point is marked.
        marks: bool,
        /// Ends of the shaded spans.
        shaded: Vec<(f64, f64)>,
    },
    /// Columns with names.
    Columns {
        /// The names.
        names: Vec<String>,
        /// On top of each other instead of beside each other.
        is_stacked: bool,
    },
}

/// What is drawn.
#[derive(Debug, Clone)]
pub struct Chart {
    /// The files' name without its ending.
    pub file: String,
    /// What stands above it.
    pub title: String,
    /// The axis across.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// How the series are drawn.
    pub body: ChartKind,
    /// The series.
    pub series: Vec<Series>,
}

impl Chart {
    /// Writes `FILE.svg` and `FILE.csv` into `dir`, which is made if it isn't there. Without any point there is no chart.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn draw(&self, dir: &Path) -> anyhow::Result<()> {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return Ok(());
        }
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let path = dir.join(format!("{}.svg", self.file));
        let drawn = match &self.body {
            ChartKind::Lines { marks, shaded } => self.lines(&path, *marks, shaded),
            ChartKind::Columns { names, is_stacked } => self.columns(&path, names, *is_stacked),
        };
        drawn.map_err(|error| anyhow::anyhow!("drawing {}: {error}", path.display()))?;
        let path = dir.join(format!("{}.csv", self.file));
        std::fs::write(&path, self.csv()).with_context(|| format!("writing {}", path.display()))
    }

    /// The series with their places on both axes.
    fn placed(&self) -> Vec<(&str, Vec<(f64, f64)>)> {
        let placed = |&(x, y): &(f64, f64)| (self.x.position(x), self.y.position(y));
        self.series.iter().map(|series| (series.name.as_str(), series.points.iter().map(placed).collect())).collect()
    }

    fn lines(&self, path: &Path, marks: bool, shaded: &[(f64, f64)]) -> Drawn {
        let placed = self.placed();
        let points = || placed.iter().flat_map(|(_, points)| points);
        let across = self.x.scale.range(points().map(|point| point.0));
        let up = self.y.scale.range(points().map(|point| point.1).chain([self.y.position(self.y.reach)]));
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut drawing = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(across.0..across.1, up.0..up.1)?;
        drawing
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(self.x.scale.labels(across))
            .x_label_formatter(&|position| self.x.scale.label(*position))
            .y_label_formatter(&|position| self.y.scale.label(*position))
            .draw()?;
        let light = RGBColor(250, 210, 160).mix(0.6).filled();
        drawing.draw_series(
            shaded
                .iter()
                .map(|&(from, to)| Rectangle::new([(self.x.position(from), up.0), (self.x.position(to), up.1)], light)),
        )?;
        for ((name, points), colour) in placed.iter().zip(COLOURS.into_iter().cycle()) {
            drawing
                .draw_series(LineSeries::new(points.iter().copied(), colour))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            if marks {
                drawing.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        if placed.len() > 1 {
            let corner = if marks { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::LowerRight };
            drawing.configure_series_labels().position(corner).background_style(WHITE).draw()?;
        }
        area.present()?;
        Ok(())
    }

    fn columns(&self, path: &Path, names: &[String], is_stacked: bool) -> Drawn {
        let boxes = self.boxes(names.len(), is_stacked);
        let highest = boxes.iter().map(|(_, corners)| corners[1].1).filter(|top| top.is_finite()).fold(1e-9, f64::max);
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut drawing = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..names.len() as f64, 0.0..highest * 1.1)?;
        let name = |at: &f64| {
            let is_middle = (at.fract() - 0.5).abs() < 0.01;
            names.get(at.floor() as usize).filter(|_| is_middle).cloned().unwrap_or_default()
        };
        drawing
            .configure_mesh()
            .disable_x_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(2 * names.len() + 1)
            .x_label_formatter(&name)
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let own = boxes.iter().filter(|(owner, _)| *owner == index);
            drawing
                .draw_series(own.map(|(_, corners)| Rectangle::new(*corners, colour.filled())))?
                .label(&series.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        drawing.configure_series_labels().position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
        area.present()?;
        Ok(())
    }

    /// The corners of every column's part, with the number of its series.
    fn boxes(&self, count: usize, is_stacked: bool) -> Vec<(usize, [(f64, f64); 2])> {
        let mut floors = vec![0.0; count];
        let mut boxes = Vec::new();
        for (index, (_, points)) in self.placed().into_iter().enumerate() {
            // Beside each other, unless they are parts of one column.
            let width = if is_stacked { 0.7 } else { 0.8 / self.series.len() as f64 };
            let shift = if is_stacked { 0.15 } else { 0.1 + width * index as f64 };
            for (column, height) in points {
                let floor: f64 = if is_stacked { floors[column as usize] } else { 0.0 };
                floors[column as usize] = floor + height;
                boxes.push((index, [(column + shift, floor), (column + shift + width, floor + height)]));
            }
        }
        boxes
    }

    fn csv(&self) -> String {
        let mut text = format!("series,{},{}\n", self.x.column, self.y.column);
        for series in &self.series {
            for &(x, y) in &series.points {
                let at = match &self.body {
                    ChartKind::Columns { names, .. } => names.get(x as usize).cloned().unwrap_or_default(),
                    ChartKind::Lines { .. } => decimal(x),
                };
                let _ = writeln!(text, "{},{at},{}", series.name, decimal(y));
            }
        }
        if let ChartKind::Lines { shaded, .. } = &self.body {
            for &(from, to) in shaded {
                let _ = writeln!(text, "# shaded from {} to {}", decimal(from), decimal(to));
            }
        }
        text
    }
}

/// A number with at most four places after its point.
fn decimal(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(body: ChartKind, x: AxisScale, points: [(f64, f64); 2]) -> Chart {
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: points.iter().map(|&(x, y)| (x, y * factor)).collect(),
        };
        Chart {
            file: "drawn".into(),
            title: "a title".into(),
            x: Axis::new("across", "x", x),
            y: Axis { unit: 1e3, ..Axis::new("upwards", "y", AxisScale::Linear) },
            body,
            series: vec![series("one", 1.0), series("two", 2.0)],
        }
    }

    fn drawn(chart: &Chart) -> (String, String) {
        let dir = tempfile::tempdir().unwrap();
        chart.draw(dir.path()).unwrap();
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        (text("drawn.svg"), text("drawn.csv"))
    }

    #[test]
    fn lines_are_drawn_with_their_numbers_beside_them() {
        let lines = ChartKind::Lines { marks: true, shaded: vec![(1.0, 2.0)] };
        let (svg, csv) = drawn(&chart(lines, AxisScale::PowersOfTwo, [(1.0, 500.0), (16.0, 1000.0)]));
        assert!(svg.contains("<polyline") && svg.contains("<circle") && svg.contains("a title"));
        assert_eq!(csv, "series,x,y\none,1,500\none,16,1000\ntwo,1,1000\ntwo,16,2000\n# shaded from 1 to 2\n");
    }

    #[test]
    fn columns_stand_on_each_other_or_beside_each_other() {
        let columns = |is_stacked| {
            let body = ChartKind::Columns { names: vec!["left".into(), "right".into()], is_stacked };
            chart(body, AxisScale::Linear, [(0.0, 1000.0), (1.0, 3000.0)])
        };
        let tops = |chart: &Chart, is_stacked| -> Vec<f64> {
            chart.boxes(2, is_stacked).iter().map(|(_, corners)| corners[1].1).collect()
        };
        assert_eq!(tops(&columns(true), true), [1.0, 3.0, 3.0, 9.0]);
        assert_eq!(tops(&columns(false), false), [1.0, 3.0, 2.0, 6.0]);
        let (svg, csv) = drawn(&columns(true));
        assert!(svg.contains("right") && csv.contains("two,right,6000\n"), "{csv}");
    }

    #[test]
    fn a_chart_without_points_is_not_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let mut empty =
            chart(ChartKind::Lines { marks: false, shaded: vec![] }, AxisScale::PowersOfTen, [(0.0, 1.0); 2]);
        empty.series.iter_mut().for_each(|series| series.points.clear());
        empty.draw(&dir.path().join("charts")).unwrap();
        assert!(!dir.path().join("charts").exists());
    }

    #[test]
    fn an_axis_of_powers_shows_the_values_and_not_their_logarithms() {
        assert_eq!(AxisScale::PowersOfTwo.label(AxisScale::PowersOfTwo.position(512.0)), "512");
        assert_eq!(AxisScale::PowersOfTen.label(AxisScale::PowersOfTen.position(0.01)), "0.01");
        assert_eq!(AxisScale::PowersOfTwo.labels(AxisScale::PowersOfTwo.range([0.0, 5.0].into_iter())), 6);
    }
}

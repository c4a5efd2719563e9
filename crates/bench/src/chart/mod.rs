//! Charts: lines over an axis, or columns with names, one SVG each and the numbers beside it as CSV.
//!
//! Relies on plotters' SVG back end only, so no fonts or image libraries are needed. Axes other than linear ones are drawn
//! by placing logarithms, and labelled by what they stand for.

mod axis;
mod guides;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use axis::{Axis, AxisScale, Mark};
use guides::{GuideName, Guides};

/// The palette of Okabe and Ito, which people with any colour vision tell apart, without its yellow, which is too light for lines.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];
/// Goals and bounds.
const LEVEL: RGBColor = RGBColor(70, 70, 70);
/// Half the width of a stroke at one place, in pixels.
const STROKE: i32 = 14;
/// Pixels of a dash, and of the space after it.
const DASH: u32 = 6;
const GRID: RGBColor = RGBColor(225, 225, 225);
const AXIS: RGBColor = RGBColor(120, 120, 120);
/// Where something ran: a grey that no line has.
const SHADE: RGBColor = RGBColor(238, 238, 238);
const SIZE: (u32, u32) = (900, 420);
const MARGIN: i32 = 10;
/// A label's colour with the room around it, a letter of its name, and its height, in pixels.
const LABEL_KEY: i32 = 34;
const LABEL_LETTER: i32 = 7;
const LABEL_HEIGHT: i32 = 16;
/// Heights between which labels stand.
const LABEL_SPAN: (i32, i32) = (48, 366);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

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

impl ChartKind {
    /// What CSV files call it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Lines { marks: false, .. } => "lines",
            Self::Lines { marks: true, .. } => "lines with marks",
            Self::Columns { is_stacked: false, .. } => "columns",
            Self::Columns { is_stacked: true, .. } => "stacked columns",
        }
    }
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
        let guides = Guides::of(&self.x, &self.y, highest(points().map(|point| point.1)));
        let reach = guides.heights().chain([self.y.position(self.y.reach)]);
        let up = self.y.scale.range(points().map(|point| point.1).chain(reach));
        let labels = self.labels(&guides);
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut drawing = self.framed(&area, &labels).build_cartesian_2d(across.0..across.1, up.0..up.1)?;
        drawing.draw_series(shaded.iter().map(|&(from, to)| {
            Rectangle::new([(self.x.position(from), up.0), (self.x.position(to), up.1)], SHADE.filled())
        }))?;
        drawing
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(self.x.scale.labels(across))
            .y_labels(self.y.scale.labels(up))
            .x_label_formatter(&|position| self.x.scale.label(*position))
            .y_label_formatter(&|position| self.y.scale.label(*position))
            .draw()?;
        for &level in &guides.levels {
            drawing.draw_series(dashed([across.0, across.1], level))?;
        }
        for ((_, points), colour) in placed.iter().zip(COLOURS.into_iter().cycle()) {
            drawing.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            if marks {
                drawing.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        let stroke = |&at: &(f64, f64)| {
            // Inside the drawing at its ends.
            let from = if at.0 <= across.0 { 0 } else { -STROKE };
            let to = if at.0 >= across.1 { 0 } else { STROKE };
            EmptyElement::at(at) + PathElement::new([(from, 0), (to, 0)], LEVEL.stroke_width(3))
        };
        drawing.draw_series(guides.marks.iter().map(stroke))?;
        // Each name stands where its line ends.
        let ends = placed.iter().map(|(_, points)| points.iter().rev().find(|point| point.1.is_finite()));
        let mut ends: Vec<i32> = ends.map(|end| end.map_or(0, |&end| drawing.backend_coord(&end).1)).collect();
        ends.extend(guides.names.iter().map(|name| drawing.backend_coord(&(across.1, name.height.min(up.1))).1));
        draw_labels(&area, &labels, &ends)?;
        area.present()?;
        Ok(())
    }

    fn columns(&self, path: &Path, names: &[String], is_stacked: bool) -> Drawn {
        let boxes = self.boxes(names.len(), is_stacked);
        let tops = boxes.iter().map(|(_, corners)| corners[1].1);
        let guides = Guides::of(&self.x, &self.y, highest(tops.clone()));
        let most = highest(tops.chain(guides.heights())) * 1.1;
        let labels = self.labels(&guides);
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut drawing = self.framed(&area, &labels).build_cartesian_2d(0.0..names.len() as f64, 0.0..most)?;
        let name = |at: &f64| {
            let is_middle = (at.fract() - 0.5).abs() < 0.01;
            names.get(at.floor() as usize).filter(|_| is_middle).cloned().unwrap_or_default()
        };
        drawing
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(2 * names.len() + 1)
            .x_label_formatter(&name)
            .draw()?;
        for (index, colour) in (0..self.series.len()).zip(COLOURS.into_iter().cycle()) {
            let own = boxes.iter().filter(|(owner, _)| *owner == index);
            drawing.draw_series(own.map(|(_, corners)| Rectangle::new(*corners, colour.filled())))?;
        }
        for &level in &guides.levels {
            drawing.draw_series(dashed([0.0, names.len() as f64], level))?;
        }
        // Across all series of the place.
        let stroke = |&(place, height): &(f64, f64)| {
            PathElement::new([(place + 0.1, height), (place + 0.9, height)], LEVEL.stroke_width(3))
        };
        drawing.draw_series(guides.marks.iter().map(stroke))?;
        // From the top in the order of the columns, of stacked parts in theirs.
        let order = |index: usize| if is_stacked { self.series.len() - index } else { index };
        let mut ends: Vec<i32> = (0..self.series.len()).map(|index| order(index) as i32).collect();
        ends.extend(guides.names.iter().map(|name| drawing.backend_coord(&(0.0, name.height.min(most))).1));
        draw_labels(&area, &labels, &ends)?;
        area.present()?;
        Ok(())
    }

    /// The title, and room for what stands at the axes and beside the drawing.
    fn framed<'a, 'b>(&self, area: &'a Area<'b>, labels: &[Label]) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, ("sans-serif", 18)).margin(MARGIN).margin_right(labels_width(labels));
        builder.x_label_area_size(36).y_label_area_size(72);
        builder
    }

    /// The names that stand beside the drawing: of the series if there are several, and of goals and bounds.
    fn labels(&self, guides: &Guides) -> Vec<Label> {
        let series = self.series.iter().zip(COLOURS.into_iter().cycle());
        let series = series.map(|(series, colour)| Label { name: series.name.clone(), colour, is_dashed: false });
        let guide = |name: &GuideName| Label { name: name.text.clone(), colour: LEVEL, is_dashed: name.is_level };
        // One line is named by the title.
        let is_alone = self.series.len() < 2 && guides.names.is_empty();
        if is_alone { Vec::new() } else { series.chain(guides.names.iter().map(guide)).collect() }
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
        // Whatever it takes to draw the chart again from this file alone.
        let _ = writeln!(text, "# title: {}\n# drawn as: {}", self.title, self.body.name());
        let _ = writeln!(text, "# across {}\n# up {}", self.x.described(), self.y.described());
        if let ChartKind::Lines { shaded, .. } = &self.body {
            for &(from, to) in shaded {
                let _ = writeln!(text, "# shaded from {} to {}", decimal(from), decimal(to));
            }
        }
        text
    }
}

/// A name beside the drawing.
struct Label {
    name: String,
    colour: RGBColor,
    /// Of a dashed line.
    is_dashed: bool,
}

/// The room for the names, to the right of the drawing.
fn labels_width(labels: &[Label]) -> i32 {
    match labels.iter().map(|label| label.name.chars().count()).max() {
        Some(longest) => LABEL_KEY + (longest as i32 * LABEL_LETTER).min(240),
        None => 2 * MARGIN,
    }
}

/// Writes the names beside the drawing, as near to these heights as they have room, each with its colour before it.
fn draw_labels(area: &Area<'_>, labels: &[Label], heights: &[i32]) -> Drawn {
    let left = SIZE.0 as i32 - labels_width(labels) + 6;
    let places = apart(heights, LABEL_SPAN);
    for (Label { name, colour, is_dashed }, height) in labels.iter().zip(places) {
        let parts: &[(i32, i32)] = if *is_dashed { &[(0, 5), (9, 14)] } else { &[(0, 14)] };
        for (from, to) in parts {
            let corners = [(left + from, height - 2), (left + to, height + 2)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
        }
        let style = ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name.clone(), (left + 19, height), style))?;
    }
    Ok(())
}

/// The highest of the places that are numbers, above nothing.
fn highest(places: impl Iterator<Item = f64>) -> f64 {
    places.filter(|place| place.is_finite()).fold(1e-9, f64::max)
}

/// A dashed line across.
fn dashed(ends: [f64; 2], height: f64) -> DashedLineSeries<std::array::IntoIter<(f64, f64), 2>, u32> {
    DashedLineSeries::new(ends.map(|end| (end, height)), DASH, DASH, LEVEL.stroke_width(1))
}

/// Heights in the order of `wanted`, at least a label apart and within the span if they have room there.
fn apart(wanted: &[i32], (top, bottom): (i32, i32)) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| wanted[index]);
    let mut places = vec![0; wanted.len()];
    let mut free = top;
    for (rank, &index) in order.iter().enumerate() {
        // What still has to stand below needs its room.
        let most = bottom - (wanted.len() - 1 - rank) as i32 * LABEL_HEIGHT;
        places[index] = wanted[index].min(most).max(free);
        free = places[index] + LABEL_HEIGHT;
    }
    places
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
        let numbers = "series,x,y\none,1,500\none,16,1000\ntwo,1,1000\ntwo,16,2000\n";
        let how = "# title: a title\n# drawn as: lines with marks\n# across (powers of two): across\n\
                   # up (linear, unit 1000): upwards\n# shaded from 1 to 2\n";
        assert_eq!(csv, format!("{numbers}{how}"));
    }

    #[test]
    fn names_stand_beside_the_drawing_and_never_over_it() {
        let lines = ChartKind::Lines { marks: true, shaded: vec![] };
        let columns = ChartKind::Columns { names: vec!["left".into(), "right".into()], is_stacked: true };
        for body in [lines, columns] {
            let (svg, _) = drawn(&chart(body, AxisScale::Linear, [(0.0, 500.0), (1.0, 1000.0)]));
            let texts: Vec<&str> = svg.split("<text ").skip(1).collect();
            let x = |name: &str| -> f64 {
                let own = texts.iter().find(|text| text.contains(&format!(">\n{name}\n<")));
                own.unwrap().split('"').nth(1).unwrap().parse().unwrap()
            };
            let right = f64::from(SIZE.0) - f64::from(LABEL_KEY + 3 * LABEL_LETTER);
            assert!(x("one") > right && x("two") > right, "{svg}");
        }
    }

    #[test]
    fn goals_and_bounds_are_lines_or_strokes_with_names() {
        let lines = ChartKind::Lines { marks: true, shaded: vec![] };
        let columns = ChartKind::Columns { names: vec!["left".into(), "right".into()], is_stacked: false };
        for body in [lines, columns] {
            let mut chart = chart(body, AxisScale::Linear, [(0.0, 500.0), (1.0, 1000.0)]);
            let dark = format!("stroke=\"#{:02X}{:02X}{:02X}\"", LEVEL.0, LEVEL.1, LEVEL.2);
            assert!(!drawn(&chart).0.contains(&dark));
            chart.y.marks = vec![Mark { name: "goal here".into(), x: 1.0, y: 1500.0 }];
            let (svg, _) = drawn(&chart);
            assert!(svg.matches(&dark).count() == 1 && svg.contains(">\ngoal here\n<"), "{svg}");
            chart.y.levels = vec![("bound".into(), 3000.0), ("far bound".into(), 9e6)];
            let (svg, _) = drawn(&chart);
            assert!(svg.matches(&dark).count() > 5 && svg.contains(">\nbound\n<"), "{svg}");
            assert!(svg.contains(">\n↑ far bound: 9000\n<"), "{svg}");
        }
    }

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        assert_eq!(apart(&[100, 200], (50, 300)), [100, 200]);
        assert_eq!(apart(&[105, 100, 102], (50, 300)), [132, 100, 116]);
        assert_eq!(apart(&[300, 299], (50, 300)), [300, 284]);
        assert_eq!(apart(&[0, 0], (50, 300)), [50, 66]);
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
}

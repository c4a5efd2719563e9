//! Throughput over time around cuts, one line a configuration, as SVG and as CSV.
//!
//! Relies on plotters' SVG back end only.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;

/// A configuration's name, and seconds with writes a second.
#[derive(Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its throughput over time.
    pub slots: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 6] = [
    RGBColor(200, 60, 40),
    RGBColor(230, 150, 40),
    RGBColor(30, 80, 160),
    RGBColor(40, 140, 80),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
];

/// Writes `ccow-throughput.svg` and `ccow-throughput.csv` into `dir`.
///
/// # Errors
/// When the directory cannot be written.
pub fn draw(dir: &Path, title: &str, lines: &[Line]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let path = dir.join("ccow-throughput.svg");
    render(&path, title, lines).map_err(|error| anyhow::anyhow!("drawing {}: {error}", path.display()))?;
    let path = dir.join("ccow-throughput.csv");
    std::fs::write(&path, csv(lines)).with_context(|| format!("writing {}", path.display()))
}

fn render(path: &Path, title: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|line| &line.slots);
    let end = points().map(|point| point.0).fold(0.01, f64::max);
    let top = points().map(|point| point.1 / 1e6).fold(0.01, f64::max) * 1.05;
    let area = SVGBackend::new(path, (1000, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().x_desc("seconds since a cut").y_desc("million writes a second").draw()?;
    for (line, colour) in lines.iter().zip(COLOURS.into_iter().cycle()) {
        let series = line.slots.iter().map(|&(at, per_s)| (at, per_s / 1e6));
        chart
            .draw_series(LineSeries::new(series, colour))?
            .label(line.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

fn csv(lines: &[Line]) -> String {
    let mut text = String::from("configuration,seconds,writes_per_second\n");
    for line in lines {
        for (at, per_s) in &line.slots {
            let _ = writeln!(text, "{},{at:.4},{per_s:.0}", line.name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_and_its_samples_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let line = |name: &str, per_s| Line { name: name.into(), slots: vec![(0.1, per_s), (0.2, per_s * 2.0)] };
        draw(dir.path(), "two lines", &[line("fork", 1e6), line("barrier_80", 2e6)]).unwrap();
        let svg = std::fs::read_to_string(dir.path().join("ccow-throughput.svg")).unwrap();
        assert!(svg.contains("barrier_80") && svg.contains("<polyline"));
        let csv = std::fs::read_to_string(dir.path().join("ccow-throughput.csv")).unwrap();
        assert!(csv.contains("fork,0.2000,2000000\n"), "{csv}");
    }
}

//! Pictures of latency over time while a save runs, one SVG per server, and the samples as CSV beside it.
//!
//! Relies on plotters' SVG back end only, so no fonts or image libraries are needed.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;

use crate::load::paced::Sample;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// The server's name; also the file's.
    pub server: &'a str,
    /// Due times and latencies.
    pub samples: &'a [Sample],
    /// When saves began and ended, in microseconds.
    pub saves: &'a [(u32, u32)],
    /// The latency at the top of the picture, the same for all servers.
    pub top_us: u32,
}

/// Writes `latency-SERVER.svg` and `latency-SERVER.csv` into `dir`.
///
/// # Errors
/// When the directory cannot be written.
pub fn draw(dir: &Path, picture: Picture<'_>) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let path = dir.join(format!("latency-{}.svg", picture.server));
    render(&path, picture).map_err(|error| anyhow::anyhow!("drawing {}: {error}", path.display()))?;
    let path = dir.join(format!("latency-{}.csv", picture.server));
    std::fs::write(&path, csv(picture)).with_context(|| format!("writing {}", path.display()))
}

/// Worst latency of every 10 ms, which keeps the file small and loses no stall.
fn worst_per_slot(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut slots: Vec<(u32, u32)> = Vec::new();
    for &(due, latency) in samples {
        let slot = due / 10_000;
        match slots.last_mut() {
            Some(last) if last.0 == slot => last.1 = last.1.max(latency),
            _ => slots.push((slot, latency)),
        }
    }
    slots.into_iter().map(|(slot, latency)| (f64::from(slot) / 100.0, f64::from(latency.max(1)) / 1000.0)).collect()
}

fn render(path: &Path, picture: Picture<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let points = worst_per_slot(picture.samples);
    let end = points.last().map_or(1.0, |point| point.0).max(0.01);
    let top = f64::from(picture.top_us.max(1000)) / 1000.0;
    let area = SVGBackend::new(path, (1000, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{}: worst latency of every 10 ms (shaded: a save runs)", picture.server), ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, (0.01..top).log_scale())?;
    chart.configure_mesh().x_desc("seconds").y_desc("milliseconds").draw()?;
    let seconds = |micros: u32| f64::from(micros) / 1e6;
    chart.draw_series(picture.saves.iter().map(|&(from, to)| {
        Rectangle::new([(seconds(from), 0.01), (seconds(to), top)], RGBColor(250, 210, 160).mix(0.6).filled())
    }))?;
    chart.draw_series(LineSeries::new(points, &RGBColor(30, 80, 160)))?;
    area.present()?;
    Ok(())
}

fn csv(picture: Picture<'_>) -> String {
    let mut text = String::from("seconds,worst_latency_ms\n");
    for (at, latency) in worst_per_slot(picture.samples) {
        let _ = writeln!(text, "{at},{latency}");
    }
    for &(from, to) in picture.saves {
        let _ = writeln!(text, "# save from {} to {} s", f64::from(from) / 1e6, f64::from(to) / 1e6);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_and_its_samples_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let samples = [(100, 50), (9_000, 80_000), (20_000, 60)];
        draw(dir.path(), Picture { server: "quire", samples: &samples, saves: &[(5_000, 15_000)], top_us: 100_000 })
            .unwrap();
        assert!(std::fs::read_to_string(dir.path().join("latency-quire.svg")).unwrap().contains("<svg"));
        let csv = std::fs::read_to_string(dir.path().join("latency-quire.csv")).unwrap();
        assert!(csv.contains("0,80\n") && csv.contains("0.02,0.06"), "{csv}");
    }
}

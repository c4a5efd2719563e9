//! `quire bench picture`: the latencies of Quire and Redis around their saves, one above the other with the same axes, in one SVG.
//!
//! Relies on the CSV files that `quire bench server --plot` writes: points, and comments with the spans in which a save ran.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use plotters::coord::Shift;
use plotters::prelude::*;

/// What the command does, in a line.
pub const ABOUT: &str =
    "Latencies of Quire and Redis around their saves in one picture, from the CSV files of an earlier run";
const SIZE: (u32, u32) = (900, 460);
/// Seconds before and after the start of the first save.
const WINDOW_S: (f64, f64) = (-1.0, 31.0);
/// Milliseconds between the ends of the upper axis.
const RANGE_MS: (f64, f64) = (0.1, 300.0);
/// As many pixels as there are across, so that the file stays small and each spike stays.
const SLOTS_PER_S: f64 = 25.0;
/// Two colours of the palette of Okabe and Ito, which people with any colour vision tell apart.
const COLOURS: [RGBColor; 2] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178)];
const GRID: RGBColor = RGBColor(225, 225, 225);
const SAVE: RGBColor = RGBColor(238, 238, 238);

/// Which files.
#[derive(Debug, Clone, clap::Args)]
pub struct PictureArgs {
    /// The folder with latency-quire.csv and latency-redis-server.csv
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// The picture
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Latencies of a server, the start of its first save at 0.
#[derive(Debug, PartialEq)]
struct Latencies {
    server: &'static str,
    /// Seconds and milliseconds.
    points: Vec<(f64, f64)>,
    saves: Vec<(f64, f64)>,
}

/// Draws the picture that `args` ask for.
///
/// # Errors
/// When a file can't be read, holds no points or no saves, or when the picture can't be written.
pub fn run(args: &PictureArgs) -> anyhow::Result<()> {
    let read = |server: &'static str| {
        let path = args.from.join(format!("latency-{server}.csv"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Latencies::parse(server, &text).with_context(|| format!("in {}", path.display()))
    };
    draw(&args.out, &[read("redis-server")?, read("quire")?])
        .map_err(|error| anyhow::anyhow!("drawing {}: {error}", args.out.display()))
}

impl Latencies {
    fn parse(server: &'static str, text: &str) -> anyhow::Result<Self> {
        let (mut points, mut saves) = (Vec::new(), Vec::new());
        for line in text.lines() {
            // Versions before charts had a common form wrote "save" and the unit.
            let span = line.strip_prefix("# shaded from ").or_else(|| line.strip_prefix("# save from "));
            if let Some(span) = span.map(|span| span.trim_end_matches(" s")) {
                let (from, to) = span.split_once(" to ").with_context(|| format!("{line:?} has no end"))?;
                saves.push((from.parse::<f64>()?, to.parse::<f64>()?));
                continue;
            }
            if line.starts_with('#') {
                continue;
            }
            let mut last = line.rsplit(',').map(str::parse::<f64>);
            if let (Some(Ok(latency)), Some(Ok(at))) = (last.next(), last.next()) {
                points.push((at, latency));
            }
        }
        let Some(&(start, _)) = saves.first() else {
            bail!("no line says when a save ran (\"# shaded from … to …\")")
        };
        if points.is_empty() {
            bail!("there are no points");
        }
        points.iter_mut().for_each(|point| point.0 -= start);
        saves.iter_mut().for_each(|save| *save = (save.0 - start, save.1 - start));
        Ok(Self { server, points, saves })
    }

    /// The points of the window, the worst of every slot.
    fn shown(&self) -> Vec<(f64, f64)> {
        let mut slots: Vec<(f64, f64)> = Vec::new();
        for &(at, latency) in self.points.iter().filter(|point| point.0 >= WINDOW_S.0 && point.0 <= WINDOW_S.1) {
            let slot = (at * SLOTS_PER_S).floor() / SLOTS_PER_S;
            match slots.last_mut() {
                Some(last) if last.0 == slot => last.1 = last.1.max(latency),
                _ => slots.push((slot, latency.max(RANGE_MS.0))),
            }
        }
        slots
    }

    /// What stands above the panel.
    fn caption(&self) -> String {
        let began = self.saves.iter().filter(|save| save.0 < WINDOW_S.1).count();
        let longest = self.shown().iter().map(|point| point.1).fold(0.0, f64::max);
        let mean_s = self.saves.iter().map(|save| save.1 - save.0).sum::<f64>() / self.saves.len() as f64;
        let saves = if began == 1 { "1 save".to_owned() } else { format!("{began} saves") };
        format!("{}: {saves} of {mean_s:.1} s (grey), longest wait {longest:.0} ms", self.server)
    }
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, servers: &[Latencies; 2]) -> Drawn {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    for ((panel, server), colour) in area.split_evenly((2, 1)).iter().zip(servers).zip(COLOURS) {
        draw_panel(panel, server, colour)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, server: &Latencies, colour: RGBColor) -> Drawn {
    let mut panel = ChartBuilder::on(area)
        .caption(server.caption(), ("sans-serif", 17, &colour))
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(WINDOW_S.0..WINDOW_S.1, (RANGE_MS.0..RANGE_MS.1).log_scale())?;
    let spans = server.saves.iter().filter(|save| save.0 < WINDOW_S.1);
    let grey = |&(from, to): &(f64, f64)| {
        Rectangle::new([(from, RANGE_MS.0), (to.min(WINDOW_S.1), RANGE_MS.1)], SAVE.filled())
    };
    panel.draw_series(spans.map(grey))?;
    panel
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(RGBColor(120, 120, 120))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .x_desc("seconds since the start of the first save")
        .y_desc("latency, ms")
        .x_labels(8)
        .y_labels(4)
        .x_label_formatter(&|seconds| format!("{seconds:.0}"))
        .y_label_formatter(&|ms| format!("{ms}"))
        .draw()?;
    panel.draw_series(LineSeries::new(server.shown(), colour.stroke_width(1)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "seconds,worst_latency_ms\n4,0.2\n5,0.3\n5.01,90.1\n6,0.4\n99,0.1\n# save from 5 to 35 s\n";
    const QUIRE: &str = "series,seconds,worst_latency_ms\nquire,2,0.2\nquire,3,4.8\n# title: one,5,6\n# shaded from 2 to 3\n# shaded from 5 to 6\n";

    #[test]
    fn the_first_save_is_the_origin_of_time_and_no_spike_is_lost() {
        let redis = Latencies::parse("redis-server", REDIS).unwrap();
        assert_eq!(redis.saves, [(0.0, 30.0)]);
        assert_eq!(redis.shown(), [(-1.0, 0.2), (0.0, 90.1), (1.0, 0.4)]);
        assert_eq!(redis.caption(), "redis-server: 1 save of 30.0 s (grey), longest wait 90 ms");
        let quire = Latencies::parse("quire", QUIRE).unwrap();
        assert_eq!(quire.caption(), "quire: 2 saves of 1.0 s (grey), longest wait 5 ms");
    }

    #[test]
    fn both_servers_are_drawn_and_what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (from, out) = (dir.path().to_owned(), dir.path().join("both.svg"));
        std::fs::write(from.join("latency-redis-server.csv"), REDIS).unwrap();
        let args = PictureArgs { from: from.clone(), out: out.clone() };
        assert!(run(&args).unwrap_err().to_string().contains("latency-quire.csv"));
        std::fs::write(from.join("latency-quire.csv"), "a,b\n1,2\n").unwrap();
        assert!(format!("{:#}", run(&args).unwrap_err()).contains("no line says when a save ran"));
        std::fs::write(from.join("latency-quire.csv"), QUIRE).unwrap();
        run(&args).unwrap();
        let svg = std::fs::read_to_string(out).unwrap();
        assert!(
            svg.matches("<polyline").count() >= 2
                && svg.contains("quire: 2 saves")
                && svg.contains("redis-server: 1 save")
        );
    }
}

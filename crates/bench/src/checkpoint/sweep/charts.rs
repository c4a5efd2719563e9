//! The charts of a sweep: memory and throughput by size, by share of updates and by number of programs; times and file by size.

use super::figures::METHODS;
use super::{PointResult, SweepPoint, SweepResults, USUAL_SHARE};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};

/// What is on the axis upwards.
struct Measure {
    name: &'static str,
    label: &'static str,
    unit: f64,
    value: fn(&PointResult) -> f64,
}

const GROWTH: Measure =
    Measure { name: "memory", label: "extra memory, % of the data", unit: 0.01, value: |result| result.growth };
const THROUGHPUT: Measure =
    Measure { name: "throughput", label: "1000 operations/s", unit: 1e3, value: |result| result.ops_per_s };
const SAVE: Measure = Measure { name: "save", label: "seconds of a save", unit: 1.0, value: |result| result.save_s };
const RESTORE: Measure = Measure {
    name: "restore",
    label: "seconds of a restore",
    unit: 1.0,
    value: |result| result.restore_s.unwrap_or(f64::NAN),
};
const FILE: Measure =
    Measure { name: "file", label: "MiB of the file", unit: 1_048_576.0, value: |result| result.file_bytes as f64 };

/// What is on the axis across: its name for files, its label, which points lie on it, and a point's name.
struct Across {
    name: &'static str,
    label: &'static str,
    has: fn(&SweepPoint, u64) -> bool,
    named: fn(&SweepPoint) -> String,
}

const SIZES: Across = Across {
    name: "size",
    label: "MiB of data",
    has: |point, _| point.share == USUAL_SHARE && point.instances == 1,
    named: |point| point.mib.to_string(),
};
const SHARES: Across = Across {
    name: "share",
    label: "share of updates",
    has: |point, largest| point.mib == largest && point.instances == 1,
    named: |point| point.share.to_string(),
};
const PROGRAMS: Across = Across {
    name: "instances",
    label: "programs at once",
    has: |point, largest| point.mib == largest && point.share == USUAL_SHARE,
    named: |point| point.instances.to_string(),
};

/// All charts.
pub fn charts(results: &SweepResults) -> Vec<Chart> {
    let drawn: [(&Across, &[Measure]); 3] = [
        (&SIZES, &[GROWTH, THROUGHPUT, SAVE, RESTORE, FILE]),
        (&PROGRAMS, &[GROWTH, THROUGHPUT]),
        (&SHARES, &[GROWTH, THROUGHPUT]),
    ];
    drawn.into_iter().flat_map(|(across, all)| all.iter().map(move |measure| chart(results, across, measure))).collect()
}

fn chart(results: &SweepResults, across: &Across, measure: &Measure) -> Chart {
    let mut points = results.points();
    let largest = points.iter().map(|point| point.mib).max().unwrap_or(0);
    points.retain(|point| (across.has)(point, largest));
    points.sort_by(|one, other| {
        let order = |point: &SweepPoint| (point.mib, point.instances, (point.share * 1e6) as u64);
        order(one).cmp(&order(other))
    });
    let series = METHODS.map(|method| Series {
        name: method.name().to_owned(),
        points: points
            .iter()
            .enumerate()
            .map(|(column, &point)| (column as f64, results.of(point, method, measure.value).median))
            .collect(),
    });
    Chart {
        file: format!("checkpoint-sweep-{}-by-{}", measure.name, across.name),
        title: format!("a program that saves by forking: {} by {}", measure.label, across.label),
        x: Axis::new(across.label, across.name, AxisScale::Linear),
        y: Axis { unit: measure.unit, ..Axis::new(measure.label, measure.name, AxisScale::Linear) },
        body: ChartKind::Columns { names: points.iter().map(across.named).collect(), is_stacked: false },
        series: series.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::swept;
    use super::*;

    #[test]
    fn each_axis_has_its_points_in_order_and_each_chart_both_ways() {
        let charts = charts(&swept());
        let names = |file: &str| match &charts.iter().find(|chart| chart.file == file).unwrap().body {
            ChartKind::Columns { names, .. } => names.clone(),
            ChartKind::Lines { .. } => Vec::new(),
        };
        assert_eq!(names("checkpoint-sweep-memory-by-size"), ["100", "200"]);
        assert_eq!(names("checkpoint-sweep-memory-by-share"), ["0.25", "0.5", "1"]);
        assert_eq!(names("checkpoint-sweep-throughput-by-instances"), ["1", "2"]);
        assert_eq!(charts.len(), 9);
        assert!(charts.iter().all(|chart| chart.series.iter().all(|series| series.points.len() >= 2)));
        let save = charts.iter().find(|chart| chart.file == "checkpoint-sweep-save-by-size").unwrap();
        assert_eq!(save.series[1].points, [(0.0, 2.0), (1.0, 2.0)]);
    }
}

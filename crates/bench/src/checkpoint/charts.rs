//! Memory over time during a save.
//!
//! Relies on the first round: one line for each way to save, for each load. The goal is stated for the first load.

use super::figures::GROWTH_GOAL;
use super::program::SaveMethod;
use super::{LOADS, TrialResults};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};

/// A chart for each load.
pub fn of(results: &TrialResults, data_bytes: u64) -> Vec<Chart> {
    let goal = ("goal of mdc_fork".to_owned(), GROWTH_GOAL * data_bytes as f64);
    let goals = |load: &str| if load == LOADS[0].name { vec![goal.clone()] } else { Vec::new() };
    let chart = |load: &str| Chart {
        file: format!("checkpoint-memory-{load}"),
        title: format!("extra memory during a save by a forked child, updates {load}"),
        x: Axis::new("seconds since the fork", "seconds", AxisScale::Linear),
        y: Axis {
            unit: f64::from(1 << 20),
            levels: goals(load),
            ..Axis::new("MiB beside the data", "bytes", AxisScale::Linear)
        },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: [SaveMethod::Stdio, SaveMethod::Mdc].map(|method| series(results, method, load)).into(),
    };
    LOADS.iter().map(|load| chart(load.name)).collect()
}

fn series(results: &TrialResults, method: SaveMethod, load: &str) -> Series {
    let trial = results.trials.iter().find(|trial| trial.method == method && trial.load == load && trial.round == 0);
    let points = trial.map(|trial| trial.curve.clone()).unwrap_or_default();
    Series { name: method.name().to_owned(), points }
}

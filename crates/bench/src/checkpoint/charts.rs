//! Memory over time during a save.
//!
//! Relies on the first round: one line for each way to save, for each load.

use super::program::Method;
use super::{Found, LOADS};
use crate::chart::{Axis, Body, Chart, Scale, Series};

/// A chart for each load.
pub fn of(found: &Found) -> Vec<Chart> {
    let chart = |load: &str| Chart {
        file: format!("checkpoint-memory-{load}"),
        title: format!("extra memory during a save by a forked child, updates {load}"),
        x: Axis::new("seconds since the fork", "seconds", Scale::Linear),
        y: Axis { unit: f64::from(1 << 20), ..Axis::new("MiB beside the data", "bytes", Scale::Linear) },
        body: Body::Lines { marks: true, shaded: Vec::new() },
        series: [Method::Stdio, Method::Mdc].map(|method| series(found, method, load)).into(),
    };
    LOADS.iter().map(|load| chart(load.name)).collect()
}

fn series(found: &Found, method: Method, load: &str) -> Series {
    let trial = found.trials.iter().find(|trial| trial.method == method && trial.load == load && trial.round == 0);
    let points = trial.map(|trial| trial.curve.clone()).unwrap_or_default();
    Series { name: method.name().to_owned(), points }
}

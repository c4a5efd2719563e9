//! Part `sizes`: whether the cut takes the same time at a tenth and at twice the data set (long run only).
//!
//! Relies on a fresh Quire that grows from one size to the next; the peers are left out, their fork is known to grow.

use std::time::Duration;

use super::setup::ExperimentSetup;
use crate::load::closed_loop;
use crate::process::background_save;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// Megabytes of data, and the cut stalls then.
pub type SizeResults = Vec<(u64, Spread)>;

/// Measures the cut stall for each size.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<SizeResults> {
    let mut candidate = setup.start(0, "sizes")?;
    let mut found = Vec::new();
    let mut test_set = 0;
    for keys in [setup.keys / 10, setup.keys * 2] {
        setup.say(&format!("cuts with {keys} keys"));
        closed_loop::fill(candidate.server.port(), test_set..keys, setup.value_bytes, 2)?;
        test_set = keys;
        let mut stalls = Vec::new();
        for _ in 0..3 {
            setup.settle();
            background_save(&mut candidate.control, Duration::from_millis(10))?;
            stalls.push(candidate.server.save_stall_us(&mut candidate.control)?);
        }
        let stall = Spread::of(&stalls).expect("there were three saves");
        let megabytes = keys * (setup.value_bytes as u64 + 16) / 1_000_000;
        found.push((megabytes, stall));
    }
    candidate.server.kill();
    Ok(found)
}

/// Adds a cut stall for each size.
pub fn figures(found: &SizeResults, report: &mut Report) {
    for &(megabytes, stall) in found {
        let name = format!("cut_stall_us_at_{megabytes}_mb");
        report.info.push(Figure::new(name, stall.median, "us", BetterDirection::Lower).goal(200.0).spread(stall));
    }
}

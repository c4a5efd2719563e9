//! Part `incremental`: the time of a delta after one page in a hundred has changed, beside that of a full image.
//!
//! Relies on keys that were set one after the other lying on neighbouring pages, so that every so-many-th key lies on another page; how
//! many pages have changed is asked of the server and told.

use std::time::Duration;

use anyhow::bail;

use super::setup::{Candidate, ExperimentSetup};
use crate::info::ServerInfo;
use crate::load::closed_loop;
use crate::process::background_save;
use crate::report::{BetterDirection, Figure, Report};
use crate::requests::{self, Values};
use crate::resp::Value;
use crate::stats::Spread;
use quire_rng::SplitMix64;

const PAGE_BYTES: f64 = 4096.0;
/// One page in so many changes.
const CHANGED_ONE_IN: f64 = 100.0;
const POLL: Duration = Duration::from_millis(2);

/// Saves of each kind.
#[derive(Debug, Default)]
pub struct IncrementalResults {
    full_s: Vec<f64>,
    delta_s: Vec<f64>,
    changed_share: Vec<f64>,
    delta_share: Vec<f64>,
}

/// Measures full images and deltas in turn.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<IncrementalResults> {
    let mut candidate = setup.start(0, "incremental")?;
    setup.say(&format!("filling quire with {} keys", setup.keys));
    closed_loop::fill(candidate.server.port(), 0..setup.keys, setup.value_bytes, 2)?;
    let mut found = IncrementalResults::default();
    let rounds = setup.rounds.max(3);
    for round in 0..rounds {
        setup.say(&format!("a full image and a delta, {} of {rounds}", round + 1));
        configure(&mut candidate, "no")?;
        setup.settle();
        found.full_s.push(background_save(&mut candidate.control, POLL)?.took.as_secs_f64());
        // The image that the delta is over.
        configure(&mut candidate, "yes")?;
        background_save(&mut candidate.control, POLL)?;
        let image_bytes = ServerInfo::ask(&mut candidate.control, "persistence")?.number("last_image_bytes")?;
        change(&mut candidate, setup, image_bytes / PAGE_BYTES / CHANGED_ONE_IN, round as u64)?;
        let changed = ServerInfo::ask(&mut candidate.control, "persistence")?.number("checkpoint_changed_bytes")?;
        setup.settle();
        let took = background_save(&mut candidate.control, POLL)?.took;
        let info = ServerInfo::ask(&mut candidate.control, "persistence")?;
        if info.number("checkpoint_chain_deltas")? != 1.0 {
            bail!("the save after the changes was no delta");
        }
        found.delta_s.push(took.as_secs_f64());
        found.changed_share.push(changed / image_bytes);
        found.delta_share.push(info.number("checkpoint_last_delta_bytes")? / image_bytes);
    }
    candidate.server.kill();
    Ok(found)
}

fn configure(candidate: &mut Candidate, incremental: &str) -> anyhow::Result<()> {
    match candidate.control.line(&format!("CONFIG SET checkpoint-incremental {incremental}"))? {
        Value::Error(text) => bail!("CONFIG SET was refused: {text}"),
        _ => Ok(()),
    }
}

/// Sets `count` keys that lie as far apart as they can.
fn change(candidate: &mut Candidate, setup: &ExperimentSetup, count: f64, round: u64) -> anyhow::Result<()> {
    let count = (count as u64).clamp(1, setup.keys);
    let values = Values::new(setup.value_bytes, round + 5);
    let mut rng = SplitMix64::new(round);
    let mut batch = Vec::new();
    for number in 0..count {
        batch.clear();
        let key = (number * (setup.keys / count) + round) % setup.keys;
        requests::push_set(&mut batch, key, values.pick(&mut rng));
        candidate.control.send(&batch)?;
        if candidate.control.skip(1)? > 0 {
            bail!("the server refused a SET");
        }
    }
    Ok(())
}

/// Adds the ratio of the times, delta to full image.
pub fn figures(found: &IncrementalResults, report: &mut Report) {
    let ratios: Vec<f64> = found.delta_s.iter().zip(&found.full_s).map(|(delta, full)| delta / full).collect();
    let of = |values: &[f64]| Spread::of(values).expect("there was a save");
    let ratio = of(&ratios);
    report.results.push(
        Figure::new("incremental_1pct_time_ratio", ratio.median, "x", BetterDirection::Lower)
            .goal(0.1)
            .spread(ratio)
            .peer("delta s", of(&found.delta_s).median)
            .peer("full image s", of(&found.full_s).median)
            .bound("the delta's share of the image's bytes", of(&found.delta_share).median)
            .note(format!(
                "from BGSAVE to done, at rest; {:.2} % of the pages had changed, scattered evenly",
                of(&found.changed_share).median * 100.0
            )),
    );
}

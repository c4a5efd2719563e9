//! `quire measure`: how long a snapshot keeps its writer, for every mechanism, after the slides' tool.
//!
//! Relies on `quire-snapshot` for the mechanisms. Each gets fresh, warm memory of its own and has the machine to itself
//! while it is measured.

pub mod args;
pub mod candidate;
pub mod footprint;
mod proof;
pub mod stall;
pub mod table;
pub mod updates;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use quire_snapshot::{Mechanism, OriginOptions, OriginStats, PAGE_SIZE};
use quire_units::format_ns;
use serde_json::{Map, json};

use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;
use crate::{machine, memory};
use args::{MeasureArgs, MechanismSelection, StopPoint};
use candidate::{Candidate, PageKind};
use stall::{StallPlan, StallSamples};
use table::TableRow;
use updates::{UpdatePace, UpdateStream};

/// Cuts that are not counted: the first ones meet memory as it was allocated.
const WARM_CUTS: usize = 2;
const SEED: u64 = 7;

/// Measures what `args` ask for and prints it.
///
/// # Errors
/// When the only mechanism asked for can't be had, or a snapshot is none.
pub fn run(args: &MeasureArgs) -> anyhow::Result<()> {
    let bytes = usize::try_from(args.mib << 20).context("a size beyond this machine's addresses")?;
    if args.single_shot {
        return single_shots(args, bytes);
    }
    // The draws are the same for all.
    let mut updates = UpdateStream::new(bytes, SEED);
    let mut rows = Vec::new();
    for mechanism in args.which.mechanisms() {
        memory::warm_huge(bytes as u64);
        let found = match Candidate::new(mechanism, bytes, kind(args), args.populate, &OriginOptions::default()) {
            Ok(candidate) => Ok(measure(args, &candidate, &mut updates)?),
            Err(refused) if args.which == MechanismSelection::All => Err(refused.to_string()),
            Err(refused) => return Err(refused.into()),
        };
        rows.push(TableRow { name: mechanism.name(), found });
    }
    let pages = if args.thp { "huge pages" } else { "pages of 4 KiB" };
    quire_sys::outln!("{} MiB of {pages}, {} cuts each, {}:", args.mib, args.repeat, args.until.words())?;
    quire_sys::out!("{}", table::render(&rows, args.until))?;
    quire_sys::outln!(
        "release: to drop the snapshot; held: by the mechanism's own account; grown: private memory and files in memory"
    )?;
    write_json(args, &rows)
}

fn kind(args: &MeasureArgs) -> PageKind {
    if args.thp { PageKind::Huge } else { PageKind::Small }
}

fn single_shots(args: &MeasureArgs, bytes: usize) -> anyhow::Result<()> {
    for (index, mechanism) in args.which.mechanisms().into_iter().enumerate() {
        if index > 0 {
            quire_sys::outln!()?;
        }
        memory::warm_huge(bytes as u64);
        match Candidate::new(mechanism, bytes, kind(args), args.populate, &OriginOptions::default()) {
            Ok(candidate) => quire_sys::out!("{}", proof::tell(&candidate, args)?)?,
            Err(refused) if args.which == MechanismSelection::All => quire_sys::outln!("Mechanism: {refused}")?,
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(())
}

fn measure(args: &MeasureArgs, candidate: &Candidate, updates: &mut UpdateStream) -> anyhow::Result<StallSamples> {
    let repeat = args.repeat as usize;
    let pace = if args.flat_out { UpdatePace::FlatOut } else { UpdatePace::Steady };
    let plan = StallPlan {
        warm: WARM_CUTS,
        most: repeat,
        least: repeat,
        time: Duration::MAX,
        pace,
        settles: false,
        weighs: true,
    };
    let name = candidate.origin().mechanism();
    let found = stall::run(candidate, updates, plan).with_context(|| format!("measuring {name}"))?;
    if args.verbose {
        for (number, (stall, ready)) in found.stall_ns.iter().zip(&found.ready_ns).enumerate() {
            quire_sys::outln!(
                "{name} cut {}: writer {}, snapshot {}",
                number + 1,
                format_ns(*stall),
                format_ns(*ready)
            )?;
        }
    }
    if args.coverage {
        quire_sys::out!("{}", coverage(name, &candidate.origin().stats()))?;
    }
    Ok(found)
}

/// What coverage-based copying did, in words.
fn coverage(mechanism: Mechanism, stats: &OriginStats) -> String {
    if matches!(mechanism, Mechanism::Fork | Mechanism::MmapCopy | Mechanism::Memcpy) {
        return format!("{mechanism}: copies nothing by coverage\n");
    }
    let share = |part: u64, whole: u64| (part * 100).checked_div(whole).unwrap_or(0);
    let precopied = stats.precopied_pages;
    let known = stats.needed_pages + stats.unneeded_pages;
    let threshold = match stats.threshold_percent {
        over if over > 100 => "none".to_owned(),
        percent => format!("{percent} %"),
    };
    format!(
        "{mechanism}: {} pages copied ({} MiB) in {} cuts, {precopied} of them ahead ({} %); of {known} looked at {} were \
         needed and {} were not ({} %); {} faults, {} huge pages made whole, threshold {threshold}\n",
        stats.copied_pages,
        (stats.copied_pages * PAGE_SIZE as u64) >> 20,
        stats.cuts,
        share(precopied, stats.copied_pages),
        stats.needed_pages,
        stats.unneeded_pages,
        share(stats.unneeded_pages, known),
        stats.faults,
        stats.rejoined_regions,
    )
}

fn write_json(args: &MeasureArgs, rows: &[TableRow]) -> anyhow::Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    std::fs::write(path, report(args, rows)?.json()).with_context(|| format!("writing {}", path.display()))
}

fn report(args: &MeasureArgs, rows: &[TableRow]) -> anyhow::Result<Report> {
    let mut scale = Map::new();
    scale.insert("mib".into(), json!(args.mib));
    scale.insert("pages".into(), json!(kind(args)));
    scale.insert("populated".into(), json!(args.populate));
    scale.insert("repeat".into(), json!(args.repeat));
    scale.insert("flat_out".into(), json!(args.flat_out));
    let point = match args.until {
        StopPoint::Db => "db",
        StopPoint::Snap => "snap",
    };
    scale.insert("until".into(), json!(point));
    let mut report = Report { scale, ..Report::new("measure", machine::facts(Path::new("."))) };
    for row in rows {
        let figure = match &row.found {
            Ok(found) => {
                let Some(spread) = Spread::of(table::times(found, args.until)) else { bail!("nothing was measured") };
                let release = Spread::of(&found.release_ns).map_or(0.0, |spread| spread.median);
                Figure::new(format!("measure_{}_ns", row.name), spread.median, "ns", BetterDirection::Lower)
                    .spread(spread)
                    .peer("release_ns", release)
                    .peer("held_bytes", found.held_bytes as f64)
                    .peer("grown_bytes", found.extra_bytes as f64)
            }
            Err(reason) => {
                let refused = format!("measure_{}_refused", row.name);
                Figure::new(refused, 1.0, "", BetterDirection::Lower).note(reason.clone())
            }
        };
        report.results.push(figure);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_says_what_was_needed_and_what_not() {
        let stats = OriginStats {
            cuts: 2,
            copied_pages: 1024,
            precopied_pages: 512,
            needed_pages: 384,
            unneeded_pages: 128,
            threshold_percent: 80,
            ..OriginStats::default()
        };
        let text = coverage(Mechanism::Uffd, &stats);
        assert!(text.contains("512 of them ahead (50 %)") && text.contains("128 were not (25 %)"), "{text}");
        assert!(coverage(Mechanism::Fork, &stats).contains("nothing"));
    }
}

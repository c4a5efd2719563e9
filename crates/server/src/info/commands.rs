//! Sections Commandstats, Errorstats and Latencystats: what is counted of each command and of each error.

use super::{InfoSource, InfoText};
use crate::client::CommandId;
use crate::registry::registry;

/// Section Commandstats.
pub(super) fn calls(source: &InfoSource<'_>, text: &mut InfoText) {
    for (index, stats) in source.server.stats.commands.iter().enumerate() {
        if stats.calls == 0 && stats.rejected == 0 && stats.failed == 0 {
            continue;
        }
        let usec = stats.total_ns as f64 / 1000.0;
        let per_call = if stats.calls == 0 { 0.0 } else { usec / stats.calls as f64 };
        text.field(
            &format!("cmdstat_{}", name_of(index)),
            format_args!(
                "calls={},usec={usec:.0},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                stats.calls, stats.rejected, stats.failed
            ),
        );
    }
}

/// Section Errorstats.
pub(super) fn errors(source: &InfoSource<'_>, text: &mut InfoText) {
    for (code, count) in &source.server.stats.errors {
        text.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// Section Latencystats: percentiles of the durations of each command that has run, in microseconds.
pub(super) fn latencies(source: &InfoSource<'_>, text: &mut InfoText) {
    let settings = &source.server.config.latency;
    if !settings.keeps_durations {
        return;
    }
    for (index, stats) in source.server.stats.commands.iter().enumerate() {
        if stats.durations.is_empty() {
            continue;
        }
        let told = settings
            .percentiles
            .iter()
            .map(|percent| format!("p{percent}={:.3}", stats.durations.percentile_ns(*percent) as f64 / 1000.0));
        text.field(&format!("latency_percentiles_usec_{}", name_of(index)), told.collect::<Vec<_>>().join(","));
    }
}

fn name_of(index: usize) -> &'static str {
    registry().command(CommandId(index as u16)).name
}

//! Sections Stats, Commandstats, Errorstats and Latencystats: counters since the start, or since CONFIG RESETSTAT, and rates; of all commands
//! together and of each.

use super::{InfoSource, InfoText};
use crate::acl::DenialReason;
use crate::client::CommandId;
use crate::pubsub::TopicKind;
use crate::registry::registry;

pub(super) fn write(source: &InfoSource<'_>, text: &mut InfoText) {
    let stats = &source.server.stats;
    let store = source.store.stats();
    traffic(source, text);
    text.field("rejected_connections", stats.connections_rejected);
    text.field("sync_full", 0);
    text.field("sync_partial_ok", 0);
    text.field("sync_partial_err", 0);
    text.field("expired_subkeys", store.expired_subkeys);
    text.field("expired_keys", store.expired);
    // Keys are found by when they expire, not by samples: none is left for later.
    text.field("expired_stale_perc", "0.00");
    text.field("expired_time_cap_reached_count", 0);
    text.field("expire_cycle_cpu_milliseconds", stats.expire_cycle_us / 1000);
    text.field("evicted_keys", store.evicted);
    text.field("evicted_clients", stats.clients_evicted);
    let (exceeded_now, exceeded) = source.server.steps.eviction.exceeded(source.server.clock.now);
    text.field("total_eviction_exceeded_time", exceeded.as_millis());
    text.field("current_eviction_exceeded_time", exceeded_now.as_millis());
    text.field("keyspace_hits", store.hits);
    text.field("keyspace_misses", store.misses);
    for (name, kind) in [
        ("pubsub_channels", TopicKind::Channel),
        ("pubsub_patterns", TopicKind::Pattern),
        ("pubsubshard_channels", TopicKind::Shard),
    ] {
        text.field(name, source.server.clients.pubsub.count(kind));
    }
    defragmentation(source, text);
    let tracking = &source.server.clients.tracking;
    text.field("tracking_total_keys", tracking.keys.len());
    text.field("tracking_total_items", tracking.keys.items());
    text.field("tracking_total_prefixes", tracking.prefix_count());
    // What stands where Redis forks: the cut.
    text.field("latest_fork_usec", source.store.save_stats().last_cut_ns / 1000);
    text.field("total_forks", 0);
    text.field("migrate_cached_sockets", 0);
    text.field("slave_expires_tracked_keys", 0);
    text.field("unexpected_error_replies", 0);
    text.field("total_error_replies", stats.error_replies);
    text.field("total_reads_processed", stats.reads);
    text.field("total_writes_processed", stats.writes);
    text.field("io_threaded_reads_processed", 0);
    text.field("io_threaded_writes_processed", 0);
    event_loop(source, text);
    text.field("client_query_buffer_limit_disconnections", stats.query_limit_closed);
    text.field("client_output_buffer_limit_disconnections", stats.output_limit_closed);
    let denied = |reason| source.server.monitoring.denials.count(reason);
    text.field("acl_access_denied_auth", denied(DenialReason::Auth));
    text.field("acl_access_denied_cmd", denied(DenialReason::Command));
    text.field("acl_access_denied_key", denied(DenialReason::Key));
    text.field("acl_access_denied_channel", denied(DenialReason::Channel));
}

/// What has come and gone.
fn traffic(source: &InfoSource<'_>, text: &mut InfoText) {
    let stats = &source.server.stats;
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    text.field("total_connections_received", stats.connections_received);
    text.field("total_commands_processed", stats.commands_processed);
    text.field("instantaneous_ops_per_sec", stats.command_rate.per_second());
    text.field("total_net_input_bytes", stats.input_bytes);
    text.field("total_net_output_bytes", stats.output_bytes);
    text.field("instantaneous_input_kbps", kilobytes(stats.input_rate.per_second()));
    text.field("instantaneous_output_kbps", kilobytes(stats.output_rate.per_second()));
    text.field("total_net_repl_input_bytes", 0);
    text.field("total_net_repl_output_bytes", 0);
    text.field("instantaneous_input_repl_kbps", "0.00");
    text.field("instantaneous_output_repl_kbps", "0.00");
}

/// What has been moved together.
fn defragmentation(source: &InfoSource<'_>, text: &mut InfoText) {
    let defrag = &source.server.steps.defrag;
    text.field("active_defrag_hits", defrag.stats.moved);
    text.field("active_defrag_misses", defrag.stats.stayed);
    // Objects are counted, whatever keys they belong to.
    text.field("active_defrag_key_hits", 0);
    text.field("active_defrag_key_misses", 0);
    let (running_now, running) = defrag.running(source.server.clock.now);
    text.field("total_active_defrag_time", running.as_millis());
    text.field("current_active_defrag_time", running_now.as_millis());
}

/// The turns of the loop that serves clients.
fn event_loop(source: &InfoSource<'_>, text: &mut InfoText) {
    let turns = &source.server.stats.turns;
    let (turns_per_s, ns_per_s) = (turns.rate.per_second(), turns.duration_rate.per_second());
    text.field("eventloop_cycles", turns.count);
    text.field("eventloop_duration_sum", turns.duration_ns / 1000);
    text.field("eventloop_duration_cmd_sum", turns.commands_ns / 1000);
    text.field("instantaneous_eventloop_cycles_per_sec", turns_per_s);
    text.field("instantaneous_eventloop_duration_usec", ns_per_s.checked_div(turns_per_s).unwrap_or(0) / 1000);
}

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

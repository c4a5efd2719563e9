//! What a server told at one time, and what happened between two such times.
//!
//! Relies on [`PeerInfo`], whose text has its control characters escaped. A field that a server does not have is not shown.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::durations::{Durations, is_own};
use crate::peer::{Peer, PeerInfo};

/// More commands than there are.
const MOST_COMMANDS: usize = 2000;

/// The answer to one INFO.
pub struct Sample {
    /// When it came.
    pub at: Instant,
    /// How long it took, from the question to the answer.
    pub round_trip: Duration,
    /// What it says.
    pub info: PeerInfo,
    /// How long commands took.
    pub durations: Durations,
}

impl Sample {
    /// Asks the server.
    pub fn take(peer: &mut Peer) -> anyhow::Result<Self> {
        let asked = Instant::now();
        let info = peer.info_everything()?;
        let (at, round_trip) = (Instant::now(), asked.elapsed());
        Ok(Self { at, round_trip, info, durations: Durations::take(peer)? })
    }

    /// Runs and microseconds of every command since the server's start.
    fn commands(&self) -> HashMap<String, (u64, u64)> {
        let stats = self.info.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        let own = stats.filter_map(|line| {
            let (name, figures) = line.split_once(':')?;
            let figure = |wanted: &str| {
                let mut pairs = figures.split(',').filter_map(|pair| pair.split_once('='));
                pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
            };
            Some((name.replace('|', " "), (figure("calls")?, figure("usec")?)))
        });
        own.take(MOST_COMMANDS).collect()
    }
}

/// What became of a command since the sample before.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandRow {
    /// Its name.
    pub name: String,
    /// Runs since the server's start.
    pub calls: u64,
    /// Runs a second.
    pub calls_per_s: f64,
    /// Microseconds of a run; of all runs since the start where there was none since the sample before.
    pub us_per_call: f64,
    /// Its share of the time that all commands took.
    pub time_share: f64,
}

/// Rates between two samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// Commands a second.
    pub commands_per_s: f64,
    /// Microseconds of the mean command.
    pub us_per_command: Option<f64>,
    /// Microseconds that half of the commands, 99 and 99.9 percent of them take at most.
    pub percentiles_us: [Option<u64>; 3],
    /// Bytes a second from clients.
    pub input_bytes_per_s: f64,
    /// Bytes a second to clients.
    pub output_bytes_per_s: f64,
    /// Bytes a second to the log.
    pub log_bytes_per_s: f64,
    /// Writes of the log a second.
    pub log_commits_per_s: f64,
    /// The commands.
    pub commands: Vec<CommandRow>,
}

impl Rates {
    /// What happened from `before` to `after`; a server that has been restarted begins anew.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let grown = |name: &str| {
            let (old, new) = (before.info.number(name).unwrap_or(0), after.info.number(name).unwrap_or(0));
            new.saturating_sub(old) as f64 / seconds
        };
        let (old, new) = (before.commands(), after.commands());
        let mut commands: Vec<(String, u64, u64, u64, u64)> = Vec::with_capacity(new.len());
        for (name, (calls, us)) in new {
            let (old_calls, old_us) = old.get(&name).copied().unwrap_or((0, 0));
            commands.push((name, calls, us, calls.saturating_sub(old_calls), us.saturating_sub(old_us)));
        }
        let all_us = commands.iter().fold(0_u64, |us, row| us.saturating_add(row.4));
        let (mut calls, mut us) = (0_u64, 0_u64);
        for row in commands.iter().filter(|row| !is_own(&row.0)) {
            (calls, us) = (calls.saturating_add(row.3), us.saturating_add(row.4));
        }
        let row = |(name, calls, us, calls_now, us_now): (String, u64, u64, u64, u64)| CommandRow {
            name,
            calls,
            calls_per_s: calls_now as f64 / seconds,
            us_per_call: if calls_now > 0 { us_now as f64 / calls_now as f64 } else { us as f64 / calls.max(1) as f64 },
            time_share: us_now as f64 / all_us.max(1) as f64,
        };
        Self {
            commands_per_s: grown("total_commands_processed"),
            us_per_command: (calls > 0).then(|| us as f64 / calls as f64),
            percentiles_us: [0.5, 0.99, 0.999].map(|share| after.durations.percentile_us(&before.durations, share)),
            input_bytes_per_s: grown("total_net_input_bytes"),
            output_bytes_per_s: grown("total_net_output_bytes"),
            log_bytes_per_s: grown("log_bytes_written"),
            log_commits_per_s: grown("log_commits"),
            commands: commands.into_iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::LazyLock;

    /// What a server tells while it saves and logs.
    pub const SAVING: &str = "quire_version:0.1.0\r\nuptime_in_seconds:7260\r\nconnected_clients:12\r\nblocked_clients:1\r\n\
        maxclients:10000\r\nused_memory:1073741824\r\nused_memory_rss:1181116006\r\nused_memory_peak:1288490188\r\n\
        maxmemory:2147483648\r\nmaxmemory_policy:noeviction\r\nrdb_bgsave_in_progress:1\r\ncurrent_save_pages_done:300\r\n\
        current_save_pages_total:1000\r\ncurrent_save_bytes_written:314572800\r\ncurrent_save_time_left_sec:4\r\n\
        dump_bytes_per_sec:104857600\r\npreimage_bytes_now:16777216\r\npreimage_budget_bytes:67108864\r\nwriter_waits:3\r\n\
        writer_wait_longest_us:1500\r\nlast_cut_stall_us:4.1\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
        log_appended_record:1000\r\nlog_durable_record:990\r\nlog_file_bytes:67108864\r\nlog_commits:100\r\n\
        log_bytes_written:1000000\r\nlog_commit_last_us:250\r\nlog_behind:0\r\ntotal_commands_processed:1000\r\n\
        total_net_input_bytes:50000\r\ntotal_net_output_bytes:60000\r\nkeyspace_hits:9\r\nkeyspace_misses:1\r\n\
        cmdstat_get:calls=600,usec=1200,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_set:calls=400,usec=2000,usec_per_call=5.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_config|get:calls=1,usec=9,usec_per_call=9.00\r\ndb0:keys=1234567,expires=5,avg_ttl=0\r\n";

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// A sample of some second.
    pub fn at(second: u64, info: &str) -> Sample {
        let at = *START + Duration::from_secs(second);
        Sample {
            at,
            round_trip: Duration::from_micros(180),
            info: PeerInfo::new(info.to_owned()),
            durations: Durations::default(),
        }
    }

    /// The same server two seconds later.
    pub fn later() -> Sample {
        let text = SAVING
            .replace("total_commands_processed:1000", "total_commands_processed:3000")
            .replace("get:calls=600,usec=1200", "get:calls=1600,usec=3200")
            .replace("log_bytes_written:1000000", "log_bytes_written:3000000");
        at(2, &text)
    }

    #[test]
    fn rates_are_what_grew_in_the_time_between() {
        let rates = Rates::between(&at(0, SAVING), &later());
        assert_eq!((rates.commands_per_s, rates.log_bytes_per_s, rates.us_per_command), (1000.0, 1e6, Some(2.0)));
        let row = |name: &str| rates.commands.iter().find(|row| row.name == name).unwrap();
        assert_eq!((row("get").calls_per_s, row("get").us_per_call, row("get").time_share), (500.0, 2.0, 1.0));
        assert_eq!((row("set").calls_per_s, row("set").us_per_call), (0.0, 5.0));
        assert_eq!(row("config get").calls, 1);
    }

    #[test]
    fn a_server_that_began_anew_has_no_rates_below_zero() {
        let rates = Rates::between(&later(), &at(4, SAVING));
        assert_eq!((rates.commands_per_s, rates.us_per_command), (0.0, None));
        let odd = at(5, "cmdstat_x:calls=,usec=1\r\ncmdstat_y\r\ncmdstat_z:calls=99999999999999999999,usec=1\r\n");
        assert_eq!(Rates::between(&at(4, ""), &odd).commands, []);
    }
}

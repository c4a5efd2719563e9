//! What each panel of the view says: throughput, memory and clients, the save, the log.
//!
//! Relies on fields of INFO; of those that a server lacks the panel says so or says less.

use std::time::Duration;

use quire_units::{Bytes, format_duration, format_ns};
use ratatui::text::{Line, Span};

use super::meter::{meter, page_map, progress};
use super::state::TopState;
use super::theme::Theme;
use crate::peer::PeerInfo;

/// What panels are drawn with.
#[derive(Clone, Copy)]
pub struct Pen {
    /// Columns inside a panel's frame.
    pub width: usize,
    /// The styles.
    pub theme: Theme,
}

/// Commands a second and what they take. The history stands below it.
pub fn throughput(state: &TopState, pen: Pen) -> Vec<Line<'static>> {
    let rates = &state.rates;
    let round_trip = state.sample.as_ref().map_or(Duration::ZERO, |sample| sample.round_trip);
    let mean = rates.us_per_command.map_or_else(|| "–".to_owned(), |us| format_ns(us * 1e3));
    vec![
        Line::from(vec![
            Span::styled(thousands(rates.commands_per_s), pen.theme.strong()),
            Span::raw(" commands/s, a command takes "),
            Span::styled(mean, pen.theme.strong()),
        ]),
        pair(pen, "50, 99, 99.9 % take", &percentiles(rates.percentiles_us)),
        pair(
            pen,
            "network",
            &format!(
                "{}/s in, {}/s out, INFO {}",
                bytes(rates.input_bytes_per_s),
                bytes(rates.output_bytes_per_s),
                format_duration(round_trip)
            ),
        ),
    ]
}

/// What half of the commands, 99 and 99.9 percent of them take at most.
fn percentiles(us: [Option<u64>; 3]) -> String {
    match us {
        [Some(half), Some(most), Some(nearly_all)] => {
            let shown = [half, most, nearly_all].map(|us| format_ns(us as f64 * 1e3));
            format!("{}, {}, {}", shown[0], shown[1], shown[2])
        }
        _ => "no commands".to_owned(),
    }
}

/// Memory, keys, clients.
pub fn memory(info: &PeerInfo, pen: Pen) -> Vec<Line<'static>> {
    let number = |name: &str| info.number(name).unwrap_or(0);
    let (used, most) = (number("used_memory"), number("maxmemory"));
    let limit = if most > 0 { most } else { number("total_system_memory") };
    let words = format!("{}/{}", Bytes(used), if limit > 0 { Bytes(limit).to_string() } else { "no limit".into() });
    let (hits, misses) = (number("keyspace_hits"), number("keyspace_misses"));
    let hit_share = (hits + misses > 0).then(|| hits as f64 * 100.0 / (hits as f64 + misses as f64));
    let mut clients = format!("{} of {}", number("connected_clients"), number("maxclients"));
    if number("blocked_clients") > 0 {
        clients += &format!(", {} wait", number("blocked_clients"));
    }
    vec![
        meter("used", share(used, limit), &words, pen.width, pen.theme),
        pair(
            pen,
            "resident",
            &format!("{}, most used {}", Bytes(number("used_memory_rss")), Bytes(number("used_memory_peak"))),
        ),
        pair(
            pen,
            "keys",
            &format!(
                "{}, {}",
                thousands(keys(info) as f64),
                hit_share.map_or_else(|| "no reads yet".into(), |hits| format!("{hits:.1} % hits"))
            ),
        ),
        pair(pen, "clients", &clients),
        pair(pen, "evicted", &format!("{}, expired {}", number("evicted_keys"), number("expired_keys"))),
    ]
}

/// The save that is running, or how the last one ended.
pub fn save(info: &PeerInfo, pen: Pen) -> Vec<Line<'static>> {
    let number = |name: &str| info.number(name).unwrap_or(0);
    let (done, total) = (number("current_save_pages_done"), number("current_save_pages_total"));
    let mut lines = Vec::new();
    if info.is_saving() {
        let left = match info.number("current_save_time_left_sec") {
            Some(seconds) => format!("{} left", format_duration(Duration::from_secs(seconds))),
            None => "time left not known".to_owned(),
        };
        // redis-server tells percent only.
        let part =
            if total > 0 { share(done, total) } else { info.field("current_fork_perc").parse().unwrap_or(0.0) / 100.0 };
        lines.push(progress("saving", part, &format!("{:.0} %", part * 100.0), pen.width, pen.theme));
        let rate = Bytes(number("dump_bytes_per_sec"));
        lines.push(pair(pen, "written", &format!("{}, {rate}/s, {left}", Bytes(number("current_save_bytes_written")))));
    } else {
        lines.push(last_save(info, pen));
        lines.push(pair(pen, "changes since", &thousands(number("rdb_changes_since_last_save") as f64)));
    }
    let (buffers, budget) = (number("preimage_bytes_now"), number("preimage_budget_bytes"));
    if budget > 0 {
        lines.push(meter(
            "buffers",
            share(buffers, budget),
            &format!("{}/{}", Bytes(buffers), Bytes(budget)),
            pen.width,
            pen.theme,
        ));
        let longest = format_ns(number("writer_wait_longest_us") as f64 * 1e3);
        lines.push(pair(pen, "commands waited", &format!("{} times, at most {longest}", number("writer_waits"))));
    }
    if info.is_saving() && total > 0 {
        lines.push(page_map(done, total, pen.width, pen.theme));
    } else if let Ok(stall) = info.field("last_cut_stall_us").parse::<f64>() {
        lines.push(pair(pen, "the save stopped all for", &format_ns(stall * 1e3)));
    }
    lines
}

fn last_save(info: &PeerInfo, pen: Pen) -> Line<'static> {
    let saves = info.number("rdb_saves").unwrap_or(0);
    match info.field("rdb_last_bgsave_status") {
        "ok" | "" if saves == 0 => pair(pen, "no save", "since the server's start"),
        "ok" => {
            let bytes = Bytes(info.number("last_image_bytes").unwrap_or(0));
            pair(pen, "last save", &format!("wrote {bytes}; {saves} since the start"))
        }
        _ => {
            let why = format!("the last save failed: {}", info.field("rdb_last_bgsave_error"));
            Line::styled(why, pen.theme.failure())
        }
    }
}

/// The log of writes.
pub fn log(state: &TopState, info: &PeerInfo, pen: Pen) -> Vec<Line<'static>> {
    let number = |name: &str| info.number(name).unwrap_or(0);
    if info.field("aof_enabled") != "1" {
        return vec![Line::styled("off: a crash loses the writes after the last save", pen.theme.quiet())];
    }
    let mut lines = Vec::new();
    if info.field("aof_last_write_status") == "ok" {
        let waits = number("log_appended_record").saturating_sub(number("log_durable_record"));
        let behind = if number("log_behind") == 1 { ", the disk does not keep up" } else { "" };
        lines.push(pair(
            pen,
            "records",
            &format!("{} written, {waits} wait{behind}", thousands(number("log_durable_record") as f64)),
        ));
    } else {
        lines.push(Line::styled(format!("failed: {}", info.field("log_last_error")), pen.theme.failure()));
    }
    let rates = &state.rates;
    lines.push(pair(
        pen,
        "written",
        &format!("{}/s, {} commits/s", bytes(rates.log_bytes_per_s), thousands(rates.log_commits_per_s)),
    ));
    let times = [number("log_commit_last_us"), number("log_commit_longest_us")].map(|us| format_ns(us as f64 * 1e3));
    lines.push(pair(pen, "a commit takes", &format!("{}, at most {}", times[0], times[1])));
    lines.push(pair(pen, "files", &format!("{} of {}", number("log_segments"), Bytes(number("log_file_bytes")))));
    lines
}

fn pair(pen: Pen, name: &str, words: &str) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name} "), pen.theme.label()), Span::raw(words.to_owned())])
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Keys of all databases: `db0:keys=3,…`.
fn keys(info: &PeerInfo) -> u64 {
    let of_database = |line: &str| {
        let (name, figures) = line.strip_prefix("db")?.split_once(":keys=")?;
        name.parse::<u32>().ok()?;
        figures.split(',').next()?.parse::<u64>().ok()
    };
    info.lines().filter_map(of_database).fold(0, u64::saturating_add)
}

fn bytes(rate: f64) -> Bytes {
    Bytes(rate.max(0.0) as u64)
}

/// A whole number with its thousands apart.
pub fn thousands(number: f64) -> String {
    quire_bench::format::plain(number.round())
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::{SAVING, at, later};
    use super::*;

    const PEN: Pen = Pen { width: 50, theme: Theme::Plain };

    fn text(lines: &[Line]) -> String {
        let line = |line: &Line| line.spans.iter().map(|span| span.content.as_ref()).collect::<String>() + "\n";
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_running_save_shows_its_progress_its_buffers_and_its_pages() {
        let shown = text(&save(&at(0, SAVING).info, PEN));
        for part in ["30 %", "300 MiB, 100 MiB/s, 4.00 s left", "16 MiB/64 MiB", "3 times, at most 1.50 ms", "█▒░"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_save_and_a_log_that_failed_say_why() {
        let failed = at(
            0,
            "rdb_last_bgsave_status:err\r\nrdb_last_bgsave_error:disk full\r\naof_enabled:1\r\nlog_last_error:no room\r\n",
        );
        let state = TopState::new("a:1", Duration::from_secs(1));
        assert!(text(&save(&failed.info, PEN)).contains("failed: disk full"));
        assert!(text(&log(&state, &failed.info, PEN)).contains("failed: no room"));
        assert!(text(&log(&state, &at(0, "").info, PEN)).contains("off"));
    }

    #[test]
    fn percentiles_are_told_where_there_are_commands() {
        assert_eq!(percentiles([Some(2), Some(8), Some(64)]), "2.00 µs, 8.00 µs, 64.0 µs");
        assert_eq!(percentiles([None; 3]), "no commands");
    }

    #[test]
    fn memory_and_rates_are_told_with_their_units() {
        let mut state = TopState::new("a:1", Duration::from_secs(1));
        state.push(at(0, SAVING));
        state.push(later());
        let shown = text(&throughput(&state, PEN))
            + &text(&memory(&later().info, PEN))
            + &text(&log(&state, &later().info, PEN));
        for part in
            ["1,000 commands/s", "2.00 µs", "1 GiB/2 GiB", "1,234,567, 90.0 % hits", "12 of 10000, 1 wait", "10 wait"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

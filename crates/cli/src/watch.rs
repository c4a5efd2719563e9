//! `quire image watch`: how far a running save of a server is. A clone that waits for its original's save shows the same.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use quire_units::{Bytes, format_duration};

use crate::peer::{Credentials, Peer, PeerInfo};

/// How often the server is asked.
const EVERY: Duration = Duration::from_millis(100);
/// How long a save may make no progress before it is no longer waited for. A flush of a slow disk takes its time.
const STUCK: Duration = Duration::from_secs(600);

/// A progress bar of a save.
pub struct SaveBar(ProgressBar);

impl SaveBar {
    /// One that shows nothing yet.
    pub fn new() -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}").context("progress")?;
        Ok(Self(ProgressBar::new(0).with_style(style)))
    }

    /// Shows how far the save is.
    pub fn show(&self, info: &PeerInfo) {
        self.0.set_length(info.number("current_save_pages_total").unwrap_or(0));
        self.0.set_position(info.number("current_save_pages_done").unwrap_or(0));
        self.0.set_message(described(info));
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Bytes, rate and time left of the save that is running.
fn described(info: &PeerInfo) -> String {
    let bytes = Bytes(info.number("current_save_bytes_written").unwrap_or(0));
    let rate = Bytes(info.number("dump_bytes_per_sec").unwrap_or(0));
    let left = match info.number("current_save_time_left_sec") {
        Some(seconds) => format!("{} left", format_duration(Duration::from_secs(seconds))),
        // The server tells -1 as long as it can't tell.
        None => "time left not known yet".to_owned(),
    };
    format!("{bytes} written, {rate}/s, {left}")
}

/// Waits until no save is running; tells what INFO says then.
pub fn until_idle(peer: &mut Peer, bar: &SaveBar) -> anyhow::Result<PeerInfo> {
    let (mut last, mut moved) = (String::new(), Instant::now());
    loop {
        let info = peer.info()?;
        if !info.is_saving() {
            bar.clear();
            return Ok(info);
        }
        bar.show(&info);
        let now = format!("{} {}", info.field("current_save_bytes_written"), info.field("current_save_pages_done"));
        if now != last {
            (last, moved) = (now, Instant::now());
        } else if moved.elapsed() > STUCK {
            bar.clear();
            bail!("the save of {} has made no progress for {}", peer.named(), format_duration(STUCK));
        }
        std::thread::sleep(EVERY);
    }
}

/// Runs `quire image watch`; 1 if the save failed or was cancelled.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let named: &String = matches.get_one("server").context("HOST:PORT")?;
    let file = matches.get_one::<std::path::PathBuf>("clone-password-file").map(std::path::PathBuf::as_path);
    let credentials = Credentials::find(matches.get_one("clone-user"), file)?;
    let mut peer = Peer::connect(named)?;
    peer.authenticate(&credentials)?;
    let before = peer.info()?;
    let mut info = before.clone();
    // A save may begin and end between two looks.
    while matches.get_flag("wait") && !info.is_saving() && ended(&info) == ended(&before) {
        std::thread::sleep(EVERY);
        info = peer.info()?;
    }
    if info.is_saving() {
        let began = info;
        let info = until_idle(&mut peer, &SaveBar::new()?)?;
        if ended(&info) != ended(&began) {
            return tell(&info);
        }
        let how = if has_failed(&info) { "failed or was cancelled, as did the one before" } else { "was cancelled" };
        quire_sys::outln!("the save {how}; {}", outcome(&info))?;
        return Ok(ExitCode::FAILURE);
    }
    if ended(&info) != ended(&before) {
        return tell(&info);
    }
    quire_sys::outln!("no save is running; {}", outcome(&info))?;
    Ok(ExitCode::SUCCESS)
}

/// Says how the last save ended; 1 if it failed.
fn tell(info: &PeerInfo) -> anyhow::Result<ExitCode> {
    quire_sys::outln!("{}", outcome(info))?;
    Ok(if has_failed(info) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn has_failed(info: &PeerInfo) -> bool {
    info.field("rdb_last_bgsave_status") != "ok"
}

/// What another save changes by its end, unless it is cancelled.
fn ended(info: &PeerInfo) -> (Option<u64>, bool) {
    (info.number("rdb_saves"), has_failed(info))
}

/// How the last save ended.
fn outcome(info: &PeerInfo) -> String {
    let (saves, bytes) = (info.number("rdb_saves").unwrap_or(0), Bytes(info.number("last_image_bytes").unwrap_or(0)));
    match info.field("rdb_last_bgsave_status") {
        "ok" if saves == 0 => "the server has not saved since its start".to_owned(),
        "ok" => format!("the last save wrote {bytes}, {}/s", Bytes(info.number("dump_bytes_per_sec").unwrap_or(0))),
        _ => format!("the last save failed: {}", info.field("rdb_last_bgsave_error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_pages_and_says_bytes_rate_and_time_left() {
        let info = |left: &str| {
            PeerInfo::new(format!(
                "current_save_pages_done:3\r\ncurrent_save_pages_total:9\r\ncurrent_save_bytes_written:12288\r\n\
                 dump_bytes_per_sec:4096\r\ncurrent_save_time_left_sec:{left}\r\n"
            ))
        };
        let bar = SaveBar::new().unwrap();
        bar.show(&info("6"));
        assert_eq!((bar.0.length(), bar.0.position()), (Some(9), 3));
        assert_eq!(bar.0.message(), "12 KiB written, 4 KiB/s, 6.00 s left");
        bar.show(&info("-1"));
        assert_eq!(bar.0.message(), "12 KiB written, 4 KiB/s, time left not known yet");
    }
}

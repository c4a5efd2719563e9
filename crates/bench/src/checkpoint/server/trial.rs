//! A server's turn: it is started and filled, and saves four times: beside updates with a disk of 500 MB/s, at rest, beside updates at the
//! disk's own speed, and beside updates with a disk so slow that all keys are updated meanwhile.
//!
//! Relies on the order: the longest wait that INFO tells is that of all saves so far, so the save that it is read after is the first one.
//! Extra memory is counted from before that save, since a server may keep what a save needed for the next one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::info::ServerInfo;
use crate::load::beside_updates::beside_updates;
use crate::load::closed_loop::{self, UpdateLoop};
use crate::process::{Program, Server, ServerKind, background_save, watched_save};
use crate::resp::Connection;
use crate::write_limit::WriteLimit;
use crate::{disk, memory};

/// Clients that update keys.
pub(super) const CLIENTS: u64 = 4;
/// Requests that a client sends together.
const PIPELINE: usize = 16;
/// The disk of the save whose longest wait counts.
pub(super) const LIMITED_BYTES_PER_S: u64 = 500_000_000;
const POLL: Duration = Duration::from_millis(2);
/// What [`Slowdown::most_s`] is for.
const SLOWDOWN_BYTES: f64 = (2_u64 << 30) as f64;

/// What the servers of a round have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialScale<'a> {
    /// Under which the server has its directory.
    pub(super) dir: &'a Path,
    pub(super) port: u16,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    pub(super) is_quick: bool,
}

/// What a server's saves took.
#[derive(Debug, Clone)]
pub(super) struct ServerTrial {
    /// From BGSAVE at rest until the server says that the save is done.
    pub(super) rest_s: f64,
    /// What that save takes on the disk.
    pub(super) file_bytes: u64,
    /// A direct write of as many bytes by itself.
    pub(super) raw_write_s: f64,
    /// Updates a second without a save, and during one at the disk's own speed.
    pub(super) updates_per_s: [f64; 2],
    /// How long that save held up all commands, by the server's own account.
    pub(super) stall_ms: f64,
    /// The longest wait of a writer at 500 MB/s, where the server tells and the disk can be limited.
    pub(super) longest_wait_ms: Option<f64>,
    /// The save on the slow disk, where the disk can be limited.
    pub(super) slowed: Option<SlowedSave>,
}

/// A save on a disk that is slow enough for all keys to be updated meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlowedSave {
    /// Extra memory at its peak, over the bytes of the values.
    pub(super) growth: f64,
    /// Updates during the save, over the keys.
    pub(super) updated: f64,
    pub(super) took_s: f64,
}

/// How much the disk is slowed down.
#[derive(Debug, Clone, Copy)]
struct Slowdown {
    /// How many times as long as updating all keys without a save takes.
    rounds_of_updates: f64,
    /// The longest time, for 2 GiB.
    most_s: f64,
}

impl Slowdown {
    /// Redis' updates don't wait for its save, and are a little slower meanwhile. Quire's wait for the disk once the budget is used up,
    /// since the first update of a page then needs a buffer that the disk has to free. So a save that takes `s` times as long as one
    /// update for each page takes without a save lets `ln(s) + 1` updates for each page through. With three to four keys on a page and
    /// `s` four times as many, these are about as many as there are keys.
    fn of(kind: ServerKind) -> Self {
        match kind {
            ServerKind::Quire => Self { rounds_of_updates: 4.0, most_s: 50.0 },
            ServerKind::Redis => Self { rounds_of_updates: 1.5, most_s: 25.0 },
        }
    }

    /// What the disk may write in a second, for a file of `file_bytes` and values of `data_bytes` in `keys` keys.
    fn bytes_per_s(self, file_bytes: u64, data_bytes: f64, keys: u64, updates_per_s: f64) -> u64 {
        let most_s = self.most_s * data_bytes / SLOWDOWN_BYTES;
        let wanted_s = (self.rounds_of_updates * keys as f64 / updates_per_s).min(most_s);
        ((file_bytes as f64 / wanted_s) as u64).max(1)
    }
}

/// A server that holds all keys.
struct FilledServer<'a> {
    server: Server,
    control: Connection,
    scale: TrialScale<'a>,
    /// Its memory before the first save.
    before_bytes: u64,
}

/// Has a server of `program` make its saves, and ends it.
///
/// # Errors
/// When it can't be started or filled, or a save fails.
pub(super) fn run(program: &Program, scale: TrialScale<'_>, say: &dyn Fn(&str)) -> anyhow::Result<ServerTrial> {
    let dir = scale.dir.join(&program.name);
    let words: &[&str] = match program.kind {
        ServerKind::Quire => &[],
        ServerKind::Redis => &["--rdbcompression", "no"],
    };
    let mut server = Server::start_told(program, scale.port, &dir, &[], words)?;
    let control = server.ready()?;
    say(&format!("filling it with {} keys", scale.keys));
    // Twice, so that what updates themselves cost in memory counts as data.
    for _ in 0..2 {
        closed_loop::fill(scale.port, 0..scale.keys, scale.value_bytes, 2)?;
    }
    let before_bytes = memory::proportional_bytes(server.pid())?;
    let mut filled = FilledServer { server, control, scale, before_bytes };
    let trial = filled.saves(say)?;
    filled.server.kill();
    std::fs::remove_dir_all(dir)?;
    Ok(trial)
}

impl FilledServer<'_> {
    fn saves(&mut self, say: &dyn Fn(&str)) -> anyhow::Result<ServerTrial> {
        let longest_wait_ms = match self.server.kind() {
            ServerKind::Quire => {
                say("a save beside updates, with a disk of 500 MB/s");
                self.longest_wait_ms()?
            }
            ServerKind::Redis => None,
        };
        say("a save at rest");
        self.settle();
        let rest_s = background_save(&mut self.control, POLL)?.took.as_secs_f64();
        let file_bytes = self.server.saved_file()?.metadata()?.blocks() * 512;
        let raw_write_s = file_bytes as f64 / disk::raw_write_bytes_per_s(self.scale.dir, file_bytes)?;
        say("a save beside updates");
        self.settle();
        let (load, lead) = (self.load(), self.lead());
        let ((), rates) = beside_updates(load, lead, || background_save(&mut self.control, POLL).map(|_| ()))?;
        let stall_ms = self.server.save_stall_us(&mut self.control)? / 1000.0;
        say("a save while all keys are updated, on a slow disk");
        self.settle();
        Ok(ServerTrial {
            rest_s,
            file_bytes,
            raw_write_s,
            updates_per_s: [rates.before_per_s, rates.during_per_s],
            stall_ms,
            longest_wait_ms,
            slowed: self.slowed(file_bytes, rates.before_per_s)?,
        })
    }

    fn longest_wait_ms(&mut self) -> anyhow::Result<Option<f64>> {
        let Some(_limit) = WriteLimit::set(self.server.pid(), self.server.dir(), LIMITED_BYTES_PER_S) else {
            return Ok(None);
        };
        let (load, lead) = (self.load(), self.lead());
        beside_updates(load, lead, || background_save(&mut self.control, POLL))?;
        let info = ServerInfo::ask(&mut self.control, "persistence")?;
        Ok(Some(info.number("writer_wait_longest_us")? / 1000.0))
    }

    fn slowed(&mut self, file_bytes: u64, updates_per_s: f64) -> anyhow::Result<Option<SlowedSave>> {
        let (kind, keys) = (self.server.kind(), self.scale.keys);
        let data_bytes = (keys * self.scale.value_bytes as u64) as f64;
        let bytes_per_s = Slowdown::of(kind).bytes_per_s(file_bytes, data_bytes, keys, updates_per_s);
        let pid = self.server.pid();
        let Some(_limit) = WriteLimit::set(pid, self.server.dir(), bytes_per_s) else { return Ok(None) };
        let (load, lead) = (self.load(), self.lead());
        let save = || watched_save(&mut self.control, pid, POLL, kind.memory_interval());
        let ((save, peak), rates) = beside_updates(load, lead, save)?;
        Ok(Some(SlowedSave {
            growth: peak.saturating_sub(self.before_bytes) as f64 / data_bytes,
            updated: rates.updates as f64 / keys as f64,
            took_s: save.took.as_secs_f64(),
        }))
    }

    fn load(&self) -> UpdateLoop {
        UpdateLoop {
            port: self.scale.port,
            keys: self.scale.keys,
            value_bytes: self.scale.value_bytes,
            connections: CLIENTS,
            pipeline: PIPELINE,
        }
    }

    /// Of the updates, before a save begins.
    fn lead(&self) -> Duration {
        Duration::from_millis(if self.scale.is_quick { 300 } else { 3000 })
    }

    /// Lets what the save before left behind (background work, disk caches) come to rest.
    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(if self.scale.is_quick { 150 } else { 1500 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_disk_lasts_as_long_as_the_updates_of_all_keys_need_but_not_for_ever() {
        let (keys, data_bytes, file_bytes) = (2_000_000, SLOWDOWN_BYTES, 2_400_000_000);
        let seconds = |kind, updates_per_s| {
            let bytes_per_s = Slowdown::of(kind).bytes_per_s(file_bytes, data_bytes, keys, updates_per_s);
            (file_bytes as f64 / bytes_per_s as f64).round()
        };
        // All keys are updated within ten seconds, then within a hundred.
        assert_eq!([ServerKind::Quire, ServerKind::Redis].map(|kind| seconds(kind, 200_000.0)), [40.0, 15.0]);
        assert_eq!([ServerKind::Quire, ServerKind::Redis].map(|kind| seconds(kind, 20_000.0)), [50.0, 25.0]);
    }

    #[test]
    fn little_data_is_slowed_down_for_less_and_no_limit_is_zero_which_would_be_none() {
        let slowdown = Slowdown::of(ServerKind::Redis);
        assert_eq!(slowdown.bytes_per_s(1000, SLOWDOWN_BYTES / 10.0, 100, 1.0), 400);
        assert_eq!(slowdown.bytes_per_s(1, SLOWDOWN_BYTES, 100, 0.0), 1);
    }
}

//! Part `restore`: restarts beside what the disk can do: a read of the same file by itself, in the same round.
//!
//! Relies on the page cache being dropped before each start (root), and on direct reads, which leave none of the file in it. The time to full
//! throughput is measured under a load that begins as soon as the server listens.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::restart::{drop_page_cache, first_read, wait_restored};
use super::setup::{Candidate, ExperimentSetup, PEER};
use crate::process::{Program, Server, ServerKind, background_save};
use crate::report::{BetterDirection, Figure, Report};
use crate::resp::Connection;
use crate::stats::Spread;
use crate::{disk, memory, requests};
use quire_rng::SplitMix64;

/// Requests in a batch of the load.
const PIPELINE: usize = 16;
/// Over which the throughput is looked at.
const WINDOW: Duration = Duration::from_millis(50);
/// How long full throughput is measured when the restore is done.
const AFTER: Duration = Duration::from_secs(1);

/// Restores of one server.
#[derive(Debug, Default)]
pub struct RestoreTimes {
    /// Until the first read succeeded, under load.
    first_s: Vec<f64>,
    /// Until 90 % of full throughput were reached.
    ninety_s: Vec<f64>,
    /// Until the server said that all is in memory, verified; under load.
    done_s: Vec<f64>,
    /// Until the first read with everything read and verified before, without load. The peer has no other way.
    load_s: Vec<f64>,
    /// A read of the same file by itself.
    raw_s: Vec<f64>,
    /// Bytes of the file on the disk.
    file_bytes: u64,
}

/// The restores of every server, ours first.
#[derive(Debug)]
pub struct RestoreResults {
    all: Vec<(String, RestoreTimes)>,
    /// The page cache was dropped before each of them.
    cold: bool,
}

/// Measures restores; the servers are ended by it.
pub fn measure(setup: &ExperimentSetup, candidates: Vec<Candidate>) -> anyhow::Result<RestoreResults> {
    let mut results = RestoreResults { all: Vec::new(), cold: true };
    for mut candidate in candidates {
        let ours = candidate.server.kind() == ServerKind::Quire;
        let name = candidate.server.name().to_owned();
        setup.say(&format!("saving {name} for its restores"));
        background_save(&mut candidate.control, Duration::from_millis(10))?;
        let place = SavedData {
            program: candidate.server.program().clone(),
            port: candidate.server.port(),
            dir: candidate.server.dir().to_owned(),
            file: candidate.server.saved_file()?,
        };
        candidate.server.kill();
        let rounds = if ours { setup.rounds.max(3) } else { 1 };
        let mut times = RestoreTimes { file_bytes: allocated_bytes(&place.file)?, ..RestoreTimes::default() };
        for round in 0..rounds {
            setup.say(&format!("restores of {name}, {} of {rounds}", round + 1));
            results.cold &= place.cool(setup);
            times.raw_s.push(disk::raw_read_s(&place.file)?);
            results.cold &= place.cool(setup);
            times.load_s.push(place.load(setup)?);
            results.cold &= place.cool(setup);
            place.restore_under_load(setup, &mut times)?;
        }
        results.all.push((name, times));
    }
    Ok(results)
}

fn allocated_bytes(file: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.blocks() * 512)
}

/// What a server that has ended has left.
struct SavedData {
    program: Program,
    port: u16,
    dir: std::path::PathBuf,
    file: std::path::PathBuf,
}

impl SavedData {
    /// Brings the machine into the state that every start begins in. Returns whether the page cache could be dropped.
    fn cool(&self, setup: &ExperimentSetup) -> bool {
        let cold = drop_page_cache(setup, &self.file);
        setup.settle();
        // As for restarts: memory that the machine gave back would be charged to the restore.
        memory::warm_huge(setup.data_bytes() * 2);
        cold
    }

    fn start(&self, words: &[&str]) -> anyhow::Result<Server> {
        Server::start_told(&self.program, self.port, &self.dir, &[], words)
    }

    /// Seconds until the first read, with all data read before.
    fn load(&self, setup: &ExperimentSetup) -> anyhow::Result<f64> {
        let words: &[&str] = if self.program.kind == ServerKind::Quire { &["--restore-mode", "load"] } else { &[] };
        let mut server = self.start(words)?;
        first_read(&mut server.connect()?, setup.keys / 2, setup.value_bytes)?;
        let took = server.started().elapsed();
        server.kill();
        Ok(took.as_secs_f64())
    }

    fn restore_under_load(&self, setup: &ExperimentSetup, times: &mut RestoreTimes) -> anyhow::Result<()> {
        let mut server = self.start(&[])?;
        let (mut control, mut asking) = (server.connect()?, server.connect()?);
        let (started, stop) = (server.started(), AtomicBool::new(false));
        let (done, answered) = std::thread::scope(|scope| {
            let load = scope.spawn(|| gets(&mut asking, setup.keys, started, &stop));
            let done = wait_restored(&mut control, self.program.kind).map(|()| started.elapsed());
            std::thread::sleep(AFTER);
            stop.store(true, Ordering::Relaxed);
            (done, load.join().expect("the load does not panic"))
        });
        let (done, answered) = (done?, answered?);
        server.kill();
        let reached = reached(&answered, done);
        times.first_s.push(reached.first.as_secs_f64());
        times.ninety_s.push(reached.ninety.as_secs_f64());
        times.done_s.push(done.as_secs_f64());
        Ok(())
    }
}

/// Reads keys at random until `stop`. Returns when each batch was answered, and how many reads of it succeeded.
fn gets(
    connection: &mut Connection,
    keys: u64,
    started: Instant,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<(Duration, usize)>> {
    let (mut rng, mut batch, mut answered) = (SplitMix64::new(3), Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        (0..PIPELINE).for_each(|_| requests::push_get(&mut batch, rng.below(keys)));
        connection.send(&batch)?;
        let refused = connection.skip(PIPELINE)?;
        answered.push((started.elapsed(), PIPELINE - refused));
        if refused > 0 {
            // It is loading, for which it needs the processor.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(answered)
}

/// When a load reached what.
#[derive(Debug, PartialEq, Eq)]
struct Reached {
    /// The first read that succeeded.
    first: Duration,
    /// The end of the first window with 90 % of the throughput after `done`.
    ninety: Duration,
}

fn reached(answered: &[(Duration, usize)], done: Duration) -> Reached {
    let last = answered.last().map_or(done, |(at, _)| *at);
    let first = answered.iter().find(|(_, count)| *count > 0).map_or(last, |(at, _)| *at);
    let after = answered.iter().filter(|(at, _)| *at > done).map(|(_, count)| count).sum::<usize>() as f64;
    let full_per_s = after / last.saturating_sub(done).as_secs_f64().max(1e-9);
    let mut ninety = last;
    let (mut from, mut count) = (0, 0);
    for (at, more) in answered {
        count += more;
        while answered[from].0 + WINDOW < *at {
            count -= answered[from].1;
            from += 1;
        }
        let is_whole_window = *at >= first + WINDOW;
        if is_whole_window && count as f64 / WINDOW.as_secs_f64() >= full_per_s * 0.9 {
            ninety = *at;
            break;
        }
    }
    Reached { first, ninety }
}

/// Adds the figures of restores.
pub fn figures(RestoreResults { all, cold }: &RestoreResults, report: &mut Report) {
    let cache = if *cold { "page cache dropped" } else { "page cache warm: dropping it needs root" };
    let of = |values: &[f64]| Spread::of(values).expect("every server was restored");
    let ours = &all[0].1;
    let theirs = all.iter().find(|(name, _)| name == PEER).map_or(ours, |(_, times)| times);
    let ratio =
        |over: &[f64], under: &[f64]| of(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>());
    let (load, peer) = (of(&ours.load_s), of(&theirs.load_s).median);
    let (raw_s, raw_read) = (of(&ours.raw_s).median, "a direct read of the same file");
    report.results.push(
        Figure::new("restore_time_ratio", peer / load.median, "x", BetterDirection::Higher)
            .goal(10.0)
            .peer("quire load s", load.median)
            .peer("redis-server s", peer)
            .bound(raw_read, peer / raw_s)
            .note(format!(
                "from starting the process to the first read, all data read and ours verified before; {cache}"
            )),
    );
    let disk = ratio(&ours.raw_s, &ours.load_s);
    report.results.push(
        Figure::new("restore_vs_disk_ratio", disk.median, "x", BetterDirection::Higher)
            .goal(0.8)
            .spread(disk)
            .bound(raw_read, 1.0)
            .peer("raw read s", raw_s)
            .peer("quire load s", load.median)
            .note(format!("restore-mode load, the start of the process counted; {cache}")),
    );
    let size = ours.file_bytes as f64 / theirs.file_bytes as f64;
    report.results.push(
        Figure::new("file_size_ratio", size, "x", BetterDirection::Lower)
            .goal(1.2)
            .peer("quire bytes", ours.file_bytes as f64)
            .peer("redis-server bytes", theirs.file_bytes as f64)
            .note("space of a full image on the disk, over that of the peer's file; random values"),
    );
    type Values = fn(&RestoreTimes) -> &Vec<f64>;
    let times: [(&str, Values, &str); 3] = [
        ("restore_first_read_s", |times| &times.first_s, "until the first read succeeded"),
        ("restore_90_percent_s", |times| &times.ninety_s, "until 90 % of the throughput that follows when all is done"),
        ("restore_verified_s", |times| &times.done_s, "until the server says that all is read and, ours, verified"),
    ];
    for (name, values, what) in times {
        let found = of(values(ours));
        let figure = Figure::new(name, found.median, "s", BetterDirection::Lower)
            .spread(found)
            .peer(PEER, of(values(theirs)).median)
            .peer("raw read of the file", raw_s)
            .note(format!("{what}; under reads of random keys from the start, mapped; {cache}"));
        // Reads are served before all of the file has been read.
        let is_whole = name == "restore_verified_s";
        report.info.push(if is_whole { figure.bound(raw_read, raw_s) } else { figure });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_full_throughput_is_the_end_of_the_first_window_that_has_nine_tenths_of_it() {
        let ms = Duration::from_millis;
        // Refused until 100 ms, then a tenth of the throughput until 300 ms.
        let count = |at: u64| match at {
            0..=100 => 0,
            101..=300 => 1,
            _ => 10,
        };
        let answered: Vec<_> = (1..1000).map(|at| (ms(at), count(at))).collect();
        let found = reached(&answered, ms(600));
        assert_eq!(found.first, ms(101));
        assert!((ms(340)..=ms(351)).contains(&found.ninety), "{found:?}");
    }

    #[test]
    fn a_load_without_answers_reached_nothing_before_its_end() {
        let end = Duration::from_secs(2);
        let never = Reached { first: end, ninety: end };
        assert_eq!(reached(&[(Duration::from_secs(1), 0), (end, 0)], Duration::from_millis(10)), never);
    }
}

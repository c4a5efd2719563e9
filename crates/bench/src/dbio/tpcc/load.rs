//! Terminals at work on a database: first so many transactions to fill the caches, then for a time that counts.
//!
//! Relies on each terminal having a thread and a connection of its own; new orders that are committed are the operations that count.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use quire_peers::sqlite::{Connection, Sqlite};
use quire_rng::mix;

use super::connect;
use super::terminal::{Terminal, TransactionEnd};
use crate::dbio::counters;
use crate::dbio::sqlite_spec::{SqliteCandidate, SqliteSpec};
use crate::dbio::trial_spec::TrialSpec;
use crate::fastmap::pages::Counters;
use crate::fastmap::phase_stats::{PhaseStats, PhaseTimer, histogram};
use crate::fastmap::testbed::PAGE_BYTES;
use crate::wcache::tpcc::transaction::{TransactionDeck, TransactionType};

/// The name of the phase of so many terminals.
pub fn phase_name(clients: usize) -> String {
    format!("tpcc_c{clients}")
}

/// What all terminals of a trial share.
pub struct TerminalLoad<'a> {
    pub sqlite: &'a Sqlite,
    pub trial: &'a TrialSpec,
    pub spec: &'a SqliteSpec,
    /// The lock of all that write.
    pub writers: &'a Mutex<()>,
}

/// When a load is over.
#[derive(Clone, Copy)]
enum LoadEnd {
    /// After so many transactions of all terminals.
    Transactions(u64),
    /// After this time.
    Time(Duration),
}

/// What terminals have done.
struct TerminalCounts {
    new_orders: u64,
    transactions: u64,
    rolled_back: u64,
    latencies: Histogram<u64>,
}

impl TerminalCounts {
    fn new() -> Self {
        Self { new_orders: 0, transactions: 0, rolled_back: 0, latencies: histogram() }
    }

    fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.new_orders += other.new_orders;
        self.transactions += other.transactions;
        self.rolled_back += other.rolled_back;
        Ok(self.latencies.add(&other.latencies)?)
    }
}

impl TerminalLoad<'_> {
    /// The statistics of `clients` terminals.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn run(&self, clients: usize) -> anyhow::Result<PhaseStats> {
        // No two loads of a trial make the same requests.
        self.work(clients, LoadEnd::Transactions(self.spec.warm_transactions), mix(self.trial.seed ^ clients as u64))?;
        let watcher = connect(self.sqlite, self.spec, &self.trial.testbed.path, clients)?;
        let timer = PhaseTimer::begin(&self.trial.testbed, self.counted(&watcher)?);
        let time = Duration::from_millis(self.trial.run_ms);
        let counts = self.work(clients, LoadEnd::Time(time), mix(self.trial.seed ^ clients as u64 ^ 1 << 32))?;
        let now = self.counted(&watcher)?;
        let mut stats = timer.end(&phase_name(clients), counts.new_orders, &counts.latencies, now);
        stats.counters.insert("transactions".into(), counts.transactions as f64);
        stats.counters.insert("rolled_back".into(), counts.rolled_back as f64);
        stats.counters.extend(self.held(&watcher)?);
        Ok(stats)
    }

    fn work(&self, clients: usize, end: LoadEnd, seed: u64) -> anyhow::Result<TerminalCounts> {
        let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let terminals: Vec<_> = (0..clients)
                .map(|number| {
                    let (done, is_over) = (&done, &is_over);
                    scope.spawn(move || {
                        // A terminal that fails ends the load for all.
                        let ended = self.terminal((number, clients), (end, seed), done, is_over);
                        ended.inspect_err(|_| is_over.store(true, Ordering::Relaxed))
                    })
                })
                .collect();
            if let LoadEnd::Time(time) = end {
                let began = Instant::now();
                while began.elapsed() < time && !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5).min(time));
                }
                is_over.store(true, Ordering::Relaxed);
            }
            let mut all = TerminalCounts::new();
            for terminal in terminals {
                all.add(&terminal.join().expect("a terminal's thread does not panic")?)?;
            }
            Ok(all)
        })
    }

    fn terminal(
        &self,
        (number, clients): (usize, usize),
        (end, seed): (LoadEnd, u64),
        done: &AtomicU64,
        is_over: &AtomicBool,
    ) -> anyhow::Result<TerminalCounts> {
        let connection = connect(self.sqlite, self.spec, &self.trial.testbed.path, clients)?;
        let mut terminal = Terminal::new(connection, self.writers);
        let mut deck = TransactionDeck::new(self.spec.size, number as u32, seed);
        let mut counts = TerminalCounts::new();
        // At least once: on a busy machine the time may be over before this thread has run.
        loop {
            let input = deck.draw();
            let began = Instant::now();
            match terminal.carry_out(deck.home(), &input)? {
                TransactionEnd::Committed => {
                    counts.transactions += 1;
                    counts.new_orders += u64::from(input.kind() == TransactionType::NewOrder);
                }
                TransactionEnd::RolledBack => counts.rolled_back += 1,
            }
            if input.kind() == TransactionType::NewOrder {
                counts.latencies.saturating_record(began.elapsed().as_nanos() as u64);
            }
            let all = done.fetch_add(1, Ordering::Relaxed) + 1;
            let is_enough = matches!(end, LoadEnd::Transactions(most) if all >= most);
            if is_enough || is_over.load(Ordering::Relaxed) {
                return Ok(counts);
            }
        }
    }

    /// What has been counted so far.
    fn counted(&self, connection: &Connection) -> anyhow::Result<Counters> {
        let mut counted = counters::disk();
        let own = self.stats(connection)?;
        let sums =
            ["pool_hits", "pool_misses", "read_tier", "read_cached", "read_direct", "evict_clean", "invalidations"];
        counted.extend(own.into_iter().filter(|(name, _)| sums.contains(&name.as_str())));
        Ok(counted)
    }

    /// What is held now.
    fn held(&self, connection: &Connection) -> anyhow::Result<Counters> {
        let own = self.stats(connection)?;
        let mut held = Counters::new();
        for (name, own_name) in [("pool_bytes", "pool_resident_bytes"), ("tier_resident_bytes", "tier_resident_bytes")]
        {
            held.extend(own.get(own_name).map(|bytes| (name.to_owned(), *bytes)));
        }
        let file = self.trial.testbed.open()?;
        let len = file.metadata().context("the length of the database")?.len();
        if let Ok(found) = quire_sys::page_cache::cached_pages(&file, 0, len) {
            held.insert("page_cache_bytes".into(), (found.cached * PAGE_BYTES as u64) as f64);
        }
        Ok(held)
    }

    /// What `PRAGMA quire_stats` says; nothing by SQLite's own VFS.
    fn stats(&self, connection: &Connection) -> anyhow::Result<BTreeMap<String, f64>> {
        if self.spec.candidate == SqliteCandidate::Stock {
            return Ok(BTreeMap::new());
        }
        let text = connection.prepare("PRAGMA quire_stats")?.first(&[], |row| row.text(0).map(str::to_owned))?;
        let text = text.flatten().context("`PRAGMA quire_stats` says nothing")?;
        let of_line = |line: &str| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(text.lines().filter_map(of_line).collect())
    }
}

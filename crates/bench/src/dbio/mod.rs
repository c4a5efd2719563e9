//! The experiment `dbio`: the pool with a second tier beside the pool over the page cache (wholly, or as a tier for dirty victims), and the
//! pool by itself, memory limited, over
//! all ways to divide the memory (Park, *Optimizing Memory Subsystem for Efficient Resource Utilization of Data-intensive
//! Applications*, 2020, chapter 3: DBIO).
//!
//! RocksDB, LMDB and SQLite are tried under the same limit, if they are here.
//!
//! Relies on `fastmap` for the store (a B+-tree over a map), its loads and the process under a limit of cgroup v1 that each trial is.
//! All candidates use one file with the same tree, laid out once; each begins with nothing of it cached.

mod candidate;
mod charts;
mod comparison;
mod counters;
mod figures;
mod full_read;
mod page_cache_tier;
mod peer_stores;
mod results;
mod scale;
mod schedule;
mod slow_disk;
mod sqlite_spec;
mod store_file;
mod tpcc;
mod tpcc_schedule;
mod trial;
mod trial_spec;
mod values;

use anyhow::ensure;

use crate::chart::Chart;
use crate::experiment::{BinaryArgs, CommonArgs, Experiment, wants};
use crate::fastmap::runner::TrialRunner;
use crate::progress::Progress;
use crate::report::Report;
use candidate::TierCodec;
use results::TrialResults;
use scale::DbioScale;
use schedule::Schedule;
use slow_disk::SlowDisk;
use values::ValueKind;

pub use trial::serve;

/// The name under which a child is started; not for people.
pub const CHILD: &str = "dbio-trial";

const PARTS: [&str; 3] = ["pool", "peers", "sqlite"];

/// The arguments of `quire bench dbio`.
#[derive(Debug, Clone, clap::Args)]
pub struct DbioArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Parts to run, comma separated: the pool in its ways, RocksDB and LMDB, TPC-C on SQLite [default: all]. Peers are compared with the
    /// pool of the same run. RocksDB runs without a compressed secondary cache, which its C interface does not offer
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    parts: Vec<String>,
    /// Memory of each trial in MiB, page cache included: what pool, second tier and page cache divide among them [default: 1536, quick: 96]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Data as multiples of the memory, comma separated; goals are of what is nearest to 0.83 [default: 0.33,0.83,1.67, quick: 0.33,0.83]
    #[arg(long, value_name = "FACTOR", value_delimiter = ',')]
    data: Vec<f64>,
    /// Sizes of the pool in twelfths of the memory, comma separated; the rest is left to the second tier or the page cache [default: 1
    /// to 11, quick: 2,6]
    #[arg(long, value_name = "TWELFTHS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=11))]
    pools: Vec<u64>,
    /// The same for data of half of the memory or less, where the small sizes say little [default: as --pools]
    #[arg(long, value_name = "TWELFTHS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=11))]
    small_data_pools: Vec<u64>,
    /// Clients at a time, comma separated, each with one request at a time; goals are of the most [default: 1,32, quick: 4]
    #[arg(long, value_name = "CLIENTS", value_delimiter = ',')]
    clients: Vec<usize>,
    /// What values consist of
    #[arg(long, value_enum, default_value = "printable")]
    values: ValueKind,
    /// How the second tier compresses, and RocksDB what it reads through the page cache
    #[arg(long, value_enum, default_value = "lz4")]
    compression: TierCodec,
    /// Terminals of TPC-C at a time, comma separated [default: 4]
    #[arg(long, value_name = "TERMINALS", value_delimiter = ',')]
    tpcc_clients: Vec<usize>,
    /// Seconds that each load lasts [default: 4, quick: 0.15]
    #[arg(long)]
    seconds: Option<u64>,
    /// Operations before the first load, by 32 clients, that fill the caches, for each record of the data [default: 2, quick: 1]. Before these
    /// every record is read once where the data is half of the memory or less
    #[arg(long, value_name = "FACTOR")]
    warm_operations: Option<f64>,
    /// Reads and writes a second that the disk does while loads are measured: the stores lie on a loop device, which the kernel slows down
    /// (root, cgroup v1). Not with the part sqlite [default: what the disk can do]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..))]
    disk_iops: Option<u64>,
    #[command(flatten)]
    binary: BinaryArgs,
}

impl Experiment for DbioArgs {
    type Results = TrialResults;

    const NAME: &'static str = "dbio";
    const ABOUT: &'static str = "Two tiers of memory: the pool's own second one beside the page cache, and none";
    const DRAWS: Option<&'static str> = Some("operations a second and hits over the size of the pool");

    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn run(&self) -> anyhow::Result<TrialResults> {
        ensure!(
            self.disk_iops.is_none() || !wants(&self.parts, "sqlite"),
            "--disk-iops is not for TPC-C on SQLite: add --parts pool,peers"
        );
        let scale = DbioScale::new(self);
        let runner = TrialRunner::new(self.binary.path()?)?;
        let dir = self.common.make_dir()?;
        let mut schedule = Schedule {
            scale: &scale,
            runner: &runner,
            throttle: None,
            progress: Progress::begin(),
            results: TrialResults::default(),
        };
        let has = |part| wants(&self.parts, part);
        if has("pool") || has("peers") {
            let slow_disk = self.disk_iops.map(|iops| SlowDisk::new(dir.path(), &scale, iops)).transpose()?;
            let stores = slow_disk.as_ref().map_or(dir.path(), |disk| disk.point());
            schedule.throttle = slow_disk.as_ref().map(SlowDisk::throttle).transpose()?;
            for &data in &scale.data {
                schedule.data(stores, data, (has("pool"), has("peers")))?;
            }
        }
        if has("sqlite") {
            schedule.tpcc(dir.path(), &self.binary.path()?)?;
        }
        schedule.progress.clear();
        Ok(schedule.results)
    }

    fn figures(&self, results: &TrialResults, report: &mut Report) {
        let scale = DbioScale::new(self);
        report.scale.extend(scale.facts());
        if wants(&self.parts, "pool") || wants(&self.parts, "peers") {
            figures::add(results, &scale, report);
        }
        if wants(&self.parts, "sqlite") {
            tpcc::figures::add(&results.tpcc, &scale, report);
        }
    }

    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        let reason = "its caches have no time to fill, and what a process takes for itself is much of its memory";
        ["ycsb_", "double_cached_share", "small_data_penalty", "auto_split_vs_best_swept", "tpcc_", "sqlite_tpcc_"]
            .map(|name| (name, reason.to_owned()))
            .into()
    }

    fn plots(&self, results: &TrialResults) -> Vec<Chart> {
        let scale = DbioScale::new(self);
        charts::of(results, &scale).into_iter().chain(tpcc::figures::chart(&results.tpcc, &scale)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::parse;

    #[test]
    fn goals_are_of_the_data_that_they_are_told_for_and_of_the_most_clients() {
        let full = DbioScale::new(&parse::<DbioArgs>(""));
        assert_eq!((full.goal_data(), full.small_data(), full.goal_clients()), (0.83, Some(0.33), 32));
        assert_eq!(full.pools, (1..scale::POOL_PARTS).collect::<Vec<u64>>(), "every way to divide the memory");
        assert_eq!((full.limit_bytes(), full.pool_bytes(3)), (1536 << 20, 384 << 20));
        let quick = DbioScale::new(&parse::<DbioArgs>("--quick --memory 64 --data 1.67,0.9 --clients 8,2"));
        assert_eq!((quick.goal_data(), quick.small_data(), quick.goal_clients()), (0.9, None, 8));
        assert_eq!(quick.records(0.5), 32 << 10);
    }

    #[test]
    fn peers_and_sqlite_are_tried_with_a_few_sizes_and_a_database_of_the_goal_s_size() {
        let scale = DbioScale::new(&parse::<DbioArgs>("--memory 768 --pools 1,3,6,9,11 --small-data-pools 6,11"));
        let sizes: Vec<u64> = scale.peers().into_iter().map(|(_, twelfths)| twelfths).collect();
        assert_eq!(sizes, [3, 6, 9, 3, 6, 9, 0]);
        assert_eq!((scale.pools_for(0.33), scale.pools_for(0.83)), (&[6, 11][..], &[1, 3, 6, 9, 11][..]));
        assert_eq!(scale.tpcc_candidates().len(), 10);
        assert_eq!((scale.tpcc_size().warehouses, scale.tpcc_size().customers), (7, 3000));
        let quick = DbioScale::new(&parse::<DbioArgs>("--quick"));
        assert_eq!((quick.tpcc_size().warehouses, quick.tpcc_size().customers), (17, 150));
        assert_eq!(quick.peers().len(), 5);
    }

    #[test]
    fn a_pool_that_leaves_no_memory_is_refused() {
        let refused = crate::experiment::command::<DbioArgs>().try_get_matches_from(["dbio", "--pools", "12"]);
        assert!(refused.unwrap_err().to_string().contains("1..=11"));
    }
}

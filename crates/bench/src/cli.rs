//! The arguments of `quire bench NAME`, shared by every experiment.
//!
//! Relies on clap. Defaults are the full-size experiment; `--quick` shrinks it to something that a test can wait for.

use std::path::PathBuf;

/// What to run, at what size, and where the figures go.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The experiment (`list` names them)
    pub name: String,
    /// A smaller data set and fewer rounds: ends within 45 s (wcache: 90 s)
    #[arg(long)]
    pub quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// With `tables`: the JSON of an earlier run
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Draw latency (server) or throughput (ccow) over time, throughput over threads (fastmap) or capacities (wcache),
    /// into this directory (SVG), and keep the samples there
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Where the servers keep their data; the disk under it is the one measured [default: a directory in ./]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keys in the data set [default: 3000000, quick: 300000]
    #[arg(long)]
    pub keys: Option<u64>,
    /// Bytes in each value
    #[arg(long, default_value_t = 1000)]
    pub value_bytes: usize,
    /// Rounds of everything that is repeated [default: that of the experiment]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Sizes of memory in MiB, comma separated, for snapshot and ccow; memory for pages in fastmap; capacities of the
    /// cache in wcache [default: theirs]
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    pub sizes: Vec<u64>,
    /// Zipf exponents for ccow, comma separated [default: 0.9,1.1,1.0, quick: 1.0]
    #[arg(long, value_name = "SKEW", value_delimiter = ',')]
    pub skews: Vec<f64>,
    /// Requests per second of the steady load during which saves are timed
    #[arg(long, default_value_t = 10_000)]
    pub rate: u64,
    /// Parts to run, comma separated: of server throughput,save,latency,restart,footprint,sizes; of snapshot mechanisms;
    /// of ccow configurations such as fork,barrier_80,uffd_adaptive; of fastmap
    /// micro,bounds,kv,bfs,hit,contention,policies; of wcache pg,redis,log,mount [default: all]
    #[arg(long, value_delimiter = ',')]
    pub parts: Vec<String>,
    /// The Quire binary to start [default: this one]
    #[arg(long, value_name = "FILE", env = "QUIRE_BENCH_BINARY")]
    pub quire: Option<PathBuf>,
    /// A Valkey binary to set beside Quire and Redis
    #[arg(long, value_name = "FILE", env = "VALKEY_SERVER")]
    pub valkey: Option<PathBuf>,
    /// Seconds of each visit that count, for wcache [default: 60, quick: 3]
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Warehouses of TPC-C, for wcache [default: 10, quick: a small one]
    #[arg(long)]
    pub warehouses: Option<u32>,
    /// Clients of the database, for wcache [default: 24, quick: 8]
    #[arg(long)]
    pub terminals: Option<usize>,
    /// Policies, comma separated, for wcache: ALL,SYNC,WAL,CP,CP+PI,CP+PI+IOI [default: all of them]
    #[arg(long, value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Requests a second of a slow disk, for wcache
    #[arg(long, default_value_t = 150)]
    pub slow_iops: u64,
    /// Requests a second of the SSD before the stores, for wcache; the database's has a quarter of them
    #[arg(long, default_value_t = 2000)]
    pub fast_iops: u64,
    /// First of the ports to use
    #[arg(long, default_value_t = 23_500)]
    pub port: u16,
}

impl Args {
    /// Whether the part called `name` was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| part == name)
    }
}

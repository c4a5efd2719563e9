//! How much is done: data, clients, times, capacities, policies, rounds.
//!
//! Relies on `--quick` leaving out what its small data and short times cannot tell: those parts are run as a sign of life.

use std::time::Duration;

use anyhow::bail;
use serde_json::{Map, Value, json};

use super::WcacheArgs;
use super::cache_policy::CachePolicy;
use super::testbed::device_throttle::DeviceSpeed;
use super::testbed::storage_stack::TrialDuration;
use super::tpcc::database_size::DatabaseSize;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct WcacheScale {
    /// Whether this is the small run.
    pub quick: bool,
    /// How long each trial lasts.
    pub duration: TrialDuration,
    /// Rounds of what has figures with goals.
    pub rounds: usize,
    /// Capacities of the cache, rising.
    pub capacities_mib: Vec<u64>,
    /// The policies.
    pub policies: Vec<CachePolicy>,
    /// The TPC-C database.
    pub size: DatabaseSize,
    /// Clients of the database.
    pub terminals: usize,
    /// PostgreSQL's own buffers.
    pub buffers_mib: u64,
    /// Log of writes between two checkpoints.
    pub wal_mib: u64,
    /// WcacheScale of TPC-B.
    pub tpcb_scale: u32,
    /// The servers of YCSB.
    pub stores: YcsbServers,
    /// A slow disk.
    pub slow_speed: DeviceSpeed,
    /// The congested SSD.
    pub fast_speed: DeviceSpeed,
}

/// The redis-servers of YCSB.
#[derive(Clone, Debug)]
pub struct YcsbServers {
    /// How many there are.
    pub servers: usize,
    /// Records in each.
    pub records: u64,
    /// Clients of all servers together.
    pub clients: usize,
    /// Pause between two snapshots or rewrites of the log.
    pub snapshot_pause: Duration,
}

/// A disk with seeks moves 120 MB a second when it needn't seek.
const SLOW_BYTES_PER_S: u64 = 120_000_000;
/// An SSD moves this much.
const FAST_BYTES_PER_S: u64 = 400_000_000;

impl WcacheScale {
    /// The size that `args` ask for.
    ///
    /// # Errors
    /// When a policy isn't known, or a number makes no sense.
    pub fn new(args: &WcacheArgs) -> anyhow::Result<Self> {
        let quick = args.common.quick;
        let pick = |full: u64, small: u64| args.common.pick(full, small);
        let seconds = args.seconds.unwrap_or(pick(60, 3)).max(1);
        let mut capacities_mib = args.sizes.clone();
        if capacities_mib.is_empty() {
            capacities_mib = if quick { vec![32, 512] } else { vec![32, 128, 512, 4096] };
        }
        capacities_mib.sort_unstable();
        capacities_mib.dedup();
        let policies = policies(&args.policies)?;
        let warehouses = args.warehouses.unwrap_or(pick(10, 1) as u32);
        if warehouses == 0 || capacities_mib[0] == 0 {
            bail!("--warehouses and --sizes must not be 0");
        }
        Ok(Self {
            quick,
            duration: TrialDuration {
                warm_up: Duration::from_secs((seconds / 4).max(1)),
                count: Duration::from_secs(seconds),
            },
            rounds: args.common.rounds(3, 1),
            capacities_mib,
            policies,
            size: if quick { DatabaseSize::small(warehouses) } else { DatabaseSize::standard(warehouses) },
            terminals: args.terminals.unwrap_or(pick(24, 8) as usize).clamp(1, 90),
            buffers_mib: pick(512, 64),
            wal_mib: pick(256, 48),
            tpcb_scale: pick(10, 1) as u32,
            stores: YcsbServers {
                servers: args.common.pick(2, 1),
                records: args.keys.unwrap_or(pick(500_000, 20_000)).max(1000),
                clients: args.common.pick(40, 10),
                snapshot_pause: Duration::from_secs(pick(3, 1)),
            },
            slow_speed: DeviceSpeed { iops: args.slow_iops.max(1), bytes_per_s: SLOW_BYTES_PER_S },
            fast_speed: DeviceSpeed { iops: args.fast_iops.max(1), bytes_per_s: FAST_BYTES_PER_S },
        })
    }

    /// The speed of the database's file system. In the paper data and log have a disk each; a mount serves one file
    /// system, so they share one, which is as fast as two disks.
    pub fn database_speed(&self) -> DeviceSpeed {
        DeviceSpeed { iops: self.slow_speed.iops * 2, bytes_per_s: self.slow_speed.bytes_per_s * 2 }
    }

    /// The speed of the SSD before the database. It is to be congested when it takes all writes, as the paper's was (with its own
    /// cache switched off): so many clients ask for a few hundred durable writes a second, those of the stores for ten times as many.
    pub fn congested_speed(&self) -> DeviceSpeed {
        let DeviceSpeed { iops, bytes_per_s } = self.fast_speed;
        DeviceSpeed { iops: (iops / 4).max(1), bytes_per_s: bytes_per_s / 4 }
    }

    /// The scarcest capacity.
    pub fn least_mib(&self) -> u64 {
        self.capacities_mib[0]
    }

    /// The most ample one.
    pub fn most_mib(&self) -> u64 {
        self.capacities_mib[self.capacities_mib.len() - 1]
    }

    /// Capacities on the SSD: the two largest, or in a short run the largest.
    pub fn ssd_capacities_mib(&self) -> Vec<u64> {
        let count = if self.quick { 1 } else { 2 };
        self.capacities_mib.iter().rev().take(count).rev().copied().collect()
    }

    /// Facts for the report.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let mut add = |name: &str, value: Value| facts.insert(name.to_owned(), value);
        add("seconds", json!(self.duration.count.as_secs()));
        add("run_in_s", json!(self.duration.warm_up.as_secs()));
        add("rounds", json!(self.rounds));
        add("capacities_mib", json!(self.capacities_mib));
        add("warehouses", json!(self.size.warehouses));
        add("items", json!(self.size.items));
        add("customers_per_district", json!(self.size.customers));
        add("terminals", json!(self.terminals));
        add("shared_buffers_mib", json!(self.buffers_mib));
        add("checkpoint_wal_mib", json!(self.wal_mib));
        add("redis_servers", json!(self.stores.servers));
        add("redis_records", json!(self.stores.records));
        add("redis_clients", json!(self.stores.clients));
        add("database_iops", json!(self.database_speed().iops));
        add("slow_iops", json!(self.slow_speed.iops));
        add("slow_bytes_per_s", json!(self.slow_speed.bytes_per_s));
        add("database_ssd_iops", json!(self.congested_speed().iops));
        add("database_ssd_bytes_per_s", json!(self.congested_speed().bytes_per_s));
        add("ssd_iops", json!(self.fast_speed.iops));
        add("ssd_bytes_per_s", json!(self.fast_speed.bytes_per_s));
        facts
    }
}

fn policies(names: &[String]) -> anyhow::Result<Vec<CachePolicy>> {
    if names.is_empty() {
        return Ok(CachePolicy::EVERY.to_vec());
    }
    let mut policies = Vec::new();
    for name in names {
        let Some(policy) = CachePolicy::called(name) else {
            let known: Vec<&str> = CachePolicy::EVERY.iter().map(|policy| policy.name()).collect();
            bail!("no policy is called {name:?}; there are {}", known.join(", "));
        };
        policies.push(policy);
    }
    policies.sort_unstable();
    policies.dedup();
    Ok(policies)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The scale that `words` ask for.
    pub fn scale(words: &str) -> anyhow::Result<WcacheScale> {
        WcacheScale::new(&crate::experiment::tests::parse::<WcacheArgs>(words))
    }

    #[test]
    fn options_are_taken_and_nonsense_refused() {
        let scale = scale("--policies cp+pi+ioi,ALL --sizes 64,32 --seconds 8 --warehouses 2").unwrap();
        assert_eq!(scale.policies, [CachePolicy::All, CachePolicy::CpPiIoi]);
        assert_eq!((scale.least_mib(), scale.most_mib()), (32, 64));
        assert_eq!(scale.duration.count, Duration::from_secs(8));
        assert!(self::scale("--policies best").unwrap_err().to_string().contains("CP+PI+IOI"));
        assert!(self::scale("--warehouses 0").is_err());
    }

    #[test]
    fn the_paper_s_ends_are_the_default() {
        let scale = scale("").unwrap();
        assert_eq!((scale.least_mib(), scale.most_mib(), scale.size.warehouses, scale.terminals), (32, 4096, 10, 24));
        assert_eq!(scale.ssd_capacities_mib(), [512, 4096]);
    }
}

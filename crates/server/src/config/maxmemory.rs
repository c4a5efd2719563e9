//! The settings of `maxmemory`: the limit, and which keys go when the data has outgrown it. Named and worded as in Redis. Relies on
//! `directive` and `value`.

use std::borrow::Cow;

use quire_store::{AccessCounting, EvictionOrder, EvictionPolicy, StoreConfig};

use super::Config;
use super::directive::{Directive, Setting, directive};
use super::value::{self, RejectReason};

const MUTABLE: bool = true;
const MAX_INT: i64 = i32::MAX as i64;

/// The limit, and which keys go.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MaxMemory {
    /// Bytes of data and of what clients hold; 0 is no limit but the arena's.
    pub limit_bytes: u64,
    /// Which keys go; `None` means that none does.
    pub policy: Option<EvictionPolicy>,
    /// Keys that are looked at for each one that goes.
    pub samples: u32,
    /// How long a command makes room.
    pub tenacity: u32,
    /// How accesses are counted, where they are.
    pub lfu_log_factor: u32,
    /// The same.
    pub lfu_decay_minutes: u32,
    /// Keys that are remembered because clients may have them in caches of their own; 0 is no limit.
    pub tracking_max_keys: u64,
}

impl MaxMemory {
    /// How accesses to keys are counted, if the policy needs that.
    pub fn access_counting(&self) -> Option<AccessCounting> {
        let policy = self.policy.filter(|policy| policy.order == EvictionOrder::LeastFrequentlyUsed);
        policy.map(|_| AccessCounting { log_factor: self.lfu_log_factor, decay_minutes: self.lfu_decay_minutes })
    }

    /// The word of the policy.
    pub fn policy_name(&self) -> String {
        value::choice_name(&self.policy, POLICIES)
    }
}

/// Words of the policies, in Redis' order.
pub const POLICIES: &[(&str, Option<EvictionPolicy>)] = &[
    ("volatile-lru", expiring(EvictionOrder::LeastRecentlyUsed)),
    ("volatile-lfu", expiring(EvictionOrder::LeastFrequentlyUsed)),
    ("volatile-random", expiring(EvictionOrder::Random)),
    ("volatile-ttl", expiring(EvictionOrder::FirstToExpire)),
    ("allkeys-lru", any(EvictionOrder::LeastRecentlyUsed)),
    ("allkeys-lfu", any(EvictionOrder::LeastFrequentlyUsed)),
    ("allkeys-random", any(EvictionOrder::Random)),
    ("noeviction", None),
];

const fn expiring(order: EvictionOrder) -> Option<EvictionPolicy> {
    Some(EvictionPolicy { order, only_expiring: true })
}

const fn any(order: EvictionOrder) -> Option<EvictionPolicy> {
    Some(EvictionPolicy { order, only_expiring: false })
}

macro_rules! number {
    ($name:literal, $default:literal, $min:literal, $max:expr, $doc:literal, $field:ident) => {
        directive!($name, $default, MUTABLE, $doc, |c| c.maxmemory.$field.to_string(), |c, v| {
            c.maxmemory.$field = value::integer(v, $min, $max)? as u32;
            Ok(())
        })
    };
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    directive!(
        "maxmemory",
        "0",
        MUTABLE,
        "Bytes of data, and of what clients hold, beyond which keys are evicted or writes that need memory are refused; at most \
         1024gb. 0 means no limit but the arena's, which is made at the start: of 64gb; of twice `maxmemory`, or twice the \
         machine's memory, where one of them is more than 64gb.",
        |c| c.maxmemory.limit_bytes.to_string(),
        |c, v| {
            let bytes = value::memory(v, 0, u64::MAX)?;
            if bytes > StoreConfig::MAX_MEMORY_BYTES {
                return Err("argument must be at most 1024gb, where an arena ends".into());
            }
            c.maxmemory.limit_bytes = bytes;
            Ok(())
        }
    ),
    directive!(
        "maxmemory-policy",
        "noeviction",
        MUTABLE,
        "Which keys go at maxmemory: of all (`allkeys-`) or of those with a time to live (`volatile-`) the one that was not used for \
         the longest time (`lru`), is used least often (`lfu`), expires first (`ttl`), or any (`random`); or none (`noeviction`).",
        |c| c.maxmemory.policy_name(),
        |c, v| value::choice(v, POLICIES).map(|policy| c.maxmemory.policy = policy)
    ),
    number!(
        "maxmemory-samples",
        "5",
        1,
        MAX_INT,
        "Keys that are looked at for each one that is evicted, at least; more than 64 count as 64.",
        samples
    ),
    number!(
        "maxmemory-eviction-tenacity",
        "10",
        0,
        100,
        "How long a command may evict keys before the rest is left to steps between commands: 50 microseconds for each up to 10, \
         15% more for each beyond, at 100 until there is room.",
        tenacity
    ),
    number!(
        "lfu-log-factor",
        "10",
        0,
        MAX_INT,
        "The larger, the more accesses move the counter of a key, where they are counted.",
        lfu_log_factor
    ),
    number!(
        "lfu-decay-time",
        "1",
        0,
        MAX_INT,
        "Minutes without an access in which the counter of a key falls by one; 0 means that it never does.",
        lfu_decay_minutes
    ),
];

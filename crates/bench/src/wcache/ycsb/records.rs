//! Records and requests.
//!
//! Relies on [`Zipf`] (0.99) and [`RankPermutation`]: YCSB's scrambled Zipfian choice.

use crate::requests::{self, Values};
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Fields of a record.
pub const FIELDS: u64 = 10;
/// Bytes of a field.
pub const FIELD_BYTES: usize = 100;
/// The sorted set of all keys.
const INDEX: &str = "_indices";
const SKEW: f64 = 0.99;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum YcsbWorkload {
    /// Half reads, half updates.
    A,
    /// 95 reads of a hundred.
    B,
}

impl YcsbWorkload {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "ycsb_a",
            Self::B => "ycsb_b",
        }
    }

    fn reads_percent(self) -> u64 {
        match self {
            Self::A => 50,
            Self::B => 95,
        }
    }
}

/// Makes requests.
#[derive(Debug)]
pub struct RequestGenerator {
    workload: YcsbWorkload,
    zipf: Zipf,
    scatter: RankPermutation,
    rng: SplitMix64,
    values: Values,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Gets a record.
    Read,
    /// Sets a field.
    Update,
}

impl RequestGenerator {
    /// Requests of client `client` to `records` records.
    pub fn new(workload: YcsbWorkload, records: u64, client: u64) -> Self {
        Self {
            workload,
            zipf: Zipf::new(records, SKEW),
            scatter: RankPermutation::new(records, 2),
            rng: SplitMix64::new(client + 41),
            values: Values::new(FIELD_BYTES, client + 901),
        }
    }

    /// Puts the next request into `to`, which is emptied before.
    pub fn next(&mut self, to: &mut Vec<u8>) -> RequestKind {
        to.clear();
        let key = key(self.scatter.key(self.zipf.sample(&mut self.rng)));
        if self.rng.below(100) < self.workload.reads_percent() {
            requests::push_command(to, &[&b"HGETALL"[..], key.as_bytes()]);
            return RequestKind::Read;
        }
        let field = format!("field{}", self.rng.below(FIELDS));
        requests::push_command(to, &[&b"HSET"[..], key.as_bytes(), field.as_bytes(), self.values.pick(&mut self.rng)]);
        RequestKind::Update
    }
}

fn key(record: u64) -> String {
    format!("user{record:012}")
}

/// Appends the two requests that insert `record`.
pub fn push_insert(to: &mut Vec<u8>, record: u64, values: &Values, rng: &mut SplitMix64) {
    let key = key(record);
    let fields: Vec<String> = (0..FIELDS).map(|field| format!("field{field}")).collect();
    let mut words: Vec<&[u8]> = vec![b"HSET", key.as_bytes()];
    for field in &fields {
        words.push(field.as_bytes());
        words.push(values.pick(rng));
    }
    requests::push_command(to, &words);
    requests::push_command(to, &[&b"ZADD"[..], INDEX.as_bytes(), record.to_string().as_bytes(), key.as_bytes()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_updates_are_in_the_workloads_shares() {
        let mut request = Vec::new();
        for (workload, low, high) in [(YcsbWorkload::A, 4500, 5500), (YcsbWorkload::B, 9300, 9700)] {
            let mut requests = RequestGenerator::new(workload, 1000, 3);
            let reads = (0..10_000).filter(|_| requests.next(&mut request) == RequestKind::Read).count();
            assert!((low..high).contains(&reads), "{reads}");
        }
    }

    #[test]
    fn a_record_is_a_hash_of_ten_fields() {
        let (values, mut rng, mut to) = (Values::new(FIELD_BYTES, 1), SplitMix64::new(1), Vec::new());
        push_insert(&mut to, 7, &values, &mut rng);
        assert!(to.starts_with(b"*22\r\n$4\r\nHSET\r\n$16\r\nuser000000000007\r\n$6\r\nfield0\r\n$100\r\n"));
        assert!(to.ends_with(b"*4\r\n$4\r\nZADD\r\n$8\r\n_indices\r\n$1\r\n7\r\n$16\r\nuser000000000007\r\n"));
    }
}

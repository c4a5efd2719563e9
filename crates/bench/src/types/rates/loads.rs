//! The loads of the part `rates`: a command for each type of value, and a script.
//!
//! Relies on every server answering a load alike, which is looked at before it is measured.

use anyhow::ensure;

use crate::redis_benchmark::RANDOM;
use crate::resp::{Connection, Value};
use crate::server::setup::Candidate;
use crate::types::memory_costs;

const SCRIPT: &str = "return redis.call('INCR',KEYS[1])";

/// A load: the words of its requests, and what the keyspace has before.
#[derive(Debug)]
pub struct Load {
    /// Its figures' names begin so.
    pub name: &'static str,
    /// Of its requests.
    pub words: &'static [&'static str],
    before: Before,
}

/// What a load needs to be there.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// Nothing.
    Empty,
    /// A list as long as there are requests.
    LongList,
    /// A list of a hundred elements.
    Hundred,
    /// A sorted set of ten thousand members.
    Ranked,
}

const fn load(name: &'static str, words: &'static [&'static str], before: Before) -> Load {
    Load { name, words, before }
}

/// A command for each type, and a script.
#[rustfmt::skip] // a line each
pub const LOADS: [Load; 11] = [
    load("lpush", &["LPUSH", "list", "element"], Before::Empty),
    load("lpop", &["LPOP", "list"], Before::LongList),
    load("sadd", &["SADD", "set:__rand_int__", "member:__rand_int__"], Before::Empty),
    load("zadd", &["ZADD", "ranked", "__rand_int__", "member:__rand_int__"], Before::Empty),
    load("zrange", &["ZRANGE", "ranked", "0", "9"], Before::Ranked),
    load("xadd", &["XADD", "stream", "MAXLEN", "~", "100000", "*", "field", "value"], Before::Empty),
    load("hset", &["HSET", "hash:__rand_int__", "field:__rand_int__", "value"], Before::Empty),
    load("incr", &["INCR", "counter:__rand_int__"], Before::Empty),
    load("lrange_100", &["LRANGE", "list", "0", "99"], Before::Hundred),
    load("mset_10", &[
        "MSET", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value",
        "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value", "key:__rand_int__", "value",
        "key:__rand_int__", "value", "key:__rand_int__", "value",
    ], Before::Empty),
    load("eval", &["EVAL", SCRIPT, "1", "counter:__rand_int__"], Before::Empty),
];

impl Load {
    /// Empties the keyspace and makes what so many requests need.
    pub fn prepare(&self, control: &mut Connection, requests: u64) -> anyhow::Result<()> {
        control.line("FLUSHALL")?;
        let (command, count): (&dyn Fn(u64) -> Vec<String>, u64) = match self.before {
            Before::Empty => return Ok(()),
            Before::LongList => (&|_| words("LPUSH list element"), requests),
            Before::Hundred => (&|number| words(&format!("RPUSH list element:{number}")), 100),
            Before::Ranked => (&|number| words(&format!("ZADD ranked {number} member:{number}")), 10_000),
        };
        memory_costs::send_all(control, (0..count).map(command))
    }

    /// Looks that every server answers the load, which redis-benchmark does not. Returns the reply of the last one.
    pub fn checked_reply(&self, candidates: &mut [Candidate]) -> anyhow::Result<Value> {
        let words: Vec<String> = self.words.iter().map(|word| word.replace(RANDOM, "000000000006")).collect();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut last = Value::Bulk(None);
        for candidate in candidates {
            self.prepare(&mut candidate.control, 100)?;
            last = candidate.control.call(&words)?;
            ensure!(
                !matches!(last, Value::Error(_)),
                "{} answers {} with {last:?}",
                candidate.server.name(),
                self.name
            );
        }
        Ok(last)
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

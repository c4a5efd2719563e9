//! Which keys a request names, and what it does with them, for commands of which no rule tells that: SET, BITFIELD, SORT, MIGRATE and
//! XREADGROUP.
//!
//! Relies on `args` and on the words for uses in `key_spec`. Options are read as the commands read them: a word that only looks like one
//! may be a password or a name.

use crate::args::Args;
use crate::key_spec::{ACCESS, DELETE, KeyUse, OW, RO, RW, UPDATE};

/// The indices of words that are keys, and what is done with each.
pub type KeyUses = Vec<(usize, KeyUse)>;

/// SET reads with GET only.
pub fn of_set(args: Args<'_>) -> KeyUses {
    let reads = (3..args.len()).any(|at| args.is(at, "GET"));
    vec![(1, if reads { RW | ACCESS | UPDATE } else { OW | UPDATE })]
}

/// BITFIELD writes with SET and INCRBY only.
pub fn of_bitfield(args: Args<'_>) -> KeyUses {
    let mut at = 2;
    while at < args.len() {
        let behind = args.len() - at - 1;
        at += if args.is(at, "GET") && behind >= 2 {
            3
        } else if args.is(at, "OVERFLOW") && behind >= 1 {
            2
        } else {
            return vec![(1, RW | ACCESS | UPDATE)];
        };
    }
    vec![(1, RO | ACCESS)]
}

/// SORT writes to the key behind the last STORE. What follows BY and GET are patterns, of which no request names the keys.
pub fn of_sort(args: Args<'_>) -> KeyUses {
    let mut keys = vec![(1, RO | ACCESS)];
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "STORE") && at + 1 < args.len() {
            keys.truncate(1);
            keys.push((at + 1, OW | UPDATE));
            at += 2;
        } else if args.is(at, "LIMIT") {
            at += 3;
        } else if args.is(at, "BY") || args.is(at, "GET") {
            at += 2;
        } else {
            at += 1;
        }
    }
    keys
}

/// MIGRATE moves the key behind the port, or where that is empty all behind the first KEYS that is no password. With keys in both
/// places it is refused.
pub fn of_migrate(args: Args<'_>) -> KeyUses {
    const MOVED: KeyUse = RW | ACCESS | DELETE;
    let mut at = 6;
    while at < args.len() {
        let behind = args.len() - at - 1;
        at += if args.is(at, "AUTH") && behind >= 1 {
            2
        } else if args.is(at, "AUTH2") && behind >= 2 {
            3
        } else if args.is(at, "KEYS") && args.at(3).is_empty() {
            return (at + 1..args.len()).map(|at| (at, MOVED)).collect();
        } else if args.is(at, "KEYS") {
            return Vec::new();
        } else {
            1
        };
    }
    vec![(3, MOVED)]
}

/// XREADGROUP reads the keys behind the first STREAMS that is no name of a group or a consumer, in the first half of the words there.
pub fn of_xreadgroup(args: Args<'_>) -> KeyUses {
    let mut at = 1;
    while at < args.len() {
        let behind = args.len() - at - 1;
        at += if args.is(at, "STREAMS") && behind >= 1 {
            return (at + 1..=at + behind / 2).map(|at| (at, RO | ACCESS)).collect();
        } else if args.is(at, "GROUP") && behind >= 2 {
            3
        } else if (args.is(at, "COUNT") || args.is(at, "BLOCK")) && behind >= 1 {
            2
        } else {
            1
        };
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ArgRange;

    #[test]
    fn keys_are_told_with_what_is_done_with_them() {
        for (tell, line, expected) in [
            (of_set as fn(Args<'_>) -> KeyUses, "SET a GET", vec![(1, OW | UPDATE)]),
            (of_set, "SET a 1 EX 5 get", vec![(1, RW | ACCESS | UPDATE)]),
            (of_bitfield, "BITFIELD a", vec![(1, RO | ACCESS)]),
            (of_bitfield, "BITFIELD a GET u8 0 OVERFLOW SAT get u8 1", vec![(1, RO | ACCESS)]),
            (of_bitfield, "BITFIELD a GET u8 0 INCRBY u8 0 1", vec![(1, RW | ACCESS | UPDATE)]),
            (of_bitfield, "BITFIELD a GET SET u8 0 1", vec![(1, RW | ACCESS | UPDATE)]),
            (of_sort, "SORT a", vec![(1, RO | ACCESS)]),
            (of_sort, "SORT a BY STORE GET STORE LIMIT 0 STORE ASC", vec![(1, RO | ACCESS)]),
            (of_sort, "SORT a STORE b store c STORE", vec![(1, RO | ACCESS), (5, OW | UPDATE)]),
            (of_migrate, "MIGRATE h 1 a 0 9", vec![(3, RW | ACCESS | DELETE)]),
            (of_migrate, "MIGRATE h 1 a 0 9 KEYS b", vec![]),
            (
                of_migrate,
                "MIGRATE h 1  0 9 COPY AUTH keys AUTH2 keys keys keys b c",
                vec![(13, RW | ACCESS | DELETE), (14, RW | ACCESS | DELETE)],
            ),
            (of_migrate, "MIGRATE h 1 a 0 1 AUTH KEYS", vec![(3, RW | ACCESS | DELETE)]),
            (of_migrate, "MIGRATE h 1  0 1 KEYS a KEYS b", [7, 8, 9].map(|at| (at, RW | ACCESS | DELETE)).to_vec()),
            (of_migrate, "MIGRATE h 1  0 1 AUTH keys keys b", vec![(9, RW | ACCESS | DELETE)]),
            (of_migrate, "MIGRATE h 1  0 1 AUTH2 AUTH KEYS REPLACE KEYS b", vec![(11, RW | ACCESS | DELETE)]),
            (of_xreadgroup, "XREADGROUP GROUP g c STREAMS a b 0 0", vec![(5, RO | ACCESS), (6, RO | ACCESS)]),
            (of_xreadgroup, "XREADGROUP COUNT 1 GROUP STREAMS c STREAMS a >", vec![(7, RO | ACCESS)]),
            (of_xreadgroup, "XREADGROUP GROUP g STREAMS NOACK BLOCK 5", vec![]),
        ] {
            let mut ranges = Vec::new();
            for word in line.split(' ') {
                let start = word.as_ptr() as usize - line.as_ptr() as usize;
                ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
            }
            assert_eq!(tell(Args::new(line.as_bytes(), &ranges)), expected, "{line}");
        }
    }
}

//! Which keys a request names, and what it does with them, for commands of which no rule tells that: SET, BITFIELD, SORT and MIGRATE.
//!
//! Relies on `args` and on the words for uses in `key_spec`.

use std::ops::Range;

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

/// MIGRATE has one key in front, or an empty word there and keys behind KEYS; with keys in both places it is refused.
pub fn of_migrate(args: Args<'_>) -> KeyUses {
    let moved = |keys: Range<usize>| keys.map(|at| (at, RW | ACCESS | DELETE)).collect();
    let mut at = 6;
    while at < args.len() {
        at += match () {
            () if args.is(at, "KEYS") && args.at(3).is_empty() => return moved(at + 1..args.len()),
            () if args.is(at, "KEYS") => return Vec::new(),
            () if args.is(at, "AUTH") => 2,
            () if args.is(at, "AUTH2") => 3,
            () => 1,
        };
    }
    moved(3..4)
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

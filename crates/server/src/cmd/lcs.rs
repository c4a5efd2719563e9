//! LCS: the longest sequence of bytes that two strings share in order, not necessarily side by side.
//!
//! Relies on the store for the strings. A table of the lengths for all pairs of beginnings is filled, then walked back
//! from its end; of several longest sequences the one that Redis finds is found.

use quire_store::{DbId, Store, StoreError, string};

use crate::ctx::{Args, CmdError, Ctx};

/// Most bytes of the table; larger ones are refused, as by Redis with its default `proto-max-bulk-len`.
const TABLE_MAX_BYTES: u64 = 512 << 20;

/// What LCS is to reply with.
#[derive(Default, PartialEq, Eq, Debug)]
struct Options {
    len: bool,
    ranges: bool,
    match_lens: bool,
    /// Shorter stretches are left out of the ranges.
    min_match_len: u64,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, CmdError> {
        let mut options = Options::default();
        let mut at = 0;
        while at < args.len() {
            if args.is(at, "LEN") {
                options.len = true;
            } else if args.is(at, "IDX") {
                options.ranges = true;
            } else if args.is(at, "WITHMATCHLEN") {
                options.match_lens = true;
            } else if args.is(at, "MINMATCHLEN") && at + 1 < args.len() {
                at += 1;
                options.min_match_len = args.int(at)?.max(0) as u64;
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        if options.len && options.ranges {
            return Err(CmdError::fixed("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]
pub fn lcs(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, args) = (ctx.client.db, ctx.args);
    // The reads that count and let keys expire, both before what one of them finds is refused; two values can be had at once only by
    // looks that do neither.
    let reads = [args.at(1), args.at(2)].map(|key| string::get(ctx.store, db, key).map(drop));
    reads.into_iter().collect::<Result<(), _>>().map_err(string_expected)?;
    let options = Options::parse(args.from(3))?;
    let a = look(ctx.store, db, args.at(1))?;
    let b = look(ctx.store, db, args.at(2))?;
    if (a.len() as u64 + 1) * (b.len() as u64 + 1) * size_of::<u32>() as u64 > TABLE_MAX_BYTES {
        return Err(CmdError::fixed("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    if options.len {
        ctx.reply.int(i64::from(length(a, b)));
        return Ok(());
    }
    let table = Table::fill(a, b)
        .ok_or(CmdError::fixed("ERR Insufficient memory, failed allocating transient memory for LCS"))?;
    if !options.ranges {
        ctx.reply.bulk(&table.sequence());
        return Ok(());
    }
    let mut stretches = table.stretches();
    stretches.retain(|stretch| u64::from(stretch.len) >= options.min_match_len);
    ctx.reply.map(2);
    ctx.reply.bulk_str("matches");
    ctx.reply.array(stretches.len());
    for Stretch { a, b, len } in stretches {
        ctx.reply.array(if options.match_lens { 3 } else { 2 });
        for start in [a, b] {
            ctx.reply.array(2);
            ctx.reply.int(i64::from(start));
            ctx.reply.int(i64::from(start + len - 1));
        }
        if options.match_lens {
            ctx.reply.int(i64::from(len));
        }
    }
    ctx.reply.bulk_str("len");
    ctx.reply.int(i64::from(table.len()));
    Ok(())
}

fn look<'a>(store: &'a Store, db: DbId, key: &[u8]) -> Result<&'a [u8], CmdError> {
    Ok(string::peek(store, db, key).map_err(string_expected)?.unwrap_or_default())
}

fn string_expected(error: StoreError) -> CmdError {
    match error {
        StoreError::WrongType => CmdError::fixed("ERR The specified keys must contain string values"),
        error => error.into(),
    }
}

/// The length of the longest sequence; two rows of the table are enough for it.
fn length(a: &[u8], b: &[u8]) -> u32 {
    let mut above = vec![0u32; b.len() + 1];
    let mut row = above.clone();
    for byte in a {
        fill_row(*byte, b, &above, &mut row);
        std::mem::swap(&mut above, &mut row);
    }
    above[b.len()]
}

/// Fills the row that stands for one more byte of the first string; `row[0]` is 0.
fn fill_row(byte: u8, b: &[u8], above: &[u32], row: &mut [u32]) {
    let mut left = 0;
    for (index, other) in b.iter().enumerate() {
        left = if byte == *other { above[index] + 1 } else { left.max(above[index + 1]) };
        row[index + 1] = left;
    }
}

/// Bytes side by side that both strings have, from where on and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    a: u32,
    b: u32,
    len: u32,
}

/// The lengths for all pairs of beginnings of two strings.
struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    cells: Vec<u32>,
}

impl<'a> Table<'a> {
    /// The table; `None` if there is no memory for it.
    fn fill(a: &'a [u8], b: &'a [u8]) -> Option<Table<'a>> {
        let width = b.len() + 1;
        let mut cells = Vec::new();
        cells.try_reserve_exact((a.len() + 1) * width).ok()?;
        cells.resize((a.len() + 1) * width, 0);
        let mut rows = cells.chunks_exact_mut(width);
        let mut above = rows.next()?;
        for (byte, row) in a.iter().zip(rows) {
            fill_row(*byte, b, above, row);
            above = row;
        }
        Some(Table { a, b, cells })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.b.len() + 1) + j]
    }

    /// The length of the longest sequence.
    fn len(&self) -> u32 {
        self.at(self.a.len(), self.b.len())
    }

    /// The longest sequence.
    fn sequence(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() as usize);
        self.walk_back(|i, _| bytes.push(self.a[i]));
        bytes.reverse();
        bytes
    }

    /// Its stretches, the last one first.
    fn stretches(&self) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        self.walk_back(|i, j| {
            let (a, b) = (i as u32, j as u32);
            match stretches.last_mut() {
                Some(last) if last.a == a + 1 && last.b == b + 1 => *last = Stretch { a, b, len: last.len + 1 },
                _ => stretches.push(Stretch { a, b, len: 1 }),
            }
        });
        stretches
    }

    /// Tells the places of each byte of the sequence in both strings, from the last to the first.
    fn walk_back(&self, mut tell: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                (i, j) = (i - 1, j - 1);
                tell(i, j);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_and_its_stretches_are_found() {
        let table = Table::fill(b"ohmytext", b"mynewtext").unwrap();
        assert_eq!(table.sequence(), b"mytext");
        assert_eq!(table.stretches(), [Stretch { a: 4, b: 5, len: 4 }, Stretch { a: 2, b: 0, len: 2 }]);
        let nothing = Table::fill(b"", b"abc").unwrap();
        assert_eq!((nothing.len(), nothing.sequence(), nothing.stretches()), (0, vec![], vec![]));
    }

    proptest! {
        #[test]
        fn sequence_stretches_and_length_agree(a in "[abc]{0,30}", b in "[abc]{0,30}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let table = Table::fill(a, b).unwrap();
            prop_assert_eq!(length(a, b), table.len());
            let sequence = table.sequence();
            prop_assert_eq!(sequence.len() as u32, table.len());
            for text in [a, b] {
                let mut rest = text.iter();
                prop_assert!(sequence.iter().all(|byte| rest.any(|other| other == byte)));
            }
            let mut joined = Vec::new();
            for Stretch { a: i, b: j, len } in table.stretches().into_iter().rev() {
                let (i, j, len) = (i as usize, j as usize, len as usize);
                prop_assert_eq!(&a[i..i + len], &b[j..j + len]);
                joined.extend_from_slice(&a[i..i + len]);
            }
            prop_assert_eq!(joined, sequence);
        }
    }
}

//! Reading every record once before anything is measured. Data that all fits in memory is then in memory in every way alike: what is measured
//! is the steady state, and not which way found more of it in a cache that an earlier step had filled.
//!
//! Relies on the numbers of the records, as the loads do: each reader has every so manyth.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::fastmap::kv::VALUE_BYTES;
use crate::fastmap::kv::store::KvStore;
use crate::fastmap::kv::ycsb::key_of;

/// Readers at a time: as many reads at once as keep a disk busy.
const READERS: usize = 32;
/// Most time that it takes: enough for a third of the usual memory on a disk of 2,200 reads a second. Of a slower one a part is read, and figures
/// say how much.
pub const MOST_TIME: Duration = Duration::from_secs(60);

/// Reads the records of `store`, numbered from 0 to `records`, or as many as `most_time` allows. Returns how many.
///
/// # Errors
/// The store's own, or it lacks one.
pub fn read_all<S: KvStore>(store: &S, records: u64, most_time: Duration) -> anyhow::Result<u64> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let reader = |first: u64| {
            scope.spawn(move || {
                let mut value = [0; VALUE_BYTES];
                let mut read = 0;
                for record in (first..records).step_by(READERS) {
                    if begun.elapsed() >= most_time {
                        break;
                    }
                    ensure!(store.read(key_of(record), &mut value)?, "record {record} is missing");
                    read += 1;
                }
                Ok(read)
            })
        };
        let threads: Vec<_> = (0..READERS as u64).map(reader).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reading thread does not panic")).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dbio::candidate::{Candidate, TierCodec, open_pages};
    use crate::dbio::store_file::fill;
    use crate::dbio::values::ValueKind;
    use crate::fastmap::kv::tree::Tree;

    #[test]
    fn every_record_is_read_once_unless_the_time_is_over() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let (testbed, layout) = fill(&dir.path().join("store"), 5000, ValueKind::Printable, 4 << 20).unwrap();
        let pages = open_pages(Candidate::Direct, &testbed, (16 << 20, 0), TierCodec::None).unwrap();
        let tree = Tree::open(&pages, &layout).unwrap();
        assert_eq!(read_all(&tree, 5000, Duration::ZERO).unwrap(), 0);
        assert_eq!(read_all(&tree, 5000, MOST_TIME).unwrap(), 5000);
        // All pages of the store are in the pool, each read once.
        assert_eq!(pages.map().resident_pages() as u64, layout.pages);
        assert_eq!(pages.pool().stats().paths.read_direct, layout.pages);
        assert!(read_all(&tree, 5001, MOST_TIME).unwrap_err().to_string().contains("record 5000 is missing"));
    }
}

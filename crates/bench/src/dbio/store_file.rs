//! The file that all trials of one size of the data use.
//!
//! Relies on nothing else being in it: the store is laid out through the pool, from its first page to its last.

use std::path::Path;

use anyhow::Context;
use quire_rng::SplitMix64;

use super::candidate::{Candidate, TierCodec, open_pages};
use super::values::ValueKind;
use crate::fastmap::kv::bulk_load;
use crate::fastmap::kv::tree::TreeLayout;
use crate::fastmap::kv::ycsb::write_value;
use crate::fastmap::testbed::Testbed;

const SEED: u64 = 31;
/// Trees that the store consists of: 256.
const PART_BITS: u32 = 8;

/// A new file at `path` with a store of so many records, written through a pool of `pool_bytes` and synced.
///
/// # Errors
/// When the file can't be written.
pub fn fill(path: &Path, records: u64, kind: ValueKind, pool_bytes: u64) -> anyhow::Result<(Testbed, TreeLayout)> {
    let testbed = Testbed::empty_file(path, bulk_load::most_pages(records, PART_BITS))?;
    let pages = open_pages(Candidate::Direct, &testbed, (pool_bytes, 0), TierCodec::None)?;
    let (values, mut rng) = (kind.values(SEED), SplitMix64::new(SEED));
    let layout = bulk_load::load(&pages, PART_BITS, records, |key, bytes| write_value(key, &values, &mut rng, bytes))?;
    pages.map().sync().context("syncing the store")?;
    // Random reads of the disk by itself are to be of pages that were written.
    Ok((Testbed { pages: layout.pages, ..testbed }, layout))
}

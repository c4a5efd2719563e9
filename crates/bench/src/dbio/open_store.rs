//! Opens the store of a trial in the way of its candidate.
//!
//! Relies on the same tree in the same file for all of the pool's ways; the stores of others are opened by [`peer_stores`].

use anyhow::Context;

use super::candidate::{Candidate, OpenStore, StoreSpec, StoreWorkload, open_pages};
use super::{counters, peer_stores};
use crate::fastmap::kv::tree::Tree;
use crate::fastmap::testbed::Testbed;

/// Opens the store that `spec` tells of in the way of its candidate, and does `work` on it.
///
/// # Errors
/// When it can't be opened so, or the work's own.
pub fn with_store<W: StoreWorkload>(
    spec: &StoreSpec,
    testbed: &Testbed,
    limit_bytes: u64,
    work: W,
) -> anyhow::Result<W::Out> {
    if Candidate::ROCKSDB.contains(&spec.candidate) || spec.candidate == Candidate::Lmdb {
        return peer_stores::with_store(spec, &testbed.path, work);
    }
    let pages = open_pages(spec.candidate, testbed, (spec.pool_bytes, limit_bytes), spec.compression)?;
    let tree = Tree::open(&pages, spec.layout.as_ref().context("the pool's file has a tree")?)?;
    work.run_on(&OpenStore {
        store: &tree,
        counters: &|| counters::counted(pages.pool()),
        gauges: &|| counters::held(pages.pool(), pages.map()),
    })
}

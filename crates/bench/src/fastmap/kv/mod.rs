//! The key-value store of the experiment and its loads: a page-based B+-tree over any candidate, and LMDB.

pub mod bulk_load;
pub mod lmdb;
mod node;
pub mod store;
pub mod tree;
pub mod ycsb;

pub use node::VALUE_BYTES;

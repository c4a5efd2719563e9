//! With what a database of RocksDB is opened.
//!
//! Relies on objects that are given to an option being shared by it, so that ours may be destroyed at once, but for the filter policy,
//! which the table options take over.

use std::ffi::{c_double, c_int, c_uchar};

use super::Object;

/// Of memory for writes, RocksDB has at most so many buffers at a time.
const WRITE_BUFFERS: c_int = 2;
/// Threads that compact and flush.
const BACKGROUND_THREADS: c_int = 2;
/// Bits of the filter for each key, as RocksDB's guide has them.
const FILTER_BITS: c_double = 10.0;

functions! {
    /// Functions on the options of a database.
    OptionsApi {
        rocksdb_options_create() -> Object;
        rocksdb_options_destroy(Object);
        rocksdb_options_set_create_if_missing(Object, c_uchar);
        rocksdb_options_increase_parallelism(Object, c_int);
        rocksdb_options_set_use_direct_reads(Object, c_uchar);
        rocksdb_options_set_use_direct_io_for_flush_and_compaction(Object, c_uchar);
        rocksdb_options_set_write_buffer_size(Object, usize);
        rocksdb_options_set_max_write_buffer_number(Object, c_int);
        rocksdb_options_set_compression(Object, c_int);
        rocksdb_options_set_block_based_table_factory(Object, Object);
        rocksdb_block_based_options_create() -> Object;
        rocksdb_block_based_options_destroy(Object);
        rocksdb_block_based_options_set_block_cache(Object, Object);
        rocksdb_block_based_options_set_filter_policy(Object, Object);
        rocksdb_filterpolicy_create_bloom_full(c_double) -> Object;
    }
}

/// How blocks are compressed in table files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockCompression {
    /// Not at all.
    #[default]
    None,
    /// By LZ4.
    Lz4,
    /// By zstd.
    Zstd,
}

impl BlockCompression {
    /// Its number in `c.h`.
    fn number(self) -> c_int {
        match self {
            Self::None => 0,
            Self::Lz4 => 4,
            Self::Zstd => 7,
        }
    }
}

/// What experiments vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksdbOptions {
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Bytes of a buffer for writes; there are up to two.
    pub write_buffer_bytes: usize,
    /// Files are read and written around the page cache.
    pub is_direct: bool,
    /// How blocks are compressed.
    pub compression: BlockCompression,
}

impl Default for RocksdbOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 8 << 20,
            write_buffer_bytes: 8 << 20,
            is_direct: false,
            compression: BlockCompression::None,
        }
    }
}

functions! {
    /// Functions on caches.
    CacheApi {
        rocksdb_cache_create_lru(usize) -> Object;
        rocksdb_cache_destroy(Object);
    }
}

/// Options as the library has them.
pub(super) struct OptionsHandle {
    api: OptionsApi,
    object: Object,
}

impl OptionsHandle {
    pub(super) fn new(api: &OptionsApi, caches: &CacheApi, options: &RocksdbOptions) -> Self {
        // SAFETY: all objects are made here and given to functions for their kind. Cache and table options are shared by those that they are
        // given to, so ours are destroyed; the filter policy belongs to the table options from there on.
        unsafe {
            let object = (api.rocksdb_options_create)();
            (api.rocksdb_options_set_create_if_missing)(object, 1);
            (api.rocksdb_options_increase_parallelism)(object, BACKGROUND_THREADS);
            (api.rocksdb_options_set_use_direct_reads)(object, options.is_direct.into());
            (api.rocksdb_options_set_use_direct_io_for_flush_and_compaction)(object, options.is_direct.into());
            (api.rocksdb_options_set_write_buffer_size)(object, options.write_buffer_bytes);
            (api.rocksdb_options_set_max_write_buffer_number)(object, WRITE_BUFFERS);
            (api.rocksdb_options_set_compression)(object, options.compression.number());
            let table = (api.rocksdb_block_based_options_create)();
            let cache = (caches.rocksdb_cache_create_lru)(options.cache_bytes);
            (api.rocksdb_block_based_options_set_block_cache)(table, cache);
            (caches.rocksdb_cache_destroy)(cache);
            let filter = (api.rocksdb_filterpolicy_create_bloom_full)(FILTER_BITS);
            (api.rocksdb_block_based_options_set_filter_policy)(table, filter);
            (api.rocksdb_options_set_block_based_table_factory)(object, table);
            (api.rocksdb_block_based_options_destroy)(table);
            Self { api: *api, object }
        }
    }

    pub(super) fn object(&self) -> Object {
        self.object
    }
}

impl Drop for OptionsHandle {
    fn drop(&mut self) {
        // SAFETY: `new` has made it, and nothing uses it any more: a database copies its options when it is opened.
        unsafe { (self.api.rocksdb_options_destroy)(self.object) };
    }
}

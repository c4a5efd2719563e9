//! Table files of RocksDB, written outside of any database: the fastest way to fill one.
//!
//! Relies on keys coming in their order, which RocksDB checks.

use std::ffi::c_char;
use std::path::Path;
use std::ptr;

use super::options::OptionsHandle;
use super::{ErrorPlace, Object, Rocksdb, RocksdbOptions};
use crate::{PeerError, c_string};

functions! {
    /// Functions on writers of table files.
    TableWriterApi {
        rocksdb_envoptions_create() -> Object;
        rocksdb_envoptions_destroy(Object);
        rocksdb_sstfilewriter_create(Object, Object) -> Object;
        rocksdb_sstfilewriter_open(Object, *const c_char, ErrorPlace);
        rocksdb_sstfilewriter_put(Object, *const c_char, usize, *const c_char, usize, ErrorPlace);
        rocksdb_sstfilewriter_finish(Object, ErrorPlace);
        rocksdb_sstfilewriter_destroy(Object);
    }
}

/// A table file that is being written.
pub struct TableWriter {
    rocksdb: Rocksdb,
    writer: Object,
    environment: Object,
    _options: OptionsHandle,
}

impl TableWriter {
    pub(super) fn new(rocksdb: Rocksdb, path: &Path, options: &RocksdbOptions) -> Result<Self, PeerError> {
        let name = c_string(&path.to_string_lossy())?;
        let options = rocksdb.options(options);
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: all objects are of the library's and live as long as the writer; a C string, and a place for an error.
        let table = unsafe {
            let environment = (rocksdb.tables.rocksdb_envoptions_create)();
            let writer = (rocksdb.tables.rocksdb_sstfilewriter_create)(environment, options.object());
            (rocksdb.tables.rocksdb_sstfilewriter_open)(writer, name.as_ptr(), &raw mut error);
            Self { rocksdb, writer, environment, _options: options }
        };
        rocksdb.check(error, || format!("creating {}", path.display()))?;
        Ok(table)
    }

    /// Adds an entry, whose key comes after all others.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: a writer of the library's, ranges of bytes that are only read during the call, and a place for an error.
        unsafe {
            let put = self.rocksdb.tables.rocksdb_sstfilewriter_put;
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            put(self.writer, key_at, key.len(), value_at, value.len(), &raw mut error);
        }
        self.rocksdb.check(error, || "adding to a table".into())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// What RocksDB says; an empty file is refused.
    pub fn finish(self) -> Result<(), PeerError> {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: a writer of the library's, and a place for an error.
        unsafe { (self.rocksdb.tables.rocksdb_sstfilewriter_finish)(self.writer, &raw mut error) };
        self.rocksdb.check(error, || "ending a table".into())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        // SAFETY: `new` has made both, and nothing uses them any more.
        unsafe {
            (self.rocksdb.tables.rocksdb_sstfilewriter_destroy)(self.writer);
            (self.rocksdb.tables.rocksdb_envoptions_destroy)(self.environment);
        }
    }
}

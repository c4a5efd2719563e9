//! RocksDB, the library of this machine: a database with the settings that an experiment varies, filled in the order of its keys.
//!
//! Relies on RocksDB's C interface, in which any thread may use an open database. That interface has no secondary cache, so a database
//! with compressed blocks read through the page cache stands for a compressed tier behind the block cache.

mod options;
mod table_writer;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr;

use quire_sys::library::Library;

use crate::{PeerError, c_string};

pub use options::{BlockCompression, RocksdbOptions};
use options::{CacheApi, OptionsApi, OptionsHandle};
pub use table_writer::TableWriter;
use table_writer::TableWriterApi;

/// Debian's names of the library, the newest first; the development package has one without a version.
const NAMES: [&str; 5] =
    ["librocksdb.so", "librocksdb.so.9.10", "librocksdb.so.8.9", "librocksdb.so.7.8", "librocksdb.so.6.11"];

/// Objects of the library's.
pub(crate) type Object = *mut c_void;
/// Where functions put what went wrong: null, or a C string to be freed.
type ErrorPlace = *mut *mut c_char;

functions! {
    /// Functions on databases.
    DatabaseApi {
        rocksdb_open(Object, *const c_char, ErrorPlace) -> Object;
        rocksdb_close(Object);
        rocksdb_put(Object, Object, *const c_char, usize, *const c_char, usize, ErrorPlace);
        rocksdb_get_pinned(Object, Object, *const c_char, usize, ErrorPlace) -> Object;
        rocksdb_pinnableslice_value(Object, *mut usize) -> *const c_char;
        rocksdb_pinnableslice_destroy(Object);
        rocksdb_ingest_external_file(Object, *const *const c_char, usize, Object, ErrorPlace);
        rocksdb_checkpoint_object_create(Object, ErrorPlace) -> Object;
        rocksdb_checkpoint_create(Object, *const c_char, u64, ErrorPlace);
        rocksdb_checkpoint_object_destroy(Object);
        rocksdb_free(*mut c_void);
    }
}

functions! {
    /// Functions on what single calls are told.
    CallApi {
        rocksdb_readoptions_create() -> Object;
        rocksdb_readoptions_destroy(Object);
        rocksdb_writeoptions_create() -> Object;
        rocksdb_writeoptions_destroy(Object);
        rocksdb_writeoptions_disable_WAL(Object, c_int);
        rocksdb_ingestexternalfileoptions_create() -> Object;
        rocksdb_ingestexternalfileoptions_destroy(Object);
        rocksdb_ingestexternalfileoptions_set_move_files(Object, c_uchar);
    }
}

/// The library.
#[derive(Clone, Copy)]
pub struct Rocksdb {
    databases: DatabaseApi,
    calls: CallApi,
    options: OptionsApi,
    caches: CacheApi,
    tables: TableWriterApi,
}

impl Rocksdb {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not here, or of another version.
    pub fn load() -> Result<Self, PeerError> {
        let missing = |reason| PeerError::Missing { library: "RocksDB", package: "librocksdb7.8", reason };
        // SAFETY: RocksDB sets up tables of its own when it is loaded, and starts nothing.
        let library = unsafe { Library::open(&NAMES) }.map_err(missing)?;
        // SAFETY: the types are those of RocksDB's `c.h`, whose functions keep theirs over versions; objects are pointers to structs that
        // only the library knows.
        unsafe {
            Ok(Self {
                databases: DatabaseApi::of(&library)?,
                calls: CallApi::of(&library)?,
                options: OptionsApi::of(&library)?,
                caches: CacheApi::of(&library)?,
                tables: TableWriterApi::of(&library)?,
            })
        }
    }

    /// What a call that was given `error` has put there.
    ///
    /// # Errors
    /// It has put a text there.
    fn check(&self, error: *mut c_char, what: impl FnOnce() -> String) -> Result<(), PeerError> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: `check`'s callers pass what a call of the library has put in a place for errors: not null, so it is a C string that the
        // caller is to free.
        let reason = unsafe {
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            (self.databases.rocksdb_free)(error.cast());
            text
        };
        Err(PeerError::Refused { what: what(), reason })
    }

    fn options(&self, options: &RocksdbOptions) -> OptionsHandle {
        OptionsHandle::new(&self.options, &self.caches, options)
    }

    /// Opens the database in the directory `dir`, or makes one.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn open(&self, dir: &Path, options: &RocksdbOptions) -> Result<RocksdbDatabase, PeerError> {
        let name = c_string(&dir.to_string_lossy())?;
        let options = self.options(options);
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: options of the library's, a C string, and a place for an error.
        let db = unsafe { (self.databases.rocksdb_open)(options.object(), name.as_ptr(), &raw mut error) };
        self.check(error, || format!("opening {}", dir.display()))?;
        // SAFETY: the functions take nothing and return objects of their own.
        let (read, write) =
            unsafe { ((self.calls.rocksdb_readoptions_create)(), (self.calls.rocksdb_writeoptions_create)()) };
        // SAFETY: options that were just made. Without a log of its own RocksDB is at its fastest, and as durable as a pool between syncs.
        unsafe { (self.calls.rocksdb_writeoptions_disable_WAL)(write, 1) };
        Ok(RocksdbDatabase { rocksdb: *self, db, read, write, _options: options })
    }

    /// Begins a table file at `path`, whose entries are put in the order of their keys.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn write_table(&self, path: &Path, options: &RocksdbOptions) -> Result<TableWriter, PeerError> {
        TableWriter::new(*self, path, options)
    }
}

/// An open database.
pub struct RocksdbDatabase {
    rocksdb: Rocksdb,
    db: Object,
    read: Object,
    write: Object,
    /// What the database was opened with, its block cache among it.
    _options: OptionsHandle,
}

// SAFETY: RocksDB's databases may be used by any thread, and by several at a time; the options for calls are only read.
unsafe impl Send for RocksdbDatabase {}
// SAFETY: as for `Send`.
unsafe impl Sync for RocksdbDatabase {}

impl RocksdbDatabase {
    /// Adds an entry, or replaces its value.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), PeerError> {
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: an open database and its options, ranges of bytes that are only read during the call, and a place for an error.
        unsafe {
            let put = self.rocksdb.databases.rocksdb_put;
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            put(self.db, self.write, key_at, key.len(), value_at, value.len(), &raw mut error);
        }
        self.rocksdb.check(error, || "putting an entry".into())
    }

    /// What `pick` makes of the value of `key`; `None` if there is none.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn get<T>(&self, key: &[u8], pick: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, PeerError> {
        let api = &self.rocksdb.databases;
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: an open database and its options, bytes that are only read during the call, and a place for an error.
        let slice =
            unsafe { (api.rocksdb_get_pinned)(self.db, self.read, key.as_ptr().cast(), key.len(), &raw mut error) };
        self.rocksdb.check(error, || "getting an entry".into())?;
        if slice.is_null() {
            return Ok(None);
        }
        let slice = PinnedSlice { api, slice };
        let mut len = 0;
        // SAFETY: the slice is not null, so it has bytes that stay until it is destroyed, which is after `pick`.
        let bytes = unsafe {
            let at = (api.rocksdb_pinnableslice_value)(slice.slice, &raw mut len);
            if len == 0 { &[] } else { std::slice::from_raw_parts(at.cast::<u8>(), len) }
        };
        Ok(Some(pick(bytes)))
    }

    /// Takes the table files `paths` in, whose keys are in no other, and moves them into its directory.
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn ingest(&self, paths: &[&Path]) -> Result<(), PeerError> {
        let names: Vec<_> = paths.iter().map(|path| c_string(&path.to_string_lossy())).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: options that are made and destroyed here, an open database, as many C strings as are told, and a place for an error.
        unsafe {
            let calls = &self.rocksdb.calls;
            let options = (calls.rocksdb_ingestexternalfileoptions_create)();
            (calls.rocksdb_ingestexternalfileoptions_set_move_files)(options, 1);
            let ingest = self.rocksdb.databases.rocksdb_ingest_external_file;
            ingest(self.db, pointers.as_ptr(), pointers.len(), options, &raw mut error);
            (calls.rocksdb_ingestexternalfileoptions_destroy)(options);
        }
        self.rocksdb.check(error, || format!("taking {} tables in", paths.len()))
    }

    /// Makes a database of the same contents in the directory `dir`, which must not exist; table files are shared (hard links).
    ///
    /// # Errors
    /// What RocksDB says.
    pub fn checkpoint(&self, dir: &Path) -> Result<(), PeerError> {
        let name = c_string(&dir.to_string_lossy())?;
        let api = &self.rocksdb.databases;
        let mut error: *mut c_char = ptr::null_mut();
        // SAFETY: an open database and a place for an error.
        let checkpoint = unsafe { (api.rocksdb_checkpoint_object_create)(self.db, &raw mut error) };
        self.rocksdb.check(error, || "making a checkpoint".into())?;
        // SAFETY: an object that was just made and is destroyed here, a C string, and a place for an error, which is null still.
        unsafe {
            (api.rocksdb_checkpoint_create)(checkpoint, name.as_ptr(), 0, &raw mut error);
            (api.rocksdb_checkpoint_object_destroy)(checkpoint);
        }
        self.rocksdb.check(error, || format!("making a checkpoint in {}", dir.display()))
    }
}

impl Drop for RocksdbDatabase {
    fn drop(&mut self) {
        // SAFETY: `Rocksdb::open` has made all three, and nothing uses them any more. The options of the database go after it.
        unsafe {
            (self.rocksdb.databases.rocksdb_close)(self.db);
            (self.rocksdb.calls.rocksdb_readoptions_destroy)(self.read);
            (self.rocksdb.calls.rocksdb_writeoptions_destroy)(self.write);
        }
    }
}

/// A value that RocksDB keeps for its reader.
struct PinnedSlice<'a> {
    api: &'a DatabaseApi,
    slice: Object,
}

impl Drop for PinnedSlice<'_> {
    fn drop(&mut self) {
        // SAFETY: `rocksdb_get_pinned` has made it for the caller to destroy, and no reference to its bytes is left.
        unsafe { (self.api.rocksdb_pinnableslice_destroy)(self.slice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_what_was_ingested_and_put_and_a_checkpoint_keeps_it() {
        let rocksdb = match Rocksdb::load() {
            Ok(rocksdb) => rocksdb,
            // No part of the suite needs it, so CI doesn't install it.
            Err(error) => return quire_sys::testing::skipped_even_in_ci(error),
        };
        let dir = tempfile::tempdir().unwrap();
        let options = RocksdbOptions { cache_bytes: 1 << 20, ..RocksdbOptions::default() };
        let [base, copy, table] = ["base", "copy", "table.sst"].map(|name| dir.path().join(name));
        let database = rocksdb.open(&base, &options).unwrap();
        let mut writer = rocksdb.write_table(&table, &options).unwrap();
        for key in 0..1000_u64 {
            writer.put(&key.to_be_bytes(), &[key as u8; 100]).unwrap();
        }
        assert!(writer.put(&5_u64.to_be_bytes(), &[]).is_err(), "keys come in order");
        writer.finish().unwrap();
        database.ingest(&[&table]).unwrap();
        database.put(&7_u64.to_be_bytes(), b"changed").unwrap();
        let read = |database: &RocksdbDatabase, key: u64| database.get(&key.to_be_bytes(), <[u8]>::to_vec).unwrap();
        assert_eq!((read(&database, 7), read(&database, 1000)), (Some(b"changed".to_vec()), None));
        database.checkpoint(&copy).unwrap();
        assert!(database.checkpoint(&copy).is_err(), "the directory is taken");
        drop(database);
        let direct = RocksdbOptions { is_direct: true, ..options };
        let database = rocksdb.open(&copy, &direct).unwrap();
        assert_eq!((read(&database, 7), read(&database, 999)), (Some(b"changed".to_vec()), Some(vec![231; 100])));
        assert!(rocksdb.open(Path::new("/no/such/directory/at/all"), &options).is_err());
    }
}

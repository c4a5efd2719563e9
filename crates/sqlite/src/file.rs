//! A connection's open database file: what SQLite holds, and the methods that go through the pool.
//!
//! Relies on the default VFS for locks. The file object that SQLite gives us has two parts: ours, and behind it the whole object
//! of the default VFS ([`PooledFile`]). SQLite calls the methods of one file from one thread at a time.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libsqlite3_sys as sqlite;
use sqlite::{sqlite3_file, sqlite3_io_methods};

use crate::coherence::{self, HEADER_OFFSET, HeaderBytes, INDEX_BYTES, WalIndex};
use crate::database::Database;
use crate::fetched_pages::FetchedPages;
use crate::registry::Locking;

/// Lock of the WAL index that a connection has which writes the WAL.
const WAL_WRITE_LOCK: c_int = 0;
/// The one that a connection has which writes the database file.
const WAL_CHECKPOINT_LOCK: c_int = 1;
/// The first of those of which a connection has one that reads.
const WAL_READ_LOCK: c_int = 3;
/// Bytes of a page of the pool. A smaller page of SQLite would share it with neighbours that others may be reading.
const POOL_PAGE_BYTES: u32 = 4096;

/// Our part of the object, at its start, as SQLite wants it.
#[repr(C)]
pub(crate) struct PooledFile {
    base: sqlite3_file,
    connection: *mut Connection,
}

/// Where the object of the default VFS begins in ours.
pub(crate) const INNER_OFFSET: usize = size_of::<PooledFile>();
const _: () = assert!(INNER_OFFSET.is_multiple_of(8), "the inner object is aligned as ours is");

/// What a connection knows of its file.
pub(crate) struct Connection {
    pub(crate) database: Arc<Database>,
    /// The lock that it has.
    lock: c_int,
    /// What the file said when the connection got its lock: whether it may be cached, and is in WAL mode.
    header: HeaderBytes,
    /// It has written since its last commit.
    has_uncommitted: bool,
    wal: Option<WalIndex>,
    has_write_lock: bool,
    has_checkpoint_lock: bool,
    locking: Locking,
    fetched: FetchedPages,
}

/// A file and its parts, for the time of one call.
pub(crate) struct OpenFile<'a> {
    pub(crate) connection: &'a mut Connection,
    inner: Inner,
}

/// The file of the default VFS.
#[derive(Clone, Copy)]
pub(crate) struct Inner {
    pub(crate) file: *mut sqlite3_file,
    pub(crate) methods: &'static sqlite3_io_methods,
}

/// Calls a method of the default VFS's file; one that it doesn't have answers `$default`.
macro_rules! inner {
    ($inner:expr, $method:ident($($argument:expr),*), $default:expr) => {
        match $inner.methods.$method {
            // SAFETY: the method is the default VFS's for its own file, which is open for as long as `Inner` is used; the
            // arguments are those of the same method of ours, which SQLite has called by the same contract.
            Some(method) => unsafe { method($inner.file $(, $argument)*) },
            None => $default,
        }
    };
}
pub(crate) use inner;

impl Inner {
    /// The file behind `outer`.
    ///
    /// # Safety
    /// `outer` is memory for an object of ours; the default VFS has opened the inner file in it, which stays open while the result is used.
    pub(crate) unsafe fn of(outer: *mut sqlite3_file) -> Self {
        // SAFETY: `vfs::register` told SQLite to make objects of ours INNER_OFFSET bytes larger than the inner one, so the sum lies inside.
        let file: *mut sqlite3_file = unsafe { outer.cast::<u8>().add(INNER_OFFSET) }.cast();
        // SAFETY: `of` demands that the default VFS has opened the inner file: it has set the methods then, which are a static table of it.
        let methods = unsafe { &*(*file).pMethods };
        Self { file, methods }
    }

    /// Whether the file's name leads to another file by now.
    pub(crate) fn is_moved(self) -> bool {
        let mut is_moved: c_int = 0;
        let answer = (&raw mut is_moved).cast::<c_void>();
        let code = inner!(self, xFileControl(sqlite::SQLITE_FCNTL_HAS_MOVED, answer), sqlite::SQLITE_NOTFOUND);
        code == sqlite::SQLITE_OK && is_moved != 0
    }

    /// Of `asked` bytes as many as SQLite lets a connection map (`SQLITE_CONFIG_MMAP_SIZE`, and how it was compiled), which the default VFS knows. It
    /// is left with none, so that it maps nothing.
    fn allowed_mmap_bytes(self, asked: i64) -> i64 {
        let (mut limit, mut none) = (asked, 0_i64);
        for place in [&raw mut limit, &raw mut none] {
            // It takes the new limit from there, and puts the one before there.
            let code =
                inner!(self, xFileControl(sqlite::SQLITE_FCNTL_MMAP_SIZE, place.cast()), sqlite::SQLITE_NOTFOUND);
            if code != sqlite::SQLITE_OK {
                return 0;
            }
        }
        none
    }

    fn read_header(self) -> Result<HeaderBytes, c_int> {
        let mut header: HeaderBytes = [0; 24];
        let (to, len) = (header.as_mut_ptr().cast::<c_void>(), header.len() as c_int);
        match inner!(self, xRead(to, len, HEADER_OFFSET), sqlite::SQLITE_IOERR_READ) {
            // What a shorter file has not, is zero.
            sqlite::SQLITE_OK | sqlite::SQLITE_IOERR_SHORT_READ => Ok(header),
            code => Err(code),
        }
    }
}

impl PooledFile {
    /// Makes the object at `file`, whose inner part is open, one of ours.
    ///
    /// # Safety
    /// `file` leads to memory for an object of ours. Its inner part is open.
    pub(crate) unsafe fn install(
        file: *mut sqlite3_file,
        (database, locking): (Arc<Database>, Locking),
        methods: &'static sqlite3_io_methods,
    ) {
        // SAFETY: `Inner::of` demands memory for an object of ours whose inner file is open: so does `install`.
        let header = if locking == Locking::Immutable { unsafe { Inner::of(file) }.read_header() } else { Ok([0; 24]) };
        // One that can't be read now is left to SQLite's own VFS.
        let header = header.unwrap_or_default();
        if locking == Locking::Immutable {
            database.check_header(header);
        }
        let connection = Connection {
            database,
            lock: sqlite::SQLITE_LOCK_NONE,
            header,
            has_uncommitted: false,
            wal: None,
            has_write_lock: false,
            has_checkpoint_lock: false,
            locking,
            fetched: FetchedPages::default(),
        };
        let connection = Box::into_raw(Box::new(connection));
        // SAFETY: `install` demands memory for an object of ours, which has our part at its start; nothing in it needs to be dropped.
        unsafe { file.cast::<Self>().write(Self { base: sqlite3_file { pMethods: methods }, connection }) };
    }

    /// Takes the connection of a file that is being closed.
    ///
    /// # Safety
    /// `file` is an open object of ours, and is not used as one any more.
    pub(crate) unsafe fn remove(file: *mut sqlite3_file) -> Box<Connection> {
        // SAFETY: `install` has made the pointer by `Box::into_raw`, and only this function takes it back, once.
        unsafe { Box::from_raw((*file.cast::<Self>()).connection) }
    }
}

impl OpenFile<'_> {
    /// The file that SQLite has called a method of.
    ///
    /// # Safety
    /// `file` is an open object of ours; no other method of it runs while the result is used.
    pub(crate) unsafe fn of<'a>(file: *mut sqlite3_file) -> OpenFile<'a> {
        // SAFETY: the object is ours and open, so its connection is a live box, which no other call uses.
        let connection = unsafe { &mut *(*file.cast::<PooledFile>()).connection };
        // SAFETY: `Inner::of` demands an object of ours whose inner part is open while the result is used: `of` demands an open object of its
        // caller, and the inner part is closed only after ours (`methods::close`).
        OpenFile { connection, inner: unsafe { Inner::of(file) } }
    }

    /// Whether pages are read from the pool now. Without a lock (unless the program has promised that the file does not change), or without the WAL index of a database in WAL mode, other processes
    /// may be writing unseen.
    fn is_pooled(&self) -> bool {
        let connection = &*self.connection;
        let is_steady = connection.locking == Locking::Immutable
            || connection.lock != sqlite::SQLITE_LOCK_NONE
                && (connection.wal.is_some() || !coherence::is_wal(&connection.header));
        is_steady && coherence::page_bytes(&connection.header) >= POOL_PAGE_BYTES && !connection.database.is_off()
    }

    /// The database, if what the pool has of it may be used now: pages that other processes have written are given up before.
    fn pooled(&self) -> Option<&Database> {
        if !self.is_pooled() {
            return None;
        }
        let database = &*self.connection.database;
        if let Some(index) = &self.connection.wal {
            database.check_wal(index);
        }
        (!database.is_off()).then_some(database)
    }

    pub(crate) fn read(&mut self, into: &mut [u8], offset: i64) -> c_int {
        if self.pooled().is_some_and(|database| database.read(into, offset as u64)) {
            return sqlite::SQLITE_OK;
        }
        let (to, len) = (into.as_mut_ptr().cast::<c_void>(), into.len() as c_int);
        inner!(self.inner, xRead(to, len, offset), sqlite::SQLITE_IOERR_READ)
    }

    /// Bytes in place, until [`OpenFile::unfetch`]; null where SQLite is to read them. It never waits for other leases to end: they may be those of the
    /// thread that asks.
    pub(crate) fn fetch(&mut self, offset: i64, len: c_int) -> *const c_void {
        let (Ok(offset), Ok(len)) = (u64::try_from(offset), usize::try_from(len)) else { return ptr::null() };
        let has_room = self.connection.fetched.has_room(len as u64);
        let database = if has_room { self.pooled() } else { None };
        let lease = database.and_then(|database| database.lease(offset, len));
        let counts = self.connection.database.fetches();
        let count = if lease.is_some() { &counts.served } else { &counts.declined };
        count.fetch_add(1, Ordering::Relaxed);
        lease.map_or(ptr::null(), |lease| self.connection.fetched.keep(lease))
    }

    /// SQLite is done with bytes in place. Null: what is mapped of the file and not in use may be wrong by now. Nothing of that kind is kept.
    pub(crate) fn unfetch(&mut self, at: *const c_void) {
        self.connection.fetched.release(at);
    }

    /// How many bytes the connection may have in place at a time, before `asked` is set; a negative number only asks.
    pub(crate) fn limit_fetches(&mut self, asked: i64) -> i64 {
        let before = self.connection.fetched.limit_bytes();
        if asked >= 0 {
            let allowed = self.inner.allowed_mmap_bytes(asked);
            self.connection.fetched.set_limit(u64::try_from(allowed).unwrap_or(0));
        }
        i64::try_from(before).unwrap_or(i64::MAX)
    }

    pub(crate) fn write(&mut self, data: &[u8], offset: i64) -> c_int {
        let (from, len) = (data.as_ptr().cast::<c_void>(), data.len() as c_int);
        let code = inner!(self.inner, xWrite(from, len, offset), sqlite::SQLITE_IOERR_WRITE);
        // Also after a failure, which may have written a part; and whatever this connection reads by, others of the process may
        // read from the pool.
        self.connection.has_uncommitted = true;
        self.connection.database.note_write(offset as u64, data, code == sqlite::SQLITE_OK);
        code
    }

    pub(crate) fn truncate(&mut self, len: i64) -> c_int {
        let code = inner!(self.inner, xTruncate(len), sqlite::SQLITE_IOERR_TRUNCATE);
        // The inner method may leave the file longer than it was told to.
        let mut now = len;
        inner!(self.inner, xFileSize(&raw mut now), sqlite::SQLITE_OK);
        self.connection.has_uncommitted = true;
        self.connection.database.note_length(now as u64);
        code
    }

    /// SQLite has committed a transaction, and has its lock still.
    pub(crate) fn note_commit(&mut self) {
        self.connection.has_uncommitted = false;
    }

    pub(crate) fn lock(&mut self, level: c_int) -> c_int {
        let code = inner!(self.inner, xLock(level), sqlite::SQLITE_OK);
        if code != sqlite::SQLITE_OK {
            return code;
        }
        if self.connection.lock == sqlite::SQLITE_LOCK_NONE {
            match self.inner.read_header() {
                Ok(header) => {
                    self.connection.header = header;
                    if !coherence::is_wal(&header) {
                        self.connection.database.check_header(header);
                    }
                }
                Err(code) => {
                    inner!(self.inner, xUnlock(sqlite::SQLITE_LOCK_NONE), sqlite::SQLITE_OK);
                    return code;
                }
            }
        }
        self.connection.lock = level;
        sqlite::SQLITE_OK
    }

    pub(crate) fn unlock(&mut self, level: c_int) -> c_int {
        if self.connection.lock > sqlite::SQLITE_LOCK_RESERVED && level <= sqlite::SQLITE_LOCK_SHARED {
            // Other processes may write the file from here on. The header stands for what is cached only if it was compared when the
            // lock came, which it is not in WAL mode, and if the transaction has ended well: after a failed one another
            // process may play the journal back, and leave the header as it is now.
            let is_known = !self.connection.has_uncommitted && !coherence::is_wal(&self.connection.header);
            let header = if is_known { self.inner.read_header().ok() } else { None };
            self.connection.database.note_header(header);
            self.connection.has_uncommitted = false;
        }
        let code = inner!(self.inner, xUnlock(level), sqlite::SQLITE_OK);
        self.connection.lock = self.connection.lock.min(level);
        code
    }

    pub(crate) fn shm_map(&mut self, region: c_int, bytes: c_int, extend: c_int, at: *mut *mut c_void) -> c_int {
        let code = inner!(self.inner, xShmMap(region, bytes, extend, at), sqlite::SQLITE_IOERR_SHMMAP);
        // An index that this process may not write is there all the same.
        let is_mapped = matches!(code, sqlite::SQLITE_OK | sqlite::SQLITE_READONLY);
        if !is_mapped || region != 0 || (bytes as usize) < INDEX_BYTES || self.connection.wal.is_some() {
            return code;
        }
        // SAFETY: SQLite passes a place for the address, which the inner method has just set.
        let start = unsafe { *at };
        if start.is_null() {
            return code;
        }
        // SAFETY: a region of a mapped file is aligned to a page, has `bytes` bytes, and stays until xShmUnmap, where the
        // index is forgotten first.
        let index = unsafe { WalIndex::new(start.cast()) };
        self.connection.database.add_wal_user(&index);
        self.connection.wal = Some(index);
        code
    }

    pub(crate) fn shm_lock(&mut self, first: c_int, count: c_int, flags: c_int) -> c_int {
        let has = |lock| first <= lock && lock < first + count;
        let is_exclusive = flags & sqlite::SQLITE_SHM_EXCLUSIVE != 0;
        if flags & sqlite::SQLITE_SHM_UNLOCK != 0 && is_exclusive {
            self.before_shm_unlock(has(WAL_WRITE_LOCK), has(WAL_CHECKPOINT_LOCK));
        }
        let code = inner!(self.inner, xShmLock(first, count, flags), sqlite::SQLITE_IOERR_SHMLOCK);
        if code == sqlite::SQLITE_OK && flags & sqlite::SQLITE_SHM_LOCK != 0 {
            if is_exclusive {
                self.after_shm_lock(has(WAL_WRITE_LOCK), has(WAL_CHECKPOINT_LOCK));
            } else if first >= WAL_READ_LOCK && self.connection.wal.is_some() {
                self.connection.database.check_length();
            }
        }
        code
    }

    fn after_shm_lock(&mut self, has_write: bool, has_checkpoint: bool) {
        let connection = &mut *self.connection;
        let Some(index) = &connection.wal else { return };
        if has_checkpoint {
            connection.database.begin_checkpoint(index);
            connection.has_checkpoint_lock = true;
        }
        if has_write {
            connection.database.begin_wal_write(index);
            connection.has_write_lock = true;
        }
    }

    fn before_shm_unlock(&mut self, has_write: bool, has_checkpoint: bool) {
        let connection = &mut *self.connection;
        let Some(index) = &connection.wal else { return };
        if has_write && std::mem::take(&mut connection.has_write_lock) {
            connection.database.end_wal_write(index);
        }
        if has_checkpoint && std::mem::take(&mut connection.has_checkpoint_lock) {
            connection.database.end_checkpoint(index);
        }
    }

    pub(crate) fn shm_unmap(&mut self, remove: c_int) -> c_int {
        if self.connection.wal.take().is_some() {
            self.connection.database.remove_wal_user();
        }
        inner!(self.inner, xShmUnmap(remove), sqlite::SQLITE_OK)
    }
}

impl Connection {
    /// The file is being closed: lets the WAL index go.
    pub(crate) fn close(mut self: Box<Self>) {
        if self.database.is_forked() {
            // What the pool has in memory is the parent's, and so are its threads.
            std::mem::forget(self);
            return;
        }
        if self.wal.take().is_some() {
            self.database.remove_wal_user();
        }
    }
}

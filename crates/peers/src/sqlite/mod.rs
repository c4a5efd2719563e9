//! SQLite, the library of this machine: connections, prepared statements, extensions.
//!
//! Relies on each connection staying in the thread that opened it, which the types see to (`Rc`).

mod statement;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::rc::Rc;

use quire_sys::library::Library;

use crate::{PeerError, c_string};

use statement::StatementApi;
pub use statement::{Row, SqlValue, Statement};

const NAMES: [&str; 2] = ["libsqlite3.so.0", "libsqlite3.so"];
const OK: c_int = 0;
const OPEN_READWRITE: c_int = 0x2;
const OPEN_CREATE: c_int = 0x4;
const OPEN_URI: c_int = 0x40;
const OPEN_NOMUTEX: c_int = 0x8000;

/// A connection of the library's; null, or made by `sqlite3_open_v2`.
pub(crate) type Db = *mut c_void;

type ExecCallback = Option<unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int>;

functions! {
    /// Functions on connections.
    ConnectionApi {
        sqlite3_libversion() -> *const c_char;
        sqlite3_open_v2(*const c_char, *mut Db, c_int, *const c_char) -> c_int;
        sqlite3_close_v2(Db) -> c_int;
        sqlite3_errmsg(Db) -> *const c_char;
        sqlite3_busy_timeout(Db, c_int) -> c_int;
        sqlite3_exec(Db, *const c_char, ExecCallback, *mut c_void, *mut *mut c_char) -> c_int;
        sqlite3_enable_load_extension(Db, c_int) -> c_int;
        sqlite3_load_extension(Db, *const c_char, *const c_char, *mut *mut c_char) -> c_int;
        sqlite3_free(*mut c_void);
    }
}

/// The library.
#[derive(Clone, Copy)]
pub struct Sqlite {
    connections: ConnectionApi,
    statements: StatementApi,
}

impl Sqlite {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not here, or too old.
    pub fn load() -> Result<Self, PeerError> {
        let missing = |reason| PeerError::Missing { library: "SQLite", package: "libsqlite3-0", reason };
        // SAFETY: SQLite does nothing when it is loaded.
        let library = unsafe { Library::open(&NAMES) }.map_err(missing)?;
        // SAFETY: the types are those of SQLite's documentation, which keeps them for all versions 3; `Db` and statements are pointers to
        // structs that only the library knows.
        unsafe { Ok(Self { connections: ConnectionApi::of(&library)?, statements: StatementApi::of(&library)? }) }
    }

    /// Its version.
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing and returns a C string that stays.
        let text = unsafe { CStr::from_ptr((self.connections.sqlite3_libversion)()) };
        text.to_string_lossy().into_owned()
    }

    /// Opens the database that the URI `uri` names (`file:PATH?vfs=NAME`), or a new one.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(&self, uri: &str) -> Result<Connection, PeerError> {
        let name = c_string(uri)?;
        let mut db: Db = ptr::null_mut();
        let flags = OPEN_READWRITE | OPEN_CREATE | OPEN_URI | OPEN_NOMUTEX;
        // SAFETY: a C string, a place for the connection, and no VFS named beside the URI.
        let code = unsafe { (self.connections.sqlite3_open_v2)(name.as_ptr(), &raw mut db, flags, ptr::null()) };
        // Also after a failure: the handle tells why, and has to be closed.
        let connection = Connection { handle: Rc::new(Handle { sqlite: *self, db }) };
        connection.handle.check(code, || format!("opening {uri}"))?;
        Ok(connection)
    }
}

/// An open connection, closed when the last of its statements is gone, too.
pub struct Connection {
    handle: Rc<Handle>,
}

/// What a connection and its statements share.
pub(crate) struct Handle {
    sqlite: Sqlite,
    db: Db,
}

impl Handle {
    /// # Errors
    /// `code` is none of success.
    pub(crate) fn check(&self, code: c_int, what: impl FnOnce() -> String) -> Result<(), PeerError> {
        if code == OK { Ok(()) } else { Err(self.refused(what())) }
    }

    /// What SQLite says of its last failure on this connection.
    pub(crate) fn refused(&self, what: String) -> PeerError {
        // SAFETY: `sqlite3_errmsg` takes any connection, null included, and returns a C string that stays until the next call on the
        // connection, which no other thread makes: `Rc` keeps the handle in this one.
        let reason = unsafe { CStr::from_ptr((self.sqlite.connections.sqlite3_errmsg)(self.db)) };
        PeerError::Refused { what, reason: reason.to_string_lossy().into_owned() }
    }

    pub(crate) fn statements(&self) -> &StatementApi {
        &self.sqlite.statements
    }

    pub(crate) fn db(&self) -> Db {
        self.db
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: `sqlite3_open_v2` has made it, or left null, which is allowed; nothing uses it any more.
        unsafe { (self.sqlite.connections.sqlite3_close_v2)(self.db) };
    }
}

impl Connection {
    /// Waits for so long at most where another connection has a lock.
    pub fn set_busy_timeout(&self, milliseconds: c_int) {
        // SAFETY: an open connection of this thread. The call can't fail.
        unsafe { (self.handle.sqlite.connections.sqlite3_busy_timeout)(self.handle.db, milliseconds) };
    }

    /// Runs statements that are separated by semicolons; rows that they return are thrown away.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn execute(&self, sql: &str) -> Result<(), PeerError> {
        let text = c_string(sql)?;
        // SAFETY: an open connection of this thread and a C string; without a callback nothing else is used.
        let code = unsafe {
            let exec = self.handle.sqlite.connections.sqlite3_exec;
            exec(self.handle.db, text.as_ptr(), None, ptr::null_mut(), ptr::null_mut())
        };
        self.handle.check(code, || sql.to_owned())
    }

    /// Loads the extension in the library at `path`.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn load_extension(&self, path: &Path) -> Result<(), PeerError> {
        let name = c_string(&path.to_string_lossy())?;
        let api = &self.handle.sqlite.connections;
        let mut message: *mut c_char = ptr::null_mut();
        // SAFETY: an open connection of this thread, a C string, the usual entry point, and a place for the message. The extension is
        // one that the caller names, as the shell's `.load` does.
        let code = unsafe {
            (api.sqlite3_enable_load_extension)(self.handle.db, 1);
            let code = (api.sqlite3_load_extension)(self.handle.db, name.as_ptr(), ptr::null(), &raw mut message);
            (api.sqlite3_enable_load_extension)(self.handle.db, 0);
            code
        };
        if code == OK {
            return Ok(());
        }
        let what = format!("loading {}", path.display());
        if message.is_null() {
            return Err(self.handle.refused(what));
        }
        // SAFETY: not null, so it is a C string that SQLite has allocated for the caller to free.
        let reason = unsafe {
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (api.sqlite3_free)(message.cast());
            text
        };
        Err(PeerError::Refused { what, reason })
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn prepare(&self, sql: &str) -> Result<Statement, PeerError> {
        Statement::new(Rc::clone(&self.handle), sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite() -> Option<Sqlite> {
        match Sqlite::load() {
            Ok(sqlite) => Some(sqlite),
            Err(error) => {
                quire_sys::testing::skipped(error);
                None
            }
        }
    }

    #[test]
    fn rows_come_back_as_they_were_put() {
        let Some(sqlite) = sqlite() else { return };
        assert!(sqlite.version().starts_with("3."));
        let dir = tempfile::tempdir().unwrap();
        let uri = format!("file:{}", dir.path().join("a.db").display());
        let connection = sqlite.open(&uri).unwrap();
        connection.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, r REAL, s TEXT)").unwrap();
        let mut insert = connection.prepare("INSERT INTO t VALUES(?, ?, ?)").unwrap();
        for number in 0..3_i64 {
            let text = "x".repeat(number as usize);
            let text = if number == 2 { SqlValue::Null } else { SqlValue::Text(&text) };
            insert.run(&[number.into(), (number as f64 / 2.0).into(), text]).unwrap();
        }
        assert!(insert.run(&[1.into(), SqlValue::Null, SqlValue::Null]).is_err(), "the key is taken");
        insert.run(&[3.into(), SqlValue::Null, SqlValue::Null]).unwrap();
        let mut rows = Vec::new();
        let mut select = connection.prepare("SELECT i, r, s FROM t WHERE i < ? ORDER BY i").unwrap();
        select.each(&[3.into()], |row| rows.push((row.int(0), row.real(1), row.text(2).map(str::to_owned)))).unwrap();
        let expected = [(0, 0.0, Some(String::new())), (1, 0.5, Some("x".to_owned())), (2, 1.0, None)];
        assert_eq!(rows, expected);
        // The connection lives as long as its statements.
        drop(connection);
        assert_eq!(select.first(&[1.into()], |row| row.int(0)).unwrap(), Some(0));
        assert_eq!(select.first(&[0.into()], |row| row.int(0)).unwrap(), None);
    }

    #[test]
    fn what_sqlite_refuses_is_told_in_its_words() {
        let Some(sqlite) = sqlite() else { return };
        let connection = sqlite.open("file::memory:").unwrap();
        let refused = connection.execute("SELECT * FROM missing_table").unwrap_err().to_string();
        assert!(refused.contains("no such table"), "{refused}");
        assert!(connection.prepare("SELEC").err().unwrap().to_string().contains("syntax error"));
        let refused = connection.load_extension(Path::new("/no/such.so")).unwrap_err().to_string();
        assert!(refused.contains("/no/such.so"), "{refused}");
        assert!(sqlite.open("file:/no/such/directory/a.db").is_err());
        assert!(matches!(sqlite.open("a\0b"), Err(PeerError::Name(_))));
    }
}

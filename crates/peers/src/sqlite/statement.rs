//! Prepared statements of SQLite, their values and rows.
//!
//! Relies on SQLite copying the texts that are bound, so that nothing of the caller's is kept, and on a statement being reset after
//! each use, so that none keeps a lock.

use std::ffi::{c_char, c_double, c_int, c_uchar, c_void};
use std::ptr;
use std::rc::Rc;

use super::{Db, Handle};
use crate::{PeerError, c_string};

const ROW: c_int = 100;
const DONE: c_int = 101;
/// Has SQLite copy a text before the call returns.
const TRANSIENT: isize = -1;

/// A statement of the library's.
type Stmt = *mut c_void;

functions! {
    /// Functions on statements.
    StatementApi {
        sqlite3_prepare_v2(Db, *const c_char, c_int, *mut Stmt, *mut *const c_char) -> c_int;
        sqlite3_finalize(Stmt) -> c_int;
        sqlite3_step(Stmt) -> c_int;
        sqlite3_reset(Stmt) -> c_int;
        sqlite3_bind_null(Stmt, c_int) -> c_int;
        sqlite3_bind_int64(Stmt, c_int, i64) -> c_int;
        sqlite3_bind_double(Stmt, c_int, c_double) -> c_int;
        sqlite3_bind_text(Stmt, c_int, *const c_char, c_int, isize) -> c_int;
        sqlite3_column_count(Stmt) -> c_int;
        sqlite3_column_int64(Stmt, c_int) -> i64;
        sqlite3_column_double(Stmt, c_int) -> c_double;
        sqlite3_column_text(Stmt, c_int) -> *const c_uchar;
        sqlite3_column_bytes(Stmt, c_int) -> c_int;
    }
}

/// A value for a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SqlValue<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(&'a str),
}

impl From<i64> for SqlValue<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for SqlValue<'_> {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u32> for SqlValue<'_> {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for SqlValue<'_> {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl<'a> From<&'a str> for SqlValue<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

/// A prepared statement.
pub struct Statement {
    handle: Rc<Handle>,
    stmt: Stmt,
    sql: String,
}

impl Statement {
    pub(super) fn new(handle: Rc<Handle>, sql: &str) -> Result<Self, PeerError> {
        let text = c_string(sql)?;
        let mut stmt: Stmt = ptr::null_mut();
        // SAFETY: an open connection of this thread, a C string whose end is found by its NUL (-1), and a place for the statement.
        let code = unsafe {
            let prepare = handle.statements().sqlite3_prepare_v2;
            prepare(handle.db(), text.as_ptr(), -1, &raw mut stmt, ptr::null_mut())
        };
        handle.check(code, || format!("preparing {sql}"))?;
        Ok(Self { handle, stmt, sql: sql.to_owned() })
    }

    /// Runs the statement with `values`. Rows that it returns are thrown away.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn run(&mut self, values: &[SqlValue<'_>]) -> Result<(), PeerError> {
        self.each(values, |_| ())
    }

    /// What `pick` makes of the first row; `None` if there is none. The statement runs to its end all the same.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn first<T>(
        &mut self,
        values: &[SqlValue<'_>],
        mut pick: impl FnMut(&Row<'_>) -> T,
    ) -> Result<Option<T>, PeerError> {
        let mut found = None;
        self.each(values, |row| {
            if found.is_none() {
                found = Some(pick(row));
            }
        })?;
        Ok(found)
    }

    /// Shows all rows to `show`.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn each(&mut self, values: &[SqlValue<'_>], mut show: impl FnMut(&Row<'_>)) -> Result<(), PeerError> {
        let used = Reset(self);
        for (index, value) in values.iter().enumerate() {
            used.0.bind(index as c_int + 1, *value)?;
        }
        loop {
            // SAFETY: a statement of this thread that was prepared, and is finalized only when it is dropped.
            match unsafe { (used.0.handle.statements().sqlite3_step)(used.0.stmt) } {
                ROW => show(&Row { statement: used.0 }),
                DONE => return Ok(()),
                _ => return Err(used.0.handle.refused(used.0.sql.clone())),
            }
        }
    }

    fn bind(&self, index: c_int, value: SqlValue<'_>) -> Result<(), PeerError> {
        let api = self.handle.statements();
        // SAFETY: a statement of this thread that is not being stepped through; an index that it has not is refused. A text has as many
        // bytes as are told, and SQLite copies them before the call returns.
        let code = unsafe {
            match value {
                SqlValue::Null => (api.sqlite3_bind_null)(self.stmt, index),
                SqlValue::Int(value) => (api.sqlite3_bind_int64)(self.stmt, index, value),
                SqlValue::Real(value) => (api.sqlite3_bind_double)(self.stmt, index, value),
                SqlValue::Text(text) => {
                    let len = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
                    (api.sqlite3_bind_text)(self.stmt, index, text.as_ptr().cast(), len, TRANSIENT)
                }
            }
        };
        self.handle.check(code, || format!("value {index} of {}", self.sql))
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: `sqlite3_prepare_v2` has made it, or left null for an empty text, which is allowed; nothing uses it any more.
        unsafe { (self.handle.statements().sqlite3_finalize)(self.stmt) };
    }
}

/// Resets a statement at the end of its use, however that comes.
struct Reset<'a>(&'a mut Statement);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        // SAFETY: a statement of this thread that was prepared. The result repeats the failure of the last step, which was told.
        unsafe { (self.0.handle.statements().sqlite3_reset)(self.0.stmt) };
    }
}

/// A row that a statement has come to.
pub struct Row<'a> {
    statement: &'a Statement,
}

impl Row<'_> {
    /// # Panics
    /// If the row has no such column.
    fn check(&self, column: usize) -> c_int {
        // SAFETY: a statement of this thread that was prepared.
        let count = unsafe { (self.statement.handle.statements().sqlite3_column_count)(self.statement.stmt) };
        assert!((column as c_int) < count, "a row of {} columns has no column {column}", count);
        column as c_int
    }

    /// Column `column` as an integer; 0 if it is NULL.
    pub fn int(&self, column: usize) -> i64 {
        let column = self.check(column);
        // SAFETY: the statement has just come to a row, and has this column.
        unsafe { (self.statement.handle.statements().sqlite3_column_int64)(self.statement.stmt, column) }
    }

    /// Column `column` as a number; 0 if it is NULL.
    pub fn real(&self, column: usize) -> f64 {
        let column = self.check(column);
        // SAFETY: the statement has just come to a row, and has this column.
        unsafe { (self.statement.handle.statements().sqlite3_column_double)(self.statement.stmt, column) }
    }

    /// Column `column` as a text; `None` if it is NULL, or no UTF-8.
    pub fn text(&self, column: usize) -> Option<&str> {
        let column = self.check(column);
        let (api, stmt) = (self.statement.handle.statements(), self.statement.stmt);
        // SAFETY: the statement has just come to a row, and has this column. The text stays until the next step, or until the column is
        // asked for as another type, which both end the borrow of the row or don't change a text. Its bytes are asked for after it, as SQLite wants.
        let bytes = unsafe {
            let text = (api.sqlite3_column_text)(stmt, column);
            if text.is_null() {
                return None;
            }
            let len = (api.sqlite3_column_bytes)(stmt, column);
            std::slice::from_raw_parts(text, len.max(0) as usize)
        };
        std::str::from_utf8(bytes).ok()
    }
}

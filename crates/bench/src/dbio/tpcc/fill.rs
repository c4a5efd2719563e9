//! The initial population, in a database file that all trials copy.
//!
//! Relies on SQLite turning the texts of fields into what their columns are of, and on no other program using the file: without a
//! journal a failure leaves nothing of use.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Context;
use quire_peers::sqlite::{Connection, SqlValue, Sqlite};

use crate::wcache::tpcc::database_size::DatabaseSize;
use crate::wcache::tpcc::population::{RowSink, fill_items, fill_warehouse};

const SCHEMA: &str = include_str!("schema.sql");
const KEYS: &str = include_str!("keys.sql");
/// Settings for a new file that is thrown away if anything fails.
const FAST: &str =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; PRAGMA page_size = 4096";

/// Makes the database `path`, in WAL mode and on the disk when this returns. `check` is asked between warehouses whether to go on.
///
/// # Errors
/// What SQLite or `check` says.
pub fn fill(
    sqlite: &Sqlite,
    path: &Path,
    size: DatabaseSize,
    check: &dyn Fn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let connection = sqlite.open(&super::uri(path, "unix"))?;
    connection.execute(FAST)?;
    connection.execute(SCHEMA).context("making the tables")?;
    let mut sink = SqliteSink { connection: &connection };
    connection.execute("BEGIN")?;
    fill_items(&mut sink, size)?;
    for warehouse in 1..=size.warehouses {
        check()?;
        fill_warehouse(&mut sink, size, warehouse)?;
    }
    connection.execute("COMMIT")?;
    connection.execute(KEYS).context("making the keys")?;
    connection.execute("ANALYZE; PRAGMA journal_mode = WAL").context("going over to WAL mode")?;
    drop(connection);
    let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    file.sync_all().with_context(|| format!("syncing {}", path.display()))
}

struct SqliteSink<'a> {
    connection: &'a Connection,
}

impl RowSink for SqliteSink<'_> {
    fn fill(
        &mut self,
        table: &'static str,
        groups: RangeInclusive<u32>,
        group: &mut dyn FnMut(u32, &mut String),
    ) -> anyhow::Result<()> {
        let mut insert = None;
        let mut text = String::new();
        for number in groups {
            text.clear();
            group(number, &mut text);
            for line in text.lines() {
                let values: Vec<SqlValue<'_>> = line.split('\t').map(value).collect();
                let insert = match &mut insert {
                    Some(insert) => insert,
                    none => none.insert(self.connection.prepare(&insert_into(table, values.len()))?),
                };
                insert.run(&values).with_context(|| format!("filling {table}"))?;
            }
        }
        Ok(())
    }
}

fn value(field: &str) -> SqlValue<'_> {
    if field == "\\N" { SqlValue::Null } else { SqlValue::Text(field) }
}

fn insert_into(table: &str, columns: usize) -> String {
    let mut sql = format!("INSERT INTO {table} VALUES (?");
    for _ in 1..columns {
        // A text takes everything.
        let _ = write!(sql, ", ?");
    }
    sql.push(')');
    sql
}

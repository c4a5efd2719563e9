//! The initial population (clause 4.3.3), by COPY, one warehouse at a time in each of two threads.
//!
//! Relies on the tables being there and empty and having no keys yet; those are made at the end.

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use postgres::Client;

use super::DATABASE;
use super::database_size::DatabaseSize;
use super::population::{RowSink, fill_items, fill_warehouse};
use crate::wcache::pg::cluster::connect;
use crate::wcache::testbed::interrupt::Interrupt;

const SCHEMA: &str = include_str!("schema.sql");
const KEYS: &str = include_str!("keys.sql");
const PROCEDURES: &str = include_str!("procedures.sql");
const THREADS: usize = 2;

/// Makes the database in the cluster whose socket is in `sockets`, and fills it.
///
/// # Errors
/// When the server refuses something, or there was an interrupt.
pub fn fill(sockets: &Path, size: DatabaseSize, interrupt: &Interrupt) -> anyhow::Result<()> {
    connect(sockets, "postgres")?
        .batch_execute(&format!("CREATE DATABASE {DATABASE}"))
        .context("making the database")?;
    let mut client = connect(sockets, DATABASE)?;
    client.batch_execute(SCHEMA).context("making the tables")?;
    fill_items(&mut client, size)?;
    let next = AtomicU32::new(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = connect(sockets, DATABASE)?;
                    loop {
                        let warehouse = next.fetch_add(1, Ordering::Relaxed);
                        if warehouse > size.warehouses {
                            return anyhow::Ok(());
                        }
                        interrupt.check()?;
                        fill_warehouse(&mut client, size, warehouse)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a loading thread does not panic"))
    })?;
    client.batch_execute(KEYS).context("making the keys")?;
    client.batch_execute(PROCEDURES).context("making the transactions")?;
    client.batch_execute("VACUUM ANALYZE").context("counting the rows")
}

impl RowSink for Client {
    fn fill(
        &mut self,
        table: &'static str,
        groups: RangeInclusive<u32>,
        group: &mut dyn FnMut(u32, &mut String),
    ) -> anyhow::Result<()> {
        let mut to = self.copy_in(&format!("COPY {table} FROM STDIN")).with_context(|| format!("filling {table}"))?;
        let mut text = String::with_capacity(1 << 17);
        for number in groups {
            group(number, &mut text);
            if text.len() > 1 << 16 {
                to.write_all(text.as_bytes()).with_context(|| format!("filling {table}"))?;
                text.clear();
            }
        }
        to.write_all(text.as_bytes()).with_context(|| format!("filling {table}"))?;
        to.finish().with_context(|| format!("filling {table}")).map(drop)
    }
}

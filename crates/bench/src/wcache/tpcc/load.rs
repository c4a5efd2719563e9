//! The initial population (clause 4.3.3), by COPY, one warehouse at a time in each of two threads.
//!
//! Relies on the tables being there and empty and having no keys yet; those are made at the end.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use postgres::Client;

use super::DATABASE;
use super::database_size::{DISTRICTS, DatabaseSize};
use super::random::{TpccRandom, last_name};
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

/// Fills `table` with lines, each made by `group` in an empty text.
fn copy(
    client: &mut Client,
    table: &str,
    groups: impl Iterator<Item = u32>,
    mut group: impl FnMut(u32, &mut String),
) -> anyhow::Result<()> {
    let mut to = client.copy_in(&format!("COPY {table} FROM STDIN")).with_context(|| format!("filling {table}"))?;
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

/// Appends a line whose fields `$field`s write themselves.
macro_rules! line {
    ($to:expr, $($part:tt)*) => {
        // A text takes everything.
        let _ = writeln!($to, $($part)*);
    };
}

/// Letters as a field of their own.
fn letters(random: &mut TpccRandom, low: u32, high: u32) -> String {
    let mut text = String::new();
    random.letters(low, high, &mut text);
    text
}

fn digits(random: &mut TpccRandom, count: u32) -> String {
    let mut text = String::new();
    random.digits(count, &mut text);
    text
}

fn data(random: &mut TpccRandom) -> String {
    let mut text = String::new();
    random.data(&mut text);
    text
}

/// Two streets, a city, a state, a zip code (clause 4.3.2.7).
fn address(random: &mut TpccRandom) -> String {
    let [street, other, city] = [(); 3].map(|()| letters(random, 10, 20));
    let (state, zip) = (letters(random, 2, 2), digits(random, 4));
    format!("{street}\t{other}\t{city}\t{state}\t{zip}11111")
}

/// A tax or a discount of up to `most` hundredths of a percent.
fn fraction(random: &mut TpccRandom, most: u32) -> String {
    format!("0.{:04}", random.between(0, most))
}

fn fill_items(client: &mut Client, size: DatabaseSize) -> anyhow::Result<()> {
    let mut random = TpccRandom::new(1);
    let random = &mut random;
    copy(client, "item", 1..=size.items, |item, to| {
        let (image, cents) = (random.between(1, 10_000), random.between(100, 10_000));
        let (name, data) = (letters(random, 14, 24), data(random));
        line!(to, "{item}\t{image}\t{name}\t{}.{:02}\t{data}", cents / 100, cents % 100);
    })
}

fn fill_warehouse(client: &mut Client, size: DatabaseSize, warehouse: u32) -> anyhow::Result<()> {
    let mut random = TpccRandom::new(1000 + u64::from(warehouse));
    let random = &mut random;
    copy(client, "warehouse", warehouse..=warehouse, |_, to| {
        let (name, address, tax) = (letters(random, 6, 10), address(random), fraction(random, 2000));
        line!(to, "{warehouse}\t{name}\t{address}\t{tax}\t{}.00", u64::from(DISTRICTS * size.customers) * 10);
    })?;
    copy(client, "district", 1..=DISTRICTS, |district, to| {
        let (name, address, tax) = (letters(random, 6, 10), address(random), fraction(random, 2000));
        let (taken, next) = (u64::from(size.customers) * 10, size.customers + 1);
        line!(to, "{district}\t{warehouse}\t{name}\t{address}\t{tax}\t{taken}.00\t{next}");
    })?;
    copy(client, "stock", 1..=size.items, |item, to| {
        let _ = write!(to, "{item}\t{warehouse}\t{}", random.between(10, 100));
        for _ in 0..DISTRICTS {
            to.push('\t');
            random.letters(24, 24, to);
        }
        to.push_str("\t0\t0\t0\t");
        random.data(to);
        to.push('\n');
    })?;
    for district in 1..=DISTRICTS {
        fill_customers(client, size, warehouse, district, random)?;
        fill_orders(client, size, warehouse, district, random)?;
    }
    Ok(())
}

fn fill_customers(
    client: &mut Client,
    size: DatabaseSize,
    warehouse: u32,
    district: u32,
    random: &mut TpccRandom,
) -> anyhow::Result<()> {
    copy(client, "customer", 1..=size.customers, |customer, to| {
        let name = if customer <= 1000 { customer - 1 } else { random.last_name_in_load(size.last_names()) };
        let (first, last) = (letters(random, 8, 16), last_name(name));
        let (address, phone) = (address(random), digits(random, 16));
        let credit = if random.happens(10) { "BC" } else { "GC" };
        let (discount, data) = (fraction(random, 5000), letters(random, 300, 500));
        line!(
            to,
            "{customer}\t{district}\t{warehouse}\t{first}\tOE\t{last}\t{address}\t{phone}\tnow\t{credit}\t50000.00\t\
             {discount}\t-10.00\t10.00\t1\t0\t{data}"
        );
    })?;
    copy(client, "history", 1..=size.customers, |customer, to| {
        let data = letters(random, 12, 24);
        line!(to, "{customer}\t{district}\t{warehouse}\t{district}\t{warehouse}\tnow\t10.00\t{data}");
    })
}

fn fill_orders(
    client: &mut Client,
    size: DatabaseSize,
    warehouse: u32,
    district: u32,
    random: &mut TpccRandom,
) -> anyhow::Result<()> {
    let customers = random.permutation(size.customers);
    let counts: Vec<u32> = customers.iter().map(|_| random.between(5, 15)).collect();
    let count_of = |order: u32| counts[order as usize - 1];
    let first_new = size.first_new_order();
    copy(client, "orders", 1..=size.customers, |order, to| {
        let customer = customers[order as usize - 1];
        let carrier = if order < first_new { random.between(1, 10).to_string() } else { "\\N".to_owned() };
        line!(to, "{order}\t{district}\t{warehouse}\t{customer}\tnow\t{carrier}\t{}\t1", count_of(order));
    })?;
    copy(client, "order_line", 1..=size.customers, |order, to| {
        for number in 1..=count_of(order) {
            let (item, info) = (random.between(1, size.items), letters(random, 24, 24));
            let (delivered, cents) = if order < first_new { ("now", 0) } else { ("\\N", random.between(1, 999_999)) };
            line!(
                to,
                "{order}\t{district}\t{warehouse}\t{number}\t{item}\t{warehouse}\t{delivered}\t5\t{}.{:02}\t{info}",
                cents / 100,
                cents % 100
            );
        }
    })?;
    copy(client, "new_order", first_new..=size.customers, |order, to| {
        line!(to, "{order}\t{district}\t{warehouse}");
    })
}

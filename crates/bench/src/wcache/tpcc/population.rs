//! The rows of the initial population (clause 4.3.3), as lines of fields that tabs separate; `\N` is no value, as for COPY.
//!
//! Relies on [`TpccRandom`]: the same rows come for the same size, whatever database takes them.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use super::database_size::{DISTRICTS, DatabaseSize};
use super::random::{TpccRandom, last_name};

/// A database that takes rows.
pub trait RowSink {
    /// Fills `table` with lines; `group` appends those of one of `groups` to an empty text, or to the ones before.
    ///
    /// # Errors
    /// When the database refuses them.
    fn fill(
        &mut self,
        table: &'static str,
        groups: RangeInclusive<u32>,
        group: &mut dyn FnMut(u32, &mut String),
    ) -> anyhow::Result<()>;
}

fn fill(
    sink: &mut dyn RowSink,
    table: &'static str,
    groups: RangeInclusive<u32>,
    mut group: impl FnMut(u32, &mut String),
) -> anyhow::Result<()> {
    sink.fill(table, groups, &mut group)
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

/// Fills the table of items.
///
/// # Errors
/// Those of `sink`.
pub fn fill_items(sink: &mut dyn RowSink, size: DatabaseSize) -> anyhow::Result<()> {
    let mut random = TpccRandom::new(1);
    let random = &mut random;
    fill(sink, "item", 1..=size.items, |item, to| {
        let (image, cents) = (random.between(1, 10_000), random.between(100, 10_000));
        let (name, data) = (letters(random, 14, 24), data(random));
        line!(to, "{item}\t{image}\t{name}\t{}.{:02}\t{data}", cents / 100, cents % 100);
    })
}

/// Fills the rows of one warehouse in all other tables.
///
/// # Errors
/// Those of `sink`.
pub fn fill_warehouse(sink: &mut dyn RowSink, size: DatabaseSize, warehouse: u32) -> anyhow::Result<()> {
    let mut random = TpccRandom::new(1000 + u64::from(warehouse));
    let random = &mut random;
    fill(sink, "warehouse", warehouse..=warehouse, |_, to| {
        let (name, address, tax) = (letters(random, 6, 10), address(random), fraction(random, 2000));
        line!(to, "{warehouse}\t{name}\t{address}\t{tax}\t{}.00", u64::from(DISTRICTS * size.customers) * 10);
    })?;
    fill(sink, "district", 1..=DISTRICTS, |district, to| {
        let (name, address, tax) = (letters(random, 6, 10), address(random), fraction(random, 2000));
        let (taken, next) = (u64::from(size.customers) * 10, size.customers + 1);
        line!(to, "{district}\t{warehouse}\t{name}\t{address}\t{tax}\t{taken}.00\t{next}");
    })?;
    fill(sink, "stock", 1..=size.items, |item, to| {
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
        fill_customers(sink, size, warehouse, district, random)?;
        fill_orders(sink, size, warehouse, district, random)?;
    }
    Ok(())
}

fn fill_customers(
    sink: &mut dyn RowSink,
    size: DatabaseSize,
    warehouse: u32,
    district: u32,
    random: &mut TpccRandom,
) -> anyhow::Result<()> {
    fill(sink, "customer", 1..=size.customers, |customer, to| {
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
    fill(sink, "history", 1..=size.customers, |customer, to| {
        let data = letters(random, 12, 24);
        line!(to, "{customer}\t{district}\t{warehouse}\t{district}\t{warehouse}\tnow\t10.00\t{data}");
    })
}

fn fill_orders(
    sink: &mut dyn RowSink,
    size: DatabaseSize,
    warehouse: u32,
    district: u32,
    random: &mut TpccRandom,
) -> anyhow::Result<()> {
    let customers = random.permutation(size.customers);
    let counts: Vec<u32> = customers.iter().map(|_| random.between(5, 15)).collect();
    let count_of = |order: u32| counts[order as usize - 1];
    let first_new = size.first_new_order();
    fill(sink, "orders", 1..=size.customers, |order, to| {
        let customer = customers[order as usize - 1];
        let carrier = if order < first_new { random.between(1, 10).to_string() } else { "\\N".to_owned() };
        line!(to, "{order}\t{district}\t{warehouse}\t{customer}\tnow\t{carrier}\t{}\t1", count_of(order));
    })?;
    fill(sink, "order_line", 1..=size.customers, |order, to| {
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
    fill(sink, "new_order", first_new..=size.customers, |order, to| {
        line!(to, "{order}\t{district}\t{warehouse}");
    })
}

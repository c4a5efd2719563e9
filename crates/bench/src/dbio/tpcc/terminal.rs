//! The five transactions of TPC-C (clauses 2.4 to 2.8) on SQLite, as statements of a program that has the database in its own process.
//!
//! Relies on the program for turns between writers: SQLite has one at a time, and lets those who find it busy sleep and try again. A
//! lock of the program's wakes the next one at once, as programs do that care.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use quire_peers::sqlite::{Connection, Row, SqlValue, Statement};

use crate::wcache::tpcc::database_size::DISTRICTS;
use crate::wcache::tpcc::transaction::{CustomerKey, OrderLine, Transaction};

/// What a column is set to that tells a time; terminals don't look at it.
const NOW: &str = "2026-11-24 12:00:00";
/// Bytes of `c_data` at most.
const DATA_CHARACTERS: usize = 500;
/// Orders that the stock level is about.
const RECENT_ORDERS: i64 = 20;

const STOCK: &str = "UPDATE stock SET
    s_quantity = CASE WHEN s_quantity >= ?3 + 10 THEN s_quantity - ?3 ELSE s_quantity - ?3 + 91 END,
    s_ytd = s_ytd + ?3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?4
    WHERE s_w_id = ?1 AND s_i_id = ?2
    RETURNING CASE ?5 WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
        WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
        ELSE s_dist_10 END";
const NEXT_ORDER: &str = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ?1 AND d_id = ?2
    RETURNING d_next_o_id - 1, d_tax";
const PAID: &str = "UPDATE customer SET c_balance = c_balance - ?4, c_ytd_payment = c_ytd_payment + ?4,
    c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3 RETURNING c_credit, c_data";
const OLDEST: &str = "SELECT no_o_id FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 ORDER BY no_o_id LIMIT 1";
const DELIVERED: &str = "UPDATE order_line SET ol_delivery_d = ?4 WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";
const LOW: &str = "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
    WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 AND ol_o_id < ?4 AND s_quantity < ?5";

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    /// It is committed.
    Committed,
    /// An item does not exist, so it was rolled back as the standard wants.
    RolledBack,
}

/// A connection with its prepared statements.
pub struct Terminal<'a> {
    connection: Connection,
    statements: HashMap<&'static str, Statement>,
    writers: &'a Mutex<()>,
}

impl<'a> Terminal<'a> {
    /// A terminal on `connection`; `writers` is the lock of all that write the database.
    pub fn new(connection: Connection, writers: &'a Mutex<()>) -> Self {
        Self { connection, statements: HashMap::new(), writers }
    }

    fn statement(&mut self, sql: &'static str) -> anyhow::Result<&mut Statement> {
        if !self.statements.contains_key(sql) {
            self.statements.insert(sql, self.connection.prepare(sql)?);
        }
        self.statements.get_mut(sql).context("a statement that was just prepared")
    }

    fn run(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> anyhow::Result<()> {
        Ok(self.statement(sql)?.run(values)?)
    }

    /// What `pick` makes of the one row that there must be.
    fn one<T>(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        pick: impl FnMut(&Row<'_>) -> T,
    ) -> anyhow::Result<T> {
        self.statement(sql)?.first(values, pick)?.with_context(|| format!("no row for {sql}"))
    }

    /// Carries out `input` of a terminal of warehouse `home`.
    ///
    /// # Errors
    /// When SQLite fails.
    pub fn carry_out(&mut self, home: i32, input: &Transaction) -> anyhow::Result<TransactionEnd> {
        let reads_only = matches!(input, Transaction::OrderStatus { .. } | Transaction::StockLevel { .. });
        let writers = self.writers;
        let _turn = (!reads_only).then(|| writers.lock().unwrap_or_else(PoisonError::into_inner));
        self.run(if reads_only { "BEGIN" } else { "BEGIN IMMEDIATE" }, &[])?;
        let done = match input {
            Transaction::NewOrder { district, customer, lines } => self.new_order(home, *district, *customer, lines),
            Transaction::Payment { district, of_warehouse, of_district, customer, cents } => {
                let place = (*of_warehouse, *of_district);
                self.payment((home, *district), place, customer, *cents as f64 / 100.0)
            }
            Transaction::OrderStatus { district, customer } => self.order_status(home, *district, customer),
            Transaction::Delivery { carrier } => self.delivery(home, *carrier),
            Transaction::StockLevel { district, threshold } => self.stock_level(home, *district, *threshold),
        };
        match done {
            Ok(TransactionEnd::Committed) => self.run("COMMIT", &[]).map(|()| TransactionEnd::Committed),
            Ok(TransactionEnd::RolledBack) => self.run("ROLLBACK", &[]).map(|()| TransactionEnd::RolledBack),
            Err(error) => {
                // The failure counts; that the database can't roll back either adds nothing.
                let _ = self.run("ROLLBACK", &[]);
                Err(error).with_context(|| format!("{} failed", input.kind().name()))
            }
        }
    }

    fn new_order(
        &mut self,
        home: i32,
        district: i32,
        customer: i32,
        lines: &[OrderLine],
    ) -> anyhow::Result<TransactionEnd> {
        self.one("SELECT w_tax FROM warehouse WHERE w_id = ?1", &[home.into()], |row| row.real(0))?;
        let order = self.one(NEXT_ORDER, &[home.into(), district.into()], |row| row.int(0))?;
        let who = "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
        self.one(who, &[home.into(), district.into(), customer.into()], |row| row.real(0))?;
        let is_local = i64::from(lines.iter().all(|line| line.supplier == home));
        let count = lines.len() as i64;
        self.run(
            "INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)",
            &[order.into(), district.into(), home.into(), customer.into(), NOW.into(), count.into(), is_local.into()],
        )?;
        self.run("INSERT INTO new_order VALUES (?1, ?2, ?3)", &[order.into(), district.into(), home.into()])?;
        for (number, line) in lines.iter().enumerate() {
            let item = "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?1";
            let price = self.statement(item)?.first(&[line.item.into()], |row| row.real(0))?;
            let Some(price) = price else { return Ok(TransactionEnd::RolledBack) };
            let is_remote = i64::from(line.supplier != home);
            let stock =
                [line.supplier.into(), line.item.into(), line.quantity.into(), is_remote.into(), district.into()];
            let info = self.one(STOCK, &stock, |row| row.text(0).unwrap_or_default().to_owned())?;
            let amount = f64::from(line.quantity) * price;
            self.run(
                "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9)",
                &[
                    order.into(),
                    district.into(),
                    home.into(),
                    (number as i64 + 1).into(),
                    line.item.into(),
                    line.supplier.into(),
                    line.quantity.into(),
                    amount.into(),
                    info.as_str().into(),
                ],
            )?;
        }
        Ok(TransactionEnd::Committed)
    }

    /// The number of a customer; of those with a name the one in the middle, by first name (clause 2.5.2.2).
    fn number_of(&mut self, (warehouse, district): (i32, i32), customer: &CustomerKey) -> anyhow::Result<i64> {
        let name = match customer {
            CustomerKey::Number(number) => return Ok((*number).into()),
            CustomerKey::Name(name) => name,
        };
        let by_name = "SELECT c_id FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_last = ?3 ORDER BY c_first";
        let mut numbers = Vec::new();
        let values = [warehouse.into(), district.into(), name.as_str().into()];
        self.statement(by_name)?.each(&values, |row| numbers.push(row.int(0)))?;
        let middle = numbers.len().div_ceil(2).checked_sub(1);
        middle.map(|middle| numbers[middle]).with_context(|| format!("no customer is called {name}"))
    }

    fn payment(
        &mut self,
        (home, district): (i32, i32),
        place: (i32, i32),
        customer: &CustomerKey,
        amount: f64,
    ) -> anyhow::Result<TransactionEnd> {
        let warehouse = "UPDATE warehouse SET w_ytd = w_ytd + ?2 WHERE w_id = ?1 RETURNING w_name";
        let name = |row: &Row<'_>| row.text(0).unwrap_or_default().to_owned();
        let of_warehouse = self.one(warehouse, &[home.into(), amount.into()], name)?;
        let of_district = "UPDATE district SET d_ytd = d_ytd + ?3 WHERE d_w_id = ?1 AND d_id = ?2 RETURNING d_name";
        let of_district = self.one(of_district, &[home.into(), district.into(), amount.into()], name)?;
        let number = self.number_of(place, customer)?;
        let (c_w, c_d) = place;
        let who = [c_w.into(), c_d.into(), number.into(), amount.into()];
        let facts = |row: &Row<'_>| (row.text(0) == Some("BC"), row.text(1).unwrap_or_default().to_owned());
        let (is_bad, data) = self.one(PAID, &who, facts)?;
        if is_bad {
            let data = format!("{number} {c_d} {c_w} {district} {home} {amount:.2}|{data}");
            let data: String = data.chars().take(DATA_CHARACTERS).collect();
            let note = "UPDATE customer SET c_data = ?4 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
            self.run(note, &[c_w.into(), c_d.into(), number.into(), data.as_str().into()])?;
        }
        let both = format!("{of_warehouse}    {of_district}");
        self.run(
            "INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            &[
                number.into(),
                c_d.into(),
                c_w.into(),
                district.into(),
                home.into(),
                NOW.into(),
                amount.into(),
                both.as_str().into(),
            ],
        )?;
        Ok(TransactionEnd::Committed)
    }

    fn order_status(&mut self, home: i32, district: i32, customer: &CustomerKey) -> anyhow::Result<TransactionEnd> {
        let number = self.number_of((home, district), customer)?;
        let values = [home.into(), district.into(), number.into()];
        let balance = "SELECT c_balance FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3";
        self.one(balance, &values, |row| row.real(0))?;
        let newest =
            "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_c_id = ?3
            ORDER BY o_id DESC LIMIT 1";
        let order = self.one(newest, &values, |row| row.int(0))?;
        let lines = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
            WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";
        let mut amount = 0.0;
        self.statement(lines)?.each(&[home.into(), district.into(), order.into()], |row| amount += row.real(3))?;
        std::hint::black_box(amount);
        Ok(TransactionEnd::Committed)
    }

    fn delivery(&mut self, home: i32, carrier: i32) -> anyhow::Result<TransactionEnd> {
        for district in 1..=DISTRICTS {
            let place = [home.into(), district.into()];
            let Some(order) = self.statement(OLDEST)?.first(&place, |row| row.int(0))? else { continue };
            let key = [home.into(), district.into(), order.into()];
            self.run("DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3", &key)?;
            let orders = "UPDATE orders SET o_carrier_id = ?4 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3
                RETURNING o_c_id";
            let customer =
                self.one(orders, &[home.into(), district.into(), order.into(), carrier.into()], |row| row.int(0))?;
            self.run(DELIVERED, &[home.into(), district.into(), order.into(), NOW.into()])?;
            let sum = "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3";
            let amount = self.one(sum, &key, |row| row.real(0))?;
            self.run(
                "UPDATE customer SET c_balance = c_balance + ?4, c_delivery_cnt = c_delivery_cnt + 1
                    WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
                &[home.into(), district.into(), customer.into(), amount.into()],
            )?;
        }
        Ok(TransactionEnd::Committed)
    }

    fn stock_level(&mut self, home: i32, district: i32, threshold: i32) -> anyhow::Result<TransactionEnd> {
        let next = "SELECT d_next_o_id FROM district WHERE d_w_id = ?1 AND d_id = ?2";
        let next = self.one(next, &[home.into(), district.into()], |row| row.int(0))?;
        let values = [home.into(), district.into(), (next - RECENT_ORDERS).into(), next.into(), threshold.into()];
        self.one(LOW, &values, |row| row.int(0))?;
        Ok(TransactionEnd::Committed)
    }
}

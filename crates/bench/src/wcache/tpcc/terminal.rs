//! One terminal: a connection that carries out transactions, one after the other.
//!
//! Relies on the functions of `procedures.sql`. A deadlock is tried again with the same inputs, and counted; an order
//! of an item that doesn't exist ends in the rollback that the standard wants.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use postgres::{Client, Statement};

use super::DATABASE;
use super::transaction::{CustomerKey, OrderLine, Transaction, TransactionDeck, TransactionType};
use crate::wcache::load_phase::LoadPhase;
use crate::wcache::pg::cluster::connect;
use crate::wcache::trial_stats::TrialStats;

/// What `tpcc_new_order` says of an item that doesn't exist.
const NO_SUCH_ITEM: &str = "QU001";
/// Deadlocks and failed serialisation: the server's wish that it be tried again.
const TRY_AGAIN: [&str; 2] = ["40P01", "40001"];

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    /// It is committed.
    Committed,
    /// It was rolled back as it had to be.
    RolledBack,
}

/// A connection with its prepared statements.
pub struct Terminal {
    client: Client,
    statements: [Statement; 5],
    /// How often the server wanted a transaction to be tried again.
    pub retries: u64,
}

impl Terminal {
    /// Connects to the cluster whose socket is in `sockets`.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn connect(sockets: &Path) -> anyhow::Result<Self> {
        let mut client = connect(sockets, DATABASE)?;
        let calls = [
            "SELECT tpcc_new_order($1, $2, $3, $4, $5, $6)",
            "SELECT tpcc_payment($1, $2, $3, $4, $5, $6, $7)",
            "SELECT tpcc_order_status($1, $2, $3, $4)",
            "SELECT tpcc_delivery($1, $2)",
            "SELECT tpcc_stock_level($1, $2, $3)",
        ];
        let mut prepared = Vec::new();
        for call in calls {
            prepared.push(client.prepare(call).with_context(|| format!("preparing {call}"))?);
        }
        let statements = prepared.try_into().ok().context("five statements")?;
        Ok(Self { client, statements, retries: 0 })
    }

    /// Carries out `input` of a terminal of warehouse `home`.
    ///
    /// # Errors
    /// When the server fails; not for a deadlock.
    pub fn carry_out(&mut self, home: i32, input: &Transaction) -> anyhow::Result<TransactionEnd> {
        loop {
            let Err(error) = self.call(home, input) else { return Ok(TransactionEnd::Committed) };
            match error.code().map(postgres::error::SqlState::code) {
                Some(NO_SUCH_ITEM) => return Ok(TransactionEnd::RolledBack),
                Some(code) if TRY_AGAIN.contains(&code) => self.retries += 1,
                _ => return Err(error).with_context(|| format!("{} failed", input.kind().name())),
            }
        }
    }

    fn call(&mut self, home: i32, input: &Transaction) -> Result<(), postgres::Error> {
        let Self { client, statements, .. } = self;
        let [new_order, payment, order_status, delivery, stock_level] = &*statements;
        match input {
            Transaction::NewOrder { district, customer, lines } => {
                let column = |pick: fn(&OrderLine) -> i32| lines.iter().map(pick).collect::<Vec<i32>>();
                let (items, suppliers) = (column(|line| line.item), column(|line| line.supplier));
                let quantities = column(|line| line.quantity);
                client.query_one(new_order, &[&home, district, customer, &items, &suppliers, &quantities])
            }
            Transaction::Payment { district, of_warehouse, of_district, customer, cents } => {
                let (number, name) = spelled(customer);
                client.query_one(payment, &[&home, district, of_warehouse, of_district, &number, &name, cents])
            }
            Transaction::OrderStatus { district, customer } => {
                let (number, name) = spelled(customer);
                client.query_one(order_status, &[&home, district, &number, &name])
            }
            Transaction::Delivery { carrier } => client.query_one(delivery, &[&home, carrier]),
            Transaction::StockLevel { district, threshold } => {
                client.query_one(stock_level, &[&home, district, threshold])
            }
        }
        .map(drop)
    }
}

/// Number and name as the functions take them: number 0 means that the name counts.
fn spelled(customer: &CustomerKey) -> (i32, &str) {
    match customer {
        CustomerKey::Number(number) => (*number, ""),
        CustomerKey::Name(name) => (0, name),
    }
}

/// Carries out what `deck` draws until the phase ends. New orders that are committed are what counts.
///
/// # Errors
/// When the server fails.
pub fn run(sockets: &Path, mut deck: TransactionDeck, phase: &LoadPhase) -> anyhow::Result<TrialStats> {
    let mut terminal = Terminal::connect(sockets)?;
    let mut stats = TrialStats::default();
    while phase.goes_on() {
        let input = deck.draw();
        let began = Instant::now();
        let ending = terminal.carry_out(deck.home(), &input)?;
        if !phase.counts() {
            continue;
        }
        match ending {
            TransactionEnd::Committed => {
                stats.ops += u64::from(input.kind() == TransactionType::NewOrder);
                stats.count("transactions", 1.0);
            }
            TransactionEnd::RolledBack => stats.count("rolled_back", 1.0),
        }
        stats.note(input.kind().name(), began.elapsed().as_micros() as u64);
    }
    stats.count("retries", terminal.retries as f64);
    Ok(stats)
}

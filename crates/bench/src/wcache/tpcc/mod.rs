//! TPC-C on PostgreSQL: the nine tables, their population, the five transactions in the standard mix, the terminals,
//! and the consistency conditions.
//!
//! Relies on the standard (revision 5.11), with these liberties: terminals neither key nor think, as is usual where the
//! disk is studied; transactions are functions in the server, so that a transaction is one round trip; a delivery is
//! done when it is asked for, not queued; an order's lines are in order of their stock, so that orders don't deadlock;
//! fewer items, customers and orders than the standard's where [`database_size::DatabaseSize`] says so.

pub mod check;
pub mod database_size;
pub mod driver;
pub mod load;
pub mod population;
pub mod random;
pub mod terminal;
#[cfg(test)]
mod tests;
pub mod transaction;

/// The database.
pub const DATABASE: &str = "tpcc";

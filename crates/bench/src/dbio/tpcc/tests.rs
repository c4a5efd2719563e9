//! The driver against the SQLite of this machine, by its own VFS.
//!
//! Relies on `libsqlite3-0`; elsewhere there is nothing to test with, and the tests say so. What `libquire_sqlite.so` does is tested
//! where it is built.

use std::path::PathBuf;
use std::sync::Mutex;

use quire_peers::sqlite::{Connection, Sqlite};

use super::terminal::{Terminal, TransactionEnd};
use super::*;
use crate::dbio::trial_spec::TrialWork;
use crate::fastmap::testbed::{DeviceKind, Testbed};
use crate::wcache::tpcc::database_size::DatabaseSize;
use crate::wcache::tpcc::random::last_name;
use crate::wcache::tpcc::transaction::{CustomerKey, OrderLine, Transaction};

/// A small database in a directory of its own; `None` where there is no SQLite.
fn filled(size: DatabaseSize) -> Option<(tempfile::TempDir, PathBuf, Sqlite)> {
    let sqlite = match Sqlite::load() {
        Ok(sqlite) => sqlite,
        Err(error) => {
            quire_sys::testing::skipped(error);
            return None;
        }
    };
    let dir = tempfile::tempdir_in(".").unwrap();
    let path = dir.path().join("100%#.db");
    fill::fill(&sqlite, &path, size, &|| Ok(())).unwrap();
    assert!(path.is_file(), "the name is quoted in the URI");
    Some((dir, path, sqlite))
}

fn number(connection: &Connection, query: &str) -> i64 {
    connection.prepare(query).unwrap().first(&[], |row| row.int(0)).unwrap().unwrap()
}

#[test]
fn the_five_transactions_change_what_they_are_to_change() {
    let size = DatabaseSize { warehouses: 1, items: 200, customers: 30 };
    let Some((_dir, path, sqlite)) = filled(size) else { return };
    let plain = sqlite.open(&uri(&path, "unix")).unwrap();
    assert_eq!(number(&plain, "SELECT count(*) FROM stock"), 200);
    assert_eq!(number(&plain, "SELECT count(*) FROM new_order"), 90);
    assert_eq!(check::broken(&plain).unwrap(), Vec::<String>::new());

    let writers = Mutex::new(());
    let mut terminal = Terminal::new(sqlite.open(&uri(&path, "unix")).unwrap(), &writers);
    let line = |item| OrderLine { supplier: 1, item, quantity: 3 };
    let order = |lines| Transaction::NewOrder { district: 2, customer: 7, lines };
    assert_eq!(terminal.carry_out(1, &order(vec![line(5), line(6)])).unwrap(), TransactionEnd::Committed);
    let lines = "SELECT count(*) FROM order_line WHERE ol_d_id = 2 AND ol_o_id = 31 AND ol_quantity = 3";
    assert_eq!(number(&plain, lines), 2);
    assert_eq!(number(&plain, "SELECT length(ol_dist_info) FROM order_line WHERE ol_d_id = 2 AND ol_o_id = 31"), 24);
    // An item that doesn't exist: nothing of the order stays.
    assert_eq!(terminal.carry_out(1, &order(vec![line(5), line(201)])).unwrap(), TransactionEnd::RolledBack);
    assert_eq!(number(&plain, "SELECT d_next_o_id FROM district WHERE d_id = 2"), 32);
    assert_eq!(number(&plain, "SELECT s_order_cnt FROM stock WHERE s_i_id = 5"), 1);

    let payment =
        |customer| Transaction::Payment { district: 3, of_warehouse: 1, of_district: 4, customer, cents: 12_345 };
    terminal.carry_out(1, &payment(CustomerKey::Number(9))).unwrap();
    terminal.carry_out(1, &payment(CustomerKey::Name(last_name(11)))).unwrap();
    let paid = "SELECT count(*) FROM customer WHERE c_d_id = 4 AND c_id IN (9, 12) AND abs(c_balance + 133.45) < 0.001";
    assert_eq!(number(&plain, paid), 2);
    assert_eq!(number(&plain, "SELECT count(*) FROM history"), 302);

    terminal.carry_out(1, &Transaction::OrderStatus { district: 2, customer: CustomerKey::Number(7) }).unwrap();
    terminal.carry_out(1, &Transaction::StockLevel { district: 1, threshold: 15 }).unwrap();
    terminal.carry_out(1, &Transaction::Delivery { carrier: 4 }).unwrap();
    assert_eq!(number(&plain, "SELECT count(*) FROM new_order"), 81);
    assert_eq!(number(&plain, "SELECT count(*) FROM customer WHERE c_delivery_cnt = 1"), 10);
    assert_eq!(check::broken(&plain).unwrap(), Vec::<String>::new());

    plain.execute("UPDATE warehouse SET w_ytd = w_ytd + 1; DELETE FROM new_order WHERE no_o_id = 25").unwrap();
    let broken = check::broken(&plain).unwrap().join("\n");
    assert!(broken.contains("condition 1") && broken.contains("condition 3"), "{broken}");
    plain.execute("DELETE FROM order_line WHERE ol_number = 1; DELETE FROM orders WHERE o_id = 30").unwrap();
    let broken = check::broken(&plain).unwrap().join("\n");
    assert!(broken.contains("condition 2") && broken.contains("condition 4"), "{broken}");
}

#[test]
fn a_trial_counts_new_orders_and_leaves_the_database_consistent() {
    let size = DatabaseSize { warehouses: 2, items: 500, customers: 60 };
    let Some((_dir, path, _)) = filled(size) else { return };
    let spec = SqliteSpec {
        candidate: SqliteCandidate::Stock,
        extension: PathBuf::new(),
        cache_bytes: Some(1 << 20),
        size,
        warm_transactions: 300,
    };
    let trial = TrialSpec {
        testbed: Testbed { kind: DeviceKind::Disk, path, pages: 1 },
        limit_bytes: 64 << 20,
        clients: vec![1, 3],
        run_ms: 30,
        seed: 7,
        throttle: None,
        work: TrialWork::Sqlite(spec),
    };
    let line = serde_json::to_string(&trial).unwrap();
    assert_eq!(serde_json::from_str::<TrialSpec>(&line).unwrap(), trial);
    let phases = trial.carry_out().unwrap();
    let names: Vec<&str> = phases.iter().map(|stats| stats.name.as_str()).collect();
    assert_eq!(names, ["tpcc_c1", "tpcc_c3"]);
    assert!(phases.iter().all(|stats| stats.counters["transactions"] > 0.0), "{phases:?}");
}

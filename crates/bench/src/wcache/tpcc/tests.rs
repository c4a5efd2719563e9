//! The driver against a real PostgreSQL in a plain directory.
//!
//! Relies on root and on the package `postgresql`; elsewhere there is nothing to test with, and the tests say so.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use postgres::Client;
use quire_sys::ask::TerminationSignal;

use super::database_size::DatabaseSize;
use super::terminal::{Terminal, TransactionEnd};
use super::transaction::{CustomerKey, OrderLine, Transaction};
use super::{DATABASE, check, driver, load};
use crate::wcache::pg::cluster::{PostgresCluster, PostgresPrograms, filling_settings};
use crate::wcache::testbed::interrupt::Interrupt;
use crate::wcache::testbed::storage_stack::TrialDuration;
use crate::wcache::trial_observer::NoObserver;
use crate::wcache::trial_stats::TrialStats;

/// A cluster with a small database; `None` where there can be none.
fn filled(size: DatabaseSize) -> Option<(tempfile::TempDir, PostgresCluster)> {
    let programs = PostgresPrograms::find().ok().filter(|_| quire_sys::ask::is_root());
    let Some(programs) = programs else {
        println!("no PostgreSQL, or not root: nothing to test with");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let [data, sockets] = ["data", "run"].map(|name| dir.path().join(name));
    for dir in [&data, &sockets] {
        std::fs::create_dir(dir).unwrap();
        programs.user.own(dir).unwrap();
    }
    programs.init(&data).unwrap();
    let interrupt = Interrupt::default();
    let cluster = PostgresCluster::start(&programs, &data, &sockets, &filling_settings(48), &interrupt).unwrap();
    load::fill(&sockets, size, &interrupt).unwrap();
    Some((dir, cluster))
}

fn number(client: &mut Client, query: &str) -> i64 {
    client.query_one(query, &[]).unwrap().get(0)
}

#[test]
fn the_five_transactions_change_what_they_are_to_change() {
    let size = DatabaseSize { warehouses: 1, items: 200, customers: 30 };
    let Some((_dir, cluster)) = filled(size) else { return };
    let mut client = cluster.connect(DATABASE).unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM stock"), 200);
    assert_eq!(number(&mut client, "SELECT count(*) FROM new_order"), 90);
    assert_eq!(check::broken(&mut client).unwrap(), Vec::<String>::new());

    let mut terminal = Terminal::connect(cluster.sockets()).unwrap();
    let line = |item| OrderLine { supplier: 1, item, quantity: 3 };
    let order = |lines| Transaction::NewOrder { district: 2, customer: 7, lines };
    assert_eq!(terminal.carry_out(1, &order(vec![line(5), line(6)])).unwrap(), TransactionEnd::Committed);
    let lines = "SELECT count(*) FROM order_line WHERE ol_d_id = 2 AND ol_o_id = 31 AND ol_quantity = 3";
    assert_eq!(number(&mut client, lines), 2);
    // An item that doesn't exist: nothing of the order stays.
    assert_eq!(terminal.carry_out(1, &order(vec![line(5), line(201)])).unwrap(), TransactionEnd::RolledBack);
    assert_eq!(number(&mut client, "SELECT d_next_o_id::int8 FROM district WHERE d_id = 2"), 32);
    assert_eq!(number(&mut client, "SELECT s_order_cnt::int8 FROM stock WHERE s_i_id = 5"), 1);

    let payment =
        |customer| Transaction::Payment { district: 3, of_warehouse: 1, of_district: 4, customer, cents: 12_345 };
    terminal.carry_out(1, &payment(CustomerKey::Number(9))).unwrap();
    terminal.carry_out(1, &payment(CustomerKey::Name(super::random::last_name(11)))).unwrap();
    let paid = "SELECT count(*) FROM customer WHERE c_d_id = 4 AND c_id IN (9, 12) AND c_balance = -133.45";
    assert_eq!(number(&mut client, paid), 2);
    assert_eq!(number(&mut client, "SELECT count(*) FROM history"), 302);

    let asked = Transaction::OrderStatus { district: 2, customer: CustomerKey::Number(7) };
    terminal.carry_out(1, &asked).unwrap();
    terminal.carry_out(1, &Transaction::StockLevel { district: 1, threshold: 15 }).unwrap();
    terminal.carry_out(1, &Transaction::Delivery { carrier: 4 }).unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM new_order"), 81);
    assert_eq!(number(&mut client, "SELECT count(*) FROM customer WHERE c_delivery_cnt = 1"), 10);

    assert_eq!(check::broken(&mut client).unwrap(), Vec::<String>::new());
    client.batch_execute("UPDATE warehouse SET w_ytd = w_ytd + 1; DELETE FROM new_order WHERE no_o_id = 25").unwrap();
    let broken = check::broken(&mut client).unwrap().join("\n");
    assert!(broken.contains("condition 1") && broken.contains("condition 3"), "{broken}");
    drop((client, terminal));
    cluster.stop(TerminationSignal::Interrupt).unwrap();
}

#[test]
fn terminals_at_work_leave_the_database_consistent() {
    let size = DatabaseSize { warehouses: 2, items: 500, customers: 60 };
    let Some((_dir, cluster)) = filled(size) else { return };
    let drive = |seconds| {
        let duration = TrialDuration { warm_up: Duration::from_millis(100), count: Duration::from_secs(seconds) };
        let drive = driver::TerminalLoad { sockets: cluster.sockets(), size, terminals: 6, duration, seed: 3 };
        driver::run(drive, &Interrupt::default(), &mut NoObserver).unwrap()
    };
    // On a busy machine no transaction may end within a second.
    let is_enough = |stats: &TrialStats| stats.ops > 0 && stats.latency.contains_key("payment");
    let stats = [1, 10].into_iter().map(drive).find(is_enough);
    let stats = stats.unwrap_or_else(|| drive(60));
    assert!(stats.ops > 0 && stats.latency.contains_key("payment"), "{stats:?}");
    let mut client = cluster.connect(DATABASE).unwrap();
    assert_eq!(check::broken(&mut client).unwrap(), Vec::<String>::new());
    assert!(number(&mut client, "SELECT count(*) FROM orders") > 20 * 60);
}

//! The consistency conditions 1 to 4 of TPC-C (clause 3.3.2), asked of SQLite.
//!
//! Relies on no terminal being at work. Amounts are floating-point numbers, so sums may differ by what rounding leaves.

use quire_peers::sqlite::Connection;

/// Each condition, and a query for how many districts or warehouses break it.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "1: what a warehouse took in is what its districts took in",
        "SELECT count(*) FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS taken FROM district GROUP BY d_w_id)
         ON d_w_id = w_id WHERE abs(taken - w_ytd) > 0.005",
    ),
    (
        "2: the newest order is the one before a district's next, and no new order is newer",
        "SELECT count(*) FROM district
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders GROUP BY 1, 2) AS o
             ON o_w_id = d_w_id AND o_d_id = d_id
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order GROUP BY 1, 2) AS n
             ON no_w_id = d_w_id AND no_d_id = d_id
         WHERE o.newest IS NOT d_next_o_id - 1 OR n.newest > o.newest",
    ),
    (
        "3: the new orders of a district have no gap",
        "SELECT count(*) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS number FROM new_order
         GROUP BY no_w_id, no_d_id) WHERE span <> number",
    ),
    (
        "4: a district has as many order lines as its orders say",
        "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS told FROM orders GROUP BY 1, 2)
         LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS number FROM order_line GROUP BY 1, 2)
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id
         WHERE told IS NOT number",
    ),
];

/// The conditions that don't hold, with how often.
///
/// # Errors
/// When SQLite fails.
pub fn broken(connection: &Connection) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for (condition, query) in CONDITIONS {
        let count = connection.prepare(query)?.first(&[], |row| row.int(0))?.unwrap_or(-1);
        if count != 0 {
            broken.push(format!("condition {condition}: broken {count} times"));
        }
    }
    Ok(broken)
}

//! The consistency conditions 1 to 4 (clause 3.3.2): what must hold between the tables whenever nothing runs.
//!
//! Relies on no terminal being at work.

use anyhow::Context;
use postgres::Client;

/// Each condition, and a query for how many districts or warehouses break it.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "1: what a warehouse took in is what its districts took in",
        "SELECT count(*) FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS taken FROM district GROUP BY d_w_id) AS d
         ON d_w_id = w_id WHERE taken <> w_ytd",
    ),
    (
        "2: the newest order is the one before a district's next, and so is the newest new order",
        "SELECT count(*) FROM district
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders GROUP BY 1, 2) AS o
             ON o_w_id = d_w_id AND o_d_id = d_id
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order GROUP BY 1, 2) AS n
             ON no_w_id = d_w_id AND no_d_id = d_id
         WHERE d_next_o_id - 1 <> o.newest OR n.newest IS NOT NULL AND n.newest <> o.newest",
    ),
    (
        "3: the new orders of a district have no gap",
        "SELECT count(*) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS rows FROM new_order
         GROUP BY no_w_id, no_d_id) AS n WHERE span <> rows",
    ),
    (
        "4: a district has as many order lines as its orders say",
        "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS told FROM orders GROUP BY 1, 2) AS o
         LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS rows FROM order_line GROUP BY 1, 2) AS l
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id
         WHERE told IS DISTINCT FROM rows",
    ),
];

/// The conditions that don't hold, with how often.
///
/// # Errors
/// When the server fails.
pub fn broken(client: &mut Client) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for (condition, query) in CONDITIONS {
        let count: i64 =
            client.query_one(query, &[]).with_context(|| format!("checking condition {condition}"))?.get(0);
        if count > 0 {
            broken.push(format!("condition {condition}: broken {count} times"));
        }
    }
    Ok(broken)
}

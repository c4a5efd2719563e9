//! What commands on streams are logged as, and what the groups of streams hold.

use quire_store::stream::StreamConsumer;
use quire_store::{DbId, EncodingLimits, Store, StreamId, StreamOrder, stream};

use super::{Logging, START_MS, assert_logged_after};

/// The keys of streams.
const STREAMS: [(DbId, &str); 4] = [(DbId(0), "w"), (DbId(0), "ww"), (DbId(1), "w"), (DbId(1), "ww")];

#[test]
fn what_streams_do_by_the_clock_or_for_consumers_is_logged_by_its_result() {
    let before = [
        "XADD x 1-1 a 1",
        "XADD x 2-1 a 2",
        "XADD x 3-1 a 3",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c COUNT 2 STREAMS x >",
        "XGROUP CREATECONSUMER x g d",
        "XGROUP CREATE x end $",
    ];
    let (now, later) = (START_MS, START_MS - 1000);
    for (line, effect) in [
        ("XADD x 4-1 a 1", "XADD x 4-1 a 1".to_owned()),
        ("XADD x * a 1", format!("XADD x {now}-0 a 1")),
        ("XADD x NOMKSTREAM 9-* a 1", "XADD x 9-0 a 1".to_owned()),
        ("XADD none NOMKSTREAM * a 1", String::new()),
        ("XADD x MAXLEN ~ 1 9-* a 1", "XADD x 9-0 a 1".to_owned()),
        ("XADD x MINID 2 9-1 a 1", "XADD x MAXLEN = 3 9-1 a 1".to_owned()),
        ("XADD x MAXLEN 0 9-1 a 1", "XADD x MAXLEN = 0 9-1 a 1".to_owned()),
        ("XTRIM x MINID 3", "XTRIM x MAXLEN = 1".to_owned()),
        ("XTRIM x MAXLEN ~ 1", String::new()),
        ("XDEL x 1-1 9-9", "XDEL x 1-1 9-9".to_owned()),
        ("XDEL x 9-9", String::new()),
        ("XREAD STREAMS x 0", String::new()),
        (
            "XREADGROUP GROUP g d STREAMS x >",
            format!("XCLAIM x g d 0 3-1 TIME {now} RETRYCOUNT 1 FORCE JUSTID; XGROUP SETID x g 3-1 ENTRIESREAD 3"),
        ),
        ("XREADGROUP GROUP g d NOACK STREAMS x >", "XGROUP SETID x g 3-1 ENTRIESREAD 3".to_owned()),
        ("XREADGROUP GROUP g c STREAMS x 1", format!("XCLAIM x g c 0 1-1 2-1 TIME {now} RETRYCOUNT 2 JUSTID")),
        ("XREADGROUP GROUP g c STREAMS x 2-1", String::new()),
        ("XREADGROUP GROUP g e STREAMS x 0", "XGROUP CREATECONSUMER x g e".to_owned()),
        ("XACK x g 1-1 7", "XACK x g 1-1 7".to_owned()),
        ("XACK x g 7", String::new()),
        ("XCLAIM x g d 0 1-1 IDLE 1000", format!("XCLAIM x g d 0 1-1 TIME {later} RETRYCOUNT 2 FORCE JUSTID")),
        ("XCLAIM x g d 0 3-1", String::new()),
        (
            "XCLAIM x g d 0 3-1 FORCE JUSTID LASTID 5",
            format!("XGROUP SETID x g 5-0 ENTRIESREAD 2; XCLAIM x g d 0 3-1 TIME {now} RETRYCOUNT 1 FORCE JUSTID"),
        ),
        ("XAUTOCLAIM x g d 0 2", format!("XCLAIM x g d 0 2-1 TIME {now} RETRYCOUNT 2 FORCE JUSTID")),
        ("XAUTOCLAIM x g d 1 0", String::new()),
        ("XSETID x 9", "XSETID x 9".to_owned()),
        // A consumer is made though nothing is delivered to it.
        ("XREADGROUP GROUP end new STREAMS x >", "XGROUP CREATECONSUMER x end new".to_owned()),
        ("XCLAIM x g new 0 9-9", "XGROUP CREATECONSUMER x g new".to_owned()),
        ("XAUTOCLAIM x g new 1 0", "XGROUP CREATECONSUMER x g new".to_owned()),
    ] {
        assert_logged_after(&before, line, &effect);
    }
    let before = [&before[..], &["XDEL x 1-1"]].concat();
    let claimed = format!("XACK x g 1-1; XCLAIM x g d 0 2-1 TIME {now} RETRYCOUNT 2 FORCE JUSTID");
    assert_logged_after(&before, "XAUTOCLAIM x g d 0 0", &claimed);
    assert_logged_after(&before, "XCLAIM x g d 0 1-1 2-1", &claimed);
}

#[test]
fn a_history_that_is_read_gives_its_consumer_nothing_in_a_replay_either() {
    let mut server = Logging::new();
    for line in [
        "XGROUP CREATE w g 0 MKSTREAM",
        "XADD w 1-1 a 1",
        "XREADGROUP GROUP g c STREAMS w >",
        "XADD w 2-1 a 1",
        "XREADGROUP GROUP g d STREAMS w >",
        "XREADGROUP GROUP g c STREAMS w 0",
    ] {
        server.wait_ms(10);
        server.run(line);
    }
    let known = groups(&mut server.store);
    assert!(known[0].contains(r#"1, Some(0)), ("#), "the first one was given something before the other: {}", known[0]);
    assert_eq!(groups(&mut server.replayed(0, EncodingLimits::default())), known);
}

/// Every time at which a consumer was last given something, in their order.
fn active_times(store: &mut Store) -> Vec<i64> {
    let mut times = Vec::new();
    for (db, key) in STREAMS {
        let stream = stream::view(store, db, key.as_bytes()).unwrap();
        for group in stream.groups().unwrap() {
            times.extend(stream.consumers(&group).unwrap().iter().filter_map(|consumer| consumer.active_ms));
        }
    }
    times.sort_unstable();
    times.dedup();
    times
}

/// What the groups of streams have read, and what is pending. When consumers were last given something is told by the order: the clock of a
/// replay is another one.
pub(super) fn groups(store: &mut Store) -> Vec<String> {
    let (mut all, times) = (Vec::new(), active_times(store));
    let order = |consumer: &StreamConsumer| times.iter().position(|&time_ms| Some(time_ms) == consumer.active_ms);
    for (db, key) in STREAMS {
        let stream = stream::view(store, db, key.as_bytes()).unwrap();
        for group in stream.groups().unwrap() {
            let consumers = stream.consumers(&group).unwrap();
            let shown: Vec<_> = consumers.iter().map(|one| (&one.name, one.pending, order(one))).collect();
            all.push(format!("{db:?} {:?} {} {:?} {shown:?}", group.name, group.last_id, group.entries_read));
            let every = (StreamId::MIN, StreamId::MAX);
            stream
                .pending(&group, every, StreamOrder::Up, |entry| {
                    let name = &stream.consumer_of(&group, &entry).unwrap().name;
                    all.push(format!("{} {name:?} {} {}", entry.id, entry.time_ms, entry.count));
                    true
                })
                .unwrap();
        }
    }
    all
}

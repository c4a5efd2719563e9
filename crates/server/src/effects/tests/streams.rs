//! What commands on streams are logged as, and what the groups of streams hold.

use quire_store::{DbId, Store, StreamId, StreamOrder, stream};

use super::{START_MS, assert_logged_after};

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
        ("XREADGROUP GROUP g c STREAMS x 1", format!("XCLAIM x g c 0 1-1 2-1 TIME {now} RETRYCOUNT 2 FORCE JUSTID")),
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

/// What the groups of streams have read, and what is pending.
pub(super) fn groups(store: &mut Store) -> Vec<String> {
    let mut all = Vec::new();
    for (db, key) in (0..2).flat_map(|db| ["w", "ww"].map(|key| (DbId(db), key))) {
        let stream = stream::view(store, db, key.as_bytes()).unwrap();
        for group in stream.groups().unwrap() {
            let consumers = stream.consumers(&group).unwrap();
            let names: Vec<_> = consumers.iter().map(|consumer| (&consumer.name, consumer.pending)).collect();
            all.push(format!("{db:?} {:?} {} {:?} {names:?}", group.name, group.last_id, group.entries_read));
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

//! The streams of target `image_contents`: large and packed ones with groups, and every command on them.
//!
//! Relies on `contents`, which damages the store and drops all results.

use quire_store::stream::{self, StreamCut, StreamTrim};
use quire_store::{DbId, Keyspace, Store, StreamId, StreamMut, StreamOrder};

const ZERO: DbId = DbId(0);
const ALL: (StreamId, StreamId) = (StreamId::MIN, StreamId::MAX);
/// The large stream, and one that is packed.
pub(crate) const KEYS: [&[u8]; 2] = [b"events", b"log"];

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

/// Adds streams of every shape.
pub(crate) fn fill(store: &mut Store) -> quire_store::Result<()> {
    for number in 0..500_u64 {
        let value = number.to_string();
        let words: [&[u8]; 4] = [b"field", value.as_bytes(), if number % 7 == 0 { b"odd" } else { b"even" }, b"1"];
        stream::open_mut(store, ZERO, b"events")?.add(id(1000 + number / 3, number), &words)?;
        if number < 20 {
            stream::open_mut(store, ZERO, b"log")?.add(id(number + 1, 0), &words[..2])?;
        }
    }
    stream::open_mut(store, ZERO, b"events")?.delete(id(1001, 4))?;
    for name in [b"first".as_slice(), b"second"] {
        let mut events = stream::open_mut(store, ZERO, b"events")?;
        events.create_group(name, id(1050, 0), Some(150))?;
        with_group(&mut events, name, |events, group| {
            let consumer = events.create_consumer(group, b"consumer", 1_000_000)?;
            (0..60).try_for_each(|number| {
                let entry = (id(1000 + number / 3, number), 1_000_000 + number as i64, 1);
                events.set_pending(group, &consumer, entry)
            })
        })?;
    }
    Ok(())
}

fn with_group(
    events: &mut StreamMut<'_>,
    name: &[u8],
    change: impl FnOnce(&mut StreamMut<'_>, &stream::StreamGroup) -> quire_store::Result<()>,
) -> quire_store::Result<()> {
    match events.view()?.group(name)? {
        Some(group) => change(events, &group),
        None => Ok(()),
    }
}

/// Reads everything of a stream.
pub(crate) fn read(store: &mut Keyspace, key: &[u8]) {
    let Ok(view) = stream::view(store, ZERO, key) else { return };
    if !view.exists() {
        return;
    }
    let _ = (view.len(), view.last_id(), view.summary());
    for order in [StreamOrder::Up, StreamOrder::Down] {
        let mut seen = 0;
        let _ = view.range(ALL, order, |_, fields| {
            seen += fields.count();
            seen < 5000
        });
        let _ = view.range((id(1020, 0), id(1030, 90)), order, |_, _| true);
    }
    let _ = view.entry(id(1010, 30)).map(|found| found.map(Iterator::count));
    for group in view.groups().unwrap_or_default() {
        let _ = view.group(&group.name);
        let mut entries = Vec::new();
        let _ = view.pending(&group, ALL, StreamOrder::Down, |entry| {
            entries.push(entry);
            entries.len() < 200
        });
        for consumer in view.consumers(&group).unwrap_or_default() {
            let _ = view.consumer(&group, &consumer.name);
            let _ = view.pending_of(&group, &consumer, ALL, |entry| consumer.has(&entry));
        }
        for entry in entries {
            let _ = (view.consumer_of(&group, &entry), view.pending_entry(&group, entry.id));
        }
    }
}

/// Changes everything of a stream.
pub(crate) fn write(store: &mut Keyspace, key: &[u8]) {
    let Ok(mut events) = stream::open_mut(store, ZERO, key) else { return };
    // Of the many keys only streams: each of the others would be given one.
    if !events.exists() {
        return;
    }
    for number in 0..150_u64 {
        let _ = events.add(id(5000 + number, 0), &[b"field", b"new"]);
    }
    let _ = events.delete(id(1010, 30));
    for group in events.view().and_then(|view| view.groups()).unwrap_or_default() {
        let _ = events.set_group(&group, id(1090, 0), None);
        let _ = events.remove_pending(&group, id(1005, 15));
        let Ok(consumer) = events.create_consumer(&group, b"another", 2_000_000) else { continue };
        let _ = events.touch_consumer(&consumer, 2_000_001);
        let _ = events.set_pending(&group, &consumer, (id(1006, 18), 2_000_002, 2));
        let _ = events.delete_consumer(&group, &consumer);
    }
    let _ = events.create_group(b"third", id(1, 1), Some(-1));
    for (cut, whole_blocks) in [(StreamCut::MinId(id(1100, 0)), true), (StreamCut::MaxLen(100), false)] {
        let _ = events.trim(&StreamTrim { cut, whole_blocks, limit: 0 });
    }
    let _ = events.set_ids(id(9000, 0), Some(1000), Some(id(1200, 0)));
    if let Ok(Some(group)) = events.view().and_then(|view| view.group(b"second")) {
        let _ = events.destroy_group(&group);
    }
}

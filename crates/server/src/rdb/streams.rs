//! Streams as RDB bytes: what the store says of a stream, its groups and what is pending, in the form in which the format has it, and back.

use std::collections::HashMap;
use std::io::Write;

use quire_rdb::{Encoder, PendingEntry, StreamConsumer, StreamGroup, StreamId as RdbId, StreamPacker, StreamState};
use quire_store::stream::{self, StreamView};
use quire_store::{DbId, Element, Store, StoreError, StreamId, StreamMut, StreamOrder};

use super::load_error::LoadError;

/// All IDs.
const ALL: (StreamId, StreamId) = (StreamId::MIN, StreamId::MAX);

fn written(id: StreamId) -> RdbId {
    RdbId { ms: id.ms, seq: id.seq }
}

/// An ID as the store has it.
pub(super) fn read(id: RdbId) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut itoa::Buffer::new()).to_vec()
}

/// Writes the stream of a key.
pub(super) fn encode_stream<W: Write>(
    store: &mut Store,
    db: DbId,
    key: &[u8],
    out: &mut Encoder<W>,
) -> Result<(), StoreError> {
    let stream = stream::view(store, db, key)?;
    let mut packer = StreamPacker::default();
    stream.range(ALL, StreamOrder::Up, |id, fields| {
        let words: Vec<(Vec<u8>, Vec<u8>)> = fields.map(|(field, value)| (text(field), text(value))).collect();
        let pairs: Vec<(&[u8], &[u8])> = words.iter().map(|(field, value)| (&**field, &**value)).collect();
        packer.push(written(id), &pairs);
        true
    })?;
    packer.write(&state_of(&stream)?, out);
    Ok(())
}

fn state_of(stream: &StreamView<'_>) -> Result<StreamState, StoreError> {
    let summary = stream.summary()?;
    let groups = stream.groups()?.iter().map(|group| group_of(stream, group)).collect::<Result<Vec<_>, _>>()?;
    Ok(StreamState {
        length: summary.entries,
        last_id: written(summary.last_id),
        first_id: Some(written(summary.first_id)),
        max_deleted_id: written(summary.max_deleted_id),
        entries_added: summary.added,
        groups,
    })
}

fn group_of(stream: &StreamView<'_>, group: &stream::StreamGroup) -> Result<StreamGroup, StoreError> {
    let (mut consumers, mut pending) = (Vec::new(), HashMap::new());
    for (number, consumer) in stream.consumers(group)?.into_iter().enumerate() {
        stream.pending_of(group, &consumer, ALL, |entry| {
            pending.insert(entry.id, number);
            true
        })?;
        // The form of Redis 7.0 has no active time.
        consumers.push(StreamConsumer { name: consumer.name.to_vec(), seen_ms: consumer.seen_ms, active_ms: None });
    }
    let mut entries = Vec::new();
    stream.pending(group, ALL, StreamOrder::Up, |entry| {
        let consumer = pending.get(&entry.id).copied().unwrap_or(usize::MAX);
        let (id, delivered_ms, deliveries) = (written(entry.id), entry.time_ms, entry.count);
        entries.push(PendingEntry { id, delivered_ms, deliveries, consumer });
        true
    })?;
    Ok(StreamGroup {
        name: group.name.to_vec(),
        last_id: written(group.last_id),
        entries_read: group.entries_read.and_then(|read| u64::try_from(read).ok()),
        consumers,
        pending: entries,
    })
}

/// Gives a stream whose entries were read what else belongs to it.
pub(super) fn load_state(stream: &mut StreamMut<'_>, state: &StreamState) -> Result<(), LoadError> {
    let (last_id, max_deleted_id) = (read(state.last_id), read(state.max_deleted_id));
    let view = stream.view()?;
    if view.len()? != state.length || last_id < view.last_id() {
        return Err(LoadError::Content("a stream has other entries than it says"));
    }
    stream.set_ids(last_id, Some(state.entries_added), Some(max_deleted_id))?;
    // Files of Redis before 7.0 have no first ID, and do not say how far groups have read.
    let summary = stream.view()?.summary()?;
    for group in &state.groups {
        let entries_read = match state.first_id {
            None => summary.entries_up_to(read(group.last_id)),
            Some(_) => group.entries_read.and_then(|read| i64::try_from(read).ok()),
        };
        load_group(stream, group, entries_read)?;
    }
    Ok(())
}

fn load_group(stream: &mut StreamMut<'_>, group: &StreamGroup, entries_read: Option<i64>) -> Result<(), LoadError> {
    const TWICE: LoadError = LoadError::Content("a stream has a group or a consumer twice");
    if stream.view()?.group(&group.name)?.is_some() {
        return Err(TWICE);
    }
    stream.create_group(&group.name, read(group.last_id), entries_read)?;
    let own = stream.view()?.group(&group.name)?.ok_or(StoreError::NoSuchKey)?;
    let mut consumers = Vec::with_capacity(group.consumers.len());
    for consumer in &group.consumers {
        if stream.view()?.consumer(&own, &consumer.name)?.is_some() {
            return Err(TWICE);
        }
        consumers.push(stream.create_consumer(&own, &consumer.name, consumer.seen_ms)?);
    }
    for entry in &group.pending {
        let missing = LoadError::Content("a pending entry of a stream has no consumer");
        let consumer = consumers.get(entry.consumer).ok_or(missing)?;
        stream.set_pending(&own, consumer, (read(entry.id), entry.delivered_ms, entry.deliveries))?;
    }
    for (own, consumer) in consumers.into_iter().zip(&group.consumers) {
        // Versions before 7.2 tell one time, which Redis takes for both, too.
        let active_ms = consumer.active_ms.unwrap_or(consumer.seen_ms);
        if active_ms >= 0 {
            stream.note_activity(own, active_ms)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quire_store::StoreConfig;

    use super::*;

    #[test]
    fn how_far_groups_have_read_is_reckoned_where_an_old_file_does_not_say_it() {
        const DB: DbId = DbId(0);
        let read_by = |first_id: Option<RdbId>| {
            let mut store = Store::create(StoreConfig::default()).unwrap();
            let mut stream = stream::open_mut(&mut store, DB, b"s").unwrap();
            for ms in 1..=3 {
                stream.add(StreamId { ms, seq: 0 }, &[b"f", b"v"]).unwrap();
            }
            let group = |name: &str, ms: u64| StreamGroup {
                name: name.into(),
                last_id: RdbId { ms, seq: 0 },
                entries_read: None,
                consumers: Vec::new(),
                pending: Vec::new(),
            };
            let state = StreamState {
                length: 3,
                last_id: RdbId { ms: 3, seq: 0 },
                first_id,
                max_deleted_id: RdbId { ms: 0, seq: 0 },
                entries_added: 3,
                groups: vec![group("a", 1), group("b", 2), group("c", 3)],
            };
            load_state(&mut stream, &state).unwrap();
            drop(stream);
            let view = stream::view(&mut store, DB, b"s").unwrap();
            view.groups().unwrap().iter().map(|group| group.entries_read).collect::<Vec<_>>()
        };
        assert_eq!(read_by(None), [Some(1), None, Some(3)]);
        assert_eq!(read_by(Some(RdbId { ms: 1, seq: 0 })), [None, None, None]);
    }
}

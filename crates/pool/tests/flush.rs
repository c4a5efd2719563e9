//! What `flush` and `sync` promise while others change pages, write them, or fail to.

use std::sync::atomic::{AtomicBool, Ordering};

use quire_device::{DeviceOperation, IoGate, MemoryDirectory};
use quire_pool::{Map, PageNo, Pool, PoolConfig, PoolError};

use crate::common::{PAGE, number, numbered, plain_map, put_number, small_config};

/// A map of 64 pages behind a gate.
fn gated_map(config: PoolConfig) -> (MemoryDirectory, IoGate, Map) {
    let (memory, device) = numbered(64);
    let (gate, pool) = (IoGate::default(), Pool::new(config).unwrap());
    let map = plain_map(&pool, gate.before(device));
    (memory, gate, map)
}

fn on_device(memory: &MemoryDirectory, page: usize) -> u64 {
    u64::from_le_bytes(memory.bytes("numbered").unwrap()[page * PAGE..][..8].try_into().unwrap())
}

/// Closes the gate and makes pages dirty until the pool's writer stands before it.
fn hold_up_the_writer(map: &Map, gate: &IoGate) {
    gate.close();
    (0..7).for_each(|page| put_number(map, page, page + 100));
    gate.await_waiting();
}

#[test]
fn a_flush_waits_for_what_a_writer_has_begun() {
    let (memory, gate, map) = gated_map(small_config(8));
    hold_up_the_writer(&map, &gate);
    let is_open = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let flusher = threads.spawn(|| {
            map.flush(PageNo(0)..PageNo(7)).unwrap();
            is_open.load(Ordering::SeqCst)
        });
        // Long enough for the flush to come that far, as a rule.
        std::thread::sleep(std::time::Duration::from_millis(5));
        is_open.store(true, Ordering::SeqCst);
        gate.open();
        assert!(flusher.join().unwrap(), "it came back before the pages were written");
    });
    (0..7).for_each(|page| assert_eq!(on_device(&memory, page), page as u64 + 100));
}

#[test]
fn a_device_that_takes_longer_than_the_pools_patience_costs_no_reader_its_page() {
    let (_memory, gate, map) = gated_map(PoolConfig { miss_timeout_ms: 10, ..small_config(8) });
    hold_up_the_writer(&map, &gate);
    let _guard = map.read(PageNo(7)).unwrap();
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| number(&map, 20));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!reader.is_finished(), "there was no memory for its page");
        gate.open();
        assert_eq!(reader.join().unwrap(), 20);
    });
}

#[test]
fn a_flush_that_waits_for_a_writer_hears_of_its_failure() {
    for range in [PageNo(0)..PageNo(7), PageNo(3)..PageNo(4), PageNo(40)..PageNo(50)] {
        let (_memory, gate, map) = gated_map(small_config(8));
        hold_up_the_writer(&map, &gate);
        let is_concerned = range.start.0 < 7;
        std::thread::scope(|threads| {
            let flusher = threads.spawn(|| map.flush(range));
            gate.break_open();
            let ended = flusher.join().unwrap();
            assert!(ended.is_err() || !is_concerned, "{ended:?}");
        });
        // The writer's failure comes before the flush of the pages that it writes. A flush of other pages waits for
        // neither and may fail before the writer does: the first failure is what every later flush is told.
        let is_first = |action| action == DeviceOperation::Write || action == DeviceOperation::Flush && !is_concerned;
        let told = [map.sync(), map.flush(PageNo(50)..PageNo(51)), map.sync()].map(Result::unwrap_err);
        assert!(told.iter().all(|each| *each == told[0]), "{told:?}");
        assert!(matches!(&told[0], PoolError::Poisoned { cause, .. } if is_first(cause.action)), "{told:?}");
        (0..7).for_each(|page| assert_eq!(number(&map, page), page + 100, "dirty pages can still be read"));
    }
}

#[test]
fn a_flush_waits_for_who_is_changing_a_page() {
    let (memory, _gate, map) = gated_map(small_config(16));
    put_number(&map, 2, 200);
    put_number(&map, 4, 400);
    let is_dropped = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut guard = map.write(PageNo(3)).unwrap();
        let flusher = threads.spawn(|| {
            map.sync().unwrap();
            is_dropped.load(Ordering::SeqCst)
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        guard[..8].copy_from_slice(&300_u64.to_le_bytes());
        is_dropped.store(true, Ordering::SeqCst);
        drop(guard);
        assert!(flusher.join().unwrap(), "it came back before the page was let go");
    });
    assert_eq!([2, 3, 4].map(|page| on_device(&memory, page)), [200, 300, 400]);
}

#[test]
fn what_is_changed_during_a_flush_is_written_by_the_next() {
    let (memory, gate, map) = gated_map(small_config(16));
    put_number(&map, 3, 300);
    gate.close();
    std::thread::scope(|threads| {
        let flusher = threads.spawn(|| map.sync().unwrap());
        gate.await_waiting();
        assert_eq!(number(&map, 3), 300, "a page that is being written is read");
        let writer = threads.spawn(|| put_number(&map, 3, 301));
        put_number(&map, 5, 500);
        gate.open();
        flusher.join().unwrap();
        writer.join().unwrap();
    });
    assert_eq!(on_device(&memory, 3), 300);
    map.sync().unwrap();
    assert_eq!((on_device(&memory, 3), on_device(&memory, 5)), (301, 500));
}

#[test]
fn what_was_written_before_a_sync_is_there_after_it_whichever_threads_sync() {
    let (memory, _gate, map) = gated_map(PoolConfig { writers: 2, shards: 2, ..small_config(12) });
    std::thread::scope(|threads| {
        for thread in 0..4_u64 {
            let (memory, map) = (&memory, &map);
            threads.spawn(move || {
                for round in 0..300 {
                    let page = thread * 16 + round % 5;
                    put_number(map, page, 1000 + round);
                    let only_it = PageNo(page)..PageNo(page + 1);
                    let ended = if round % 2 == 0 { map.sync() } else { map.flush(only_it) };
                    ended.unwrap();
                    assert_eq!(on_device(memory, page as usize), 1000 + round);
                }
            });
        }
    });
}

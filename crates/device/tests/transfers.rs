//! Every device moves transfers alike, whichever way they are given to it.
//!
//! Relies on a temporary directory for real files; where it has no direct I/O, the same tests run through the cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use quire_device::{
    CacheMode, Completion, Device, DeviceError, DeviceOperation, Direction, Directory, DiskDirectory, Extent, IoEngine,
    Queue, Transfer,
};
use quire_sys::rw::{self, RwFlags};

use crate::common::*;

/// A new file of so many blocks in each kind of directory.
fn devices(folder: &tempfile::TempDir, blocks: usize) -> Vec<(String, Arc<dyn Device>)> {
    let with_file = |(kind, directory): (String, Arc<dyn Directory>)| {
        let device = directory.create("file").unwrap();
        device.set_len((blocks * BLOCK) as u64).unwrap();
        (kind, device)
    };
    directories(folder).into_iter().map(with_file).collect()
}

/// How a batch of transfers is carried out.
#[derive(Clone, Copy, Debug)]
enum Way {
    Run,
    Submit,
    SubmitAll,
    Poll,
}

const WAYS: [Way; 4] = [Way::Run, Way::Submit, Way::SubmitAll, Way::Poll];

impl Way {
    /// Carries the transfers out, with a queue that was made for fewer.
    fn carry_out(self, device: &dyn Device, transfers: Vec<Transfer>) -> Vec<Completion> {
        let count = transfers.len();
        let mut queue = device.queue(2).unwrap();
        match self {
            Way::Run => {
                let run = |mut transfer: Transfer| {
                    let result = device.run(&mut transfer);
                    Completion { transfer, result }
                };
                return transfers.into_iter().map(run).collect();
            }
            Way::Submit => transfers.into_iter().for_each(|transfer| queue.submit(transfer)),
            Way::SubmitAll | Way::Poll => queue.submit_all(transfers),
        }
        assert_eq!(queue.in_flight(), count);
        let mut ended = Vec::new();
        while queue.in_flight() > 0 {
            match (self, queue.poll()) {
                (_, Some(finished)) => ended.push(finished),
                (Way::Poll, None) => std::thread::yield_now(),
                (_, None) => ended.extend(queue.complete()),
            }
        }
        assert_eq!(ended.len(), count);
        assert!(queue.poll().is_none() && queue.complete().is_none());
        ended
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    fn all_ways_move_the_same_bytes_in_any_order(
        places in Just((0u8..60).collect::<Vec<_>>()).prop_shuffle(),
        batches in prop::collection::vec((1usize..4, any::<u8>()), 30),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (kind, device) in devices(&folder, 60) {
            for (number, write) in WAYS.into_iter().enumerate() {
                let read = WAYS[(number + 1) % WAYS.len()];
                // Parts of one to three blocks, in any order, that don't meet.
                let mut left = places.as_slice();
                let mut transfers = Vec::new();
                for (tag, &(parts, fill)) in batches.iter().enumerate() {
                    let (now, later) = left.split_at(parts.min(left.len()));
                    left = later;
                    if !now.is_empty() {
                        let parts: Vec<(u8, u8)> = now.iter().map(|&block| (block, 1)).collect();
                        transfers.push(transfer(Direction::Write, &parts, fill ^ write as u8, tag as u64));
                    }
                }
                let mut model = contents(&*device);
                for Completion { transfer, result } in write.carry_out(&*device, transfers) {
                    prop_assert!(result.is_ok(), "{kind} {write:?}: {result:?}");
                    for &Extent { offset, start, len } in &transfer.extents {
                        model[offset as usize..][..len].copy_from_slice(&transfer.buffer[start..start + len]);
                    }
                }
                prop_assert!(contents(&*device) == model, "{kind} {write:?}");
                let reads = (0..60).map(|block| transfer(Direction::Read, &[(block, 1)], 0, u64::from(block)));
                let mut seen = BTreeSet::new();
                for Completion { transfer, result } in read.carry_out(&*device, reads.collect()) {
                    prop_assert!(result.is_ok(), "{kind} {read:?}: {result:?}");
                    let place = transfer.tag as usize * BLOCK;
                    prop_assert!(transfer.buffer[..] == model[place..place + BLOCK], "{kind} {read:?}");
                    seen.insert(transfer.tag);
                }
                prop_assert_eq!(seen.len(), 60);
            }
        }
    }
}

#[test]
fn a_part_that_fails_gives_back_the_buffer_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 4) {
        for way in WAYS {
            // The first part is there, the second is half there.
            let batch = vec![transfer(Direction::Read, &[(0, 1), (3, 2)], 7, 11)];
            let Completion { transfer, result } = way.carry_out(&*device, batch).remove(0);
            let error = result.unwrap_err();
            assert_eq!(
                (error.action, error.kind),
                (DeviceOperation::Read, std::io::ErrorKind::UnexpectedEof),
                "{kind} {way:?}"
            );
            assert_eq!(error.place, Some((4 * BLOCK as u64, BLOCK as u64)), "{kind} {way:?}");
            assert_eq!((transfer.tag, transfer.buffer.len(), transfer.extents.len()), (11, 3 * BLOCK, 2), "{kind}");
        }
    }
}

#[test]
fn a_read_over_an_odd_end_has_read_what_there_is_and_met_the_end() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 3) {
        device.run(&mut transfer(Direction::Write, &[(0, 3)], 7, 0)).unwrap();
        let end = 2 * BLOCK + 300;
        device.set_len(end as u64).unwrap();
        for way in WAYS {
            let Completion { transfer: read, result } =
                way.carry_out(&*device, vec![transfer(Direction::Read, &[(1, 3)], 9, 0)]).remove(0);
            let error = result.unwrap_err();
            assert_eq!(error.kind, std::io::ErrorKind::UnexpectedEof, "{kind} {way:?}: {error}");
            let expected = transfer(Direction::Write, &[(0, 3)], 7, 0);
            assert!(read.buffer[..BLOCK + 300] == expected.buffer[BLOCK..end], "{kind} {way:?}");
        }
    }
}

#[test]
fn transfers_that_are_not_inside_their_buffer_are_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 4) {
        let bad = || {
            let mut bad = transfer(Direction::Write, &[(0, 1)], 7, 0);
            bad.extents.push(Extent { offset: 0, start: BLOCK, len: BLOCK });
            bad
        };
        let attempts: [&dyn Fn(); 3] =
            [&|| drop(device.run(&mut bad())), &|| drop(device.write_durable(&mut bad())), &|| {
                device.queue(1).unwrap().submit(bad())
            }];
        for attempt in attempts {
            let attempt = std::panic::AssertUnwindSafe(attempt);
            assert!(std::panic::catch_unwind(attempt).is_err(), "{kind}");
        }
        assert!(contents(&*device).iter().all(|&byte| byte == 0), "{kind}");
    }
}

#[test]
fn durable_writes_are_read_back_and_make_the_file_longer() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 2) {
        let mut one = transfer(Direction::Write, &[(1, 2)], 3, 0);
        device.write_durable(&mut one).unwrap();
        let mut several = transfer(Direction::Write, &[(5, 1), (0, 1)], 9, 0);
        device.write_durable(&mut several).unwrap();
        let bytes = contents(&*device);
        assert_eq!(bytes.len(), 6 * BLOCK, "{kind}");
        assert!(bytes[BLOCK..3 * BLOCK] == one.buffer[..], "{kind}");
        assert!(bytes[5 * BLOCK..] == several.buffer[..BLOCK] && bytes[..BLOCK] == several.buffer[BLOCK..], "{kind}");
        let read =
            std::panic::AssertUnwindSafe(|| device.write_durable(&mut transfer(Direction::Read, &[(0, 1)], 0, 0)));
        assert!(std::panic::catch_unwind(read).is_err(), "{kind}");
    }
}

#[test]
fn allocated_space_reads_as_zero_and_keeps_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 0) {
        device.run(&mut transfer(Direction::Write, &[(0, 1)], 7, 0)).unwrap();
        let before = contents(&*device);
        let long = 3 * BLOCK + 100;
        device.allocate(long as u64).unwrap();
        let after = contents(&*device);
        assert_eq!(after.len(), long, "{kind}");
        assert!(after[..BLOCK] == before[..] && after[BLOCK..].iter().all(|&byte| byte == 0), "{kind}");
        // On from an odd length, over more than is written at once.
        device.allocate((2 << 20) + 5).unwrap();
        let after = contents(&*device);
        assert!(after[..BLOCK] == before[..] && after[BLOCK..].iter().all(|&byte| byte == 0), "{kind}");
        device.allocate(BLOCK as u64).unwrap();
        assert!(contents(&*device) == before, "{kind}");
        device.allocate(0).unwrap();
        assert!(device.is_empty().unwrap(), "{kind}");
    }
}

#[test]
fn what_is_allocated_takes_its_space() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in disks(&folder) {
        let device = directory.create("file").unwrap();
        device.set_len(1 << 20).unwrap();
        device.allocate(3 << 20).unwrap();
        device.flush().unwrap();
        let blocks = device.as_file().unwrap().metadata().unwrap().blocks();
        assert!(blocks * 512 >= 2 << 20, "{kind}: {blocks} blocks of 512 bytes");
    }
}

#[test]
fn an_existing_file_is_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in directories(&folder) {
        assert!(directory.open_to_write("file").err().unwrap().is_missing(), "{kind}");
        let device = directory.create("file").unwrap();
        device.run(&mut transfer(Direction::Write, &[(0, 2)], 1, 0)).unwrap();
        drop(device);
        let device = directory.open_to_write("file").unwrap();
        let old = contents(&*device);
        let mut new = transfer(Direction::Write, &[(1, 1)], 99, 0);
        device.run(&mut new).unwrap();
        let bytes = contents(&*device);
        assert!(bytes[..BLOCK] == old[..BLOCK] && bytes[BLOCK..] == new.buffer[..], "{kind}");
    }
}

#[test]
fn whole_blocks_are_aligned_enough_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 1) {
        let alignment = device.alignment();
        assert!(BLOCK.is_multiple_of(alignment.memory_bytes), "{kind}: {alignment:?}");
        assert!(BLOCK.is_multiple_of(alignment.offset_bytes), "{kind}: {alignment:?}");
        // What it says is enough, is.
        let mut least = transfer(Direction::Read, &[(0, 1)], 0, 0);
        let (start, len) = (alignment.memory_bytes, alignment.offset_bytes.max(alignment.memory_bytes));
        if start + len <= BLOCK {
            least.extents[0] = Extent { offset: 0, start, len };
            device.run(&mut least).unwrap();
        }
    }
}

#[test]
fn cached_reads_are_whole_and_right_or_none() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 0) {
        let mut written = transfer(Direction::Write, &[(0, 3)], 5, 0);
        device.run(&mut written).unwrap();
        let place = BLOCK + 100;
        let mut into = vec![0; 3 * BLOCK];
        if let Some(read) = device.read_cached(place as u64, &mut into).unwrap() {
            assert_eq!(read, 2 * BLOCK - 100, "{kind}");
            assert!(into[..read] == written.buffer[place..], "{kind}");
        }
        let asks = device.as_file().is_some_and(|file| rw::allows(file, RwFlags::NO_WAIT));
        if asks && kind.starts_with("Buffered") {
            let cached = device.read_cached(0, &mut into[..BLOCK]).unwrap();
            assert_eq!(cached, Some(BLOCK), "{kind}: what was just written through the cache is there");
        }
        if device.mode().starts_with("direct") {
            assert_eq!(device.read_cached(0, &mut into).unwrap(), None, "{kind}");
        }
    }
}

#[test]
fn what_the_system_cannot_do_is_done_another_way_and_said() {
    let folder = tempfile::tempdir().unwrap();
    for (caching, engine) in CACHINGS.into_iter().flat_map(|caching| ENGINES.map(|engine| (caching, engine))) {
        let disk = DiskDirectory::new(folder.path()).with(caching, engine);
        let mode = disk.create(&format!("{caching:?}{engine:?}")).unwrap().mode();
        let ways: &[&str] = match caching {
            CacheMode::Direct => &["direct", "buffered"],
            CacheMode::Buffered => &["buffered"],
            CacheMode::DontCache => &["dontcache", "buffered"],
        };
        assert!(ways.iter().any(|way| mode.starts_with(way)), "{mode}");
        assert!(engine == IoEngine::Auto || mode.ends_with("threads"), "{mode}");
    }
}

#[test]
fn several_queues_on_one_device_keep_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, device) in devices(&folder, 80) {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let device = &device;
                scope.spawn(move || {
                    let mut queue: Box<dyn Queue> = device.queue(8).unwrap();
                    let blocks = thread * 20..(thread + 1) * 20;
                    queue.submit_all(
                        blocks.map(|block| transfer(Direction::Write, &[(block, 1)], thread, block.into())).collect(),
                    );
                    while let Some(finished) = queue.complete() {
                        finished.result.unwrap();
                        assert_eq!(finished.transfer.tag / 20, u64::from(thread));
                    }
                });
            }
        });
        let bytes = contents(&*device);
        assert!(bytes.chunks(BLOCK).enumerate().all(|(block, bytes)| bytes[0] == (block / 20) as u8), "{kind}");
    }
}

#[test]
fn an_error_says_what_was_being_done() {
    let say = |action| DeviceError::from_errno(action, "f", quire_device::errno::ENOSPC).to_string();
    assert!(
        say(DeviceOperation::DurableWrite).starts_with("writing durably to f failed"),
        "{}",
        say(DeviceOperation::DurableWrite)
    );
    assert!(
        say(DeviceOperation::Allocate).starts_with("taking space for f failed"),
        "{}",
        say(DeviceOperation::Allocate)
    );
}

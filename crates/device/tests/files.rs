//! Every directory behaves like a table of byte vectors, whatever carries the bytes.
//!
//! Relies on a temporary directory for real files; where it has no direct I/O, the same tests run through the cache.

use proptest::prelude::*;
use quire_device::{Device, DeviceOperation, Direction, Transfer, errno};

use crate::common::*;

fn carry_out(device: &dyn Device, transfers: Vec<Transfer>) -> Vec<Transfer> {
    let count = transfers.len();
    let mut queue = device.queue(3).unwrap();
    for transfer in transfers {
        queue.submit(transfer);
    }
    assert_eq!(queue.in_flight(), count);
    let ended: Vec<Transfer> = std::iter::from_fn(|| queue.complete())
        .map(|finished| {
            finished.result.unwrap();
            finished.transfer
        })
        .collect();
    assert_eq!((ended.len(), queue.in_flight()), (count, 0));
    ended
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_writes_give_the_bytes_that_a_vector_would_hold(
        batches in prop::collection::vec(
            (prop::collection::btree_map(0u8..40, any::<u8>(), 1..6), any::<bool>()), 1..8),
        reads in prop::collection::vec((0usize..50 * BLOCK, 0usize..3 * BLOCK), 1..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, directory) in directories(&folder) {
            let device = directory.create("file").unwrap();
            let mut model = vec![0; 45 * BLOCK];
            device.set_len(model.len() as u64).unwrap();
            for (index, (blocks, as_one)) in batches.iter().enumerate() {
                // Blocks of a batch differ, so their order doesn't matter.
                let parts: Vec<(u8, u8)> = blocks.keys().map(|&block| (block, 1)).collect();
                let transfers: Vec<Transfer> = if *as_one {
                    vec![transfer(Direction::Write, &parts, index as u8, 1)]
                } else {
                    parts.iter().map(|part| transfer(Direction::Write, &[*part], part.0, 2)).collect()
                };
                for ended in carry_out(&*device, transfers) {
                    for extent in &ended.extents {
                        let offset = extent.offset as usize;
                        model[offset..offset + extent.len]
                            .copy_from_slice(&ended.buffer[extent.start..extent.start + extent.len]);
                    }
                }
            }
            device.flush().unwrap();
            prop_assert!(contents(&*device) == model, "{}", name);
            let back = carry_out(&*directory.open("file").unwrap(), vec![transfer(Direction::Read, &[(3, 40)], 9, 7)]);
            prop_assert_eq!(back[0].tag, 7);
            prop_assert!(back[0].buffer[..] == model[3 * BLOCK..43 * BLOCK], "{}", name);
            for &(offset, len) in &reads {
                let mut into = vec![0xee; len];
                let got = device.read_at(offset as u64, &mut into).unwrap();
                let expected = model.get(offset..).unwrap_or_default();
                prop_assert_eq!(got, expected.len().min(len), "{} at {}", name, offset);
                prop_assert!(into[..got] == expected[..got], "{}", name);
            }
        }
    }
}

#[test]
fn names_behave_as_in_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in directories(&folder) {
        assert!(directory.open("a").err().unwrap().is_missing(), "{kind}");
        directory.create("a").unwrap();
        assert_eq!(directory.create("a").err().unwrap().errno, Some(errno::EEXIST), "{kind}");
        let second = directory.create("b").unwrap();
        carry_out(&*second, vec![transfer(Direction::Write, &[(0, 1)], 5, 0)]);
        second.flush().unwrap();
        directory.rename("b", "a").unwrap();
        assert_eq!(directory.list().unwrap(), ["a"], "{kind}");
        assert_eq!(contents(&*directory.open("a").unwrap()).len(), BLOCK, "{kind}");
        assert!(directory.rename("b", "c").unwrap_err().is_missing(), "{kind}");
        directory.remove("a").unwrap();
        assert!(directory.remove("a").unwrap_err().is_missing(), "{kind}");
        directory.sync().unwrap();
        // A file lives on while it is open.
        assert_eq!(contents(&*second).len(), BLOCK, "{kind}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in directories(&folder) {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b"] {
            assert!(directory.create(name).is_err(), "{kind}: {name:?}");
            assert!(directory.open(name).is_err(), "{kind}: {name:?}");
            assert!(directory.remove(name).is_err(), "{kind}: {name:?}");
            assert!(directory.rename(name, "x").is_err() && directory.rename("x", name).is_err(), "{kind}: {name:?}");
        }
    }
}

#[test]
fn a_read_beyond_the_end_fails_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in directories(&folder) {
        let device = directory.create("file").unwrap();
        device.set_len(2 * BLOCK as u64).unwrap();
        assert!(!device.is_empty().unwrap());
        let mut queue = device.queue(2).unwrap();
        queue.submit(transfer(Direction::Read, &[(5, 1)], 0, 3));
        let finished = queue.complete().unwrap();
        let error = finished.result.unwrap_err();
        assert_eq!(
            (error.action, error.place.map(|place| place.0)),
            (DeviceOperation::Read, Some(5 * BLOCK as u64)),
            "{kind}"
        );
        assert_eq!((finished.transfer.tag, finished.transfer.buffer.len()), (3, BLOCK), "{kind}");
        assert!(error.to_string().contains(&directory.path_of("file")), "{error}");
        assert!(queue.complete().is_none(), "{kind}");
    }
}

#[test]
fn a_queue_dropped_with_work_in_flight_does_it_first() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, directory) in directories(&folder) {
        let device = directory.create("file").unwrap();
        let mut queue = device.queue(4).unwrap();
        // More than a ring holds at a time.
        for block in 0..200 {
            queue.submit(transfer(Direction::Write, &[(block, 1)], 0, 0));
        }
        drop(queue);
        assert_eq!(device.len().unwrap(), 200 * BLOCK as u64, "{kind}");
    }
}

//! Faults strike where they are told to, and a power cut takes what was not made durable.

use std::io::ErrorKind;
use std::sync::Arc;

use quire_device::{
    Buffer, Device, DeviceError, DeviceOperation, Direction, Directory, DirectoryLayer, DiskModel, Extent,
    FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, ThrottledDirectory, Transfer, errno,
};

use crate::common::*;

fn write(device: &dyn Device, block: u64, blocks: usize, value: u8) -> Result<(), DeviceError> {
    let mut buffer = Buffer::new(blocks * BLOCK).unwrap();
    buffer.fill(value);
    let extents = vec![Extent { offset: block * BLOCK as u64, start: 0, len: blocks * BLOCK }];
    let mut queue = device.queue(1).unwrap();
    queue.submit(Transfer { direction: Direction::Write, buffer, extents, tag: 0 });
    queue.complete().unwrap().result
}

fn faulty(memory: &MemoryDirectory, trigger: FaultTrigger, fault: InjectedFault) -> FaultInjector {
    FaultInjector::new(Arc::new(memory.clone()), vec![(trigger, fault)])
}

#[test]
fn a_fault_strikes_the_chosen_operation_only() {
    let memory = MemoryDirectory::new();
    let directory = faulty(&memory, FaultTrigger::Nth(DeviceOperation::Write, 1), InjectedFault::Error(errno::EIO));
    let device = directory.create("a").unwrap();
    let results: Vec<bool> = (0..4).map(|block| write(&*device, block, 1, 7).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    assert_eq!(directory.struck(), 1);
    let bytes = memory.bytes("a").unwrap();
    assert_eq!((bytes[0], bytes[BLOCK], bytes[2 * BLOCK]), (7, 0, 7));
}

#[test]
fn a_broken_device_stays_broken() {
    let memory = MemoryDirectory::new();
    let directory = faulty(&memory, FaultTrigger::From(DeviceOperation::Flush, 1), InjectedFault::Error(errno::EIO));
    let device = directory.create("a").unwrap();
    device.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(device.flush().unwrap_err().errno, Some(errno::EIO));
    }
}

#[test]
fn a_disk_is_full_after_so_many_bytes() {
    let memory = MemoryDirectory::new();
    let directory = faulty(&memory, FaultTrigger::Beyond(3 * BLOCK as u64), InjectedFault::Error(errno::ENOSPC));
    let device = directory.create("a").unwrap();
    write(&*device, 0, 2, 1).unwrap();
    assert!(write(&*device, 2, 2, 1).unwrap_err().is_full());
    write(&*device, 2, 1, 1).unwrap();
    assert!(write(&*device, 3, 1, 1).unwrap_err().is_full());
}

#[test]
fn a_disk_that_was_full_works_when_the_test_says_so() {
    let memory = MemoryDirectory::new();
    let directory = faulty(&memory, FaultTrigger::From(DeviceOperation::Write, 1), InjectedFault::Error(errno::ENOSPC));
    let device = directory.create("a").unwrap();
    write(&*device, 0, 1, 1).unwrap();
    assert!(write(&*device, 1, 1, 1).unwrap_err().is_full());
    directory.set_rules(Vec::new());
    write(&*device, 1, 1, 1).unwrap();
    directory.set_rules(vec![(FaultTrigger::Nth(DeviceOperation::Write, 3), InjectedFault::Error(errno::EIO))]);
    assert_eq!(write(&*device, 2, 1, 1).unwrap_err().errno, Some(errno::EIO), "operations are counted on");
    assert_eq!(directory.struck(), 2);
}

#[test]
fn a_torn_write_leaves_its_first_half() {
    let memory = MemoryDirectory::new();
    let directory = faulty(&memory, FaultTrigger::Nth(DeviceOperation::Write, 0), InjectedFault::Torn(errno::EIO));
    let device = directory.create("a").unwrap();
    write(&*device, 0, 4, 9).unwrap_err();
    assert_eq!(memory.bytes("a").unwrap(), vec![9; 2 * BLOCK]);
}

#[test]
fn a_bad_spot_fails_whatever_touches_it() {
    let memory = MemoryDirectory::with_file("a", &[1; 8 * BLOCK]);
    let spot = (5 * BLOCK as u64, 5 * BLOCK as u64 + 1);
    let rules = [DeviceOperation::Read, DeviceOperation::Write, DeviceOperation::DurableWrite]
        .map(|action| (FaultTrigger::Within(action, spot.0, spot.1), InjectedFault::Error(errno::EIO)));
    let directory = FaultInjector::new(Arc::new(memory), rules.into());
    let device = directory.open("a").unwrap();
    for block in 0..8 {
        let bad = block == 5;
        assert_eq!(write(&*device, block, 1, 2).is_err(), bad);
        assert_eq!(device.run(&mut transfer(Direction::Read, &[(block as u8, 1)], 0, 0)).is_err(), bad);
        assert_eq!(device.read_at(block * BLOCK as u64, &mut [0; 9]).is_err(), bad);
    }
    let several = device.run(&mut transfer(Direction::Write, &[(0, 1), (4, 2)], 0, 0)).unwrap_err();
    assert_eq!((several.errno, several.place), (Some(errno::EIO), Some((0, 3 * BLOCK as u64))));
    device.write_durable(&mut transfer(Direction::Write, &[(4, 1)], 0, 0)).unwrap();
    device.write_durable(&mut transfer(Direction::Write, &[(4, 2)], 0, 0)).unwrap_err();
    assert_eq!(directory.struck(), 5);
}

#[test]
fn a_short_transfer_moves_its_first_half() {
    let memory = MemoryDirectory::with_file("a", &[1; 4 * BLOCK]);
    let short = |action| (FaultTrigger::From(action, 0), InjectedFault::Short);
    let directory =
        FaultInjector::new(Arc::new(memory.clone()), vec![short(DeviceOperation::Read), short(DeviceOperation::Write)]);
    let device = directory.open("a").unwrap();
    let mut read = transfer(Direction::Read, &[(0, 4)], 0x80, 0);
    let error = device.run(&mut read).unwrap_err();
    assert_eq!((error.kind, error.place), (ErrorKind::UnexpectedEof, Some((2 * BLOCK as u64, 2 * BLOCK as u64))));
    assert!(read.buffer[..2 * BLOCK].iter().all(|&byte| byte == 1) && read.buffer[2 * BLOCK] != 1);
    assert_eq!(device.read_at(0, &mut [0; 100]).unwrap(), 50);
    let error = write(&*device, 0, 4, 2).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WriteZero);
    let bytes = memory.bytes("a").unwrap();
    assert!(bytes[..2 * BLOCK].iter().all(|&byte| byte == 2) && bytes[2 * BLOCK..].iter().all(|&byte| byte == 1));
}

#[test]
fn of_a_write_in_sectors_some_arrive() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, inner) in directories(&folder) {
        let device = inner.create("a").unwrap();
        write(&*device, 0, 8, 1).unwrap();
        let rules =
            vec![(FaultTrigger::Nth(DeviceOperation::Write, 0), InjectedFault::Sectors { errno: errno::EIO, seed: 5 })];
        let faulty = FaultInjector::new(inner, rules);
        assert_eq!(write(&*faulty.open_to_write("a").unwrap(), 0, 8, 2).unwrap_err().errno, Some(errno::EIO), "{kind}");
        let bytes = contents(&*device);
        let arrived: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&byte| byte == sector[0])), "{kind}");
        assert!(arrived.contains(&1) && arrived.contains(&2), "{kind}: {arrived:?}");
        assert_eq!(arrived.len(), 64, "{kind}");
    }
}

#[test]
fn a_full_disk_allocates_nothing_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, inner) in directories(&folder) {
        let faulty = FaultInjector::new(
            inner,
            vec![(FaultTrigger::Beyond(4 * BLOCK as u64), InjectedFault::Error(errno::ENOSPC))],
        );
        let device = faulty.create("a").unwrap();
        device.allocate(3 * BLOCK as u64).unwrap();
        let error = device.allocate(5 * BLOCK as u64).unwrap_err();
        assert!(error.is_full() && error.action == DeviceOperation::Allocate, "{kind}: {error}");
        assert_eq!(device.len().unwrap(), 3 * BLOCK as u64, "{kind}");
        assert!(device.run(&mut transfer(Direction::Write, &[(0, 2)], 0, 0)).unwrap_err().is_full(), "{kind}");
        device.run(&mut transfer(Direction::Write, &[(0, 1)], 0, 0)).unwrap();
    }
}

/// After a failure of this kind every later write and flush fails with `cause`, and reads go on.
fn is_given_up(kind: &str, device: &dyn Device, cause: &DeviceError) {
    let one = || transfer(Direction::Write, &[(0, 1)], 99, 0);
    assert_eq!(device.run(&mut one()).as_ref(), Err(cause), "{kind}");
    assert_eq!(device.write_durable(&mut one()).as_ref(), Err(cause), "{kind}");
    assert_eq!(device.flush().as_ref(), Err(cause), "{kind}");
    assert_eq!(device.allocate(1 << 20).as_ref(), Err(cause), "{kind}");
    let mut queue = device.queue(2).unwrap();
    queue.submit_all(vec![one(), transfer(Direction::Read, &[(0, 1)], 0, 0), one()]);
    while let Some(finished) = queue.complete() {
        match finished.transfer.direction {
            Direction::Read => finished.result.unwrap(),
            Direction::Write => assert_eq!(finished.result.as_ref(), Err(cause), "{kind}"),
        }
    }
    assert!(contents(device).iter().all(|&byte| byte == 7), "{kind}");
}

#[test]
fn a_failed_flush_or_durable_write_is_never_retried_into_success() {
    let folder = tempfile::tempdir().unwrap();
    for (number, action) in [DeviceOperation::Flush, DeviceOperation::DurableWrite].into_iter().enumerate() {
        let folder = tempfile::tempdir_in(folder.path()).unwrap();
        for (kind, inner) in directories(&folder) {
            let rules = vec![(FaultTrigger::Nth(action, 1), InjectedFault::Error(errno::EIO))];
            // Whatever stands before it says the same.
            let faulty = ThrottledDirectory::new(Arc::new(FaultInjector::new(inner, rules)), DiskModel::default());
            let name = format!("a{number}");
            let device = faulty.create(&name).unwrap();
            write(&*device, 0, 2, 7).unwrap();
            let sevens = || {
                let mut sevens = transfer(Direction::Write, &[(0, 1)], 0, 0);
                sevens.buffer.fill(7);
                sevens
            };
            let step = || match action {
                DeviceOperation::Flush => device.flush(),
                _ => device.write_durable(&mut sevens()),
            };
            step().unwrap();
            let cause = step().unwrap_err();
            assert_eq!((cause.action, cause.errno), (action, Some(errno::EIO)), "{kind}");
            is_given_up(&kind, &*device, &cause);
            // Another file is not concerned.
            write(&*faulty.create(&format!("b{number}")).unwrap(), 0, 1, 1).unwrap();
        }
    }
}

#[test]
fn devices_from_elsewhere_are_wrapped_alike() {
    let null: Arc<dyn Device> = Arc::new(quire_device::NullDevice::new(1 << 20, quire_device::ReadPattern::Byte(3)));
    let rules = vec![(FaultTrigger::Nth(DeviceOperation::Read, 1), InjectedFault::Error(errno::EIO))];
    let faulty = FaultInjector::new(Arc::new(MemoryDirectory::new()), rules).wrap(null);
    let device = ThrottledDirectory::new(Arc::new(MemoryDirectory::new()), DiskModel::default()).wrap(faulty);
    assert_eq!(contents(&*device)[0], 3);
    assert!(device.read_at(0, &mut [0]).is_err());
    assert_eq!(device.mode(), "null");
}

#[test]
fn what_was_flushed_and_synced_survives_any_power_cut() {
    let memory = MemoryDirectory::new();
    let device = memory.create("a").unwrap();
    write(&*device, 0, 3, 5).unwrap();
    device.flush().unwrap();
    memory.sync().unwrap();
    let survives = memory.bytes("a");
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::KeepSome(1), PowerCut::KeepSome(2)] {
        assert_eq!(memory.after_power_cut(cut).bytes("a"), survives);
    }
}

#[test]
fn what_was_not_flushed_may_be_lost_kept_or_torn() {
    let memory = MemoryDirectory::new();
    let device = memory.create("a").unwrap();
    device.set_len(64 * BLOCK as u64).unwrap();
    device.flush().unwrap();
    memory.sync().unwrap();
    for block in 0..64 {
        write(&*device, block, 1, 1).unwrap();
    }
    let ones = |cut| memory.after_power_cut(cut).bytes("a").unwrap().iter().filter(|&&byte| byte == 1).count();
    assert_eq!(ones(PowerCut::LoseAll), 0);
    assert_eq!(ones(PowerCut::KeepAll), 64 * BLOCK);
    let some: Vec<usize> = (1..20).map(|seed| ones(PowerCut::KeepSome(seed))).collect();
    assert!(some.iter().any(|count| count % BLOCK != 0), "nothing was ever torn: {some:?}");
    assert!(some.iter().all(|count| count % 512 == 0), "sectors are whole: {some:?}");
    assert!(some.iter().all(|&count| count > 0 && count < 64 * BLOCK), "{some:?}");
    assert!(some.windows(2).any(|pair| pair[0] != pair[1]), "{some:?}");
}

#[test]
fn a_name_is_durable_only_after_a_sync() {
    let memory = MemoryDirectory::with_file("a", b"old");
    let device = memory.create("b").unwrap();
    write(&*device, 0, 1, 3).unwrap();
    device.flush().unwrap();
    memory.rename("b", "a").unwrap();
    assert_eq!(memory.after_power_cut(PowerCut::LoseAll).bytes("a").unwrap(), b"old");
    assert_eq!(memory.after_power_cut(PowerCut::KeepAll).bytes("a").unwrap(), vec![3; BLOCK]);
    memory.sync().unwrap();
    assert_eq!(memory.after_power_cut(PowerCut::LoseAll).bytes("a").unwrap(), vec![3; BLOCK]);
}

#[test]
fn a_rename_before_a_flush_may_lead_to_nothing() {
    let memory = MemoryDirectory::with_file("a", b"old");
    let device = memory.create("b").unwrap();
    write(&*device, 0, 1, 3).unwrap();
    memory.rename("b", "a").unwrap();
    memory.sync().unwrap();
    assert_eq!(memory.after_power_cut(PowerCut::LoseAll).bytes("a").unwrap(), b"");
}

#[test]
fn nothing_works_after_the_power_went() {
    let memory = MemoryDirectory::new();
    let device = memory.create("a").unwrap();
    memory.power_off_at(memory.steps() + 1);
    write(&*device, 0, 1, 1).unwrap();
    assert!(write(&*device, 1, 1, 1).is_err());
    assert!(device.flush().is_err() && memory.sync().is_err() && memory.rename("a", "b").is_err());
}

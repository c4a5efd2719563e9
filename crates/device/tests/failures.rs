//! Faults strike where they are told to, and a power cut takes what was not made durable.

use std::sync::Arc;

use quire_device::{
    Action, Buffer, DIRECT_ALIGN, Device, DeviceError, Direction, Directory, Extent, Fault, Faulty, Memory, PowerCut,
    Transfer, Trigger, errno,
};

const BLOCK: usize = DIRECT_ALIGN;

fn write(device: &dyn Device, block: u64, blocks: usize, value: u8) -> Result<(), DeviceError> {
    let mut buffer = Buffer::new(blocks * BLOCK).unwrap();
    buffer.fill(value);
    let extents = vec![Extent { offset: block * BLOCK as u64, start: 0, len: blocks * BLOCK }];
    let mut queue = device.queue(1).unwrap();
    queue.submit(Transfer { direction: Direction::Write, buffer, extents, tag: 0 });
    queue.complete().unwrap().result
}

fn faulty(memory: &Memory, trigger: Trigger, fault: Fault) -> Faulty {
    Faulty::new(Arc::new(memory.clone()), vec![(trigger, fault)])
}

#[test]
fn a_fault_strikes_the_chosen_operation_only() {
    let memory = Memory::new();
    let directory = faulty(&memory, Trigger::Nth(Action::Write, 1), Fault::Error(errno::EIO));
    let device = directory.create("a").unwrap();
    let results: Vec<bool> = (0..4).map(|block| write(&*device, block, 1, 7).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    assert_eq!(directory.struck(), 1);
    let bytes = memory.bytes("a").unwrap();
    assert_eq!((bytes[0], bytes[BLOCK], bytes[2 * BLOCK]), (7, 0, 7));
}

#[test]
fn a_broken_device_stays_broken() {
    let memory = Memory::new();
    let directory = faulty(&memory, Trigger::From(Action::Flush, 1), Fault::Error(errno::EIO));
    let device = directory.create("a").unwrap();
    device.flush().unwrap();
    for _ in 0..3 {
        assert_eq!(device.flush().unwrap_err().errno, Some(errno::EIO));
    }
}

#[test]
fn a_disk_is_full_after_so_many_bytes() {
    let memory = Memory::new();
    let directory = faulty(&memory, Trigger::Beyond(3 * BLOCK as u64), Fault::Error(errno::ENOSPC));
    let device = directory.create("a").unwrap();
    write(&*device, 0, 2, 1).unwrap();
    assert!(write(&*device, 2, 2, 1).unwrap_err().is_full());
    write(&*device, 2, 1, 1).unwrap();
    assert!(write(&*device, 3, 1, 1).unwrap_err().is_full());
}

#[test]
fn a_torn_write_leaves_its_first_half() {
    let memory = Memory::new();
    let directory = faulty(&memory, Trigger::Nth(Action::Write, 0), Fault::Torn(errno::EIO));
    let device = directory.create("a").unwrap();
    write(&*device, 0, 4, 9).unwrap_err();
    assert_eq!(memory.bytes("a").unwrap(), vec![9; 2 * BLOCK]);
}

#[test]
fn what_was_flushed_and_synced_survives_any_power_cut() {
    let memory = Memory::new();
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
    let memory = Memory::new();
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
    let memory = Memory::with_file("a", b"old");
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
    let memory = Memory::with_file("a", b"old");
    let device = memory.create("b").unwrap();
    write(&*device, 0, 1, 3).unwrap();
    memory.rename("b", "a").unwrap();
    memory.sync().unwrap();
    assert_eq!(memory.after_power_cut(PowerCut::LoseAll).bytes("a").unwrap(), b"");
}

#[test]
fn nothing_works_after_the_power_went() {
    let memory = Memory::new();
    let device = memory.create("a").unwrap();
    memory.power_off_at(memory.steps() + 1);
    write(&*device, 0, 1, 1).unwrap();
    assert!(write(&*device, 1, 1, 1).is_err());
    assert!(device.flush().is_err() && memory.sync().is_err() && memory.rename("a", "b").is_err());
}

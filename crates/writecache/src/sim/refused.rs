//! Volumes that can't be written to beside others: what of them is moved along the log, what they get of log and memory, and how
//! full devices are tried again.
//!
//! Relies on [`World`].

use quire_device::{DeviceError, DeviceOperation, Directory, MemoryDirectory, errno};

use crate::cache_state::{AppendOutcome, CacheState, NextJob, WaitProgress, WriteTicket};
use crate::config::VolumeLength;
use crate::error::CacheError;
use crate::ids::{BLOCK_BYTES, BlockAddr, VolumeId};
use crate::jobs::SlowJob;
use crate::policy::{AdmissionPolicy, AdmissionReason};
use crate::sim::{BLOCKS, RULES, Under, VOLUMES, World, empty_log};
use crate::tasks::{Criticality, TaskGraph};
use crate::volume::Volume;

/// After so long a full device is tried again, and so long a trial takes.
const RETRY_NS: u64 = 1_000_000_000;

/// Writes a block to the log, as a write that can't wait; whether there is room.
fn log_block(world: &mut World, volume: VolumeId, block: u64) -> bool {
    let seqno = world.next_seqno();
    let items = [(World::item(BlockAddr { volume, block }, seqno), AdmissionReason::SlowDead)];
    let AppendOutcome::Job { job, .. } = world.cache_state.begin_log(&items, true, 1, 0) else { return false };
    let result = job.run(&*world.fast, &world.buffers);
    world.cache_state.finish_log(&job, &result, 0);
    true
}

/// The device refuses something.
fn refuse(world: &mut World, id: VolumeId, errno: i32) {
    world.cache_state.lose_slow(id, &DeviceError::from_errno(DeviceOperation::Write, "slow", errno), 0);
}

#[test]
fn others_that_take_room_while_blocks_are_read_do_not_keep_the_tail_from_moving() {
    let (mut world, [id, other]) = (World::new(1, AdmissionPolicy::All), VOLUMES);
    // The oldest record holds the last block: relocation goes by place.
    (0..9).rev().for_each(|block| assert!(log_block(&mut world, id, 2 * block)));
    (0..3).for_each(|block| assert!(log_block(&mut world, other, block)));
    refuse(&mut world, id, errno::EIO);
    assert!(world.cache_state.begin_drain(32 << 10, 3, 2).is_none());
    let job = world.cache_state.begin_relocation(1 << 20, 64).unwrap();
    assert_eq!(job.blocks.len(), 9);
    while log_block(&mut world, other, 0) {}
    let pieces = job.read(&*world.fast, &world.buffers).unwrap();
    let log_job = world.cache_state.begin_relocated(&job, &pieces, 0).unwrap();
    let result = log_job.run(&*world.fast, &world.buffers);
    world.cache_state.finish_log(&log_job, &result, 0);
    world.cache_state.end_relocation(None);
    assert!(world.cache_state.begin_drain(32 << 10, 3, 2).is_some(), "the oldest record has no live block any more");
}

#[test]
fn a_relocated_block_says_no_more_of_the_length_than_its_record_did() {
    let (mut world, [id, other]) = (World::new(1, AdmissionPolicy::All), VOLUMES);
    let len = BLOCKS * BLOCK_BYTES as u64 + 100;
    world.cache_state.grow(id, len);
    assert!(log_block(&mut world, id, BLOCKS));
    (0..6).for_each(|block| assert!(log_block(&mut world, other, block)));
    refuse(&mut world, id, errno::EIO);
    // What has made it longer is in memory only.
    world.cache_state.grow(id, len + 9000);
    assert!(world.cache_state.begin_drain(32 << 10, 3, 2).is_none());
    let job = world.cache_state.begin_relocation(1 << 20, 64).unwrap();
    let pieces = job.read(&*world.fast, &world.buffers).unwrap();
    let log_job = world.cache_state.begin_relocated(&job, &pieces, 0).unwrap();
    assert_eq!(log_job.drafts.iter().map(|draft| draft.volume_len).collect::<Vec<_>>(), [len]);
}

#[test]
fn a_full_device_that_is_tried_again_gets_no_more_of_the_log_until_it_has_taken_something() {
    let (mut world, id) = (World::new(1, AdmissionPolicy::All), VOLUMES[0]);
    refuse(&mut world, id, errno::ENOSPC);
    let logged = (0..100).find(|block| !log_block(&mut world, id, *block)).unwrap();
    assert!((5..20).contains(&logged), "{logged} blocks are a quarter");
    assert!(matches!(world.cache_state.check_room(id), Err(CacheError::SlowFull { volume, .. }) if volume == id));
    assert!(world.cache_state.check_room(VOLUMES[1]).is_ok());
    assert!(world.cache_state.check_control_room(id).is_ok(), "a truncation gives some of the share back");
    assert!(world.cache_state.revive(RETRY_NS) && world.cache_state.volumes[&id].alive().is_some());
    assert!(!log_block(&mut world, id, logged), "it has taken nothing yet");
    assert!(matches!(world.cache_state.check_room(id), Err(CacheError::SlowFull { volume, .. }) if volume == id));
    world.check_refused();
    world.settles = true;
    assert!(world.drain());
    world.run(0);
    world.finish(0);
    assert!(!world.cache_state.volumes[&id].is_refused() && log_block(&mut world, id, logged), "it has");
    world.check_refused();
}

#[test]
fn a_full_device_that_has_failed_a_flush_is_not_tried_again() {
    for (tried, errno) in [(false, errno::EIO), (false, errno::ENOSPC), (true, errno::ENOSPC), (true, errno::EIO)] {
        let (mut world, id) = (World::new(1, AdmissionPolicy::All), VOLUMES[0]);
        refuse(&mut world, id, errno::ENOSPC);
        if tried {
            assert!(world.cache_state.revive(RETRY_NS) && world.cache_state.volumes[&id].alive().is_some());
        }
        let error = DeviceError::from_errno(DeviceOperation::Flush, "slow", errno);
        world.cache_state.lose_slow(id, &error, RETRY_NS);
        // What it refuses afterwards does not change that.
        refuse(&mut world, id, errno::ENOSPC);
        for turn in 2..6 {
            assert!(!world.cache_state.revive(turn * RETRY_NS), "tried: {tried}, {errno}");
        }
        assert_eq!(world.cache_state.volumes[&id].dead.as_ref(), Some(&error));
        world.check_refused();
    }
}

/// A volume that takes everything.
fn attach(world: &mut World, id: VolumeId) {
    let home = MemoryDirectory::new();
    home.put("slow", &[]);
    let volume = Volume::new(None, VolumeLength::Growable, 0, &TaskGraph::new());
    world.cache_state.volumes.insert(id, volume);
    World::plug(&mut world.cache_state, id, home.open("slow").unwrap(), None);
}

/// A write of one block that a task waits for, behind what the log holds.
fn wait_for(world: &mut World, volume: VolumeId, block: u64) -> WriteTicket {
    let seqno = world.next_seqno();
    world.queue(BlockAddr { volume, block }, 1, seqno, true);
    WriteTicket { volume, first: block, end: block + 1, seqno }
}

/// What the waiter is told when it looks.
fn told(world: &World, ticket: &WriteTicket) -> Result<(), CacheError> {
    let survey = world.cache_state.survey(ticket, &mut WaitProgress::default(), Criticality::default(), 64);
    world.cache_state.hopeless(ticket, &survey)
}

fn is_settled(world: &World, ticket: &WriteTicket) -> bool {
    !world.cache_state.unsettled(ticket, &mut WaitProgress::default())
}

fn next_slow(world: &mut World, now_ns: u64) -> Option<SlowJob> {
    match world.cache_state.next_job(&RULES, &|_| Criticality::default(), now_ns)? {
        NextJob::Slow(job) => Some(job),
        _ => None,
    }
}

/// The first volume is refused for good and has its share of the log, the second is full, and a third takes everything.
fn two_refused() -> (World, [VolumeId; 3]) {
    let (mut world, [gone, full]) = (World::new(1, AdmissionPolicy::All), VOLUMES);
    let sound = VolumeId(20);
    attach(&mut world, sound);
    refuse(&mut world, gone, errno::EIO);
    assert!((0..100).any(|block| !log_block(&mut world, gone, block)));
    assert!(world.cache_state.is_share_used_up());
    (world, [gone, full, sound])
}

#[test]
fn a_full_device_is_tried_again_with_what_the_log_takes_no_more_of() {
    for takes in [false, true] {
        let (mut world, [_, full, _]) = two_refused();
        let ticket = wait_for(&mut world, full, 0);
        refuse(&mut world, full, errno::ENOSPC);
        assert!(matches!(told(&world, &ticket), Err(CacheError::SlowFull { volume, .. }) if volume == full));
        assert!(world.cache_state.revive(RETRY_NS));
        assert_eq!(told(&world, &ticket), Ok(()), "it is tried");
        let job = next_slow(&mut world, RETRY_NS).expect("neither log nor device would get it");
        assert_eq!(job.target.volume, full);
        // While the device is about it the trial goes on, however long that takes.
        wait_for(&mut world, full, 5);
        assert!(!world.cache_state.revive(2 * RETRY_NS) && told(&world, &ticket).is_ok());
        if takes {
            let result = job.run(&world.buffers);
            world.cache_state.finish_slow(&job, &result, 2 * RETRY_NS);
            assert!(!world.cache_state.volumes[&full].is_refused());
            world.settles = true;
            assert!(world.cache_state.begin_flush(4 * RETRY_NS, false).is_some_and(|flush| {
                world.cache_state.finish_flush(&flush, &flush.device.flush_data(), 4 * RETRY_NS, 0, 9).is_none()
            }));
            assert!(is_settled(&world, &ticket));
        } else {
            let error = DeviceError::from_errno(DeviceOperation::Write, "slow", errno::ENOSPC);
            world.cache_state.finish_slow(&job, &Err(error), 2 * RETRY_NS);
            assert!(matches!(told(&world, &ticket), Err(CacheError::SlowFull { volume, .. }) if volume == full));
        }
        world.check_refused();
    }
}

#[test]
fn a_trial_in_which_the_device_got_nothing_ends_after_a_while() {
    let (mut world, [_, full, _]) = two_refused();
    refuse(&mut world, full, errno::ENOSPC);
    assert!(world.cache_state.revive(RETRY_NS));
    // No task waits: there is nothing to be told.
    assert!(!world.cache_state.revive(2 * RETRY_NS) && world.cache_state.volumes[&full].alive().is_some());
    let ticket = wait_for(&mut world, full, 0);
    assert_eq!(told(&world, &ticket), Ok(()));
    assert!(world.cache_state.revive(3 * RETRY_NS));
    assert!(matches!(told(&world, &ticket), Err(CacheError::SlowFull { volume, .. }) if volume == full));
    assert!(!world.cache_state.revive(4 * RETRY_NS - 1), "not before it is time");
    // However often, there is one attempt at a time.
    for turn in 4..40 {
        assert!(world.cache_state.revive(turn * RETRY_NS));
        assert_eq!(world.cache_state.volumes[&full].alive().is_some(), turn % 2 == 0);
        world.check_refused();
    }
}

#[test]
fn a_write_over_what_the_log_holds_of_a_full_device_is_told_while_that_is_tried_again() {
    let (mut world, [gone, full, sound]) =
        (World::new(1, AdmissionPolicy::All), [VOLUMES[0], VOLUMES[1], VolumeId(20)]);
    attach(&mut world, sound);
    assert!(log_block(&mut world, full, 0));
    refuse(&mut world, gone, errno::EIO);
    assert!((0..100).any(|block| !log_block(&mut world, gone, block)));
    refuse(&mut world, full, errno::ENOSPC);
    assert!(world.cache_state.revive(RETRY_NS));
    let ticket = wait_for(&mut world, full, 0);
    assert!(next_slow(&mut world, RETRY_NS).is_none(), "the log's version would overwrite it");
    assert!(matches!(told(&world, &ticket), Err(CacheError::SlowFull { volume, .. }) if volume == full));
}

#[test]
fn what_a_volume_on_trial_has_over_the_log_is_not_in_the_way_of_others() {
    let (mut world, [full, sound]) = (World::new(1, AdmissionPolicy::All), VOLUMES);
    world.cache_state = CacheState::opened(&empty_log(2, 64 << 20), AdmissionPolicy::All, 16, &TaskGraph::new());
    world.cache_state.queue_blocks = RULES.queue_bytes / BLOCK_BYTES;
    [full, sound].into_iter().for_each(|id| attach(&mut world, id));
    for block in 0..5000 {
        let items = [(
            World::item(BlockAddr { volume: full, block }, world.cache_state.next_seqno()),
            AdmissionReason::Everything,
        )];
        let AppendOutcome::Job { job, .. } = world.cache_state.begin_log(&items, true, 1, 0) else { panic!("no room") };
        world.cache_state.finish_log(&job, &Ok(()), 0);
    }
    refuse(&mut world, full, errno::ENOSPC);
    assert!(world.cache_state.revive(RETRY_NS) && world.cache_state.is_over_share(full));
    for block in 0..5000 {
        wait_for(&mut world, full, block);
    }
    wait_for(&mut world, sound, 0);
    let next = world.cache_state.next_job(&RULES, &|_| Criticality::default(), RETRY_NS);
    assert!(matches!(next, Some(NextJob::Log(job)) if job.drafts.iter().all(|draft| draft.first.volume == sound)));
}

#[test]
fn a_full_device_behind_a_refused_one_in_the_log_is_tried_again() {
    let (mut world, [gone, full]) = (World::new(1, AdmissionPolicy::All), VOLUMES);
    (0..6).for_each(|block| assert!(log_block(&mut world, gone, block)));
    (0..6).for_each(|block| assert!(log_block(&mut world, full, block)));
    refuse(&mut world, gone, errno::EIO);
    refuse(&mut world, full, errno::ENOSPC);
    world.settles = true;
    assert!(!world.drain(), "nothing would be freed");
    assert!(world.cache_state.revive(RETRY_NS));
    for _ in 0..20 {
        world.drain();
        while !world.under.is_empty() {
            if !world.under[0].has_run() {
                world.run(0);
            }
            world.finish(0);
        }
    }
    assert!(!world.cache_state.volumes[&full].is_refused() && world.cache_state.volumes[&full].logged_blocks == 0);
    assert_eq!(world.cache_state.volumes[&gone].logged_blocks, 6);
    world.check_refused();
}

#[test]
fn a_batch_whose_blocks_all_have_newer_versions_says_nothing_of_the_device() {
    let (mut world, id) = (World::new(1, AdmissionPolicy::All), VOLUMES[0]);
    assert!(log_block(&mut world, id, 0));
    refuse(&mut world, id, errno::ENOSPC);
    assert!(world.cache_state.revive(RETRY_NS));
    world.settles = true;
    for moves in [false, true] {
        assert!(world.drain());
        assert!(moves || log_block(&mut world, id, 0));
        world.run(0);
        assert!(matches!(&world.under[0], Under::Drain(_, Some(Ok(())))));
        world.finish(0);
        assert_eq!(world.cache_state.volumes[&id].is_refused(), !moves);
    }
}

#[test]
fn what_waits_for_refused_volumes_takes_no_more_of_memory_than_the_queue_once_more() {
    let (mut world, [gone, full, sound]) = two_refused();
    let most = world.cache_state.queue_blocks as u64;
    for block in 100..100 + most {
        wait_for(&mut world, gone, block);
    }
    assert!(!world.cache_state.queue_is_full(sound, 1), "one volume's are set aside");
    for block in 0..most {
        wait_for(&mut world, full, block);
    }
    assert!(world.cache_state.queue_is_full(sound, 1));
    assert_eq!(world.cache_state.check_queue(sound, 1), Ok(()), "the other volume's will be written");
    refuse(&mut world, full, errno::EIO);
    assert!(world.cache_state.queue_is_full(sound, 1));
    let told = world.cache_state.check_queue(sound, 1);
    assert!(matches!(told, Err(CacheError::SlowFull { volume, .. }) if volume != sound), "{told:?}");
}

//! Runs of the simulation.
//!
//! Relies on [`World`].

use quire_device::{DeviceError, DeviceOperation, errno};

use crate::cache_state::{AppendOutcome, BlockVersion, NextJob};
use crate::ids::BlockAddr;
use crate::policy::{AdmissionPolicy, AdmissionReason};
use crate::sim::{AREA_BYTES, RULES, Under, VOLUMES, World, block_of};
use crate::stats::ContentKind;
use crate::tasks::Criticality;

/// How many times as many seeds as usual.
fn scale() -> u64 {
    std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1)
}

#[test]
fn no_acknowledged_write_is_lost_or_undone_whenever_the_power_goes() {
    for seed in 0..240 * scale() {
        let policy = AdmissionPolicy::EVERY[seed as usize % 6];
        let mut world = World::new(seed, policy);
        for _ in 0..4 {
            for _ in 0..(40 + world.rng.below(300)) {
                world.step();
            }
            world.check_newest();
            world = world.lose_power();
        }
        world.settle();
    }
}

#[test]
fn the_power_may_go_within_a_step() {
    for seed in 1_000_000..1_000_000 + 160 * scale() {
        let mut world = World::new(seed, AdmissionPolicy::EVERY[seed as usize % 6]);
        for _ in 0..world.rng.below(200) {
            world.step();
        }
        // From some step on a device refuses, and what was in progress may have happened.
        let home = if seed % 2 == 0 { world.fast_home.clone() } else { world.slow_homes[0].clone() };
        home.power_off_at(home.steps() + world.rng.below(12));
        for _ in 0..60 {
            world.step();
        }
        world.lose_power().settle();
    }
}

#[test]
fn slow_devices_may_fail_and_be_replaced_by_ones_that_lack_what_was_not_flushed() {
    for seed in 2000..2000 + 120 * scale() {
        let mut world = World::new(seed, AdmissionPolicy::EVERY[seed as usize % 6]);
        for _ in 0..3 {
            world.faults.sick = true;
            for _ in 0..(40 + world.rng.below(300)) {
                world.step();
            }
            world.check_newest();
            if world.rng.below(2) == 0 {
                world = world.lose_power();
            }
        }
        world.settle();
    }
}

#[test]
fn what_one_volume_refuses_holds_up_no_other_and_loses_nothing() {
    let (mut relocated, mut truncated) = (0, 0);
    for seed in 4000..4000 + 80 * scale() {
        let mut world = World::new(seed, AdmissionPolicy::EVERY[seed as usize % 6]);
        for _ in 0..world.rng.below(150) {
            world.step();
        }
        let refused = VOLUMES[seed as usize % 2];
        world.faults.refuses = Some(refused);
        for _ in 0..3 {
            for _ in 0..(100 + world.rng.below(400)) {
                world.step();
                world.check_refused();
            }
            world.check_newest();
            truncated += usize::from(world.cache_state.volumes[&refused].truncations.open().is_some());
            if world.rng.below(2) == 0 {
                let written = world.write_past(refused);
                assert!(written > 40, "seed {seed}: only {written} writes got on");
                world.check_newest();
                world.check_refused();
            }
            relocated += world.cache_state.stats.relocated_bytes;
            if world.rng.below(2) == 0 {
                world = world.lose_power();
            }
        }
        world.faults.refuses = None;
        world.settle();
    }
    assert!(relocated > 0 && truncated > 0, "{relocated} bytes relocated, {truncated} times truncations were open");
}

#[test]
fn a_critical_waiter_needs_the_fast_device_only() {
    for seed in 0..200 {
        let mut world = World::new(seed, AdmissionPolicy::CriticalProcessIo);
        for _ in 0..world.rng.below(400) {
            world.step();
        }
        let before = world.tickets.len();
        world.write();
        let last = before;
        if world.tickets.len() == before || world.cache_state.log.ring.used_bytes() > AREA_BYTES / 2 {
            continue;
        }
        for _ in 0..50 {
            world.look(last, Criticality { critical: true, inherited: false });
            let is_log = |under: &Under| matches!(under, Under::Log(..));
            while let Some(index) = world.under.iter().position(is_log) {
                if !world.under[index].has_run() {
                    world.run(index);
                }
                world.finish(index);
            }
        }
        let (ticket, mut progress) = world.tickets[last];
        assert!(!ticket.is_unsettled(&world.cache_state, &mut progress), "seed {seed}: it waits for the slow device");
        world.acknowledge();
        world.lose_power().settle();
    }
}

#[test]
fn reasons_of_what_was_cached_follow_the_policy() {
    let mut world = World::new(7, AdmissionPolicy::Critical);
    for _ in 0..500 {
        world.step();
    }
    let counts = world.cache_state.trace.counts();
    assert!(counts[AdmissionReason::CriticalTask.index()].blocks > 0);
    assert_eq!(
        counts[AdmissionReason::InheritedTask.index()].blocks + counts[AdmissionReason::InheritedIo.index()].blocks,
        0
    );
    assert_eq!(counts[AdmissionReason::Everything.index()].blocks, 0);
}

#[test]
fn what_a_full_log_can_not_take_of_a_dead_volume_is_not_in_the_way_of_others() {
    let mut world = World::new(2, AdmissionPolicy::All);
    let [dead, alive] = VOLUMES.map(|volume| BlockAddr { volume, block: 0 });
    let (seqno, reason) = (world.cache_state.next_seqno(), AdmissionReason::Everything);
    let mut block = 1000;
    while let AppendOutcome::Job { job, .. } =
        world.cache_state.begin_log(&[(World::item(dead.plus(block), seqno), reason)], true, 1, 0)
    {
        world.cache_state.finish_log(&job, &Ok(()), 0);
        block += 1;
    }
    let gone = DeviceError::from_errno(DeviceOperation::Write, "slow", errno::EIO);
    world.cache_state.lose_slow(dead.volume, &gone, 0);
    for block in 0..600 {
        let version = BlockVersion { piece: block_of(1), content: ContentKind::Data };
        world.cache_state.queue(dead.plus(block), version, seqno, true, 1, 0);
    }
    world.queue(alive, 1, seqno, true);
    let next = world.cache_state.next_job(&RULES, &|_| Criticality::default(), 0);
    assert!(matches!(next, Some(NextJob::Slow(job)) if job.target.volume == alive.volume));
}

#[test]
fn a_truncation_waits_for_a_record_that_a_newer_one_has_overtaken_on_its_way_to_the_log() {
    let mut world = World::new(3, AdmissionPolicy::All);
    let addr = BlockAddr { volume: VOLUMES[0], block: 5 };
    let begin = |world: &mut World| {
        let seqno = world.cache_state.next_seqno();
        match world.cache_state.begin_log(&[(World::item(addr, seqno), AdmissionReason::Everything)], true, 1, 0) {
            AppendOutcome::Job { job, .. } => job,
            AppendOutcome::NoRoom(_) => unreachable!("the log is empty"),
        }
    };
    let (older, newer) = (begin(&mut world), begin(&mut world));
    world.cache_state.finish_log(&newer, &Ok(()), 0);
    // When it ends it is mapped if the newer one is gone by then.
    assert!(
        world.cache_state.is_logging_beyond(addr.volume, 5) && !world.cache_state.is_logging_beyond(addr.volume, 6)
    );
    world.cache_state.finish_log(&older, &Ok(()), 0);
    assert!(!world.cache_state.is_logging_beyond(addr.volume, 0));
}

//! How large the second tier may be: as its configuration says, and no more than memory is there to spare.
//!
//! Relies on full segments being memory that the kernel may take (`MADV_FREE`): it counts them among inactive file pages, so they
//! are part of what it calls available, of the machine and of a control group. So the target doesn't fall because the tier grows.

use quire_sys::pressure::MemoryInfo;

use super::split::MemorySplit;
use crate::config::TierSize;

/// A tier that is made while the pool works has addresses for so many times the budget at most, if it is not to have more.
const ROOMY_BUDGETS: usize = 4;
/// More is of no use to the pools of this crate, and the index would be large.
const MOST_BYTES: usize = 64 << 30;
/// Of what can be had, a part is left to others: one in so many.
const LEFT_PART: u64 = 4;
/// Tasks that wait for memory for more than this share of the time are a sign of pressure.
const STALLED_PERCENT: f64 = 5.0;

/// Bytes that a tier of this size may come to hold, with a budget of `budget_bytes`.
pub(super) fn wanted_bytes(size: TierSize, budget_bytes: usize) -> usize {
    match size {
        TierSize::Off => 0,
        TierSize::Auto => MemorySplit::most_second_bytes(budget_bytes),
        TierSize::Percent(percent) => (budget_bytes / 100).saturating_mul(usize::from(percent)),
        TierSize::Bytes(bytes) => bytes,
    }
}

/// Bytes that a tier beside a budget of `budget_bytes` may come to be given later; half of what is available at most.
pub(super) fn roomy_bytes(budget_bytes: usize, now: &MemoryInfo) -> usize {
    let available = now.obtainable_bytes().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    budget_bytes.saturating_mul(ROOMY_BUDGETS).min(available / 2)
}

/// Bytes that the tier has addresses and an index for; 0 for no tier.
pub(super) fn capacity_bytes(size: TierSize, budget_bytes: usize, now: &MemoryInfo) -> usize {
    let physical = now.physical_bytes().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    wanted_bytes(size, budget_bytes).min(MOST_BYTES).min(physical)
}

/// Bytes that the tier may hold now, of which it holds `held_bytes`. Tasks have waited for memory for `stalled_percent` of the last period.
pub(super) fn target_bytes(
    capacity_bytes: usize,
    held_bytes: usize,
    now: &MemoryInfo,
    stalled_percent: Option<f64>,
) -> usize {
    let mut target = capacity_bytes;
    if let Some(bytes) = now.obtainable_bytes() {
        target = target.min(usize::try_from(bytes - bytes / LEFT_PART).unwrap_or(usize::MAX));
    }
    if stalled_percent.is_some_and(|percent| percent > STALLED_PERCENT) {
        target = target.min(held_bytes - held_bytes / 8);
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn memory(available_bytes: u64) -> MemoryInfo {
        MemoryInfo { available_bytes: Some(available_bytes), ..MemoryInfo::default() }
    }

    #[test]
    fn sizes_are_bytes_or_shares_beside_the_budget_or_a_part_of_it() {
        let much = memory(1 << 40);
        assert_eq!(capacity_bytes(TierSize::Off, 64 * MIB, &much), 0);
        assert_eq!(capacity_bytes(TierSize::Auto, 64 * MIB, &much), 56 * MIB);
        assert_eq!(capacity_bytes(TierSize::Percent(50), 100 * MIB, &much), 50 * MIB);
        assert_eq!(capacity_bytes(TierSize::Percent(300), 100 * MIB, &much), 300 * MIB);
        assert_eq!(capacity_bytes(TierSize::Bytes(7 * MIB), 64 * MIB, &much), 7 * MIB);
    }

    #[test]
    fn a_tier_that_may_be_given_more_later_has_addresses_for_it_if_there_is_memory() {
        assert_eq!(roomy_bytes(64 * MIB, &memory(1 << 40)), 256 * MIB);
        assert_eq!(roomy_bytes(64 * MIB, &memory(100 << 20)), 50 * MIB);
        assert_eq!(roomy_bytes(64 * MIB, &MemoryInfo::default()), 256 * MIB, "not known to be short");
    }

    #[test]
    fn no_tier_is_larger_than_the_memory_of_the_machine_or_of_the_group() {
        let machine = MemoryInfo { total_bytes: Some(50 << 20), ..memory(1 << 40) };
        assert_eq!(capacity_bytes(TierSize::Bytes(70 * MIB), 64 * MIB, &machine), 50 * MIB);
        let group = MemoryInfo { group_limit_bytes: Some(30 << 20), ..machine };
        assert_eq!(capacity_bytes(TierSize::Bytes(70 * MIB), 64 * MIB, &group), 30 * MIB);
        assert_eq!(capacity_bytes(TierSize::Percent(100), 64 * MIB, &group), 30 * MIB);
        assert_eq!(capacity_bytes(TierSize::Bytes(7 * MIB), 64 * MIB, &group), 7 * MIB);
    }

    #[test]
    fn the_target_follows_what_can_be_had_and_falls_while_tasks_wait_for_memory() {
        let target = |held_bytes, now: &MemoryInfo| target_bytes(100 * MIB, held_bytes, now, Some(1.0));
        assert_eq!(target(0, &memory(1 << 40)), 100 * MIB);
        assert_eq!(target(90 * MIB, &memory(40 << 20)), 30 * MIB);
        assert_eq!(target(90 * MIB, &MemoryInfo::default()), 100 * MIB, "not known to be short");
        let group = MemoryInfo { group_left_bytes: Some(8 << 20), ..memory(1 << 40) };
        assert_eq!(target(90 * MIB, &group), 6 * MIB);
        assert_eq!(target_bytes(100 * MIB, 80 * MIB, &memory(1 << 40), Some(20.0)), 70 * MIB);
        assert_eq!(target_bytes(100 * MIB, 80 * MIB, &memory(1 << 40), None), 100 * MIB, "not known to stall");
    }
}

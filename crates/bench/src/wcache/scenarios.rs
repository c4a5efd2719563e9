//! What is tried, and in which order.
//!
//! Relies on policies taking turns within a round, and the order being turned round from round to round, so that drift
//! of the machine meets all of them. Cells from which a figure with a goal comes are tried in each round, others
//! once.

use super::cache_policy::CachePolicy;
use super::scale::WcacheScale;
use super::testbed::storage_stack::FastDevice;
use super::ycsb::records::YcsbWorkload;

/// What runs on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// TPC-C on PostgreSQL.
    Tpcc,
    /// TPC-B (pgbench) on PostgreSQL.
    Tpcb,
    /// YCSB on redis-server.
    Ycsb(YcsbWorkload),
}

impl Workload {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpcc => "tpcc",
            Self::Tpcb => "tpcb",
            Self::Ycsb(workload) => workload.name(),
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scenario {
    /// What runs.
    pub work: Workload,
    /// On what the cache lies.
    pub fast: FastDevice,
    /// How large it is.
    pub capacity_mib: u64,
    /// What it takes.
    pub policy: CachePolicy,
}

impl Scenario {
    /// As figures name it.
    pub fn name(&self) -> String {
        format!("{} {} {} MiB {}", self.work.name(), self.fast.name(), self.capacity_mib, self.policy.name())
    }
}

/// A group of scenarios that differ in their policy only.
type ScenarioGroup = (Workload, FastDevice, u64, &'static [CachePolicy]);

const ENDS: &[CachePolicy] = &[CachePolicy::All, CachePolicy::CpPiIoi];
const STEPS: &[CachePolicy] = &[CachePolicy::All, CachePolicy::Cp, CachePolicy::CpPi, CachePolicy::CpPiIoi];
const EVERY: &[CachePolicy] = &CachePolicy::EVERY;
const TPCB: &[CachePolicy] = &[CachePolicy::All, CachePolicy::Wal, CachePolicy::CpPiIoi];

/// The database's scenarios of round `round`.
pub fn of_database(scale: &WcacheScale, round: usize) -> Vec<Scenario> {
    let (least, most) = (scale.least_mib(), scale.most_mib());
    let goals: [ScenarioGroup; 3] = [
        (Workload::Tpcc, FastDevice::Ram, least, STEPS),
        (Workload::Tpcc, FastDevice::Ram, most, ENDS),
        (Workload::Tpcc, FastDevice::Ssd, most, ENDS),
    ];
    if scale.quick || round > 0 {
        return scenarios(scale, &goals, round);
    }
    let mut groups: Vec<ScenarioGroup> =
        scale.capacities_mib.iter().map(|&capacity| (Workload::Tpcc, FastDevice::Ram, capacity, EVERY)).collect();
    groups.extend(
        scale.ssd_capacities_mib().into_iter().map(|capacity| (Workload::Tpcc, FastDevice::Ssd, capacity, EVERY)),
    );
    groups.extend([least, most].map(|capacity| (Workload::Tpcb, FastDevice::Ram, capacity, TPCB)));
    scenarios(scale, &groups, round)
}

/// The key-value store's scenarios of round `round`.
pub fn of_key_values(scale: &WcacheScale, round: usize) -> Vec<Scenario> {
    let most = scale.most_mib();
    let (a, b) = (Workload::Ycsb(YcsbWorkload::A), Workload::Ycsb(YcsbWorkload::B));
    let groups: Vec<ScenarioGroup> = match (scale.quick, round) {
        (true, _) => vec![(a, FastDevice::Ssd, most, ENDS)],
        (false, 0) => [a, b]
            .into_iter()
            .flat_map(|work| [FastDevice::Ram, FastDevice::Ssd].map(|fast| (work, fast, most, EVERY)))
            .collect(),
        (false, _) => [a, b].map(|work| (work, FastDevice::Ssd, most, ENDS)).to_vec(),
    };
    scenarios(scale, &groups, round)
}

fn scenarios(scale: &WcacheScale, groups: &[ScenarioGroup], round: usize) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for &(work, fast, capacity_mib, policies) in groups {
        let wanted = policies.iter().filter(|policy| scale.policies.contains(policy));
        let mut group: Vec<Scenario> = wanted.map(|&policy| Scenario { work, fast, capacity_mib, policy }).collect();
        if !round.is_multiple_of(2) {
            group.reverse();
        }
        // With one capacity only, its two ends are the same.
        group.retain(|scenario| !scenarios.contains(scenario));
        scenarios.extend(group);
    }
    scenarios
}

#[cfg(test)]
mod tests {
    use super::super::scale::tests::scale;
    use super::*;

    #[test]
    fn the_first_round_has_everything_and_later_ones_what_has_goals() {
        let scale = scale("").unwrap();
        let first = of_database(&scale, 0);
        assert_eq!(first.len(), 4 * 6 + 2 * 6 + 2 * 3);
        let second = of_database(&scale, 1);
        assert_eq!(second.len(), 4 + 2 + 2);
        assert!(second.iter().all(|scenario| first.contains(scenario)));
        assert_eq!(second[0].policy, CachePolicy::CpPiIoi);
        assert_eq!(of_key_values(&scale, 0).len(), 2 * 2 * 6);
        assert_eq!(of_key_values(&scale, 1).len(), 2 * 2);
    }

    #[test]
    fn a_short_run_has_few_cells_and_no_cell_twice() {
        assert_eq!(of_database(&scale("--quick").unwrap(), 0).len(), 8);
        let one = of_database(&scale("--quick --sizes 64").unwrap(), 0);
        assert_eq!(one.len(), 6);
        let few = of_database(&scale("--policies all").unwrap(), 0);
        assert!(few.iter().all(|scenario| scenario.policy == CachePolicy::All));
    }
}

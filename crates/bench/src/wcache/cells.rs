//! What is tried, and in which order.
//!
//! Relies on policies taking turns within a round, and the order being turned round from round to round, so that drift
//! of the machine meets all of them. Cells from which a figure with a goal comes are tried in each round, others
//! once.

use super::lab::stage::Fast;
use super::policy::Policy;
use super::scale::Scale;
use super::ycsb::records::Workload;

/// What runs on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// TPC-C on PostgreSQL.
    Tpcc,
    /// TPC-B (pgbench) on PostgreSQL.
    Tpcb,
    /// YCSB on redis-server.
    Ycsb(Workload),
}

impl Work {
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
pub struct Cell {
    /// What runs.
    pub work: Work,
    /// On what the cache lies.
    pub fast: Fast,
    /// How large it is.
    pub capacity_mib: u64,
    /// What it takes.
    pub policy: Policy,
}

impl Cell {
    /// As figures name it.
    pub fn name(&self) -> String {
        format!("{} {} {} MiB {}", self.work.name(), self.fast.name(), self.capacity_mib, self.policy.name())
    }
}

/// A group of cells that differ in their policy only.
type Row = (Work, Fast, u64, &'static [Policy]);

const ENDS: &[Policy] = &[Policy::All, Policy::CpPiIoi];
const STEPS: &[Policy] = &[Policy::All, Policy::Cp, Policy::CpPi, Policy::CpPiIoi];
const EVERY: &[Policy] = &Policy::EVERY;
const TPCB: &[Policy] = &[Policy::All, Policy::Wal, Policy::CpPiIoi];

/// The database's cells of round `round`.
pub fn of_database(scale: &Scale, round: usize) -> Vec<Cell> {
    let (least, most) = (scale.least_mib(), scale.most_mib());
    let goals: [Row; 3] = [
        (Work::Tpcc, Fast::Ram, least, STEPS),
        (Work::Tpcc, Fast::Ram, most, ENDS),
        (Work::Tpcc, Fast::Ssd, most, ENDS),
    ];
    if scale.quick || round > 0 {
        return cells(scale, &goals, round);
    }
    let mut rows: Vec<Row> =
        scale.capacities_mib.iter().map(|&capacity| (Work::Tpcc, Fast::Ram, capacity, EVERY)).collect();
    rows.extend(scale.ssd_capacities_mib().into_iter().map(|capacity| (Work::Tpcc, Fast::Ssd, capacity, EVERY)));
    rows.extend([least, most].map(|capacity| (Work::Tpcb, Fast::Ram, capacity, TPCB)));
    cells(scale, &rows, round)
}

/// The key-value store's cells of round `round`.
pub fn of_key_values(scale: &Scale, round: usize) -> Vec<Cell> {
    let most = scale.most_mib();
    let (a, b) = (Work::Ycsb(Workload::A), Work::Ycsb(Workload::B));
    let rows: Vec<Row> = match (scale.quick, round) {
        (true, _) => vec![(a, Fast::Ssd, most, ENDS)],
        (false, 0) => {
            [a, b].into_iter().flat_map(|work| [Fast::Ram, Fast::Ssd].map(|fast| (work, fast, most, EVERY))).collect()
        }
        (false, _) => [a, b].map(|work| (work, Fast::Ssd, most, ENDS)).to_vec(),
    };
    cells(scale, &rows, round)
}

fn cells(scale: &Scale, rows: &[Row], round: usize) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for &(work, fast, capacity_mib, policies) in rows {
        let wanted = policies.iter().filter(|policy| scale.policies.contains(policy));
        let mut row: Vec<Cell> = wanted.map(|&policy| Cell { work, fast, capacity_mib, policy }).collect();
        if !round.is_multiple_of(2) {
            row.reverse();
        }
        // With one capacity only, its two ends are the same.
        row.retain(|cell| !cells.contains(cell));
        cells.extend(row);
    }
    cells
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
        assert!(second.iter().all(|cell| first.contains(cell)));
        assert_eq!(second[0].policy, Policy::CpPiIoi);
        assert_eq!(of_key_values(&scale, 0).len(), 2 * 2 * 6);
        assert_eq!(of_key_values(&scale, 1).len(), 2 * 2);
    }

    #[test]
    fn a_short_run_has_few_cells_and_no_cell_twice() {
        assert_eq!(of_database(&scale("--quick").unwrap(), 0).len(), 8);
        let one = of_database(&scale("--quick --sizes 64").unwrap(), 0);
        assert_eq!(one.len(), 6);
        let few = of_database(&scale("--policies all").unwrap(), 0);
        assert!(few.iter().all(|cell| cell.policy == Policy::All));
    }
}

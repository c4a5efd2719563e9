//! The schedule: which configurations run over how much memory under which skew, and what they did.
//!
//! Relies on [`super::recovery`] for the interval between cuts, which is fork's and the same for all. Configurations run one
//! after the other, each over memory of its own, with both forks before, between and after ours; what was measured in
//! several trials is added up.

use std::time::Duration;

use anyhow::Context;
use quire_snapshot::MechanismError;

use super::configuration::Configuration;
use super::recovery::{self, ForkRecovery};
use super::trial::{self, TrialPlan, TrialResult};
use super::workload::{BlockLayout, WriteWorkload};
use crate::memory;
use crate::progress::Progress;

const SEED: u64 = 5;
/// Largest size for which all configurations are run.
const ALL_MIB: u64 = 2048;

/// What one set of configurations has in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Size of the range.
    pub mib: u64,
    /// Zipf's exponent.
    pub skew: f64,
    /// Where popular blocks lie.
    pub layout: BlockLayout,
    /// Whether only the central configurations are run.
    pub only_central: bool,
}

/// How much is done.
#[derive(Debug, Clone)]
pub struct CcowScale {
    /// Whether this is the small run.
    pub quick: bool,
    /// Sizes in MiB.
    pub sizes: Vec<u64>,
    /// Skews that were asked for; empty for the default ones.
    pub skews: Vec<f64>,
    /// Configurations that were asked for by name; empty for all.
    pub parts: Vec<String>,
    /// Epochs that count.
    pub epochs: usize,
}

impl CcowScale {
    /// The scenarios, those for which goals are stated last.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios = Vec::new();
        for &mib in &self.sizes {
            let only_central = self.quick || mib > ALL_MIB;
            let skews = match (self.skews.as_slice(), only_central) {
                ([], true) => vec![1.0],
                ([], false) => vec![0.9, 1.1, 1.0],
                (asked, _) => asked.to_vec(),
            };
            let ordered = |skew| Scenario { mib, skew, layout: BlockLayout::Ordered, only_central };
            if !only_central {
                scenarios.push(Scenario { layout: BlockLayout::Scattered, only_central: true, ..ordered(1.0) });
            }
            scenarios.extend(skews.into_iter().map(ordered));
        }
        scenarios
    }

    fn schedule(&self, scenario: Scenario) -> Vec<Configuration> {
        let is_wanted = |name: String| self.parts.is_empty() || self.parts.contains(&name);
        let schedule = Configuration::schedule(scenario.only_central && self.parts.is_empty());
        schedule.into_iter().filter(|configuration| is_wanted(configuration.name())).collect()
    }

    /// Epochs that are not counted: memory still grows for new views in them, and coverage is learned.
    pub fn warm(&self) -> usize {
        3
    }
}

/// The result of one scenario.
#[derive(Debug)]
pub struct ScenarioResult {
    /// The scenario.
    pub scenario: Scenario,
    /// How fork recovers.
    pub recovery: ForkRecovery,
    /// Time between cuts.
    pub interval: Duration,
    /// Views alive at once.
    pub alive: usize,
    /// By configuration, in the order of the first trials.
    pub trials: Vec<(Configuration, TrialResult)>,
    /// Those that could not be had.
    pub refused: Vec<(Configuration, String)>,
}

/// Runs one scenario.
///
/// # Errors
/// When fork can't be had, or a cut fails in the middle.
pub fn run(scale: &CcowScale, scenario: Scenario, progress: Progress) -> anyhow::Result<ScenarioResult> {
    let Scenario { mib, skew, layout, .. } = scenario;
    let bytes = (mib << 20) as usize;
    let mut workload = WriteWorkload::new(bytes, skew, layout, SEED);
    let what = format!("{mib} MiB, skew {skew}, {layout:?}").to_lowercase();
    progress.say(&format!("{what}: how long fork takes to recover"));
    memory::warm_huge(bytes as u64 * 2);
    let recovery = recovery::measure(bytes, &mut workload)?;
    let alive = alive(bytes as u64);
    let plan =
        TrialPlan { bytes, interval: interval(recovery, scale.quick), warm: scale.warm(), epochs: scale.epochs, alive };
    let interval = plan.interval;
    let mut found = ScenarioResult { scenario, recovery, interval, alive, trials: Vec::new(), refused: Vec::new() };
    for configuration in scale.schedule(scenario) {
        let name = configuration.name();
        progress.say(&format!("{what}: {name}, a cut every {:.2} s", plan.interval.as_secs_f64()));
        memory::warm_huge(bytes as u64 * (alive as u64 + 1));
        match trial::run(configuration, plan, &mut workload) {
            Ok(trial) => found.add(configuration, trial),
            Err(error) if is_refusal(&error) => found.refused.push((configuration, error.to_string())),
            Err(error) => return Err(error).with_context(|| format!("{name} at {what}")),
        }
    }
    Ok(found)
}

/// Shorter than a twentieth of a second an interval would be all overhead; a quick run can't wait for a busy machine.
fn interval(recovery: ForkRecovery, is_quick: bool) -> Duration {
    let most = if is_quick { Duration::from_millis(400) } else { Duration::MAX };
    recovery.interval.clamp(Duration::from_millis(50), most)
}

/// Two views at once, as in the paper, if there is memory for three times the range; else one.
fn alive(bytes: u64) -> usize {
    let free = quire_sys::proc::meminfo_bytes("MemAvailable").unwrap_or(0);
    if 3 * bytes <= free / 10 * 7 { 2 } else { 1 }
}

fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<MechanismError>(), Some(MechanismError::Unsupported { .. }))
}

impl ScenarioResult {
    fn add(&mut self, configuration: Configuration, trial: TrialResult) {
        match self.trials.iter_mut().find(|(other, _)| *other == configuration) {
            Some((_, sum)) => sum.merge(trial),
            None => self.trials.push((configuration, trial)),
        }
    }

    /// What `configuration` did.
    pub fn get(&self, configuration: Configuration) -> Option<&TrialResult> {
        self.trials.iter().find(|(other, _)| *other == configuration).map(|(_, trial)| trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_is_the_one_with_goals() {
        let scale = CcowScale { quick: false, sizes: vec![2048, 8192], skews: vec![], parts: vec![], epochs: 3 };
        let scenarios = scale.scenarios();
        assert_eq!(scenarios.len(), 5);
        let last = scenarios[4];
        assert_eq!((last.mib, last.skew, last.layout, last.only_central), (8192, 1.0, BlockLayout::Ordered, true));
        let quick = CcowScale { quick: true, sizes: vec![256], ..scale };
        assert_eq!(quick.scenarios().len(), 1);
        let one = CcowScale { parts: vec!["uffd_85".into()], ..quick.clone() };
        assert_eq!(one.schedule(one.scenarios()[0]).len(), 1);
        let asked = CcowScale { skews: vec![0.9], ..quick };
        assert_eq!(asked.scenarios()[0].skew, 0.9);
    }
}
